// The queue: who waits and why, who runs, who is promised what, and the quotas. From the scheduler's last snapshot.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { Code } from "../parts/codes";
import { Freshness } from "../parts/freshness";
import { Priority, Size } from "../parts/job-cells";
import { JobForm } from "../parts/job-form";
import { InstanceLinks, JobLinks } from "../parts/links";
import { Loaded } from "../parts/loaded";
import { Pager, usePages } from "../parts/pager";
import { Quotas } from "../parts/quotas";
import { Status } from "../parts/status";
import { English, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { notKnown } from "../parts/units";
import { query, refine } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Queue",
    group: "Group",
    all: "all groups",
    none: "default group",
    waiting: "Waiting",
    running: "Running",
    reservations: "Reservations",
    totals: "By priority",
    place: "Place",
    job: "Job",
    user: "User",
    priority: "Priority",
    size: "Instances × GPUs",
    waits: "Waits",
    why: "Waits for",
    blockers: "In its way",
    earliest: "Earliest start",
    nobodyWaits: "No job waits.",
    nobodyRuns: "No job holds instances.",
    status: "Status",
    since: "For",
    ends: "Ends",
    suspend: "May be suspended",
    yes: "yes",
    no: "no",
    promised: "Promised to",
    hosts: "Instances",
    from: "From",
    jobs: "{n} jobs",
    oneJob: "1 job",
    total: "{jobs} on {instances}, {gpus} GPUs",
    instances: "{n} instances",
    oneInstance: "1 instance",
    queued: "Waiting",
    left: "{n} more jobs are not shown. The list of jobs has them.",
    try: "Try a job: would it start now?",
    unreadable: "{n} records cannot be read",
    leaves: "suspends for it",
  },
  zh: {
    title: "队列",
    group: "分组",
    all: "全部分组",
    none: "默认分组",
    waiting: "等待",
    running: "运行",
    reservations: "预留",
    totals: "按优先级",
    place: "位置",
    job: "作业",
    user: "用户",
    priority: "优先级",
    size: "实例 × GPU",
    waits: "已等待",
    why: "等待原因",
    blockers: "前面的作业",
    earliest: "最早启动",
    nobodyWaits: "没有作业在等待。",
    nobodyRuns: "没有作业占用实例。",
    status: "状态",
    since: "已运行",
    ends: "结束",
    suspend: "可被挂起",
    yes: "是",
    no: "否",
    promised: "预留给",
    hosts: "实例",
    from: "开始",
    jobs: "{n} 个作业",
    oneJob: "1 个作业",
    total: "{jobs}，{instances}，{gpus} 个 GPU",
    instances: "{n} 个实例",
    oneInstance: "1 个实例",
    queued: "等待",
    left: "还有 {n} 个作业没有显示，请在作业列表中查看。",
    try: "试一个作业：现在能启动吗？",
    unreadable: "{n} 条记录无法读取",
    leaves: "为它挂起",
  },
});
type Page = Schemas["Queue"];
type Waiting = Page["waiting"][number];
type Running = Page["running"][number];
const PAGE = 100;
/** The default group in the address. The name of a group begins with a letter or a digit. */
const DEFAULT_GROUP = "-";
const EVERY_MS = 15_000;

export function Queue() {
  const named = query.value.get("group");
  const group = named === DEFAULT_GROUP ? "" : named;
  const pages = usePages(`queue of ${named}`);
  const { cursor } = pages;
  const asked = { snapshot: "1" as const, limit: PAGE, ...(group === null ? {} : { group }), ...(cursor === undefined ? {} : { cursor }) };
  const polled = usePolled(
    `queue ${JSON.stringify(asked)}`,
    (signal) => bodyOf(client.GET("/api/v2/queue", { params: { query: asked }, signal })),
    () => EVERY_MS,
  );
  return (
    <main class="container-fluid" tabIndex={-1}>
      <h1 tabIndex={-1}>{t("title")}</h1>
      <Loaded from={polled}>
        {(page) => (
          <>
            <Head page={page} group={group} />
            <section aria-labelledby="waiting-title">
              <h2 id="waiting-title">{t("waiting")}</h2>
              {page.waiting.length === 0 ? <p>{t("nobodyWaits")}</p> : <WaitingJobs jobs={page.waiting} />}
              {(page.waiting_more ?? 0) > 0 && <p>{t("left", { n: page.waiting_more ?? 0 })}</p>}
            </section>
            <section aria-labelledby="running-title">
              <h2 id="running-title">{t("running")}</h2>
              {page.running.length === 0 ? <p>{t("nobodyRuns")}</p> : <RunningJobs jobs={page.running} />}
              {(page.running_more ?? 0) > 0 && <p>{t("left", { n: page.running_more ?? 0 })}</p>}
            </section>
            <Pager pages={pages} next={page.next_cursor} />
            {page.reservations.length > 0 && <Reservations reservations={page.reservations} />}
            <div class="pair">
              <Totals totals={page.totals} />
              <Quotas quotas={page.quotas} changed={() => polled.hurry()} />
            </div>
          </>
        )}
      </Loaded>
      <TryAJob />
    </main>
  );
}

function Head({ page, group }: { page: Page; group: string | null }) {
  const groups = page.groups ?? [];
  const known = group === null || groups.includes(group) ? groups : [...groups, group];
  return (
    <div class="filters">
      {known.length > 0 && !(known.length === 1 && known[0] === "" && group === null) && (
        <label>
          {t("group")}
          <select
            name="group"
            value={group === null ? "*" : `=${group}`}
            onChange={(event) => {
              const { value } = event.currentTarget;
              refine({ group: value === "*" ? undefined : value.slice(1) || DEFAULT_GROUP });
            }}
          >
            <option value="*">{t("all")}</option>
            {known.map((name) => (
              <option key={name} value={`=${name}`}>
                {name === "" ? t("none") : name}
              </option>
            ))}
          </select>
        </label>
      )}
      <Freshness at={page.as_of ?? null} writer="scheduler" />
      {page.unreadable.length > 0 && (
        <strong class="tone-repair" title={page.unreadable.join("\n")}>
          {t("unreadable", { n: page.unreadable.length })}
        </strong>
      )}
    </div>
  );
}

/** A time that may not be known. */
function When({ at }: { at: string | null }) {
  return at === null ? <>{notKnown()}</> : <Ago at={at} />;
}

function WaitingJobs({ jobs }: { jobs: Waiting[] }) {
  return (
    <Table
      columns={["place", "job", "user", "priority", "size", "waits", "why", "blockers", "earliest"]}
      words={t}
      classes={{ job: "id", waits: "line", why: "reason", earliest: "line" }}
      rows={jobs.map((job) => {
        const { blockers = [], would_suspend = [] } = job;
        return {
          key: job.job_id,
          cells: {
            place: job.position ?? "-",
            job: (
              <>
                <JobLinks ids={[job.job_id]} />
                {job.name !== null && <div>{job.name}</div>}
                {job.status !== null && job.status !== "QUEUED" && job.status !== "PENDING_RESOURCES" && (
                  <>
                    <br />
                    <Status of={job.status} />
                  </>
                )}
              </>
            ),
            user: job.user || "-",
            priority: <Priority is={job.priority} asked={job.asked_priority} />,
            size: <Size nodes={job.nodes} gpus={job.gpus} group={job.group} />,
            waits: <Ago at={job.queued_at} bare />,
            why: (
              <>
                {job.short_of !== null && (
                  <strong>
                    <Code of="short" is={job.short_of} />:{" "}
                  </strong>
                )}
                <English>{job.sentence}</English>
              </>
            ),
            blockers: (
              <>
                {blockers.length + would_suspend.length === 0 && "-"}
                <JobLinks ids={blockers} />
                {would_suspend.length > 0 && (
                  <small>
                    {" "}
                    {t("leaves")}: <JobLinks ids={would_suspend} />
                  </small>
                )}
              </>
            ),
            earliest: <When at={job.earliest_at} />,
          },
        };
      })}
    />
  );
}

function RunningJobs({ jobs }: { jobs: Running[] }) {
  return (
    <Table
      columns={["status", "job", "user", "priority", "size", "since", "ends", "suspend"]}
      words={t}
      classes={{ job: "id" }}
      rows={jobs.map((job) => ({
        key: job.job_id,
        cells: {
          status: <Status of={job.status} />,
          job: (
            <>
              <JobLinks ids={[job.job_id]} />
              {job.name !== null && <div>{job.name}</div>}
            </>
          ),
          user: job.user || "-",
          priority: <Code of="priority" is={job.priority} />,
          size: <Size nodes={job.nodes} gpus={job.gpus} group={job.group} />,
          since: <Ago at={job.since} bare />,
          ends: <When at={job.ends_at} />,
          suspend: t(job.can_suspend ? "yes" : "no"),
        },
      }))}
    />
  );
}

function Reservations({ reservations }: { reservations: Page["reservations"] }) {
  return (
    <section aria-labelledby="reservations-title">
      <h2 id="reservations-title">{t("reservations")}</h2>
      <Table
        columns={["promised", "group", "hosts", "from"]}
        words={t}
        narrow
        rows={reservations.map((one) => ({
          key: one.job_id,
          cells: {
            promised: <JobLinks ids={[one.job_id]} />,
            group: one.group || "-",
            hosts:
              one.hosts.length > 4 ? (
                <details>
                  <summary>{one.hosts.length}</summary>
                  <InstanceLinks ids={one.hosts} most={one.hosts.length} />
                </details>
              ) : (
                <InstanceLinks ids={one.hosts} />
              ),
            from: <When at={one.at} />,
          },
        }))}
      />
    </section>
  );
}

function Totals({ totals }: { totals: Page["totals"] }) {
  const words = (total: Page["totals"][number]["running"]): string =>
    total.jobs === 0
      ? "-"
      : t("total", {
          jobs: total.jobs === 1 ? t("oneJob") : t("jobs", { n: total.jobs }),
          instances: total.instances === 1 ? t("oneInstance") : t("instances", { n: total.instances }),
          gpus: total.gpus,
        });
  return (
    <section aria-labelledby="totals-title">
      <h2 id="totals-title">{t("totals")}</h2>
      <Table
        columns={["priority", "running", "queued"]}
        words={t}
        narrow
        rows={totals.map((total) => ({
          key: total.priority,
          class: total.running.jobs + total.queued.jobs === 0 ? "empty" : undefined,
          cells: { priority: <Code of="priority" is={total.priority} />, running: words(total.running), queued: words(total.queued) },
        }))}
      />
    </section>
  );
}

/** The form of a new job, opened on request: its check says whether the job would start now. */
function TryAJob() {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details class="try" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>{t("try")}</summary>
      {isOpen && <JobForm />}
    </details>
  );
}
