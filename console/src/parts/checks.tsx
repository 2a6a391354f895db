// The health checks of an instance, and the verdict document of one as tables.
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { may } from "../session";
import { texts } from "../texts";
import { query, refine } from "../place";
import { Code } from "./codes";
import { Loaded } from "./loaded";
import { Pager, usePages } from "./pager";
import { Table } from "./table";
import { Ago, secondsBetween, span } from "./time";

const t = texts({
  en: {
    number: "Check",
    outcome: "Outcome",
    summary: "Summary",
    level: "Level",
    started: "Started",
    took: "Took",
    job: "For",
    none: "No health check has been made of this instance.",
    open: "Document",
    close: "Close",
    WAITING: "waits to start",
    RUNNING: "running",
    ENDED: "ended",
    UNREADABLE: "document unreadable",
    NO_DOCUMENT: "no document",
    kept: "Documents are kept for 30 days. A check that never started has none.",
    total: "{n} checks in all",
    title: "Verdict of check {n}",
    findings: "Findings",
    noFindings: "No findings.",
    source: "Source",
    test: "Test",
    gpu: "GPU",
    code: "Code",
    severity: "Severity",
    remedy: "Remedy",
    message: "Message",
    xids: "XIDs",
    count: "Count",
    first: "First",
    last: "Last",
    class: "Class",
    diagnostics: "Diagnostics that ran",
    exit: "Exit code",
    driver: "GPUs as the driver sees them",
    action: "Recovery action",
    address: "PCI address",
    raw: "Whole document (JSON)",
    cut: "Serial numbers are shown to operators only.",
    all: "all",
  },
  zh: {
    number: "检查",
    outcome: "结果",
    summary: "摘要",
    level: "级别",
    started: "开始",
    took: "用时",
    job: "作业",
    none: "尚未对该实例做过健康检查。",
    open: "文档",
    close: "关闭",
    WAITING: "等待启动",
    RUNNING: "运行中",
    ENDED: "已结束",
    UNREADABLE: "文档无法读取",
    NO_DOCUMENT: "无文档",
    kept: "文档保留 30 天。从未启动的检查没有文档。",
    total: "共 {n} 次检查",
    title: "第 {n} 次检查的结论",
    findings: "发现",
    noFindings: "没有发现问题。",
    source: "来源",
    test: "测试",
    gpu: "GPU",
    code: "代码",
    severity: "严重程度",
    remedy: "处理",
    message: "信息",
    xids: "XID",
    count: "次数",
    first: "首次",
    last: "末次",
    class: "类别",
    diagnostics: "已运行的诊断",
    exit: "退出码",
    driver: "驱动看到的 GPU",
    action: "恢复动作",
    address: "PCI 地址",
    raw: "完整文档（JSON）",
    cut: "序列号只对运维人员显示。",
    all: "全部",
  },
});
type Key = Parameters<typeof t>[0];
type Check = Schemas["Checks"]["checks"][number];
type Json = Record<string, unknown>;
const PAGE = 10;
const TONES: Record<string, string> = { HEALTHY: "good", REBOOT: "repair", REPLACE: "repair", CONFIGURATION: "check", INCONCLUSIVE: "silent" };
const SIGNS: Record<string, string> = { HEALTHY: "✓", REBOOT: "↻", REPLACE: "⇄", CONFIGURATION: "!", INCONCLUSIVE: "?" };

/** Args: moved: changes when the instance does, so that a check that ended is read again at once. */
export function Checks({ id, moved }: { id: string; moved: string }) {
  const pages = usePages(id);
  const { cursor } = pages;
  const chosen = query.value.get("check") ?? "";
  const polled = usePolled(
    `checks ${id} ${moved} ${cursor}`,
    (signal) =>
      bodyOf(
        client.GET("/api/v2/instances/{instance_id}/checks", {
          params: { path: { instance_id: id }, query: { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) } },
          signal,
        }),
      ),
    (page) => (page?.checks.some((check) => check.state === "RUNNING" || check.state === "WAITING") ? 10_000 : null),
  );
  return (
    <>
      {chosen !== "" && <Document key={chosen} id={id} number={chosen} />}
      <Loaded from={polled}>
        {(page) =>
          page.total === 0 ? (
            <p>{t("none")}</p>
          ) : (
            <>
              <p class="muted">
                {t("total", { n: page.total })}. {t("kept")}
              </p>
              <List checks={page.checks} chosen={chosen} />
              <Pager pages={pages} next={page.next_cursor} />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function Outcome({ of }: { of: string }) {
  return (
    <strong class={`tone-${TONES[of] ?? "silent"}`}>
      <span aria-hidden="true">{SIGNS[of] ?? "?"} </span>
      <Code of="outcome" is={of} />
    </strong>
  );
}

function List({ checks, chosen }: { checks: Check[]; chosen: string }) {
  return (
    <Rows
      columns={["number", "outcome", "level", "started", "took", "job", "summary", "open"]}
      rows={checks.map((check) => ({
        number: check.number,
        outcome: check.outcome !== null ? <Outcome of={check.outcome} /> : <span class="muted">{t(check.state)}</span>,
        level: check.level,
        started: check.started_at !== null && <Ago at={check.started_at} />,
        took: check.started_at !== null && check.ended_at !== null && span(secondsBetween(check.started_at, check.ended_at)),
        job: check.job_id,
        summary: <span lang="en">{check.summary ?? check.refused}</span>,
        open: check.state === "ENDED" && (
          <button class="secondary outline small" onClick={() => refine({ check: chosen === String(check.number) ? "" : String(check.number) })}>
            {t(chosen === String(check.number) ? "close" : "open")}
          </button>
        ),
      }))}
    />
  );
}

/** A table of a document, whose rows have no other key than their place. */
function Rows<Name extends Key>({ columns, rows }: { columns: readonly Name[]; rows: Record<Name, preact.ComponentChildren>[] }) {
  return <Table columns={columns} words={t} rows={rows.map((cells, key) => ({ key, cells }))} />;
}

function Document({ id, number }: { id: string; number: string }) {
  const polled = usePolled(
    `check ${id} ${number}`,
    (signal) =>
      bodyOf(
        client.GET("/api/v2/instances/{instance_id}/checks/{number}", {
          params: { path: { instance_id: id, number } },
          signal,
        }),
      ),
    () => null,
  );
  return (
    <article class="document">
      <div class="orders">
        <h2>{t("title", { n: number })}</h2>
        <button class="secondary outline small" onClick={() => refine({ check: "" })}>
          {t("close")}
        </button>
      </div>
      <Loaded from={polled}>{({ document }) => <Verdict of={document as Json} />}</Loaded>
    </article>
  );
}

/** A check writes its document itself, so nothing in it is trusted to have its form. */
function Verdict({ of }: { of: Json }) {
  const findings = objects(of["findings"]);
  const xids = objects(of["xids"]);
  const diagnostics = objects(of["diagnostics"]);
  const gpus = objects(object(of["driver"])["gpus"]);
  return (
    <>
      <p>
        <Outcome of={plain(of["outcome"])} /> <span lang="en">{plain(of["summary"])}</span>
      </p>
      <h3>{t("findings")}</h3>
      {findings.length === 0 ? (
        <p>{t("noFindings")}</p>
      ) : (
        <Rows
          columns={["gpu", "source", "test", "code", "severity", "remedy", "message"]}
          rows={findings.map((one) => ({
            gpu: plain(one["gpu_index"]),
            source: <Raw of={one["source"]} />,
            test: <Raw of={one["test"]} />,
            code: <Raw of={one["code"] ?? one["id"]} />,
            severity: <Raw of={one["severity"]} />,
            remedy: <Raw of={one["remedy"]} />,
            message: <span lang="en">{plain(one["message"])}</span>,
          }))}
        />
      )}
      {xids.length > 0 && (
        <>
          <h3>{t("xids")}</h3>
          <Rows
            columns={["code", "class", "gpu", "address", "count", "first", "last"]}
            rows={xids.map((one) => ({
              code: <Raw of={`${plain(one["code"])} ${plain(one["mnemonic"])}`} />,
              class: <Raw of={one["class"]} />,
              gpu: plain(one["gpu_index"]),
              address: <Raw of={one["pci_bus_id"]} />,
              count: plain(one["count"]),
              first: plain(one["first_at"]),
              last: plain(one["last_at"]),
            }))}
          />
        </>
      )}
      {diagnostics.length > 0 && (
        <>
          <h3>{t("diagnostics")}</h3>
          <Rows
            columns={["level", "gpu", "exit"]}
            rows={diagnostics.map((one) => ({
              level: plain(one["level"]),
              gpu: one["gpus"] === null ? t("all") : plain(one["gpus"]),
              exit: plain(one["exit_code"]),
            }))}
          />
        </>
      )}
      {gpus.length > 0 && (
        <>
          <h3>{t("driver")}</h3>
          <Rows
            columns={["gpu", "address", "action"]}
            rows={gpus.map((one) => ({
              gpu: plain(one["index"]),
              address: <Raw of={one["pci_bus_id"]} />,
              action: <Raw of={one["recovery_action"]} />,
            }))}
          />
        </>
      )}
      {!may("operator") && <p class="muted">{t("cut")}</p>}
      <details>
        <summary>{t("raw")}</summary>
        <pre class="log wrap" tabIndex={0}>
          {JSON.stringify(of, null, 2)}
        </pre>
      </details>
    </>
  );
}

function object(value: unknown): Json {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

function objects(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(object) : [];
}

/** A value of the document as it is written there. */
function Raw({ of }: { of: unknown }) {
  const text = plain(of);
  return text === "" ? null : <code lang="en">{text}</code>;
}

function plain(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
