// An order about several jobs: the list, the number to type, and the result of each. The order is sent job by job.
import { useRef, useState } from "preact/hooks";
import type { Schemas } from "../api";
import { texts } from "../texts";
import { announce } from "./announce";
import { type JobOrder, sendOrder, whyNot, wordsOfOrder } from "./job-orders";
import { Modal } from "./modal";
import { Sentence } from "./problem";
import { Status } from "./status";

const t = texts({
  en: {
    title: "{order}: {n} jobs",
    titleOne: "{order}: 1 job",
    suspend: "A job that runs is asked to save its state and leaves its instances. Each job keeps its position in the queue, and is not started until someone resumes it.",
    resume: "Each job is queued again at its former position.",
    cancel: "A job that runs is stopped on its instances: its work since its last checkpoint is lost. A job that waits is taken out of the queue. A canceled job is not started again.",
    reason: "Reason (optional)",
    type: "Type {n} to confirm",
    left: "left out: {why}",
    ok: "done",
    failed: "refused",
    waits: "waiting",
    result: "{ok} of {n} done",
    list: "Jobs",
    nobody: "None of these jobs can be changed this way.",
  },
  zh: {
    title: "{order}：{n} 个作业",
    titleOne: "{order}：1 个作业",
    suspend: "运行中的作业会收到保存状态的请求并离开它的实例。每个作业在队列中的位置保留，在有人恢复它之前不会启动。",
    resume: "每个作业会回到队列中原来的位置。",
    cancel: "运行中的作业会在它的实例上停止，上一个检查点之后的工作会丢失；等待的作业会从队列中移除。取消的作业不会再启动。",
    reason: "原因（可选）",
    type: "输入 {n} 以确认",
    left: "跳过：{why}",
    ok: "完成",
    failed: "被拒绝",
    waits: "等待",
    result: "{n} 个中完成 {ok} 个",
    list: "作业",
    nobody: "这些作业都不能这样更改。",
  },
});

export type BatchOrder = Exclude<JobOrder, "force">;
/** Upper bound of the jobs of one order. */
export const BATCH_MAX = 50;

/** The server's sentence about the job as it is then, or why the order was refused. */
type Result = string | Error;

/** The dialog of an order about several jobs. `done` is called when it closes, with whether anything was sent. */
export function Batch({ order, jobs, done }: { order: BatchOrder; jobs: Schemas["JobRow"][]; done: (sent: boolean) => void }) {
  const began = useRef(false);
  // The list polls on behind the dialog: what a person confirms is what stood there when it opened.
  const [shown] = useState(jobs);
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const [results, setResults] = useState<Record<string, Result>>({});
  const [phase, setPhase] = useState<"asks" | "sends" | "done">("asks");
  const able = shown.filter((job) => whyNot(order, job) === "");
  const number = String(able.length);
  const send = async (): Promise<void> => {
    if (began.current || typed.trim() !== number || able.length === 0) return;
    began.current = true; // two presses send once
    setPhase("sends");
    let succeeded = 0;
    for (const job of able) {
      let result: Result;
      try {
        result = (await sendOrder(order, job.job_id, reason.trim())).reason;
        succeeded += 1;
      } catch (error) {
        result = error as Error;
      }
      setResults((before) => ({ ...before, [job.job_id]: result }));
    }
    setPhase("done");
    announce(t("result", { ok: succeeded, n: able.length }));
  };
  return (
    <Modal
      title={t(able.length === 1 ? "titleOne" : "title", { order: wordsOfOrder(order), n: able.length })}
      wide
      busy={phase === "sends"}
      over={phase === "done"}
      close={() => done(began.current)}
      submit={() => void send()}
      buttons={
        phase !== "done" &&
        able.length > 0 && (
          <button type="submit" class="danger" disabled={typed.trim() !== number} aria-busy={phase === "sends"}>
            {wordsOfOrder(order)}
          </button>
        )
      }
    >
      <p>{able.length === 0 ? t("nobody") : t(order)}</p>
      <ul class="batch-list" tabIndex={0} aria-label={t("list")}>
        {shown.map((job) => (
          <li key={job.job_id}>
            <span>
              <Status of={job.status} /> <strong>{job.job_id}</strong> <small>{job.user}</small>
            </span>
            <Outcome why={whyNot(order, job)} result={results[job.job_id]} phase={phase} />
          </li>
        ))}
      </ul>
      {phase === "asks" && able.length > 0 && (
        <>
          {order === "suspend" && (
            <label>
              {t("reason")}
              <input name="reason" maxLength={500} value={reason} autocomplete="off" onInput={(event) => setReason(event.currentTarget.value)} />
            </label>
          )}
          <label>
            {t("type", { n: number })}
            <input name="typed" inputMode="numeric" value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        </>
      )}
    </Modal>
  );
}

function Outcome({ why, result, phase }: { why: string; result: Result | undefined; phase: "asks" | "sends" | "done" }) {
  if (result instanceof Error) {
    return (
      <span class="tone-repair">
        ✕ {t("failed")}: <Sentence of={result} />
      </span>
    );
  }
  if (result !== undefined) {
    return (
      <span class="tone-good">
        ✓ {t("ok")}: <span lang="en">{result}</span>
      </span>
    );
  }
  if (why !== "") return <span>{t("left", { why })}</span>;
  return phase === "asks" ? null : <span>{t(phase === "sends" ? "waits" : "failed")}</span>;
}
