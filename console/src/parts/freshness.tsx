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
  },
  zh: {
    asOf: "截至",
    ago: "{span}前",
    late: "{writer} 写入延迟",
    stopped: "{writer} 没有写入：所见数据已过时",
    never: "{writer} 尚未写入",
  },
});

/** Show the time and the age of a snapshot.
 *
 * Args:
 *   at: time of the content; null: nothing was written yet.
 *   writer: the function that writes.
 *   lateS, stoppedS: seconds from which the age is amber, and red.
 */
export function Freshness({ at, writer, lateS = 120, stoppedS = 300 }: { at: string | null; writer: string; lateS?: number; stoppedS?: number }) {
  void tick.value;
  if (at === null) return <span class="freshness late">{t("never", { writer })}</span>;
  const age = ageOf(at);
  const look = age > stoppedS ? "stopped" : age > lateS ? "late" : "";
  return (
    <span class={`freshness ${look}`}>
      {t("asOf")} <Clock at={at} />, {t("ago", { span: span(age) })}
      {look !== "" && <strong> · {t(look as "late" | "stopped", { writer })}</strong>}
    </span>
  );
}
