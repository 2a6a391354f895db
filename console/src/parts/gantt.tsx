// The course of a job over time: its phases, and what happened to its ranks and their instances. Beside it, the same
// as a table.
import { useEffect, useState } from "preact/hooks";
import { bodyOf, client, type Schemas, serverNow } from "../api";
import { usePolled } from "../live";
import { query, refine, to } from "../place";
import { language, texts } from "../texts";
import { ENDED } from "./job-facts";
import { Loaded } from "./loaded";
import { lookOf, Status, wordsOf } from "./status";
import { Clock, span, tick } from "./time";

const t = texts({
  en: {
    window: "Show",
    whole: "the whole course",
    around: "around the end of attempt {n}",
    incidents: "Incidents of this job",
    queue: "Before the first attempt",
    attempt: "Attempt {n}",
    job: "job",
    rank: "rank {ranks}",
    ranks: "ranks {ranks} ({n})",
    failed: "rank {n} failed",
    lasts: "lasts",
    phase: "{what}, {from} to {until} ({span})",
    hint: "Point at a mark, or reach it by the tab key: its sentence is shown here.",
    table: "Show as table",
    earlier: "{n} earlier attempts are not shown.",
    incomplete: "The event history is too long: its oldest part is not shown.",
    none: "The job has no course yet.",
    number: "Attempt",
    who: "Of",
    what: "What",
    from: "From",
    until: "Until",
    sentence: "Sentence",
    chart: "Timeline",
  },
  zh: {
    window: "显示",
    whole: "全过程",
    around: "第 {n} 次尝试结束前后",
    incidents: "该作业的事故",
    queue: "第一次尝试之前",
    attempt: "第 {n} 次尝试",
    job: "作业",
    rank: "rank {ranks}",
    ranks: "rank {ranks}（{n} 个）",
    failed: "rank {n} 故障",
    lasts: "进行中",
    phase: "{what}，{from} 至 {until}（{span}）",
    hint: "指向一个标记，或用 Tab 键到达它：这里会显示它的说明。",
    table: "显示为表格",
    earlier: "更早的 {n} 次尝试未显示。",
    incomplete: "事件历史过长：最早的部分未显示。",
    none: "作业还没有经过。",
    number: "尝试",
    who: "对象",
    what: "内容",
    from: "从",
    until: "到",
    sentence: "说明",
    chart: "时间线",
  },
});
/** Milliseconds shown before and after an interruption. */
const MARGIN_MS = 60_000;
const TICKS = 4;
type Timeline = Schemas["Timeline"];

/** Something in a lane: a status over time, or the moment of a failure. `until` is null while it lasts. */
interface Piece {
  kind: "phase" | "mark" | "failure";
  state: string;
  words: string;
  since: number;
  until: number | null;
  sentence: string;
  /** Whether the sentence is from the server, which speaks English. */
  english: boolean;
}
interface Lane {
  key: string;
  attempt: number;
  label: string;
  instances: string[];
  pieces: Piece[];
  /** Of ranks: when the attempt ran, drawn behind the pieces. */
  runs: { since: number; until: number | null }[];
}
interface Window {
  from: number;
  until: number;
}

/** The timeline of a job. */
export function Gantt({ job }: { job: Schemas["Job"] }) {
  const polled = usePolled(
    `timeline ${job.job_id}`,
    (signal) => bodyOf(client.GET("/api/v2/jobs/{job_id}/timeline", { params: { path: { job_id: job.job_id } }, signal })),
    // The event of the last decision arrives seconds after the decision.
    (answer) => (answer !== undefined && answer.status === job.status && ENDED.includes(job.status) ? 60_000 : 10_000),
  );
  useEffect(() => {
    if (polled.data.value !== undefined) polled.hurry(2_000, 6_000); // the event of a decision follows the decision
  }, [job.status_at]);
  return <Loaded from={polled}>{(timeline) => <Chart of={timeline} />}</Loaded>;
}

function Chart({ of }: { of: Timeline }) {
  void tick.value;
  const [sentence, setSentence] = useState<Piece>();
  const lanes = lanesOf(of);
  const pieces = lanes.flatMap((lane) => lane.pieces);
  if (pieces.length === 0) return <p>{t("none")}</p>;
  const now = serverNow();
  const ends = ENDED.includes(of.status) ? Math.max(...pieces.map((piece) => piece.until ?? piece.since)) : now;
  const whole = { from: Math.min(...pieces.map((piece) => piece.since)), until: ends };
  const asked = Number(query.value.get("around") ?? 0);
  const around = asked > 0 ? windowAround(of, asked, now) : undefined;
  const shown = around === undefined ? whole : { from: Math.max(around.from, whole.from), until: around.until };
  const groups = [0, ...of.attempts.map((each) => each.attempt)].filter((attempt) => lanes.some((lane) => lane.attempt === attempt));
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          {t("window")}
          <select name="around" value={shown === whole ? "" : String(asked)} onChange={(event) => refine({ around: event.currentTarget.value })}>
            <option value="">{t("whole")}</option>
            {of.attempts
              .filter((each) => windowAround(of, each.attempt, now) !== undefined)
              .map(({ attempt }) => (
                <option key={attempt} value={String(attempt)}>
                  {t("around", { n: attempt })}
                </option>
              ))}
          </select>
        </label>
        <a href={to(["incidents"], { job: of.job_id })}>{t("incidents")}</a>
      </form>
      {of.earlier_attempts > 0 && <p>{t("earlier", { n: of.earlier_attempts })}</p>}
      {!of.is_complete && <p>{t("incomplete")}</p>}
      <section class="gantt" aria-label={t("chart")}>
        <Axis of={shown} />
        {groups.map((attempt) => (
          <section key={attempt} aria-label={attemptName(attempt)}>
            <h3>{attemptName(attempt)}</h3>
            {lanes
              .filter((lane) => lane.attempt === attempt)
              .map((lane) => (
                <div class="lane" key={lane.key}>
                  <div class="name">
                    {lane.label}
                    {lane.instances.slice(0, 1).map((name) => (
                      <a key={name} href={to(["instances", name])}>
                        {name}
                      </a>
                    ))}
                  </div>
                  <div class="track">
                    {lane.runs.map((run) => (
                      <span key={run.since} class="run tone-used" style={placed(run.since, run.until ?? now, shown)} />
                    ))}
                    {lane.pieces.map((piece) => (
                      <Bar key={`${piece.kind} ${piece.state} ${piece.since}`} of={piece} within={shown} now={now} tell={setSentence} />
                    ))}
                  </div>
                </div>
              ))}
          </section>
        ))}
      </section>
      <p class="told" aria-live="polite" lang={sentence?.english ? "en" : undefined}>
        {sentence?.sentence ?? t("hint")}
      </p>
      <details>
        <summary>{t("table")}</summary>
        <AsTable of={lanes} />
      </details>
    </>
  );
}

function Axis({ of }: { of: Window }) {
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const isLong = of.until - of.from > 36 * 3_600_000;
  const text = (at: number): string =>
    isLong
      ? new Date(at).toLocaleString(locale, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" })
      : new Date(at).toLocaleTimeString(locale);
  return (
    <div class="lane axis" aria-hidden="true">
      <div class="name" />
      <div class="track">
        {Array.from({ length: TICKS }, (_, at) => (
          <span key={at}>{text(of.from + ((of.until - of.from) * at) / (TICKS - 1))}</span>
        ))}
      </div>
    </div>
  );
}

function Bar({ of, within, now, tell }: { of: Piece; within: Window; now: number; tell: (piece: Piece) => void }) {
  const until = of.until ?? now;
  if (until < within.from || of.since > within.until) return null;
  const look = lookOf(of.state);
  return (
    <span
      class={`piece ${of.kind} tone-${look.tone}`}
      style={placed(of.since, until, within)}
      tabIndex={0}
      role="img"
      title={of.sentence}
      aria-label={of.sentence}
      lang={of.english ? "en" : undefined}
      onFocus={() => tell(of)}
      onPointerEnter={() => tell(of)}
    >
      <span aria-hidden="true">
        {look.sign} {of.kind === "failure" ? "" : of.words}
      </span>
    </span>
  );
}

/** Return the place of a time in the window, cut at its ends. */
function placed(since: number, until: number, within: Window): { left: string; width: string } {
  const share = (at: number): number =>
    (Math.min(Math.max(at, within.from), within.until) - within.from) / Math.max(1, within.until - within.from);
  return { left: `${share(since) * 100}%`, width: `${Math.max(0, share(until) - share(since)) * 100}%` };
}

function AsTable({ of }: { of: Lane[] }) {
  return (
    <table class="rows">
      <thead>
        <tr>
          {(["number", "who", "what", "from", "until", "sentence"] as const).map((name) => (
            <th key={name} scope="col">
              {t(name)}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {of.flatMap((lane) =>
          lane.pieces.map((piece) => (
            <tr key={`${lane.key} ${piece.kind} ${piece.since}`}>
              <td data-label={t("number")}>{lane.attempt === 0 ? "-" : lane.attempt}</td>
              <td data-label={t("who")}>
                {lane.label} {lane.instances.join(", ")}
              </td>
              <td data-label={t("what")}>{piece.kind === "failure" ? piece.words : <Status of={piece.state} />}</td>
              <td data-label={t("from")}>
                <Clock at={new Date(piece.since).toISOString()} />
              </td>
              <td data-label={t("until")}>
                {piece.kind === "failure" ? "-" : piece.until === null ? t("lasts") : <Clock at={new Date(piece.until).toISOString()} />}
              </td>
              <td data-label={t("sentence")} lang={piece.english ? "en" : undefined}>
                {piece.sentence}
              </td>
            </tr>
          )),
        )}
      </tbody>
    </table>
  );
}

function attemptName(attempt: number): string {
  return attempt === 0 ? t("queue") : t("attempt", { n: attempt });
}

/** Return the lanes of the chart: for each attempt its phases, then a lane for each group of ranks of equal course. */
function lanesOf(of: Timeline): Lane[] {
  const lanes = [jobLane(0, of.before_first_attempt)];
  for (const { attempt, phases, failure, rows } of of.attempts) {
    lanes.push(jobLane(attempt, phases));
    const runs = phases
      .filter((phase) => phase.status === "RUNNING")
      .map(({ since, until }) => ({ since: Date.parse(since), until: until === null ? null : Date.parse(until) }));
    for (const row of rows) {
      const label = row.number === 1 ? t("rank", { ranks: row.ranks }) : t("ranks", { ranks: row.ranks, n: row.number });
      const pieces = row.marks.map((mark) => overTime("mark", mark, `${row.instances[0] ?? label}: `));
      if (row.has_first_failure && failure !== null) {
        const words = t("failed", { n: failure.rank });
        const since = Date.parse(failure.at);
        const sentence = `rank ${failure.rank} on ${failure.instance_id} ${failure.sentence}`;
        pieces.unshift({ kind: "failure", state: "FAILED", words, since, until: since, sentence, english: true });
      }
      lanes.push({ key: `${attempt} ${row.ranks}`, attempt, label, instances: row.instances, pieces, runs });
    }
  }
  return lanes.filter((lane) => lane.instances.length > 0 || lane.pieces.length > 0);
}

function jobLane(attempt: number, phases: Schemas["Phase"][]): Lane {
  const pieces = phases.map((phase) => overTime("phase", phase, ""));
  return { key: `${attempt} job`, attempt, label: t("job"), instances: [], pieces, runs: [] };
}

function overTime(kind: Piece["kind"], { status, since, until }: { status: string; since: string; until: string | null }, prefix: string): Piece {
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const begun = Date.parse(since);
  const ended = until === null ? null : Date.parse(until);
  const said = t("phase", {
    what: wordsOf(status),
    from: new Date(begun).toLocaleTimeString(locale),
    until: ended === null ? t("lasts") : new Date(ended).toLocaleTimeString(locale),
    span: span(((ended ?? serverNow()) - begun) / 1_000),
  });
  return { kind, state: status, words: wordsOf(status), since: begun, until: ended, sentence: prefix + said, english: false };
}

/** Return the time from the end of an attempt until the next one runs; undefined while the attempt goes on. */
function windowAround(of: Timeline, attempt: number, now: number): Window | undefined {
  const phases = of.attempts.find((each) => each.attempt === attempt)?.phases ?? [];
  const lastRun = phases.filter((phase) => phase.status === "RUNNING").pop();
  const broken = lastRun?.until ?? phases.find((phase) => phase.status === "STOPPING")?.since;
  if (broken == null) return undefined;
  const next = of.attempts.find((each) => each.attempt === attempt + 1)?.phases.find((phase) => phase.status === "RUNNING");
  const last = phases[phases.length - 1]?.until;
  const until = Date.parse(next?.since ?? last ?? new Date(now).toISOString());
  return { from: Date.parse(broken) - MARGIN_MS, until: Math.min(now, until + MARGIN_MS) };
}
