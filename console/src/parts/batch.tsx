// An order about several jobs: the list, the number to type, and the result of each. The order is sent job by job.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api";
import { texts } from "../texts";
import { announce } from "./announce";
import { type JobOrder, sendOrder, whyNot, wordsOfOrder } from "./job-orders";
import { Status } from "./status";

const t = texts({
  en: {
    title: "{order}: {n} jobs",
    suspend: "Each job is asked to save its state and leaves its instances. It keeps its position in the queue.",
    resume: "Each job is queued again at its former position.",
    cancel: "Each job is stopped on its instances. Work since its last checkpoint is lost. A canceled job is not started again.",
    reason: "Reason (optional)",
    type: "Type {n} to confirm",
    back: "Back",
    close: "Close",
    left: "left out: {why}",
    ok: "done",
    failed: "refused",
    waits: "waiting",
    result: "{ok} of {n} done",
    nobody: "None of these jobs can be changed this way.",
  },
  zh: {
    title: "{order}：{n} 个任务",
    suspend: "每个任务会收到保存状态的请求并离开它的实例，在队列中的位置保留。",
    resume: "每个任务会回到队列中原来的位置。",
    cancel: "每个任务都会在它的实例上停止。上一个检查点之后的工作会丢失。取消的任务不会再启动。",
    reason: "原因（可选）",
    type: "输入 {n} 以确认",
    back: "返回",
    close: "关闭",
    left: "跳过：{why}",
    ok: "完成",
    failed: "被拒绝",
    waits: "等待",
    result: "{n} 个中完成 {ok} 个",
    nobody: "这些任务都不能这样更改。",
  },
});

export type BatchOrder = Exclude<JobOrder, "force">;
/** Upper bound of the jobs of one order. */
export const BATCH_MAX = 50;

interface Result {
  ok: boolean;
  sentence: string;
}

/** The dialog of an order about several jobs. `done` is called when it closes, with whether anything was sent. */
export function Batch({ order, jobs, done }: { order: BatchOrder; jobs: Schemas["JobRow"][]; done: (sent: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const back = useRef<HTMLButtonElement>(null);
  const began = useRef(false);
  const id = useId();
  // The list polls on behind the dialog: what a person confirms is what stood there when it opened.
  const [shown] = useState(jobs);
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const [results, setResults] = useState<Record<string, Result>>({});
  const [phase, setPhase] = useState<"asks" | "sends" | "done">("asks");
  useEffect(() => {
    dialog.current?.showModal();
    back.current?.focus();
  }, []);
  useEffect(() => {
    if (phase === "done") back.current?.focus();
  }, [phase]);
  const able = shown.filter((job) => whyNot(order, job) === "");
  const number = String(able.length);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (began.current || typed.trim() !== number || able.length === 0) return;
    began.current = true; // two presses send once
    setPhase("sends");
    let succeeded = 0;
    for (const job of able) {
      let result: Result;
      try {
        const after = await sendOrder(order, job.job_id, reason.trim());
        result = { ok: true, sentence: after.reason };
        succeeded += 1;
      } catch (error) {
        result = { ok: false, sentence: (error as Error).message };
      }
      setResults((before) => ({ ...before, [job.job_id]: result }));
    }
    setPhase("done");
    announce(t("result", { ok: succeeded, n: able.length }));
  };
  return (
    <dialog
      ref={dialog}
      onCancel={(event) => phase === "sends" && event.preventDefault()}
      onClose={() => done(began.current)}
      aria-labelledby={`${id}-title`}
    >
      <article class="wide">
        <h2 id={`${id}-title`}>{t("title", { order: wordsOfOrder(order), n: able.length })}</h2>
        <p>{able.length === 0 ? t("nobody") : t(order)}</p>
        <ul class="batch-list" tabIndex={0} aria-labelledby={`${id}-title`}>
          {shown.map((job) => (
            <li key={job.job_id}>
              <span>
                <Status of={job.status} /> <strong>{job.job_id}</strong> <small>{job.user}</small>
              </span>
              <Outcome why={whyNot(order, job)} result={results[job.job_id]} phase={phase} />
            </li>
          ))}
        </ul>
        <form onSubmit={(event) => void send(event)}>
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
          <footer>
            <button type="button" ref={back} class="back secondary" disabled={phase === "sends"} onClick={() => dialog.current?.close()}>
              {t(phase === "done" ? "close" : "back")}
            </button>
            {phase !== "done" && able.length > 0 && (
              <button type="submit" class="danger" disabled={typed.trim() !== number} aria-busy={phase === "sends"}>
                {wordsOfOrder(order)}
              </button>
            )}
          </footer>
        </form>
      </article>
    </dialog>
  );
}

function Outcome({ why, result, phase }: { why: string; result: Result | undefined; phase: "asks" | "sends" | "done" }) {
  if (result !== undefined) {
    return (
      <span class={result.ok ? "tone-good" : "tone-repair"}>
        {result.ok ? "✓" : "✕"} {t(result.ok ? "ok" : "failed")}: <span lang="en">{result.sentence}</span>
      </span>
    );
  }
  if (why !== "") return <span>{t("left", { why })}</span>;
  return phase === "asks" ? null : <span>{t(phase === "sends" ? "waits" : "failed")}</span>;
}
