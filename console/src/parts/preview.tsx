// The answer of a dry run.
import type { Schemas } from "../api";
import { texts } from "../texts";
import { JobLinks } from "./links";
import { Ago } from "./time";
import { notKnown } from "./units";

const t = texts({
  en: {
    starts: "It would start at once.",
    waits: "It would wait.",
    place: "Place in line",
    on: "On",
    blockers: "Waits for",
    earliest: "Earliest start",
    suspends: "Would suspend",
    nobody: "nobody",
  },
  zh: {
    starts: "会立即启动。",
    waits: "会等待。",
    place: "队列位置",
    on: "实例",
    blockers: "等待",
    earliest: "最早启动",
    suspends: "会挂起",
    nobody: "没有作业",
  },
});

/** What a pass of the scheduler would decide about a job. */
export function Preview({ of: answer }: { of: Schemas["Foresight"] }) {
  return (
    <>
      <p>
        <strong>{t(answer.would_start ? "starts" : "waits")}</strong> <span lang="en">{answer.sentence}</span>
      </p>
      <dl class="facts">
        {answer.would_start && (
          <>
            <dt>{t("on")}</dt>
            <dd>{answer.instances.join(", ")}</dd>
          </>
        )}
        {answer.position !== null && (
          <>
            <dt>{t("place")}</dt>
            <dd>{answer.position}</dd>
          </>
        )}
        {answer.blockers.length > 0 && (
          <>
            <dt>{t("blockers")}</dt>
            <dd>
              <JobLinks ids={answer.blockers} most={10} />
            </dd>
          </>
        )}
        {!answer.would_start && (
          <>
            <dt>{t("earliest")}</dt>
            <dd>{answer.earliest_at === null ? notKnown() : <Ago at={answer.earliest_at} />}</dd>
          </>
        )}
        <dt>{t("suspends")}</dt>
        <dd>{answer.would_suspend.length > 0 ? <JobLinks ids={answer.would_suspend} most={10} /> : t("nobody")}</dd>
      </dl>
    </>
  );
}
