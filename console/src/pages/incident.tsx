// One incident as a thread in the order of time, with its phases, its evidence, and a form of it for other documents.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { Code } from "../parts/codes";
import { causeText, lastChange, lastMessage, lostIn, mustActAbout } from "../parts/incident-facts";
import { type Entry, entriesOf, markdownOf } from "../parts/incident-thread";
import { InstanceLinks } from "../parts/links";
import { Loaded } from "../parts/loaded";
import { Status } from "../parts/status";
import { Table } from "../parts/table";
import { Ago, Clock, local, secondsBetween, span } from "../parts/time";
import { path, to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    opened: "opened",
    after: "closed after {span}",
    since: "for",
    gpus: "{n} GPUs",
    lost: "{n} lost",
    job: "Job",
    instance: "Instance",
    timeline: "timeline",
    now: "Now:",
    began: "Began with:",
    act: "Must you act?",
    copy: "Copy as Markdown",
    copied: "Copied",
    byHand: "The browser does not allow to copy. Copy this text:",
    print: "Print",
    thread: "What happened",
    phases: "Phases",
    evidence: "Evidence",
    status: "Status",
    attempt: "Attempt",
    from: "From",
    until: "Until",
    duration: "Duration",
    lasts: "lasts",
    verdict: "Verdict",
    remedy: "remedy",
    failed: "First failure",
    rank: "rank {n} on",
    exit: "exit code {n}",
    message: "Message to operators",
    last: "Last message:",
    passed: "Instances that were checked and passed: {n}",
    more: "{n} further events are not shown.",
    recovery_started: "recovery started",
    recovery_succeeded: "recovery succeeded",
    recovery_failed: "recovery failed",
    operator_action_required: "an operator is needed",
    noEvidence: "There is no diagnosis yet.",
  },
  zh: {
    opened: "开始于",
    after: "历时 {span} 后结束",
    since: "已持续",
    gpus: "{n} 个 GPU",
    lost: "损失 {n}",
    job: "作业",
    instance: "实例",
    timeline: "时间线",
    now: "目前：",
    began: "起因：",
    act: "需要你处理吗？",
    copy: "复制为 Markdown",
    copied: "已复制",
    byHand: "浏览器不允许复制。请复制以下文本：",
    print: "打印",
    thread: "经过",
    phases: "阶段",
    evidence: "证据",
    status: "状态",
    attempt: "尝试",
    from: "从",
    until: "到",
    duration: "持续",
    lasts: "进行中",
    verdict: "结论",
    remedy: "措施",
    failed: "第一个故障",
    rank: "rank {n}，位于",
    exit: "退出码 {n}",
    message: "发给运维人员的消息",
    last: "最近的消息：",
    passed: "检查通过的实例：{n} 个",
    more: "另有 {n} 条未显示。",
    recovery_started: "恢复开始",
    recovery_succeeded: "恢复成功",
    recovery_failed: "恢复失败",
    operator_action_required: "需要运维人员处理",
    noEvidence: "还没有诊断结果。",
  },
});

export function Incident() {
  const id = path.value[1] ?? "";
  const polled = usePolled(
    `incident ${id}`,
    (signal) => bodyOf(client.GET("/api/v2/incidents/{incident_id}", { params: { path: { incident_id: id } }, signal })),
    (incident) => (incident?.state === "closed" ? 30_000 : 5_000),
  );
  return (
    <main class="container-fluid incident" id="content" tabIndex={-1}>
      <Loaded from={polled}>
        {(incident) => (
          <>
            <Head of={incident} />
            <Evidence of={incident} />
            <Thread of={incident} />
            <Phases of={incident} />
          </>
        )}
      </Loaded>
    </main>
  );
}

function Head({ of }: { of: Schemas["IncidentThread"] }) {
  const told = lastMessage(of);
  const now = of.state === "open" ? lastChange(of) : undefined;
  const { job_id, state } = of;
  const polled = usePolled(
    `job ${job_id} of ${of.incident_id} ${state}`,
    async (signal) =>
      job_id === null || state === "closed"
        ? undefined
        : await bodyOf(client.GET("/api/v2/jobs/{job_id}", { params: { path: { job_id } }, signal })),
    () => (state === "closed" ? null : 10_000),
  );
  const job = polled.data.value;
  const act = mustActAbout(of, job);
  return (
    <header class="head">
      <h1 class="id">{of.incident_id}</h1>
      <p class="act">
        <strong>{t("act")}</strong> {act.says} {act.instances.length > 0 && <InstanceLinks ids={act.instances} />}
      </p>
      {of.state === "open" && told !== null && (
        <p class="reason">
          <strong>{t("last")}</strong> <Code of="severity" is={told.severity} /> · <span lang="en">{told.subject}</span>
        </p>
      )}
      {now !== undefined && (
        <p class="reason">
          <strong>{t("now")}</strong> {now.instance_id !== null && <InstanceLinks ids={[now.instance_id]} />} <Status of={now.after ?? ""} />{" "}
          <span lang="en">{now.reason}</span>
        </p>
      )}
      {of.reason !== "" && (
        <p class="reason">
          <strong>{t("began")}</strong> <span lang="en">{of.reason}</span>
        </p>
      )}
      <p class="facts">
        <Status of={of.outcome ?? of.state} />{" "}
        {of.closed_at === null ? (
          <>
            {t("since")} <Ago at={of.opened_at} bare />
          </>
        ) : (
          t("after", { span: span(secondsBetween(of.opened_at, of.closed_at)) })
        )}
        {" · "}
        {t("opened")} <time dateTime={of.opened_at} title={of.opened_at}>{local(of.opened_at)}</time>
        {of.job_id !== null && <> · {causeText(of)}</>}
        {of.gpus > 0 && <> · {t("gpus", { n: of.gpus })}</>}
        {of.job_id !== null && <> · {t("lost", { n: lostIn(of) })}</>}
      </p>
      <p class="facts">
        {of.job_id !== null && (
          <>
            {t("job")} <a href={to(["jobs", of.job_id])}>{of.job_id}</a> (<a href={to(["jobs", of.job_id], { tab: "timeline" })}>{t("timeline")}</a>){" "}
            {of.user !== null && <>{of.user} </>}
            {of.priority !== null && <Code of="priority" is={of.priority} />}
            {" · "}
          </>
        )}
        {t("instance")} <InstanceLinks ids={of.instances} />
      </p>
      <Copy of={of} job={job} />
    </header>
  );
}

function Copy({ of, job }: { of: Schemas["IncidentThread"]; job: Schemas["Job"] | undefined }) {
  const [copied, setCopied] = useState("");
  const [byHand, setByHand] = useState("");
  const copy = async (): Promise<void> => {
    const text = markdownOf(of, job);
    try {
      await navigator.clipboard.writeText(text);
      setCopied(text);
      setByHand("");
    } catch {
      setByHand(text); // no permission, or a page without TLS
    }
  };
  return (
    <div class="orders">
      <button class="secondary" onClick={() => void copy()}>
        {t("copy")}
      </button>
      <button class="secondary" onClick={() => print()}>
        {t("print")}
      </button>
      <span role="status">{copied !== "" && t("copied")}</span>
      {byHand !== "" && (
        <label class="whole">
          {t("byHand")}
          <textarea readOnly rows={8} value={byHand} onFocus={(event) => event.currentTarget.select()} />
        </label>
      )}
    </div>
  );
}

function Evidence({ of }: { of: Schemas["IncidentThread"] }) {
  const latest = [...of.events].reverse();
  const found = latest.find((event) => event.diagnosis?.decided)?.diagnosis ?? latest.find((event) => event.diagnosis !== null)?.diagnosis;
  const failure = latest.find((event) => event.failure !== null && of.attempts.includes(event.attempt ?? 0))?.failure;
  return (
    <section class="verdict">
      <h2>{t("evidence")}</h2>
      {found == null && failure == null && <p>{t("noEvidence")}</p>}
      {failure != null && (
        <p>
          {t("failed")}: {t("rank", { n: failure.rank })} <InstanceLinks ids={[failure.instance_id]} />
          {failure.exit_code !== null && t("exit", { n: failure.exit_code })}
        </p>
      )}
      {found != null && (
        <>
          <p>
            {t("verdict")}: <strong>{causeText({ ...of, cause: found.cause, confidence: found.confidence, decided: found.decided })}</strong>{" "}
            {found.instances.length > 0 && <InstanceLinks ids={found.instances} />}
            {found.gpus.join(", ")} · {t("remedy")}:{" "}
            <strong>
              <Code of="remedy" is={found.remedy} />
            </strong>
          </p>
          <p lang="en">{found.sentence}</p>
        </>
      )}
    </section>
  );
}

function Thread({ of }: { of: Schemas["IncidentThread"] }) {
  return (
    <section>
      <h2>{t("thread")}</h2>
      <ol class="thread">
        {entriesOf(of.events).map((entry) => (
          <Line key={entry.key} of={entry} job={of.job_id} />
        ))}
      </ol>
      {of.passed_checks.instances > 0 && (
        <p>
          {t("passed", { n: of.passed_checks.instances })}. <InstanceLinks ids={of.passed_checks.named} />
        </p>
      )}
      {of.left_out > 0 && <p>{t("more", { n: of.left_out })}</p>}
    </section>
  );
}

function Line({ of, job }: { of: Entry; job: string | null }) {
  return (
    <li>
      <Clock at={of.at} />
      <div>
        <p>
          {of.instance === null ? of.job !== job && of.job : <InstanceLinks ids={[of.instance]} />}{" "}
          {of.before !== null && of.before !== of.after && (
            <>
              <Status of={of.before} /> →{" "}
            </>
          )}
          {of.after !== null && <Status of={of.after} />}{" "}
          {of.said.map((kind) => (
            <strong key={kind}>{t(kind)} </strong>
          ))}
          {of.attempt !== null && of.instance === null && (
            <small>
              {t("attempt")} {of.attempt}
            </small>
          )}
          {of.check !== null && (
            <small>{of.check}</small>
          )}
        </p>
        <p lang="en">{of.reason}</p>
        {of.verdict !== null && (
          <p>
            {t("verdict")}:{" "}
            <strong>
              <Code of="cause" is={of.verdict.cause} />
            </strong>{" "}
            {of.verdict.confidence} % · {t("remedy")}: <Code of="remedy" is={of.verdict.remedy} />
          </p>
        )}
        {of.message !== null && (
          <p>
            <small>
              {t("message")} (<Code of="severity" is={of.message.severity} />): <span lang="en">{of.message.subject}</span>
            </small>
          </p>
        )}
      </div>
    </li>
  );
}

function Phases({ of }: { of: Schemas["IncidentThread"] }) {
  if (of.phases.length === 0) return null;
  return (
    <section>
      <h2>{t("phases")}</h2>
      <Table
        columns={["status", "attempt", "from", "until", "duration"]}
        words={t}
        rows={of.phases.map((phase) => ({
          key: `${phase.since} ${phase.status}`,
          cells: {
            status: <Status of={phase.status} />,
            attempt: phase.attempt ?? "-",
            from: <Clock at={phase.since} />,
            until: phase.until === null ? t("lasts") : <Clock at={phase.until} />,
            duration: phase.until === null ? <Ago at={phase.since} bare /> : span(secondsBetween(phase.since, phase.until)),
          },
        }))}
      />
    </section>
  );
}
