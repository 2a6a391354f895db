// Orders about jobs: what each does, what it asks for, and how it is sent.
import { bodyOf, client, type Schemas } from "../api";
import { may, session } from "../session";
import { texts } from "../texts";
import type { Order } from "./confirm";
import { wordsOf } from "./status";
import { ENDED, holdsInstances } from "./job-facts";

const t = texts({
  en: {
    suspend: "Suspend",
    resume: "Resume",
    cancel: "Cancel",
    force: "Cancel by force",
    suspendSays: "{id} gets a request to save its state and leaves its {n} instances. It keeps its position in the queue.",
    suspendWaits: "{id} waits and holds no instances. It keeps its position in the queue, and is not started until someone resumes it.",
    resumeSays: "{id} is queued again at its former position.",
    cancelSays: "{id} is stopped on {n} instances with {gpus} GPUs, in attempt {attempt}. Work since its last checkpoint is lost. A canceled job is not started again.",
    cancelWaits: "{id} waits and holds no instances. It is taken out of the queue. A canceled job is not started again.",
    forceSays: "The node agents end the ranks of {id} on {n} instances. Use this after a cancellation that has not ended.",
    owner: "Only its user or an operator may do this.",
    signIn: "Sign in as a user or an operator to do this.",
    state: "Not possible: the job is in the status “{status}”.",
  },
  zh: {
    suspend: "挂起",
    resume: "恢复",
    cancel: "取消",
    force: "强制取消",
    suspendSays: "{id} 会收到保存状态的请求，并离开它的 {n} 个实例。它在队列中的位置保留。",
    suspendWaits: "{id} 在等待，没有占用实例。它在队列中的位置保留，在有人恢复它之前不会启动。",
    resumeSays: "{id} 会回到队列中原来的位置。",
    cancelSays: "{id} 将在 {n} 个实例（{gpus} 个 GPU）上停止，当前是第 {attempt} 次尝试。上一个检查点之后的工作会丢失。取消的作业不会再启动。",
    cancelWaits: "{id} 在等待，没有占用实例。它会从队列中移除。取消的作业不会再启动。",
    forceSays: "节点代理 会结束 {id} 在 {n} 个实例上的进程。请在普通取消迟迟没有结束时使用。",
    owner: "只有作业的用户或运维人员可以这样做。",
    signIn: "以用户或运维人员身份登录后才能这样做。",
    state: "作业处于“{status}”状态时不能这样做。",
  },
});

export type JobOrder = "suspend" | "resume" | "cancel" | "force";
const CAN: Record<JobOrder, (status: string) => boolean> = {
  suspend: (status) => ["QUEUED", "PENDING_RESOURCES", "SUBMITTING", "SUBMITTED", "RUNNING", "LOST"].includes(status),
  resume: (status) => ["SUSPENDED", "SUSPENDING"].includes(status),
  cancel: (status) => !ENDED.includes(status),
  force: (status) => !ENDED.includes(status),
};

/** Return why the present session cannot give an order about a job; "" if it can. */
export function whyNot(order: JobOrder, job: Schemas["JobRow"]): string {
  if (!may("user")) return t("signIn");
  if (session.value?.role !== "operator" && session.value?.user !== job.user) return t("owner");
  return CAN[order](job.status) ? "" : t("state", { status: wordsOf(job.status) });
}

/** Return the words of an order's button. */
export function wordsOfOrder(order: JobOrder): string {
  return t(order);
}

/** Send an order. Returns the job as it is then. */
export async function sendOrder(order: JobOrder, jobId: string, because: string): Promise<Schemas["Job"]> {
  const params = { path: { job_id: jobId } };
  switch (order) {
    case "suspend":
      return bodyOf(client.POST("/api/v2/jobs/{job_id}/suspend", { params, body: because === "" ? {} : { because } }));
    case "resume":
      return bodyOf(client.POST("/api/v2/jobs/{job_id}/resume", { params }));
    case "cancel":
      return bodyOf(client.POST("/api/v2/jobs/{job_id}/cancel", { params }));
    case "force":
      return bodyOf(client.POST("/api/v2/jobs/{job_id}/cancel", { params: { ...params, query: { force: "1" } } }));
  }
}

/** Return the dialog of an order about one job. `done` is called with the job as it is then. */
export function orderAbout(order: JobOrder, job: Schemas["JobRow"], done: (job: Schemas["Job"]) => void): Order {
  const values = { id: job.job_id, n: job.nnodes, gpus: job.nnodes * job.n_gpus_per_node, attempt: job.attempt };
  return {
    title: t(order),
    says: <p>{t(!holdsInstances(job) && (order === "suspend" || order === "cancel") ? `${order}Waits` : `${order}Says`, values)}</p>,
    ...(order === "suspend" ? { reason: "optional" as const } : {}),
    ...(order === "cancel" || order === "force" ? { typed: job.job_id.slice(-4) } : {}),
    send: async (reason) => {
      const after = await sendOrder(order, job.job_id, reason);
      done(after);
      return (
        <>
          {after.job_id}: <span lang="en">{after.reason}</span>
        </>
      );
    },
  };
}
