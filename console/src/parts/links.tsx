// Links to jobs and instances: the first few of many.
import { to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: { more: "and {n} more" },
  zh: { more: "另有 {n} 个" },
});

/** Links to jobs: the first `most`, and the number of the others. */
export function JobLinks({ ids, most = 3 }: { ids: string[]; most?: number }) {
  return (
    <>
      {ids.slice(0, most).map((id, at) => (
        <span key={id}>
          {at > 0 && ", "}
          <a href={to(["jobs", id])}>{id}</a>
        </span>
      ))}
      {ids.length > most && <> {t("more", { n: ids.length - most })}</>}
    </>
  );
}

/** Links to instances: the first `most`, and the number of the others. */
export function InstanceLinks({ ids, most = 20 }: { ids: readonly string[]; most?: number }) {
  if (ids.length === 0) return <>-</>;
  return (
    <>
      {ids.slice(0, most).map((id) => (
        <a key={id} class="tag" href={to(["instances", id])}>
          {id}
        </a>
      ))}
      {ids.length > most && t("more", { n: ids.length - most })}
    </>
  );
}
