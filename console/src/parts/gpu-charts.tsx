// The course of an instance's GPUs over time: utilisation, temperatures, power and memory, with marks at XIDs.
import { useMemo } from "preact/hooks";
import { bodyOf, client, type Schemas, serverNow } from "../api";
import { usePolled } from "../live";
import { language, texts } from "../texts";
import { Chart, type Line, type Mark } from "./chart";
import { Loaded } from "./loaded";
import { Table } from "./table";
import { Tabs, viewOf } from "./tabs";

const t = texts({
  en: {
    title: "Course",
    span: "Time span",
    h1: "1 hour",
    h6: "6 hours",
    h24: "24 hours",
    d7: "7 days",
    none: "There are no readings in this time span. They are kept for 7 days if the deployment has gpu_history on, one every 5 minutes.",
    utilisation: "Utilisation",
    temperature: "Temperature",
    memory_temperature: "Temperature of the memory",
    power_w: "Power",
    memory_used_mib: "Memory used",
    one: "GPU",
    gpu: "GPU {n}",
    band: "A line is the largest value, the band below it reaches down to the least. Dashed upright lines are XIDs of the history.",
    table: "Values as a table",
    least: "least",
    most: "largest",
    what: "Gauge",
  },
  zh: {
    title: "变化",
    span: "时间范围",
    h1: "1 小时",
    h6: "6 小时",
    h24: "24 小时",
    d7: "7 天",
    none: "该时间范围内没有读数。部署开启 gpu_history 时，每 5 分钟保存一次，保留 7 天。",
    utilisation: "利用率",
    temperature: "温度",
    memory_temperature: "显存温度",
    power_w: "功率",
    memory_used_mib: "已用显存",
    one: "GPU",
    gpu: "GPU {n}",
    band: "线为最大值，下方色带延伸到最小值。竖直虚线为历史中的 XID。",
    table: "以表格显示",
    least: "最小",
    most: "最大",
    what: "指标",
  },
});
/** Seconds of each time span. */
const SPANS = { h1: 3_600, h6: 21_600, h24: 86_400, d7: 604_800 } as const;
const NAMES = ["h1", "h6", "h24", "d7"] as const;
/** Time between two readings. */
const STEP_MS = 300_000;
const GAUGES = [
  { name: "utilisation", unit: "%", max: 100 },
  { name: "temperature", unit: "°C" },
  { name: "memory_temperature", unit: "°C" },
  { name: "power_w", unit: "W" },
  { name: "memory_used_mib", unit: "GiB", per: 1_024 },
] as const;
type Gauges = Schemas["Gauges"];
const XID = /\bXID[ _](\d+)/i;
const POINTS = 300;

export function GpuCharts({ one }: { one: Schemas["Instance"] }) {
  const present = viewOf(NAMES, "span", "h6");
  const span = SPANS[present];
  const id = one.instance_id;
  const polled = usePolled(
    `gauges ${id} ${span}`,
    (signal) => {
      // Whole steps: the question stays the same between two readings, and a week is never longer than what is kept.
      const until = Math.ceil(serverNow() / STEP_MS) * STEP_MS;
      const times = { from: new Date(until - span * 1_000).toISOString(), to: new Date(until).toISOString() };
      return bodyOf(
        client.GET("/api/v2/instances/{instance_id}/gauges", {
          params: { path: { instance_id: id }, query: { ...times, points: POINTS } },
          signal,
        }),
      );
    },
    () => 60_000,
  );
  return (
    <section aria-label={t("title")}>
      <h2>{t("title")}</h2>
      <Tabs label={t("span")} names={NAMES} present={present} words={t} of="span" keeps={["tab"]} />
      <Loaded from={polled}>{(gauges) => <Drawn gauges={gauges} history={one.history} />}</Loaded>
    </section>
  );
}

function Drawn({ gauges, history }: { gauges: Gauges; history: Schemas["Decision"][] }) {
  const drawn = useMemo(() => {
    const at = gauges.at.map((time) => Date.parse(time) / 1_000);
    const charts = GAUGES.map((gauge) => ({
      ...gauge,
      lines: gauges.gpus
        .map((gpu): Line => {
          const { min, max } = gpu[gauge.name];
          const per = "per" in gauge ? gauge.per : 1;
          return { name: t("gpu", { n: gpu.gpu }), most: max.map((value) => scaled(value, per)), least: min.map((value) => scaled(value, per)) };
        })
        .filter((line) => line.most.some((value) => value !== null)),
    })).filter((chart) => chart.lines.length > 0);
    return { at, charts };
    // Drawing a chart anew takes the pointer's reading away, so an answer that says the same draws nothing.
  }, [gauges.from, gauges.to, gauges.at.length, gauges.at.at(-1), language.value]);
  const found = marksOf(history);
  const marks = useMemo(() => found, [JSON.stringify(found)]);
  if (drawn.charts.length === 0) return <p>{t("none")}</p>;
  const bounds = { from: Date.parse(gauges.from) / 1_000, to: Date.parse(gauges.to) / 1_000 };
  return (
    <>
      <p class="muted">{t("band")}</p>
      <div class="charts">
        {drawn.charts.map((chart) => (
          <Chart
            key={chart.name}
            title={t(chart.name)}
            unit={chart.unit}
            at={drawn.at}
            lines={chart.lines}
            marks={marks}
            {...bounds}
            {...("max" in chart ? { max: chart.max } : {})}
          />
        ))}
      </div>
      <details>
        <summary>{t("table")}</summary>
        <Table
          columns={["what", "one", "least", "most"]}
          words={t}
          rows={drawn.charts.flatMap((chart) =>
            chart.lines.map((line) => ({
              key: `${chart.name} ${line.name}`,
              cells: {
                what: t(chart.name),
                one: line.name,
                least: `${extreme(line.least, Math.min)} ${chart.unit}`,
                most: `${extreme(line.most, Math.max)} ${chart.unit}`,
              },
            })),
          )}
        />
      </details>
    </>
  );
}

function scaled(value: number | null, per: number): number | null {
  return value === null || per === 1 ? value : Math.round((value / per) * 10) / 10;
}

function extreme(values: (number | null)[], of: (...values: number[]) => number): number | string {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? "" : of(...known);
}

/** Return a mark at each decision whose reason names an XID; one for each XID and minute. */
function marksOf(history: Schemas["Decision"][]): Mark[] {
  const found = new Map<string, Mark>();
  for (const decision of history) {
    const number = XID.exec(decision.reason)?.[1];
    if (number === undefined) continue;
    const at = Date.parse(decision.at) / 1_000;
    const key = `${number} ${Math.floor(at / 60)}`;
    if (!found.has(key)) found.set(key, { at, text: `XID ${number}` });
  }
  return [...found.values()];
}
