// The log of a rank: the newest lines, followed while the rank runs, with a search in what is shown.
import { useEffect, useRef, useState } from "preact/hooks";
import { Away, bodyOf, client, type Refused } from "../api";
import { refreshing } from "../live";
import { texts } from "../texts";

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

/** The log of one rank of one attempt. Another rank or attempt starts anew. */
export function Log({ job, attempt, rank }: { job: string; attempt: number; rank: number }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [problem, setProblem] = useState("");
  const [over, setOver] = useState(false);
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useState(true);
  const [find, setFind] = useState("");
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stopped = new AbortController();
    let cursor: string | undefined;
    let wait = EVERY_MS;
    let timer: number | undefined;
    setLines([]);
    setOver(false);
    setProblem("");
    const read = async (): Promise<void> => {
      if (stopped.signal.aborted) return;
      if (!document.hidden && refreshing.value) {
        try {
          const query = { attempt, rank, ...(cursor === undefined ? { tail: 1_000 } : { cursor }) };
          const page = await bodyOf(
            client.GET("/api/v2/jobs/{job_id}/logs", { params: { path: { job_id: job }, query }, signal: stopped.signal }),
          );
          wait = page.lines.length > 0 ? EVERY_MS : Math.min(EVERY_MS_MAX, wait * 1.5);
          setProblem("");
          if (page.lines.length > 0) setLines((known) => [...known, ...page.lines].slice(-KEPT_LINES));
          if (page.next_cursor === null) return setOver(true);
          cursor = page.next_cursor;
        } catch (error) {
          if (stopped.signal.aborted) return;
          wait = EVERY_MS_MAX;
          if (!(error instanceof Away)) setProblem((error as Refused).message);
        }
      }
      timer = setTimeout(() => void read(), wait) as unknown as number;
    };
    void read();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [job, attempt, rank]);
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
      {problem !== "" && (
        <p class="problem" role="status" lang="en">
          {problem}
        </p>
      )}
      {clean.length === KEPT_LINES && <p>{t("cut", { n: KEPT_LINES })}</p>}
      <pre ref={box} class={`log ${wrap ? "wrap" : ""}`} tabIndex={0} lang="en">
        {shown.length === 0 ? t("none") : shown.join("\n")}
      </pre>
      {over && <p>{t("over")}</p>}
    </section>
  );
}
