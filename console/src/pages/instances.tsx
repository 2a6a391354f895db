// The list of instances. The server filters, orders and pages; the filters are in the address.
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { Heard } from "../parts/instance-facts";
import { Loaded } from "../parts/loaded";
import { wordsFor } from "../parts/codes";
import { Pager, usePages } from "../parts/pager";
import { quarantineOf } from "../parts/quarantine";
import { Status, wordsOf } from "../parts/status";
import { English, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { query, refine, to } from "../place";
import { texts } from "../texts";

const t = texts({
  en: {
    title: "Instances",
    status: "Status",
    id: "Instance",
    where: "Zone / rack",
    since: "Since",
    jobs: "Jobs",
    gpus: "GPUs",
    need: "Needs",
    lemon: "Lemon score",
    heard: "Heartbeat",
    reason: "Reason",
    prefix: "Id begins with",
    job: "Job",
    order: "Order",
    byId: "id",
    bySince: "latest change first",
    byLemon: "highest lemon score first",
    none: "No instance matches.",
    held: "held back:",
    reserved: "reserved for {job}",
    shown: "{n} shown",
    left: "{n} shown, and there are more",
    bad: "The id has small letters, digits and dashes.",
    unreadable: "{n} records could not be read",
  },
  zh: {
    title: "实例",
    status: "状态",
    id: "实例",
    where: "可用区 / 机架",
    since: "持续",
    jobs: "作业",
    gpus: "GPU",
    need: "需要",
    lemon: "不可靠评分",
    heard: "心跳",
    reason: "原因",
    prefix: "实例 id 开头",
    job: "作业",
    order: "排序",
    byId: "id",
    bySince: "最近变化在前",
    byLemon: "不可靠评分高的在前",
    none: "没有符合条件的实例。",
    held: "暂缓：",
    reserved: "为 {job} 保留",
    shown: "显示 {n} 个",
    left: "显示 {n} 个，还有更多",
    bad: "id 由小写字母、数字和连字符组成。",
    unreadable: "{n} 条记录无法读取",
  },
});
const PAGE = 100;
const STATUSES = ["AVAILABLE", "CHECKING", "RESETTING", "REBOOTING", "REPLACING", "VERIFYING", "QUARANTINED"] as const;
const ORDERS = { id: "byId", since: "bySince", lemon: "byLemon" } as const;
type Order = keyof typeof ORDERS;

export function Instances() {
  const asked = query.value;
  const chosen = (asked.get("status") ?? "").split(",").filter(Boolean);
  const order = (asked.get("order") ?? "") in ORDERS ? (asked.get("order") as Order) : "id";
  const wanted = { status: chosen.join(","), job: asked.get("job") ?? "", q: asked.get("q") ?? "", order };
  const filter = JSON.stringify(wanted);
  const pages = usePages(filter);
  const { cursor } = pages;
  const polled = usePolled(
    `instances ${filter} ${cursor}`,
    (signal) =>
      bodyOf(
        client.GET("/api/v2/instances", {
          params: { query: { ...given(wanted), limit: PAGE, ...(cursor === undefined ? {} : { cursor }) } },
          signal,
        }),
      ),
    () => 15_000,
  );
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      <h1>{t("title")}</h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          {t("prefix")}
          <input
            name="q"
            value={wanted.q}
            pattern="[0-9a-z\-]{0,32}"
            title={t("bad")}
            onChange={(event) => event.currentTarget.reportValidity() && refine({ q: event.currentTarget.value.trim() })}
          />
        </label>
        <label>
          {t("job")}
          <input name="job" value={wanted.job} onChange={(event) => refine({ job: event.currentTarget.value.trim() })} />
        </label>
        <label>
          {t("order")}
          <select name="order" value={order} onChange={(event) => refine({ order: event.currentTarget.value })}>
            {Object.entries(ORDERS).map(([name, words]) => (
              <option key={name} value={name}>
                {t(words)}
              </option>
            ))}
          </select>
        </label>
        <fieldset class="choices">
          <legend>{t("status")}</legend>
          {STATUSES.map((status) => (
            <label key={status}>
              <input
                type="checkbox"
                name="status"
                value={status}
                checked={chosen.includes(status)}
                onChange={(event) =>
                  refine({
                    status: STATUSES.filter((each) => (each === status ? event.currentTarget.checked : chosen.includes(each))).join(","),
                  })
                }
              />
              {wordsOf(status)}
            </label>
          ))}
        </fieldset>
      </form>
      <Loaded from={polled}>
        {(page) => (
          <>
            <p class="muted">
              {t(page.next_cursor === null ? "shown" : "left", { n: page.instances.length })}
              {page.unreadable.length > 0 && (
                <strong title={page.unreadable.join("\n")}> · {t("unreadable", { n: page.unreadable.length })}</strong>
              )}
            </p>
            <Rows instances={page.instances} />
            <Pager pages={pages} next={page.next_cursor} />
          </>
        )}
      </Loaded>
    </main>
  );
}

/** Return the filters that are set. */
function given(wanted: { status: string; job: string; q: string; order: Order }) {
  return Object.fromEntries(Object.entries(wanted).filter(([name, value]) => value !== "" && !(name === "order" && value === "id")));
}

function Rows({ instances }: { instances: Schemas["InstanceSummary"][] }) {
  if (instances.length === 0) return <p>{t("none")}</p>;
  return (
    <Table
      columns={["status", "id", "where", "since", "jobs", "gpus", "need", "lemon", "heard", "reason"]}
      words={t}
      classes={{ id: "line", heard: "line", jobs: "text", need: "text", reason: "text" }}
      rows={instances.map((one) => ({
        key: one.instance_id,
        cells: {
          status: (
            <>
              <Status of={one.status} />
              {one.status === "QUARANTINED" && <small> {quarantineOf(one)}</small>}
            </>
          ),
          id: <a href={to(["instances", one.instance_id])}>{one.instance_id}</a>,
          where: [one.availability_zone, one.rack].filter(Boolean).join(" / "),
          since: <Ago at={one.status_at} bare />,
          jobs: (
            <>
              {Object.keys(one.claims).map((job) => (
                <a key={job} class="tag" href={to(["jobs", job])}>
                  {job}
                </a>
              ))}
              {one.reserved_for !== null && !(one.reserved_for in one.claims) && t("reserved", { job: one.reserved_for })}
            </>
          ),
          gpus: one.gpus,
          need: (
            <>
              {one.need !== null && <strong>{wordsFor("repair", one.need.rung)} </strong>}
              {one.held !== null && (
                <>
                  {t("held")} <English>{one.held.because}</English>
                </>
              )}
            </>
          ),
          lemon: <span title={one.lemon.made_of ?? ""}>{one.lemon.score > 0 ? `${one.lemon.score} %` : "0"}</span>,
          heard: <Heard agent={one.node_agent} />,
          reason: <English>{one.reason}</English>,
        },
      }))}
    />
  );
}
