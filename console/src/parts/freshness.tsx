// The age of a snapshot: amber when its writer is late, red when it has stopped.
import { texts } from "../texts";
import { ageOf, Clock, span, tick } from "./time";

const t = texts({
  en: {
    asOf: "as of",
    ago: "{span} ago",
    late: "{writer} is late",
    stopped: "{writer} has not written: what you see is old",
    never: "{writer} has not written yet",
    reconciler: "the reconciler",
    scheduler: "the scheduler",
  },
  zh: {
    asOf: "截至",
    ago: "{span}前",
    late: "{writer}写入延迟",
    stopped: "{writer}没有写入：所见数据已过时",
    never: "{writer}尚未写入",
    reconciler: "协调器",
    scheduler: "调度器",
  },
});

/** Seconds from which the age is amber and red, by the function that writes.
 *
 * The reconciler writes each minute. The scheduler writes after each pass, and every five minutes at least.
 */
const AGES = { reconciler: { late: 120, stopped: 300 }, scheduler: { late: 360, stopped: 900 } };

/** Show the time and the age of a snapshot. `at` is the time of its content; null: nothing was written yet. */
export function Freshness({ at, writer }: { at: string | null; writer: keyof typeof AGES }) {
  void tick.value;
  if (at === null) return <span class="freshness late">{t("never", { writer: t(writer) })}</span>;
  const age = ageOf(at);
  const look = age > AGES[writer].stopped ? "stopped" : age > AGES[writer].late ? "late" : "";
  return (
    <span class={`freshness ${look}`}>
      {t("asOf")} <Clock at={at} />, {t("ago", { span: span(age) })}
      {look !== "" && <strong> · {t(look, { writer: t(writer) })}</strong>}
    </span>
  );
}
