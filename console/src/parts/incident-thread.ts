// The thread of an incident: one entry for each decision, and the thread as Markdown.
import { type Schemas } from "../api";
import { texts } from "../texts";
import { causeText, lostIn, mustActAbout } from "./incident-facts";
import { wordsFor } from "./codes";
import { wordsOf } from "./status";
import { secondsBetween, span } from "./time";

const t = texts({
  en: {
    incident: "Incident",
    state: "State",
    opened: "Opened",
    closed: "Closed",
    cause: "Cause",
    job: "Job",
    instances: "Instances",
    lost: "GPU time lost",
    act: "Must you act?",
    happened: "What happened (UTC)",
    phases: "Phases",
    lasts: "lasts",
    verdict: "Verdict",
    message: "message to operators",
    passed: "Instances that were checked and passed: {n}.",
    more: "{n} further events are not shown.",
  },
  zh: {
    incident: "事故",
    state: "状态",
    opened: "开始",
    closed: "结束",
    cause: "原因",
    job: "作业",
    instances: "实例",
    lost: "损失的 GPU 时间",
    act: "需要你处理吗？",
    happened: "经过（UTC）",
    phases: "阶段",
    lasts: "进行中",
    verdict: "结论",
    message: "发给运维人员的消息",
    passed: "检查通过的实例：{n} 个。",
    more: "另有 {n} 条未显示。",
  },
});
type Event = Schemas["Event"];
type Said = Exclude<Event["kind"], "job_state_changed" | "instance_state_changed">;

/** A decision with everything that its events say. */
export interface Entry {
  key: string;
  at: string;
  job: string | null;
  instance: string | null;
  attempt: number | null;
  before: string | null;
  after: string | null;
  reason: string;
  check: string | null;
  said: Said[];
  message: Event["message"];
  /** The diagnosis, where it differs from that of the entry before. */
  verdict: Event["diagnosis"];
}

/** Return the entries in the order of time. The events of one decision are one entry. */
export function entriesOf(events: Event[]): Entry[] {
  const entries = new Map<string, Entry>();
  let known = "";
  for (const event of events) {
    const key = event.id.slice(0, event.id.lastIndexOf("/")); // the id is <record>/<version>/<kind>
    const kind = event.kind;
    const isMove = kind === "job_state_changed" || kind === "instance_state_changed";
    const isAboutInstance = kind === "instance_state_changed" || kind === "operator_action_required";
    let entry = entries.get(key);
    if (entry === undefined) {
      const verdict = JSON.stringify(event.diagnosis);
      entry = {
        key,
        at: event.at,
        job: event.job_id,
        instance: isAboutInstance ? event.instance_id : null,
        attempt: event.attempt,
        before: null,
        after: null,
        reason: event.reason,
        check: event.check_id,
        said: [],
        message: event.message,
        verdict: event.diagnosis !== null && verdict !== known ? event.diagnosis : null,
      };
      if (event.diagnosis !== null) known = verdict;
      entries.set(key, entry);
    }
    if (isMove) Object.assign(entry, { before: event.before, after: event.after });
    else entry.said.push(kind);
  }
  return [...entries.values()];
}

/** Return the text with the characters that Markdown would read as markup escaped, on one line. */
function plain(text: string): string {
  return text.replace(/\s+/g, " ").replace(/[\\`*[\]<]/g, "\\$&");
}

/** Return the incident as Markdown, for a ticket or a report. Times are in UTC. */
export function markdownOf(of: Schemas["IncidentThread"], job: Schemas["Job"] | undefined): string {
  const act = mustActAbout(of, job);
  const facts = [
    [t("state"), `${wordsOf(of.outcome ?? of.state)}`],
    [t("opened"), of.opened_at],
    [t("closed"), of.closed_at ?? "-"],
    [t("cause"), plain(causeText(of)) + (of.cause === null ? "" : ` (${plain(of.cause)})`)],
    [t("job"), of.job_id ?? "-"],
    [t("instances"), of.instances.join(", ") || "-"],
    [t("lost"), lostIn(of)],
    [t("act"), [act.says, ...act.instances].join(" ")],
  ];
  const phases = of.phases.map(({ status, since, until }) => {
    const lasted = until === null ? t("lasts") : span(secondsBetween(since, until));
    return `- ${wordsOf(status)}: ${lasted}`;
  });
  return [
    `# ${t("incident")} ${of.incident_id}`,
    "",
    plain(of.reason),
    "",
    ...facts.map(([name, value]) => `- ${name}: ${value}`),
    "",
    `## ${t("happened")}`,
    "",
    ...entriesOf(of.events).map(line),
    ...(of.passed_checks.instances > 0 ? ["", t("passed", { n: of.passed_checks.instances })] : []),
    ...(of.left_out > 0 ? ["", t("more", { n: of.left_out })] : []),
    "",
    `## ${t("phases")}`,
    "",
    ...phases,
    "",
  ].join("\n");
}

function line(of: Entry): string {
  const move = of.after === null ? "" : of.before === null ? of.after : `${of.before} -> ${of.after}`;
  const parts = [of.instance ?? of.job ?? "", plain(move), plain(of.reason)];
  if (of.check !== null) parts.push(plain(of.check));
  if (of.verdict !== null) parts.push(`${t("verdict")} ${wordsFor("cause", plain(of.verdict.cause))} ${of.verdict.confidence} %`);
  if (of.message !== null) parts.push(`${t("message")}: ${plain(of.message.subject)}`);
  return `- ${of.at} ${parts.filter(Boolean).join("; ")}`;
}
