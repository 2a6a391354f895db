// The decisions about a job or an instance, the newest first.
import type { Schemas } from "../api";
import { texts } from "../texts";
import { Status } from "./status";
import { Ago, Clock } from "./time";

const t = texts({
  en: { time: "Time", change: "Change", attempt: "Attempt", reason: "Reason", none: "Nothing has been decided yet." },
  zh: { time: "时间", change: "变化", attempt: "尝试", reason: "原因", none: "尚未作出任何决定。" },
});

/** Args: attempts: whether the attempt is shown. */
export function Decisions({ of, attempts = false }: { of: readonly Schemas["Decision"][]; attempts?: boolean }) {
  if (of.length === 0) return <p>{t("none")}</p>;
  const columns = (["time", "change", "attempt", "reason"] as const).filter((name) => attempts || name !== "attempt");
  return (
    <table class="rows">
      <thead>
        <tr>
          {columns.map((name) => (
            <th key={name} scope="col">
              {t(name)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {[...of].reverse().map((decision, at) => (
          <tr key={`${decision.at} ${at}`}>
            <td class="line" data-label={t("time")}>
              <Clock at={decision.at} />{" "}
              <small class="muted">
                <Ago at={decision.at} />
              </small>
            </td>
            <td class="line" data-label={t("change")} title={decision.event}>
              {decision.from !== null && decision.from !== decision.to && (
                <>
                  <Status of={decision.from} /> →{" "}
                </>
              )}
              <Status of={decision.to} />
            </td>
            {attempts && <td data-label={t("attempt")}>{decision.attempt}</td>}
            <td data-label={t("reason")} lang="en">
              {decision.reason}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
