// Diagnose a log, a case of reports, or an attempt of a job. What is dropped in is judged and not kept.
import { useState } from "preact/hooks";
import type { Schemas } from "../api";
import { useDiagnosis } from "../diagnosis";
import { Problem } from "../parts/problem";
import { AnyVerdict } from "../parts/verdict";
import { query } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Diagnose",
    drop: "Drop a log here, or choose a file",
    file: "Log or case file",
    kept: "The file is judged in your deployment and not kept. Of a log longer than 240 KiB only the end is sent.",
    cut: "Only the last 240 KiB of {name} were sent.",
    or: "Or an attempt of a job",
    job: "Job",
    attempt: "Attempt (the latest, if empty)",
    button: "Diagnose",
    paste: "Or paste lines",
    read: "Judge the lines",
    pasted: "the pasted lines",
    of: "{job}, attempt {attempt}",
    verdict: "Verdict on {of}",
    judging: "Judging {of}",
  },
  zh: {
    title: "诊断",
    drop: "把日志拖到这里，或选择文件",
    file: "日志或案例文件",
    kept: "文件在你的部署中判断，不会保存。超过 240 KiB 的日志只发送末尾部分。",
    cut: "只发送了 {name} 的最后 240 KiB。",
    or: "或者某个作业的一次尝试",
    job: "作业",
    attempt: "尝试（留空为最新一次）",
    button: "诊断",
    paste: "或粘贴若干行",
    read: "判断这些行",
    pasted: "粘贴的内容",
    of: "{job} 的第 {attempt} 次尝试",
    verdict: "对 {of} 的结论",
    judging: "正在判断 {of}",
  },
});
/** Bytes of a log that are sent. The API takes bodies of 256 KiB, and JSON escapes some characters. */
const SENT_MAX = 240 * 1024;

/** Return a body for the route: reports if every line is a JSON object, else a log. */
function bodyOfText(text: string, name: string): Schemas["DiagnosisRequest"] {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  try {
    const parsed = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    if (lines.length > 0 && parsed.every((each) => typeof each === "object" && each !== null && "type" in each)) {
      const workers = parsed.filter((each) => each["type"] === "worker").map(({ type: _type, ...rest }) => rest);
      return { reports: parsed.filter((each) => each["type"] !== "worker"), workers } as Schemas["DiagnosisRequest"];
    }
  } catch {
    // A log, as most files are.
  }
  return { log: text, name };
}

/** Return the end of a text that fits into a request, from the beginning of a line on. */
function endOf(text: string): { text: string; cut: boolean } {
  const size = (part: string): number => new TextEncoder().encode(JSON.stringify(part)).length;
  if (size(text) <= SENT_MAX) return { text, cut: false };
  let end = text.slice(-SENT_MAX);
  while (size(end) > SENT_MAX) end = end.slice(Math.ceil(end.length / 10));
  return { text: end.slice(end.indexOf("\n") + 1), cut: true };
}

export function Diagnose() {
  const { ask, of, answer, problem, busy } = useDiagnosis();
  const [note, setNote] = useState("");
  const [job, setJob] = useState(query.value.get("job") ?? "");
  const [attempt, setAttempt] = useState(query.value.get("attempt") ?? "");
  const [pasted, setPasted] = useState("");
  const [over, setOver] = useState(false);
  const judge = async (file: File | undefined): Promise<void> => {
    if (file === undefined) return;
    // Only the end of a large file is read into memory. The last lines hold the cause.
    const { text, cut } = endOf(await file.slice(-4 * SENT_MAX).text());
    setNote(cut || file.size > 4 * SENT_MAX ? t("cut", { name: file.name }) : "");
    await ask(bodyOfText(text, file.name), file.name);
  };
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      <h1>{t("title")}</h1>
      <div class="two">
        <section
          class={`drop ${over ? "over" : ""}`}
          onDragOver={(event) => (event.preventDefault(), setOver(true))}
          onDragLeave={() => setOver(false)}
          onDrop={(event) => {
            event.preventDefault();
            setOver(false);
            void judge(event.dataTransfer?.files[0]);
          }}
        >
          <p>{t("drop")}</p>
          <label>
            {t("file")}
            <input type="file" onChange={(event) => void judge(event.currentTarget.files?.[0])} />
          </label>
          <small>{t("kept")}</small>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              setNote("");
              void ask(bodyOfText(endOf(pasted).text, ""), t("pasted"));
            }}
          >
            <label>
              {t("paste")}
              <textarea name="lines" rows={4} required value={pasted} onInput={(event) => setPasted(event.currentTarget.value)} />
            </label>
            <button type="submit" class="secondary">
              {t("read")}
            </button>
          </form>
        </section>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            setNote("");
            void ask(attempt === "" ? { job_id: job } : { job_id: job, attempt: Number(attempt) }, attempt === "" ? job : t("of", { job, attempt }));
          }}
        >
          <p>{t("or")}</p>
          <label>
            {t("job")}
            <input name="job" required value={job} onInput={(event) => setJob(event.currentTarget.value)} />
          </label>
          <label>
            {t("attempt")}
            <input name="attempt" type="number" min={1} value={attempt} onInput={(event) => setAttempt(event.currentTarget.value)} />
          </label>
          <button type="submit">{t("button")}</button>
        </form>
      </div>
      <section aria-live="polite" aria-busy={busy}>
        {of !== "" && <h2>{t(busy ? "judging" : "verdict", { of })}</h2>}
        {note !== "" && <p>{note}</p>}
        <Problem of={problem} />
        {answer !== undefined && <AnyVerdict of={answer} />}
      </section>
    </main>
  );
}
