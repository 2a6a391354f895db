// What is used of a limit: as a bar and as text.
import { texts } from "../texts";
import { number } from "./units";

const t = texts({
  en: { noLimit: "no limit" },
  zh: { noLimit: "不限" },
});

/** Instances in use and their limit. Without a limit there is no bar. */
export function Use({ used, limit }: { used: number; limit: number | null }) {
  if (limit === null) {
    return (
      <span>
        {number(used)} <small>({t("noLimit")})</small>
      </span>
    );
  }
  const full = used >= limit;
  return (
    <span class="use">
      <span class="share" aria-hidden="true">
        <span class={full ? "full" : ""} style={{ width: `${Math.min(100, limit === 0 ? 0 : (100 * used) / limit)}%` }} />
      </span>
      <span class={full && limit > 0 ? "full" : ""}>
        {number(used)} / {number(limit)}
      </span>
    </span>
  );
}
