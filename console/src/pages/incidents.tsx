// The list of incidents: the open ones first, then the closed ones page by page.
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { causeText, lostIn } from "../parts/incident-facts";
import { InstanceLinks } from "../parts/links";
import { Loaded } from "../parts/loaded";
import { Pager, usePages } from "../parts/pager";
import { Status } from "../parts/status";
import { Table } from "../parts/table";
import { Ago, secondsBetween, span } from "../parts/time";
import { query, refine, to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Incidents",
    show: "Show",
    all: "open and closed",
    open: "Open",
    closed: "Closed",
    of: "Only of job",
    noneOpen: "No incident is open.",
    noneClosed: "No incident has been closed.",
    state: "State",
    id: "Incident",
    cause: "Cause",
    where: "Instances",
    job: "Job",
    opened: "Opened",
    duration: "Duration",
    gpus: "GPUs",
    lost: "GPU time lost",
  },
  zh: {
    title: "事故",
    show: "显示",
    all: "未结束和已结束",
    open: "未结束",
    closed: "已结束",
    of: "只看作业",
    noneOpen: "没有未结束的事故。",
    noneClosed: "没有已结束的事故。",
    state: "状态",
    id: "事故",
    cause: "原因",
    where: "实例",
    job: "作业",
    opened: "开始于",
    duration: "持续",
    gpus: "GPU",
    lost: "损失的 GPU 时间",
  },
});
const PAGE = 50;
const OPEN_MAX = 200;
/** Characters of a sentence in the list. */
const SENTENCE_MAX = 100;
type State = "open" | "closed";

export function Incidents() {
  const state = query.value.get("state") ?? "";
  const job = query.value.get("job") ?? "";
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      <h1>{t("title")}</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          {t("show")}
          <select name="state" value={state} onChange={(event) => refine({ state: event.currentTarget.value })}>
            <option value="">{t("all")}</option>
            <option value="open">{t("open")}</option>
            <option value="closed">{t("closed")}</option>
          </select>
        </label>
        <label>
          {t("of")}
          <input name="job" value={job} onChange={(event) => refine({ job: event.currentTarget.value })} />
        </label>
      </form>
      {state !== "closed" && <Section state="open" job={job} limit={OPEN_MAX} everyMs={5_000} />}
      {state !== "open" && <Section state="closed" job={job} limit={PAGE} everyMs={15_000} />}
    </main>
  );
}

function Section({ state, job, limit, everyMs }: { state: State; job: string; limit: number; everyMs: number }) {
  const pages = usePages(`${state} ${job}`);
  const { cursor } = pages;
  const wanted = { state, limit, ...(job === "" ? {} : { job }), ...(cursor === undefined ? {} : { cursor }) };
  const polled = usePolled(
    `incidents ${JSON.stringify(wanted)}`,
    (signal) => bodyOf(client.GET("/api/v2/incidents", { params: { query: wanted }, signal })),
    () => everyMs,
  );
  return (
    <section aria-label={t(state)}>
      <h2>{t(state)}</h2>
      <Loaded from={polled}>
        {(page) => (
          <>
            {page.incidents.length === 0 ? <p>{t(state === "open" ? "noneOpen" : "noneClosed")}</p> : <Rows of={page.incidents} />}
            <Pager pages={pages} next={page.next_cursor} />
          </>
        )}
      </Loaded>
    </section>
  );
}

function cut(sentence: string): string {
  return sentence.length > SENTENCE_MAX ? `${sentence.slice(0, SENTENCE_MAX)}…` : sentence;
}

function Rows({ of }: { of: Schemas["Incident"][] }) {
  return (
    <Table
      columns={["state", "id", "cause", "where", "job", "opened", "duration", "gpus", "lost"]}
      words={t}
      rows={of.map((incident) => ({
        key: incident.incident_id,
        cells: {
          state: <Status of={incident.outcome ?? incident.state} />,
          id: <a href={to(["incidents", incident.incident_id])}>{incident.incident_id}</a>,
          cause:
            incident.cause === null ? (
              <small lang="en" title={incident.reason}>
                {cut(incident.reason)}
              </small>
            ) : (
              causeText(incident)
            ),
          where: <InstanceLinks ids={incident.instances} />,
          job: incident.job_id === null ? "-" : <a href={to(["jobs", incident.job_id])}>{incident.job_id}</a>,
          opened: <Ago at={incident.opened_at} />,
          duration:
            incident.closed_at === null ? <Ago at={incident.opened_at} bare /> : span(secondsBetween(incident.opened_at, incident.closed_at)),
          gpus: incident.gpus,
          lost: lostIn(incident),
        },
      }))}
    />
  );
}
