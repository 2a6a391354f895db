// A chart of several lines over time, drawn with uPlot. It is loaded when a chart is opened.
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { language, texts } from "../texts";

const t = texts({ en: { time: "Time" }, zh: { time: "时间" } });
const DAY_S = 86_400;

export interface Line {
  name: string;
  /** Largest value of each point; null: a gap. */
  most: (number | null)[];
  least: (number | null)[];
}

export interface Mark {
  /** Seconds since 1970. */
  at: number;
  text: string;
}

interface Props {
  title: string;
  unit: string;
  /** Seconds since 1970 of each point. */
  at: number[];
  lines: Line[];
  marks: Mark[];
  from: number;
  to: number;
  /** Largest value of the scale; undefined: as the values are. */
  max?: number;
}

/** Eight hues and two kinds of stroke: colour is not the only difference between neighbours. */
const HUES = ["#0072b2", "#d55e00", "#009e73", "#a8547f", "#b27600", "#3a8fc7", "#7a6bb8", "#6b6b6b"];
const HEIGHT = 190;

export function Chart({ title, unit, at, lines, marks, from, to, max }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const place = box.current;
    if (place === null) return;
    const ink = getComputedStyle(place).color;
    const faint = getComputedStyle(document.documentElement).getPropertyValue("--edge").trim() || "#888";
    const axis = { stroke: ink, grid: { stroke: faint, width: 1 }, ticks: { stroke: faint, width: 1 }, font: "12px system-ui" };
    const locale = language.value === "zh" ? "zh-CN" : "en-GB";
    const short = new Intl.DateTimeFormat(locale, to - from > 2 * DAY_S ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" });
    const clock = new Intl.DateTimeFormat(locale, { dateStyle: "short", timeStyle: "short" });
    const plot = new uPlot(
      {
        width: place.clientWidth,
        height: HEIGHT,
        scales: { x: { range: [from, to] }, y: max === undefined ? {} : { range: [0, max] } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => short.format(tick * 1_000)) }, { ...axis, size: 66, values: (_, ticks) => ticks.map((tick) => `${tick} ${unit}`) }],
        series: [
          { label: t("time"), value: (_, seconds) => (seconds === null ? "" : clock.format(seconds * 1_000)) },
          ...lines.flatMap((line, number) => [
            {
              label: line.name,
              stroke: HUES[number % HUES.length] ?? ink,
              width: 1.5,
              dash: number >= HUES.length ? [6, 4] : [],
              points: { show: at.length < 3 },
              value: (_: uPlot, value: number | null) => (value === null ? "" : `${value} ${unit}`),
            },
            { stroke: "transparent", width: 0, points: { show: false } },
          ]),
        ],
        bands: lines.map((_, number) => ({
          series: [2 * number + 1, 2 * number + 2] as [number, number],
          fill: `${HUES[number % HUES.length] ?? "#888888"}26`,
        })),
        legend: { live: true },
        hooks: { draw: [(drawn) => drawMarks(drawn, marks, ink)] },
      },
      [at, ...lines.flatMap((line) => [line.most, line.least])] as uPlot.AlignedData,
      place,
    );
    // The legend begins with the time. Then each line has two rows, and the second is that of its lower edge.
    place.querySelectorAll<HTMLElement>(".u-legend .u-series").forEach((row, number) => {
      if (number > 0 && number % 2 === 0) row.style.display = "none";
    });
    const resized = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT }));
    resized.observe(place);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [at, lines, marks, from, to, language.value]);
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <div ref={box} role="img" aria-label={title} />
    </figure>
  );
}

function drawMarks(plot: uPlot, marks: Mark[], ink: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.fillStyle = ink;
  ctx.font = `${11 * devicePixelRatio}px system-ui`;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = plot.valToPos(mark.at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    // A name beside the right edge stands left of its line.
    const before = x > bbox.left + bbox.width - 60 * devicePixelRatio;
    ctx.textAlign = before ? "right" : "left";
    ctx.fillText(mark.text, x + (before ? -4 : 4) * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
}
