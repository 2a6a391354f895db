// One job: where it is, why, what it printed, and what may be ordered.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas, serverNow } from "../api";
import { useDiagnosis } from "../diagnosis";
import { usePolled } from "../live";
import { Code } from "../parts/codes";
import { Confirm, type Order } from "../parts/confirm";
import { Decisions } from "../parts/decisions";
import { Gantt } from "../parts/gantt";
import { ENDED, mustAct, WAITING } from "../parts/job-facts";
import { type JobOrder, orderAbout, whyNot, wordsOfOrder } from "../parts/job-orders";
import { AttemptSelect, Priority } from "../parts/job-cells";
import { InstanceLinks, JobLinks } from "../parts/links";
import { Loaded } from "../parts/loaded";
import { Log } from "../parts/log";
import { OrderButtons } from "../parts/order-buttons";
import { Problem } from "../parts/problem";
import { Status } from "../parts/status";
import { English, Table } from "../parts/table";
import { Tabs, viewOf } from "../parts/tabs";
import { Ago, Clock } from "../parts/time";
import { AnyVerdict } from "../parts/verdict";
import { path, query, refine, to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    timeline: "Timeline",
    why: "Why",
    log: "Log",
    attempts: "Attempts",
    spec: "Specification",
    diagnosis: "Diagnosis",
    since: "for",
    attempt: "attempt {n}, {counted} of {max} used up",
    asOf: "as of",
    retry: "the next attempt starts at the earliest at",
    deadline: "the next automatic decision is at",
    incident: "Incident",
    waits: "Waits",
    place: "place {n} in the queue",
    earliest: "earliest start",
    blockers: "in its way",
    wouldSuspend: "would suspend",
    act: "Must you act?",
    reason: "Reason",
    number: "Attempt",
    status: "Status",
    started: "Started",
    ended: "Ended",
    exit: "Exit code",
    cause: "Cause",
    instances: "Instances",
    counted: "Counted",
    yes: "yes",
    no: "no",
    rank: "Rank",
    diagnose: "Diagnose this attempt now",
    noAttempt: "The job has not had an attempt yet.",
    size: "{n} instances × {gpus} GPUs",
    group: "Group",
    known: "What the diagnosis of attempt {n} said",
    tabs: "Views of the job",
  },
  zh: {
    timeline: "时间线",
    why: "原因",
    log: "日志",
    attempts: "尝试",
    spec: "配置",
    diagnosis: "诊断",
    since: "已持续",
    attempt: "第 {n} 次尝试，已用 {counted}/{max} 次",
    asOf: "截至",
    retry: "下次尝试最早时间",
    deadline: "下次自动判定时间",
    incident: "事故",
    waits: "等待",
    place: "队列第 {n} 位",
    earliest: "最早启动",
    blockers: "挡在前面",
    wouldSuspend: "会挂起",
    act: "需要你处理吗？",
    reason: "原因",
    number: "尝试",
    status: "状态",
    started: "开始",
    ended: "结束",
    exit: "退出码",
    cause: "原因",
    instances: "实例",
    counted: "计数",
    yes: "是",
    no: "否",
    rank: "rank",
    diagnose: "现在诊断这次尝试",
    noAttempt: "作业还没有尝试过。",
    size: "{n} 个实例 × {gpus} 个 GPU",
    group: "分组",
    known: "第 {n} 次尝试的诊断结论",
    tabs: "作业的视图",
  },
});
const TABS = ["timeline", "why", "log", "attempts", "diagnosis", "spec"] as const;
const ORDERS: JobOrder[] = ["suspend", "resume", "cancel", "force"];

export function Job() {
  const id = path.value[1] ?? "";
  const polled = usePolled(
    `job ${id}`,
    (signal) => bodyOf(client.GET("/api/v2/jobs/{job_id}", { params: { path: { job_id: id } }, signal })),
    (job) => (job !== undefined && ENDED.includes(job.status) ? null : 5_000),
  );
  const [order, setOrder] = useState<Order>();
  const tab = viewOf(TABS, "tab", "timeline");
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      <Loaded from={polled}>
        {(job) => (
          <>
            <Head job={job} ask={(name) => setOrder(orderAbout(name, job, () => polled.hurry()))} />
            <Tabs label={t("tabs")} names={TABS} present={tab} words={t} />
            {tab === "timeline" && <Gantt job={job} />}
            {tab === "why" && <Why job={job} />}
            {tab === "log" && <Logs job={job} />}
            {tab === "attempts" && <Attempts job={job} />}
            {tab === "diagnosis" && <Diagnosis job={job} />}
            {tab === "spec" && <Specification job={job} />}
          </>
        )}
      </Loaded>
      {order !== undefined && <Confirm order={order} done={() => setOrder(undefined)} />}
    </main>
  );
}

function Head({ job, ask }: { job: Schemas["Job"]; ask: (order: JobOrder) => void }) {
  return (
    <header class="head">
      <h1 class="id">{job.job_id}</h1>
      <p class="act">
        <strong>{t("act")}</strong> {mustAct(job)}{" "}
        {job.incident_id !== null && (
          <a href={to(["incidents", job.incident_id])}>
            {t("incident")} {job.incident_id}
          </a>
        )}
      </p>
      <p class="facts">
        {job.name !== null && <>{job.name} · </>}
        <Status of={job.status} /> {t("since")} <Ago at={job.status_at} bare />
        {" · "}
        {t("attempt", { n: job.attempt, counted: job.attempts_counted, max: job.attempts_max })}
        {" · "}
        {job.user !== "" && <>{job.user} · </>}
        <Priority is={job.priority} asked={job.asked_priority} /> · {t("size", { n: job.nnodes, gpus: job.n_gpus_per_node })}
        {job.group !== "" && <> · {job.group}</>}
        {job.next_run_at !== null && Date.parse(job.next_run_at) > serverNow() && (
          <>
            {" · "}
            {t("retry")} <Clock at={job.next_run_at} />
          </>
        )}
        {job.deadline_at !== null && !ENDED.includes(job.status) && (
          <>
            {" · "}
            {t("deadline")} <Clock at={job.deadline_at} />
          </>
        )}
      </p>
      <p class="reason">
        <span lang="en">{job.reason}</span>
        {WAITING.includes(job.status) && (
          <span class="freshness">
            {" "}
            ({t("asOf")} <Clock at={job.reason_at} />)
          </span>
        )}
      </p>
      <OrderButtons
        orders={ORDERS.filter((name) => name !== "force" || job.status === "STOPPING")}
        words={wordsOfOrder}
        whyNot={(name) => whyNot(name, job)}
        dangers={["cancel", "force"]}
        ask={ask}
      />
    </header>
  );
}

function Why({ job }: { job: Schemas["Job"] }) {
  const polled = usePolled(
    `explain ${job.job_id} ${job.status_at}`,
    (signal) => bodyOf(client.GET("/api/v2/jobs/{job_id}/explain", { params: { path: { job_id: job.job_id } }, signal })),
    (answer) => (answer?.pending == null ? null : 15_000),
  );
  return (
    <Loaded from={polled}>
      {({ pending, decisions }) => (
        <>
          {pending !== null && (
            <article>
              <strong>{t("waits")}</strong> {job.short_of !== null && <Code of="short" is={job.short_of} />}{" "}
              <span lang="en">{pending.sentence}</span>{" "}
              <span class="freshness">
                ({t("asOf")} <Clock at={pending.as_of} />)
              </span>
              {pending.position !== null && <> · {t("place", { n: pending.position })}</>}
              {pending.earliest_at !== null && (
                <>
                  {" "}
                  · {t("earliest")} <Ago at={pending.earliest_at} />
                </>
              )}
              {pending.blockers.length > 0 && (
                <>
                  {" · "}
                  {t("blockers")}: <JobLinks ids={pending.blockers} most={10} />
                </>
              )}
              {pending.would_suspend.length > 0 && (
                <>
                  {" · "}
                  {t("wouldSuspend")}: <JobLinks ids={pending.would_suspend} most={10} />
                </>
              )}
            </article>
          )}
          <Decisions of={decisions} attempts />
        </>
      )}
    </Loaded>
  );
}

function Logs({ job }: { job: Schemas["Job"] }) {
  if (job.attempt === 0) return <p>{t("noAttempt")}</p>;
  const attempt = Number(query.value.get("attempt") ?? job.attempt);
  const rank = Number(query.value.get("rank") ?? job.failure?.rank ?? 0);
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <AttemptSelect job={job} attempt={attempt} />
        <label>
          {t("rank")}
          <input name="rank" type="number" min={0} max={Math.max(0, job.nnodes - 1)} value={rank} onChange={(event) => refine({ rank: event.currentTarget.value })} />
        </label>
      </form>
      <Log key={`${attempt} ${rank}`} job={job.job_id} attempt={attempt} rank={rank} isOver={ENDED.includes(job.status) || attempt < job.attempt} />
    </>
  );
}

function Attempts({ job }: { job: Schemas["Job"] }) {
  if (job.attempts.length === 0) return <p>{t("noAttempt")}</p>;
  return (
    <Table
      columns={["number", "status", "started", "ended", "exit", "cause", "counted", "instances"]}
      words={t}
      rows={[...job.attempts].reverse().map((each) => ({
        key: each.attempt,
        cells: {
          number: <a href={to(["jobs", job.job_id], { tab: "log", attempt: each.attempt })}>{each.attempt}</a>,
          status: <Status of={each.status} />,
          started: each.started_at !== null && <Clock at={each.started_at} />,
          ended: each.ended_at !== null && <Clock at={each.ended_at} />,
          exit: each.exit_code,
          cause: (
            <>
              {each.failure_kind !== null && (
                <strong>
                  <Code of="failure" is={each.failure_kind} />{" "}
                </strong>
              )}
              <English>{each.message ?? ""}</English>
            </>
          ),
          counted: each.counted === null ? "-" : t(each.counted ? "yes" : "no"),
          instances: <InstanceLinks ids={each.instances ?? []} most={8} />,
        },
      }))}
    />
  );
}

function Diagnosis({ job }: { job: Schemas["Job"] }) {
  const attempt = Number(query.value.get("attempt") ?? job.attempt);
  const { ask, answer, problem, busy } = useDiagnosis(`${job.job_id} ${attempt}`);
  const diagnose = (): void => {
    refine({ attempt: String(attempt) }); // a new attempt of the job does not change the question
    void ask({ job_id: job.job_id, attempt });
  };
  if (job.attempt === 0) return <p>{t("noAttempt")}</p>;
  return (
    <>
      {job.diagnosis !== null && (
        <article>
          <h2>{t("known", { n: job.diagnosis.attempt })}</h2>
          <p>
            <strong>
              <Code of="cause" is={job.diagnosis.cause} />
            </strong>{" "}
            <span lang="en">{job.diagnosis.where}</span> {job.diagnosis.confidence} % · <Code of="remedy" is={job.diagnosis.remedy} />
          </p>
          <p lang="en">{job.diagnosis.sentence}</p>
        </article>
      )}
      <form class="filters" onSubmit={(event) => (event.preventDefault(), diagnose())}>
        <AttemptSelect job={job} attempt={attempt} />
        <button type="submit" aria-busy={busy}>
          {t("diagnose")}
        </button>
      </form>
      <Problem of={problem} />
      {answer !== undefined && <AnyVerdict of={answer} />}
    </>
  );
}

/** Fields of the specification. The API shows no environment variables, which may hold secrets. */
const FIELDS = [
  "name",
  "workload",
  "user",
  "group",
  "priority",
  "asked_priority",
  "backend",
  "nnodes",
  "n_gpus_per_node",
  "task_definition",
  "container",
  "command",
  "entrypoint",
  "image",
  "attempts_max",
  "max_runtime_s",
  "suspend_grace_s",
  "checkpoint_dir",
  "queued_at",
  "origin",
  "records",
] as const;

function Specification({ job }: { job: Schemas["Job"] }) {
  return (
    <dl class="fields">
      {FIELDS.filter((name) => job[name] !== null && job[name] !== "").map((name) => (
        <div key={name}>
          <dt>
            <code>{name}</code>
          </dt>
          <dd>
            <code>{Array.isArray(job[name]) ? job[name].join(" ") : String(job[name])}</code>
          </dd>
        </div>
      ))}
    </dl>
  );
}
