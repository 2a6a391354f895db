// The heat map of the fleet: a canvas with one cell an instance, written as pixels. Only changed cells are drawn again.
// One element with the focus stands for the cell under the cursor: keyboards and screen readers use it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { bodyOf, client, type Schemas, serverNow } from "../api";
import { type Fleet, HELD, jobOf, LEAVING, placeOf, RESERVED, stateOf, SUSPECTED, UNPLACEABLE } from "../fleet";
import { to } from "../place";
import { language, texts } from "../texts";
import "./heatmap.css";
import { cellAt, type Layout, layoutOf, moved } from "./layout";
import { hue, type Pattern, pixel, type Stamp, stamp } from "./stamps";
import { lookOf, Status, wordsOf } from "./status";
import { Ago, span } from "./time";
import { levelsOf, levelStamp, levelTexts, utilisationOf } from "./utilisation";

const t = texts({
  en: {
    mode: "Colour by",
    status: "status",
    gpu: "GPU utilisation",
    job: "job",
    age: "age of the status",
    table: "Show as a table",
    map: "Show as a map",
    search: "Find an instance (/)",
    none: "No instance has this id.",
    label: "Map of {n} instances. The arrow keys move between instances, Enter opens one.",
    since: "since {span}",
    of: "job {job}",
    held: "repair held back",
    suspected: "reported as impaired",
    leaving: "about to leave",
    reserved: "reserved for a job",
    unplaceable: "ECS places nothing on it",
    marked: "with a cut corner: look here",
    id: "Instance",
    place: "Place",
    sinceWhen: "Since",
    jobColumn: "Job",
    more: "Next 100",
    first: "First 100",
    gpuOff: "not kept: gpu-recovery:gpu_history is off",
    noUtilisation: "The utilisation of the GPUs is not there yet. Until then the map shows the status.",
    each: "each job has its own colour and pattern",
    under: "less than {span}",
    over: "longer",
  },
  zh: {
    mode: "着色",
    status: "状态",
    gpu: "GPU 利用率",
    job: "作业",
    age: "状态持续时间",
    table: "以表格显示",
    map: "以地图显示",
    search: "查找实例 (/)",
    none: "没有这个 id 的实例。",
    label: "{n} 个实例的地图。方向键在实例间移动，回车打开。",
    since: "已 {span}",
    of: "作业 {job}",
    held: "修复被暂缓",
    suspected: "被报告为受损",
    leaving: "即将离开",
    reserved: "为作业预留",
    unplaceable: "ECS 不在其上放置任务",
    marked: "缺角：请留意",
    id: "实例",
    place: "位置",
    sinceWhen: "持续",
    jobColumn: "作业",
    more: "后 100 个",
    first: "前 100 个",
    gpuOff: "未保存：gpu-recovery:gpu_history 为 off",
    noUtilisation: "尚无 GPU 利用率数据。在此之前地图显示状态。",
    each: "每个作业有各自的颜色和图案",
    under: "短于 {span}",
    over: "更长",
  },
});

const MODES = ["status", "gpu", "job", "age"] as const;
export type Mode = (typeof MODES)[number];
const PATTERNS: Record<string, Pattern> = {
  free: "ring",
  used: "full",
  CHECKING: "dots",
  RESETTING: "diagonal",
  REBOOTING: "diagonal",
  REPLACING: "stairs",
  VERIFYING: "target",
  QUARANTINED: "cross",
  silent: "lines",
};
const JOB_PATTERNS: Pattern[] = ["full", "diagonal", "dots", "stairs"];
/** Upper bounds of the ages in seconds that have a colour of their own. */
const AGES = [600, 3_600, 21_600, 86_400, 604_800];
const FLAGS = [
  [HELD, "held"],
  [SUSPECTED, "suspected"],
  [LEAVING, "leaving"],
  [RESERVED, "reserved"],
  [UNPLACEABLE, "unplaceable"],
] as const;
const MARKED = HELD | SUSPECTED | LEAVING | UNPLACEABLE;
const PAGE = 100;
const LEGEND_PIXELS = 16;

/** Makes the stamps of one mode, size and theme, each once. */
class Palette {
  private stamps = new Map<string, Stamp>();
  private style: CSSStyleDeclaration;

  constructor(
    element: Element,
    readonly mode: Mode,
    readonly pixels: number,
    readonly gap: number,
  ) {
    this.style = getComputedStyle(element);
  }

  private ink(tone: string): number {
    return pixel(this.style.getPropertyValue(`--tone-${tone}`));
  }

  /** Return the name of the look of a cell. Cells of the same look have the same pixels. */
  lookOf(fleet: Fleet, position: number, now: number): string {
    const state = stateOf(fleet, position);
    const mark = ((fleet.flags[position] ?? 0) & MARKED) !== 0 ? "!" : "";
    if (this.mode === "job" && fleet.job[position] !== 0) return `job ${jobOf(fleet, position)}`;
    if (this.mode === "age") return `age ${ageStep(now / 1_000 - (fleet.since[position] ?? 0))}`;
    if (this.mode === "gpu" && fleet.utilisation !== null) {
      return `gpu ${levelsOf(fleet, position)}`;
    }
    return `${state}${mark}`;
  }

  stampOf(look: string): Stamp {
    const made = this.stamps.get(look) ?? this.make(look);
    this.stamps.set(look, made);
    return made;
  }

  private make(look: string): Stamp {
    const { pixels, gap } = this;
    if (look.startsWith("job ")) {
      const hash = [...look].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) >>> 0, 7);
      const dark = this.style.getPropertyValue("--tone-out").trim().startsWith("#f");
      return stamp(pixels, gap, JOB_PATTERNS[(hash >> 9) % 4] ?? "full", hue(hash % 360, 0.65, dark ? 0.62 : 0.4));
    }
    if (look.startsWith("age ")) return stamp(pixels, gap, { level: 1 - Number(look.slice(4)) / AGES.length }, this.ink("used"));
    if (look.startsWith("gpu ")) return levelStamp(look.slice(4), pixels, gap, this.ink("used"), this.ink("silent"));
    const state = look.replace("!", "");
    return stamp(pixels, gap, PATTERNS[state] ?? "lines", this.ink(lookOf(state).tone), look.endsWith("!"));
  }
}

function ageStep(seconds: number): number {
  const step = AGES.findIndex((bound) => seconds < bound);
  return step < 0 ? AGES.length : step;
}

/** What is on the canvas: the looks of the cells, so that the next drawing draws the changed ones alone. */
interface Drawn {
  layout: Layout;
  palette: Palette;
  image: ImageData;
  looks: string[];
}

function draw(canvas: HTMLCanvasElement, fleet: Fleet, layout: Layout, palette: Palette, before: Drawn | null): Drawn {
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  const { size, ratio } = layout;
  const fresh = before === null || before.layout !== layout || before.palette !== palette;
  let image = before?.image as ImageData;
  if (fresh) {
    canvas.width = Math.max(1, layout.width);
    canvas.height = Math.max(1, layout.height);
    canvas.style.width = `${canvas.width / ratio}px`;
    canvas.style.height = `${canvas.height / ratio}px`;
    image = context.createImageData(canvas.width, canvas.height);
  }
  const looks = fresh ? new Array<string>(fleet.members.ids.length) : before.looks;
  const data = new Uint32Array(image.data.buffer);
  const now = serverNow();
  const changed: number[] = [];
  for (let position = 0; position < looks.length; position += 1) {
    const look = palette.lookOf(fleet, position, now);
    if (looks[position] === look) continue;
    looks[position] = look;
    changed.push(position);
    const cell = palette.stampOf(look);
    const [left, top] = [layout.x[position] ?? 0, layout.y[position] ?? 0];
    // A loop: ten thousand cells would need as many views of their stamps as they have rows.
    for (let row = 0, from = 0, into = top * canvas.width + left; row < size; row += 1, into += canvas.width - size) {
      for (let column = 0; column < size; column += 1) data[into++] = cell[from++] ?? 0;
    }
  }
  if (fresh) {
    context.putImageData(image, 0, 0);
    context.fillStyle = getComputedStyle(canvas).color;
    context.font = `${Math.round(12 * ratio)}px system-ui, sans-serif`;
    context.textBaseline = "top";
    for (const caption of layout.captions) context.fillText(caption.text, caption.x, caption.y + 2 * ratio, 80 * ratio * (caption.x > 0 ? 0.95 : 8));
  } else {
    for (const position of changed) context.putImageData(image, 0, 0, layout.x[position] ?? 0, layout.y[position] ?? 0, size, size);
  }
  canvas.dataset["drawn"] = String(changed.length);
  return { layout, palette, image, looks };
}

/** The map with its modes, search, legend and table. `version` rises when the columns of the same fleet change. */
export function HeatMap({ fleet, version, onMode }: { fleet: Fleet; version: number; onMode?: (mode: Mode) => void }) {
  const [mode, setMode] = useState<Mode>("status");
  const [asTable, setAsTable] = useState(false);
  const [found, setFound] = useState<string | null>(null);
  const [missing, setMissing] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const slash = (event: KeyboardEvent): void => {
      const typing = (event.target as HTMLElement).closest("input, textarea, select, dialog");
      if (event.key !== "/" || typing !== null) return;
      event.preventDefault();
      search.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);
  const find = (text: string): void => {
    const wanted = text.trim();
    const id = wanted === "" ? undefined : fleet.members.ids.find((each) => each.startsWith(wanted));
    setFound(id ?? null);
    setMissing(wanted !== "" && id === undefined);
  };
  const unrecorded = mode === "gpu" && fleet.utilisation === null;
  const note = missing ? t("none") : unrecorded ? t(fleet.gpuHistory ? "noUtilisation" : "gpuOff") : "";
  const seen = unrecorded ? "status" : mode;
  return (
    <div class="heatmap">
      <div class="tools">
        <fieldset>
          <legend class="unseen">{t("mode")}</legend>
          {MODES.map((name) => (
            <label key={name}>
              <input type="radio" name="mode" value={name} checked={mode === name} disabled={name === "gpu" && !fleet.gpuHistory} onChange={() => (setMode(name), onMode?.(name))} />
              {t(name)}
              {name === "gpu" && !fleet.gpuHistory && ` (${t("gpuOff")})`}
            </label>
          ))}
        </fieldset>
        <input ref={search} type="search" aria-label={t("search")} placeholder={t("search")} onInput={(event) => find(event.currentTarget.value)} />
        <button class="secondary outline" onClick={() => setAsTable(!asTable)}>
          {t(asTable ? "map" : "table")}
        </button>
      </div>
      <p role="status" class={note === "" ? "unseen" : ""}>
        {note}
      </p>
      {asTable ? <Table fleet={fleet} version={version} found={found} /> : <Area fleet={fleet} version={version} mode={seen} found={found} />}
      <Legend fleet={fleet} version={version} mode={seen} />
    </div>
  );
}

/** What a drawing depends on: the width of an element, a count of changes of the colours, and the pixels of the screen. */
function useSurroundings(element: { current: HTMLElement | null }): { width: number; theme: number; ratio: number } {
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  const [ratio, setRatio] = useState(devicePixelRatio);
  useEffect(() => {
    const turned = (): void => setTheme((count) => count + 1);
    const sized = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    if (element.current !== null) sized.observe(element.current);
    const themed = new MutationObserver(turned);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", turned);
    return () => {
      sized.disconnect();
      themed.disconnect();
      scheme.removeEventListener("change", turned);
    };
  }, []);
  useEffect(() => {
    // Another screen, or another zoom.
    const screen = matchMedia(`(resolution: ${ratio}dppx)`);
    const changed = (): void => setRatio(devicePixelRatio);
    screen.addEventListener("change", changed);
    return () => screen.removeEventListener("change", changed);
  }, [ratio]);
  return { width, theme, ratio };
}

/** The canvas, the cursor and the card. They name instances by id: positions change with the membership. */
function Area({ fleet, version, mode, found }: { fleet: Fleet; version: number; mode: Mode; found: string | null }) {
  const area = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawn = useRef<Drawn | null>(null);
  const [cursor, setCursor] = useState("");
  const [hovered, setHovered] = useState<string | null>(null);
  const [pinned, setPinned] = useState<string | null>(null);
  const { width, theme, ratio } = useSurroundings(area);
  const layout = useMemo(() => (width > 0 ? layoutOf(fleet.members, width, ratio) : null), [fleet.members, width, ratio]);
  const palette = useMemo(() => {
    if (layout === null || canvas.current === null) return null;
    return new Palette(canvas.current, mode, layout.size, Math.max(1, Math.round(layout.size / 8)));
  }, [layout, mode, theme]);
  useEffect(() => {
    if (layout === null || palette === null || canvas.current === null) return;
    drawn.current = draw(canvas.current, fleet, layout, palette, drawn.current);
  }, [fleet, version, layout, palette]);
  useEffect(() => {
    if (found !== null) (setCursor(found), setPinned(found));
  }, [found]);

  const { ids, at: positions } = fleet.members;
  const at = positions.get(cursor) ?? 0;
  const pointed = (event: MouseEvent): string | null => (layout === null ? null : (ids[cellAt(layout, event.offsetX * ratio, event.offsetY * ratio)] ?? null));
  const shown = hovered ?? pinned;
  const shownAt = shown === null ? undefined : positions.get(shown);
  const pinnedAt = pinned === null ? undefined : positions.get(pinned);
  const key = (event: KeyboardEvent): void => {
    if (layout === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") location.hash = to(["instances", ids[at] ?? ""]);
    else if (event.key === "Escape") setPinned(null);
    else if (/^(Arrow|Home|End)/.test(event.key)) {
      const next = ids[moved(layout, at, event.key)] ?? "";
      setCursor(next);
      setPinned(next);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="area" ref={area}>
      <canvas
        ref={canvas}
        aria-hidden="true"
        onPointerMove={(event) => setHovered(pointed(event))}
        onPointerLeave={() => setHovered(null)}
        onClick={(event) => {
          const id = pointed(event);
          setPinned(id === pinned ? null : id);
          if (id !== null) setCursor(id);
        }}
      />
      {layout !== null && ids.length > 0 && (
        <div
          class="cursor"
          role="application"
          tabIndex={0}
          aria-label={`${t("label", { n: ids.length })} ${sentenceOf(fleet, at)}`}
          onKeyDown={key}
          onFocus={() => setPinned(ids[at] ?? null)}
          onBlur={() => setPinned(null)}
          ref={(element) => {
            if (element === null) return;
            element.style.transform = `translate(${(layout.x[at] ?? 0) / ratio}px, ${(layout.y[at] ?? 0) / ratio}px)`;
            element.style.width = element.style.height = `${(layout.size - 1) / ratio}px`;
          }}
        />
      )}
      <p class="unseen" aria-live="polite">
        {pinnedAt === undefined ? "" : sentenceOf(fleet, pinnedAt)}
      </p>
      {layout !== null && shownAt !== undefined && <Card key={shown} fleet={fleet} version={version} position={shownAt} layout={layout} pinned={shown === pinned} />}
    </div>
  );
}

/** Return what a screen reader says about an instance. */
function sentenceOf(fleet: Fleet, position: number): string {
  const job = jobOf(fleet, position);
  const parts = [
    fleet.members.ids[position] ?? "",
    wordsOf(stateOf(fleet, position)),
    t("since", { span: span(serverNow() / 1_000 - (fleet.since[position] ?? 0)) }),
    ...flagsOf(fleet, position),
    ...(job === "" ? [] : [t("of", { job })]),
    utilisationOf(fleet, position),
    placeOf(fleet.members, position),
  ];
  return parts.filter((part) => part !== "").join(language.value === "zh" ? "，" : ", ");
}

function flagsOf(fleet: Fleet, position: number): string[] {
  const flags = fleet.flags[position] ?? 0;
  return FLAGS.filter(([flag]) => (flags & flag) !== 0).map(([, name]) => t(name));
}

const READ_AFTER_MS = 400;
const READ_AGAIN_MS = 30_000;
type Known = Pick<Schemas["Instance"], "status" | "reason" | "status_at"> & { readAt: number };
/** What was read of records, by id and time of the status that the map showed. */
const records = new Map<string, Known>();

function secondOf(at: string): number {
  return Math.floor(Date.parse(at) / 1_000);
}

/** The card of an instance. The reason of its status is read when the card stays for a moment.
 *
 * The record may be newer than the map. Then the card shows the status of the record, to which the reason belongs.
 * With another `version` the card is rendered again: signals skip components whose properties are the same.
 */
function Card({ fleet, position, layout, pinned }: { fleet: Fleet; version: number; position: number; layout: Layout; pinned: boolean }) {
  const id = fleet.members.ids[position] ?? "";
  const since = fleet.since[position] ?? 0;
  const key = `${id} ${since}`;
  const [, setRead] = useState(0);
  const job = jobOf(fleet, position);
  useEffect(() => {
    if (Date.now() - (records.get(key)?.readAt ?? 0) < READ_AGAIN_MS) return;
    const stopped = new AbortController();
    const timer = setTimeout(() => {
      bodyOf(client.GET("/api/v2/instances/{instance_id}", { params: { path: { instance_id: id } }, signal: stopped.signal })).then(
        ({ status, reason, status_at }) => {
          if (secondOf(status_at) < since) return; // the read was older than the map
          if (records.size > 200) records.clear();
          records.set(key, { status, reason, status_at, readAt: Date.now() });
          setRead((count) => count + 1);
        },
        () => undefined, // the card shows what the map knows
      );
    }, READ_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stopped.abort();
    };
  }, [key]);
  const record = records.get(key);
  const newer = record !== undefined && secondOf(record.status_at) > since ? record : undefined;
  return (
    <div
      class={pinned ? "card pinned" : "card"}
      ref={(element) => {
        if (element === null) return;
        const { ratio } = layout;
        const x = Math.min((layout.x[position] ?? 0) / ratio, Math.max(0, layout.width / ratio - element.offsetWidth));
        element.style.transform = `translate(${x}px, ${((layout.y[position] ?? 0) + layout.size) / ratio + 6}px)`;
        element.style.top = element.style.left = "0";
      }}
    >
      <p>
        {pinned ? <a href={to(["instances", id])}>{id}</a> : <strong>{id}</strong>} <Status of={newer?.status ?? stateOf(fleet, position)} />
      </p>
      <p>
        <Ago at={newer?.status_at ?? new Date(since * 1_000).toISOString()} /> · {placeOf(fleet.members, position)}
      </p>
      {flagsOf(fleet, position).map((flag) => (
        <p key={flag}>{flag}</p>
      ))}
      {fleet.utilisation !== null && <p>{utilisationOf(fleet, position)}</p>}
      {job !== "" && <p>{pinned ? <a href={to(["jobs", job])}>{job}</a> : job}</p>}
      {record !== undefined && <p lang="en">{record.reason}</p>}
    </div>
  );
}

/** States in the order of the legend: what needs a look comes first. */
const ORDER = ["QUARANTINED", "silent", "RESETTING", "REBOOTING", "REPLACING", "CHECKING", "VERIFYING", "used", "free"];

function Legend({ fleet, version, mode }: { fleet: Fleet; version: number; mode: Mode }) {
  const list = useRef<HTMLUListElement>(null);
  const { theme, ratio } = useSurroundings(list);
  const pixels = Math.round(LEGEND_PIXELS * ratio);
  const entries = useMemo(() => {
    if (mode === "age") {
      const bounds = AGES.map((bound, step) => ({ look: `age ${step}`, text: t("under", { span: span(bound) }), count: null as number | null }));
      return [...bounds, { look: `age ${AGES.length}`, text: t("over"), count: null }];
    }
    if (mode === "gpu") return levelTexts().map(({ levels, text }) => ({ look: `gpu ${levels}`, text, count: null as number | null }));
    const counts = new Map<string, number>();
    let marked = 0;
    for (let position = 0; position < fleet.status.length; position += 1) {
      const state = stateOf(fleet, position);
      counts.set(state, (counts.get(state) ?? 0) + 1);
      if (((fleet.flags[position] ?? 0) & MARKED) !== 0) marked += 1;
    }
    const states = [...ORDER, ...[...counts.keys()].filter((state) => !ORDER.includes(state))].filter((state) => counts.has(state));
    const named = states.map((state) => ({ look: state, text: wordsOf(state), count: counts.get(state) ?? (null as number | null) }));
    return marked === 0 ? named : [...named, { look: "used!", text: t("marked"), count: marked as number | null }];
  }, [fleet, version, mode, language.value]);
  useEffect(() => {
    if (list.current === null) return;
    const palette = new Palette(list.current, mode, pixels, Math.max(1, Math.round(ratio)));
    list.current.querySelectorAll("canvas").forEach((canvas) => {
      const image = new ImageData(pixels, pixels);
      canvas.style.width = canvas.style.height = `${pixels / ratio}px`;
      new Uint32Array(image.data.buffer).set(palette.stampOf(canvas.dataset["look"] ?? ""));
      canvas.getContext("2d")?.putImageData(image, 0, 0);
    });
  }, [entries, theme, mode, pixels]);
  return (
    <ul class="legend" ref={list}>
      {entries.map((entry) => (
        <li key={entry.look}>
          <canvas width={pixels} height={pixels} data-look={entry.look} aria-hidden="true" />
          {entry.text} {entry.count !== null && <b>{entry.count.toLocaleString()}</b>}
        </li>
      ))}
      {mode === "job" && <li>{t("each")}</li>}
    </ul>
  );
}

/** The same as a table: what needs a look comes first, a hundred rows at a time. */
function Table({ fleet, version, found }: { fleet: Fleet; version: number; found: string | null }) {
  const [from, setFrom] = useState(0);
  const sorted = useMemo(() => {
    const rank = (position: number): number => {
      const at = ORDER.indexOf(stateOf(fleet, position));
      return at < 0 ? 0 : at;
    };
    return Array.from(fleet.members.ids.keys()).sort((a, b) => rank(a) - rank(b) || a - b);
  }, [fleet, version]);
  const foundAt = found === null ? undefined : fleet.members.at.get(found);
  const rows = foundAt !== undefined ? [foundAt] : sorted.slice(from, from + PAGE);
  return (
    <>
      <table class="rows">
        <thead>
          <tr>
            <th scope="col">{t("status")}</th>
            <th scope="col">{t("id")}</th>
            <th scope="col">{t("place")}</th>
            <th scope="col">{t("sinceWhen")}</th>
            <th scope="col">{t("jobColumn")}</th>
            {fleet.utilisation !== null && <th scope="col">{t("gpu")}</th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((position) => {
            const id = fleet.members.ids[position] ?? "";
            const job = jobOf(fleet, position);
            return (
              <tr key={id}>
                <td data-label={t("status")}>
                  <Status of={stateOf(fleet, position)} /> {flagsOf(fleet, position).join(", ")}
                </td>
                <td data-label={t("id")}>
                  <a href={to(["instances", id])}>{id}</a>
                </td>
                <td data-label={t("place")}>{placeOf(fleet.members, position)}</td>
                <td data-label={t("sinceWhen")}>{span(serverNow() / 1_000 - (fleet.since[position] ?? 0))}</td>
                <td data-label={t("jobColumn")}>{job !== "" && <a href={to(["jobs", job])}>{job}</a>}</td>
                {fleet.utilisation !== null && <td data-label={t("gpu")}>{utilisationOf(fleet, position)}</td>}
              </tr>
            );
          })}
        </tbody>
      </table>
      <nav class="pages">
        {from > 0 && <button onClick={() => setFrom(0)}>{t("first")}</button>}
        {foundAt === undefined && from + PAGE < sorted.length && <button onClick={() => setFrom(from + PAGE)}>{t("more")}</button>}
      </nav>
    </>
  );
}
