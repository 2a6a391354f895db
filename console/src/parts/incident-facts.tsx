// Facts of an incident that the list and the page of an incident share.
import { type Schemas } from "../api";
import { texts } from "../texts";
import { wordsFor } from "./codes";
import { mustAct } from "./job-facts";
import { gpuTime, notKnown } from "./units";

const t = texts({
  en: {
    undecided: "undecided",
    actSee: "Yes. The recovery cannot go on by itself. Do what the last message says.",
    actInstance: "Yes. The instance stays out of use until an operator releases it. Deal with the reason first, then release it on its page.",
    also: "An operator must also see to",
    actOpen: "No. The recovery goes on by itself. You are notified if it needs you.",
    actFailed: "Yes. The recovery has ended without success. Read the cause, then submit the job again.",
    actRecovered: "No. This incident is over: the job ran again, or ended with success.",
    actCanceled: "No. The job was canceled.",
    actService: "No. The instance works again.",
    actGone: "No. The instance has left the cluster.",
  },
  zh: {
    undecided: "未判定",
    actSee: "需要。恢复无法自动继续，请按最近一条消息处理。",
    actInstance: "需要。运维人员解除隔离之前，该实例不会投入使用。请先处理原因，再到实例页面解除隔离。",
    also: "运维人员还需要处理：",
    actOpen: "不需要。恢复在自动进行；需要你时会通知你。",
    actFailed: "需要。恢复没有成功。请查看原因后重新提交作业。",
    actRecovered: "不需要。此事故已结束：作业已恢复运行，或已成功结束。",
    actCanceled: "不需要。作业已被取消。",
    actService: "不需要。实例已恢复工作。",
    actGone: "不需要。实例已离开集群。",
  },
});
const ACT = {
  recovered: "actRecovered",
  failed: "actFailed",
  canceled: "actCanceled",
  in_service: "actService",
  gone: "actGone",
} as const;

/** Return the cause with the confidence in it, as text. */
export function causeText(of: Schemas["Incident"]): string {
  // An instance is repaired without a diagnosis of a job.
  if (of.cause === null) return of.job_id === null ? "-" : notKnown();
  const share = of.confidence === null ? "" : ` ${of.confidence}\u00a0%`;
  return `${wordsFor("cause", of.cause)}${share}${of.decided ? "" : ` (${t("undecided")})`}`;
}

/** Return the GPU time that an incident has cost. An incident of an instance alone stops no job. */
export function lostIn(of: Schemas["Incident"]): string {
  return of.job_id === null ? "-" : gpuTime(of.gpu_h_lost);
}

/** Return the last message to operators about the incident itself, and not about an instance that is repaired for it. */
export function lastMessage(of: Schemas["IncidentThread"]): Schemas["Event"]["message"] {
  const told = of.events.filter((event) => event.incident_id === of.incident_id && event.message !== null);
  return told[told.length - 1]?.message ?? null;
}

/** Return whether a person must act about the incident, as a sentence, and the instances that an operator must see to.
 *
 * Args: job: the job of an open incident as it is now. It may wait for something that does not come by itself.
 */
export function mustActAbout(of: Schemas["IncidentThread"], job: Schemas["Job"] | undefined): { says: string; instances: string[] } {
  if (of.outcome !== null) return { says: t(ACT[of.outcome]), instances: [] };
  const instances = instancesInNeed(of);
  if (of.job_id === null) return { says: instances.length > 0 ? t("actInstance") : t("actOpen"), instances };
  const says = lastMessage(of)?.severity === "SEV2" ? t("actSee") : job === undefined ? t("actOpen") : mustAct(job);
  return { says: instances.length > 0 ? `${says} ${t("also")}` : says, instances };
}

/** Return what happens now: the last change of an open incident. */
export function lastChange(of: Schemas["IncidentThread"]): Schemas["Event"] | undefined {
  return of.events.filter((event) => event.after !== null).pop();
}

/** Return the instances that are quarantined, and whose last message asked an operator to act. */
function instancesInNeed(of: Schemas["IncidentThread"]): string[] {
  const last = new Map<string, { after: string | null; severity: string | undefined }>();
  for (const event of of.events) {
    if (event.instance_id === null) continue;
    const before = last.get(event.instance_id);
    last.set(event.instance_id, { after: event.after ?? before?.after ?? null, severity: event.message?.severity ?? before?.severity });
  }
  return [...last].filter(([, { after, severity }]) => after === "QUARANTINED" && severity === "SEV2").map(([id]) => id);
}
