// The decisions about a job or an instance, the newest first.
import type { Schemas } from "../api";
import { texts } from "../texts";
import { Status } from "./status";
import { English, Table } from "./table";
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
    <Table
      columns={columns}
      words={t}
      classes={{ time: "line", change: "line" }}
      rows={[...of].reverse().map((decision, at) => ({
        key: `${decision.at} ${at}`,
        cells: {
          time: (
            <>
              <Clock at={decision.at} />{" "}
              <small class="muted">
                <Ago at={decision.at} />
              </small>
            </>
          ),
          change: (
            <span title={decision.event}>
              {decision.from !== null && decision.from !== decision.to && (
                <>
                  <Status of={decision.from} /> →{" "}
                </>
              )}
              <Status of={decision.to} />
            </span>
          ),
          attempt: decision.attempt,
          reason: <English>{decision.reason}</English>,
        },
      }))}
    />
  );
}
