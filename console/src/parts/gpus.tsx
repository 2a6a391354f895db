// The GPUs of an instance, from the latest inventory of its agent, and their course over time.
import type { Schemas } from "../api";
import { texts } from "../texts";
import { Code } from "./codes";
import { onDemand } from "./on-demand";
import { Table } from "./table";
import { Ago } from "./time";

const t = texts({
  en: {
    none: "The agent has sent no inventory of its GPUs yet.",
    as: "as of",
    driver: "driver {name}",
    agent: "agent {name}",
    health: "GPU health",
    gpu: "GPU",
    utilisation: "Utilisation",
    temperature: "Temperature",
    power: "Power",
    memory: "Memory",
    ecc: "ECC errors",
    remapped: "Remapped rows",
    action: "Driver asks for",
    processes: "Processes",
    pcie: "PCIe width",
    uncorrected: "{n} uncorrected!",
    corrected: "{n} corrected",
    pending: "{n}, one waits for a reset!",
    failure: "no spare row left!",
    unreachable: "cannot be reached!",
    nothing: "nothing",
    ask1: "a reset",
    ask2: "a reboot",
    ask3: "a drain of P2P",
    ask4: "a drain and a reset",
    ask5: "a reset of the bus",
    memoryTemperature: "memory {n} °C",
  },
  zh: {
    none: "节点代理 尚未上报 GPU 清单。",
    as: "截至",
    driver: "驱动 {name}",
    agent: "agent {name}",
    health: "GPU 健康",
    gpu: "GPU",
    utilisation: "利用率",
    temperature: "温度",
    power: "功率",
    memory: "显存",
    ecc: "ECC 错误",
    remapped: "重映射行",
    action: "驱动要求",
    processes: "进程",
    pcie: "PCIe 宽度",
    uncorrected: "{n} 个不可纠正！",
    corrected: "{n} 个已纠正",
    pending: "{n}，有一行等待复位！",
    failure: "没有备用行！",
    unreachable: "无法访问！",
    nothing: "无",
    ask1: "复位",
    ask2: "重启",
    ask3: "停用 P2P",
    ask4: "停用并复位",
    ask5: "总线复位",
    memoryTemperature: "显存 {n} °C",
  },
});
const COLUMNS = ["gpu", "utilisation", "temperature", "power", "memory", "ecc", "remapped", "action", "pcie", "processes"] as const;
const GIB = 1_073_741_824;
/** Recovery actions of the driver, by the value of NVML's field 230. */
const ACTIONS = ["nothing", "ask1", "ask2", "ask3", "ask4", "ask5"] as const;
type Json = Record<string, unknown>;

const Charts = onDemand(() => import("./gpu-charts").then((module) => module.GpuCharts));

export function Gpus({ one }: { one: Schemas["Instance"] }) {
  const beat = one.heartbeat ?? null;
  const inventory = beat?.inventory ?? null;
  return (
    <>
      {beat !== null && beat.health !== null && (
        <p>
          {t("health")}: <strong class={beat.health === "ok" ? "tone-good" : "tone-repair"}>
            <Code of="health" is={beat.health} />
          </strong>{" "}
          <span lang="en">{beat.sentence}</span>
        </p>
      )}
      {inventory === null ? (
        <p>{t("none")}</p>
      ) : (
        <>
          <p class="muted">
            {t("as")} <Ago at={inventory.at} />
            {inventory.driver && <> · {t("driver", { name: inventory.driver })}</>}
            {inventory.agent && <> · {t("agent", { name: inventory.agent })}</>}
            {typeof inventory.gpus[0]?.["name"] === "string" && <> · {inventory.gpus[0]["name"]}</>}
          </p>
          <Table
            columns={COLUMNS}
            words={t}
            rows={inventory.gpus.map((gpu, key) => {
              const { bad, ...cells } = cellsOf(gpu as Json, key);
              return { key, class: bad ? "marked" : undefined, cells };
            })}
          />
        </>
      )}
      <Charts one={one} />
    </>
  );
}

/** Return what the row of a GPU shows. The agent of the older call has other names for a few fields. */
function cellsOf(gpu: Json, at: number): Record<(typeof COLUMNS)[number], preact.ComponentChildren> & { bad: boolean } {
  const ecc = object(gpu["ecc"]);
  const rows = object(gpu["remapped"]);
  const memory = object(gpu["memory"]);
  const used = number(memory["used"]);
  const total = number(memory["total"]);
  const power = number(gpu["power_mw"]);
  const heat = number(gpu["temperature"]);
  const memoryHeat = number(gpu["memory_temperature"]);
  const uncorrected = number(ecc["uncorrected_volatile"]) ?? 0;
  const corrected = number(ecc["corrected_volatile"]);
  const remapped = (number(rows["corrected"]) ?? 0) + (number(rows["uncorrected"]) ?? 0);
  const action = number(gpu["recovery_action"]);
  const lost = gpu["error"] !== undefined && gpu["error"] !== null;
  const processes = gpu["processes"];
  return {
    bad: lost || uncorrected > 0 || rows["failure"] === true || rows["pending"] === true || (action ?? 0) > 0,
    gpu: (
      <>
        <strong title={text(gpu["uuid"])}>{text(gpu["index"] ?? at)}</strong> {lost && t("unreachable")} <small class="muted">{text(gpu["pci"])}</small>
      </>
    ),
    utilisation: with_(number(gpu["utilization"]), "%"),
    temperature: heat !== undefined && (
      <>
        {with_(heat, "°C")} {memoryHeat !== undefined && memoryHeat > 0 && <small class="muted">{t("memoryTemperature", { n: memoryHeat })}</small>}
      </>
    ),
    power: power === undefined ? "" : `${Math.round(power / 1_000)} W`,
    memory: used === undefined || total === undefined ? "" : `${(used / GIB).toFixed(1)} / ${(total / GIB).toFixed(0)} GiB`,
    ecc: uncorrected > 0 ? <strong>{t("uncorrected", { n: uncorrected })}</strong> : corrected === undefined ? "" : corrected === 0 ? "0" : t("corrected", { n: corrected }),
    remapped:
      rows["failure"] === true ? (
        <strong>{t("failure")}</strong>
      ) : rows["pending"] === true ? (
        <strong>{t("pending", { n: remapped })}</strong>
      ) : Object.keys(rows).length === 0 ? (
        ""
      ) : (
        remapped
      ),
    action: action === undefined ? "" : action > 0 ? <strong>{action < ACTIONS.length ? t(ACTIONS[action] ?? "nothing") : action}</strong> : t("nothing"),
    pcie: [number(gpu["pcie_width"]), number(gpu["pcie_width_max"])].filter((width) => width !== undefined).join(" / "),
    processes: Array.isArray(processes) ? processes.length : "",
  };
}

function with_(value: number | undefined, unit: string): string {
  return value === undefined ? "" : `${value} ${unit}`;
}

function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function number(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

function text(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}
