// The log of a rank: the newest lines, followed while the rank runs, with a search in what is shown.
import { useEffect, useRef, useState } from "preact/hooks";
import { bodyOf, client, patiently, pause, Refused } from "../api";
import { refreshing } from "../live";
import { texts } from "../texts";
import { Problem } from "./problem";

const t = texts({
  en: {
    follow: "Follow",
    find: "Find in what is shown",
    wrap: "Wrap lines",
    save: "Download what is shown",
    none: "No line yet.",
    over: "The log has ended.",
    cut: "Only the newest {n} lines are kept here.",
    count: "{shown} of {all} lines",
    again: "Try again",
  },
  zh: {
    follow: "跟随",
    find: "在已显示的内容中查找",
    wrap: "自动换行",
    save: "下载已显示的内容",
    none: "还没有输出。",
    over: "日志已结束。",
    cut: "这里只保留最新的 {n} 行。",
    count: "{all} 行中的 {shown} 行",
    again: "重试",
  },
});
const KEPT_LINES = 10_000;
const SHOWN_LINES = 2_000;
const EVERY_MS = 2_000;
const EVERY_MS_MAX = 10_000;
// Escape sequences of terminals: colours are dropped, text stays.
const ESCAPES = /\u001b\[[0-9;?]*[A-Za-z]/g;

interface Line {
  at: string | null;
  text: string;
}

/** The log of one rank of one attempt. Another rank or attempt needs another key.
 *
 * Args: isOver: whether the attempt has ended, so that a log that is missing now will not appear.
 */
export function Log({ job, attempt, rank, isOver }: { job: string; attempt: number; rank: number; isOver: boolean }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [problem, setProblem] = useState<Error>();
  const [state, setState] = useState<"follows" | "over" | "stopped">("follows");
  const [readings, setReadings] = useState(0);
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useState(true);
  const [find, setFind] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const ended = useRef(isOver);
  ended.current = isOver;
  useEffect(() => {
    const left = new AbortController();
    let cursor: string | undefined;
    let wait = EVERY_MS;
    const read = async (): Promise<boolean> => {
      const query = { attempt, rank, ...(cursor === undefined ? { tail: 1_000 } : { cursor }) };
      const params = { path: { job_id: job }, query };
      const page = await patiently(() => bodyOf(client.GET("/api/v2/jobs/{job_id}/logs", { params, signal: left.signal })), left.signal);
      wait = page.lines.length > 0 ? EVERY_MS : Math.min(EVERY_MS_MAX, wait * 1.5);
      setProblem(undefined);
      if (cursor === undefined) setLines(page.lines);
      else if (page.lines.length > 0) setLines((known) => [...known, ...page.lines].slice(-KEPT_LINES));
      cursor = page.next_cursor ?? undefined;
      return cursor !== undefined;
    };
    const readOn = async (): Promise<void> => {
      for (;;) {
        try {
          if (!(await read())) return setState("over");
        } catch (error) {
          if (left.signal.aborted) return;
          setProblem(error as Error);
          if (!mayAppear(error as Error, cursor !== undefined, ended.current)) return setState("stopped");
          cursor = undefined; // a cursor that is not accepted any more: from the newest lines on
          wait = EVERY_MS_MAX;
        }
        await pause(wait, left.signal);
        while (!refreshing.value) await pause(EVERY_MS, left.signal);
      }
    };
    setState("follows");
    readOn().catch((error: unknown) => left.signal.aborted || reportError(error));
    return () => left.abort();
  }, [job, attempt, rank, readings]);
  const clean = lines.map((line) => line.text.replace(ESCAPES, ""));
  const found = find === "" ? clean : clean.filter((text) => text.toLowerCase().includes(find.toLowerCase()));
  const shown = found.slice(-SHOWN_LINES);
  useEffect(() => {
    if (follow && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, lines.length, follow]);
  const save = (): void => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([found.join("\n")], { type: "text/plain" }));
    link.download = `${job}-a${attempt}-r${rank}.log`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <section>
      <div class="filters">
        <label>
          {t("find")}
          <input type="search" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
        </label>
        <label>
          <input type="checkbox" role="switch" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} /> {t("follow")}
        </label>
        <label>
          <input type="checkbox" role="switch" checked={wrap} onChange={(event) => setWrap(event.currentTarget.checked)} /> {t("wrap")}
        </label>
        <button type="button" class="secondary outline" onClick={save} disabled={found.length === 0}>
          {t("save")}
        </button>
        <small>{t("count", { shown: shown.length, all: clean.length })}</small>
      </div>
      <Problem of={problem}>
        {state === "stopped" && (
          <button type="button" class="secondary small" onClick={() => setReadings(readings + 1)}>
            {t("again")}
          </button>
        )}
      </Problem>
      {clean.length === KEPT_LINES && <p>{t("cut", { n: KEPT_LINES })}</p>}
      <pre ref={box} class={`log ${wrap ? "wrap" : ""}`} tabIndex={0} lang={shown.length === 0 ? undefined : "en"}>
        {shown.length === 0 ? t("none") : shown.join("\n")}
      </pre>
      {state === "over" && <p>{t("over")}</p>}
    </section>
  );
}

/** Return whether a log that could not be read may be readable later. */
function mayAppear(error: Error, isFurther: boolean, isOver: boolean): boolean {
  if (!(error instanceof Refused)) return false;
  if (error.status >= 500) return true;
  if (error.status === 404) return !isOver;
  return isFurther && error.status !== 401 && error.status !== 403;
}
