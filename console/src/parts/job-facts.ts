// Facts about a job that several pages show: whether a person must act.
import type { Schemas } from "../api";
import { texts } from "../texts";

const t = texts({
  en: {
    wait: "No. The job starts by itself when its GPUs are free.",
    run: "No. The job runs.",
    heal: "No. The job is being recovered. You are notified if it cannot be.",
    lost: "Not yet. The job is out of contact. It is decided at the deadline.",
    held: "Yes, if the job is to go on: it is suspended until someone resumes it.",
    failed: "Yes. The job has failed and is not tried again. Read the cause, then submit it again.",
    ended: "No. The job has ended.",
    cluster: "Yes. The cluster is too small for the job, so it cannot start. Ask for less, or add instances.",
    permission: "Yes. gpu-recovery lacks a permission to start the job. Once an operator grants the permission, the job starts by itself.",
    quota: "Only if the job is to start sooner. It waits until its user's other jobs end. An operator can raise the quota.",
    repairs: "Not yet. The job needs instances whose repair is held back. The fleet page shows what holds it back.",
  },
  zh: {
    wait: "不需要。GPU 空闲后作业会自动启动。",
    run: "不需要。作业在运行。",
    heal: "不需要。作业正在恢复；如果无法恢复，会通知你。",
    lost: "暂时不需要。作业失联，到期限时会作出判定。",
    held: "如果要继续运行，则需要：作业已挂起，等待有人恢复它。",
    failed: "需要。作业已失败，不会再重试。请查看原因后重新提交。",
    ended: "不需要。作业已结束。",
    cluster: "需要。集群太小，作业无法启动。请减少所需资源，或增加实例。",
    permission: "需要。gpu-recovery 缺少启动作业的权限。运维人员授予权限后，作业会自动启动。",
    quota: "只有希望提前启动时才需要。作业要等该用户的其他作业结束；运维人员可以提高配额。",
    repairs: "暂时不需要。作业需要的实例的修复被暂缓，机群页面说明了原因。",
  },
});
/** What a waiting job lacks that does not come by itself, or not soon. */
const SHORT = { cluster: "cluster", permission: "permission", quota: "quota", held: "repairs" } as const;
/** Statuses in which a job holds no instances. */
export const WAITING = ["QUEUED", "PENDING_RESOURCES", "RECOVERING", "SUSPENDED"];
/** Statuses that a job does not leave. */
export const ENDED = ["SUCCEEDED", "FAILED", "CANCELED"];

/** Return whether the job holds instances. */
export function holdsInstances(job: { status: string }): boolean {
  return !WAITING.includes(job.status) && !ENDED.includes(job.status);
}

/** Return whether a person must act about a job, as a sentence. */
export function mustAct(job: Pick<Schemas["Job"], "status" | "held" | "short_of">): string {
  if (job.status === "FAILED") return t("failed");
  if (ENDED.includes(job.status)) return t("ended");
  if (job.held && (job.status === "SUSPENDED" || job.status === "SUSPENDING")) return t("held");
  if (WAITING.includes(job.status) && job.short_of !== null && job.short_of in SHORT) return t(SHORT[job.short_of as keyof typeof SHORT]);
  switch (job.status) {
    case "LOST":
      return t("lost");
    case "STOPPING":
    case "DIAGNOSING":
    case "RECOVERING":
      return t("heal");
    case "RUNNING":
      return t("run");
    default:
      return t("wait");
  }
}
