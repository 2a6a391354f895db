// One instance: what state it is in, why, what its GPUs report, and what may be ordered.
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { usePolled } from "../live";
import { Checks } from "../parts/checks";
import { wordsFor } from "../parts/codes";
import { Confirm, type Order } from "../parts/confirm";
import { Decisions } from "../parts/decisions";
import { Gpus } from "../parts/gpus";
import { Heard, mustAct } from "../parts/instance-facts";
import { type InstanceOrder, orderAbout, whyNot, wordsOfOrder } from "../parts/instance-orders";
import { Loaded } from "../parts/loaded";
import { OrderButtons } from "../parts/order-buttons";
import { quarantineOf, untilOf } from "../parts/quarantine";
import { Status } from "../parts/status";
import { Table } from "../parts/table";
import { Tabs, viewOf } from "../parts/tabs";
import { Ago, Clock } from "../parts/time";
import { Tokens } from "../parts/tokens";
import { path, to } from "../place";
import { may } from "../session";
import { texts } from "../texts";

const t = texts({
  en: {
    history: "History",
    gpus: "GPUs",
    checks: "Checks",
    jobs: "Jobs",
    tokens: "Tokens",
    tabs: "Views of the instance",
    since: "for",
    comma: ", ",
    epoch: "epoch {n}",
    rack: "rack {name}",
    group: "group {name}",
    boot: "boot",
    booted: "since",
    heartbeat: "heartbeat",
    deadline: "the next automatic decision is at",
    count: "{n} GPUs",
    act: "Must you act?",
    incident: "Incident",
    needs: "Needs",
    held: "Held back",
    leaves: "Leaves",
    lemon: "Lemon score",
    health: "Reports",
    out: "Gets no job",
    ecs: "ECS",
    disconnected: "agent disconnected",
    drainedByUs: "drained by gpu-recovery",
    attempt: "Attempt",
    job: "Job",
    rank: "Rank",
    seen: "Seen",
    noJobs: "No job claims the instance.",
    reserved: "Reserved for {job}: it waits for this instance.",
    waits: "{job} waits for the repair.",
    operator: "Sign in as an operator to see the tokens.",
    about: "Tokens of the node agent. An agent that is a daemon of ECS, or that signs its reports, needs none.",
  },
  zh: {
    history: "历史",
    gpus: "GPU",
    checks: "检查",
    jobs: "作业",
    tokens: "令牌",
    tabs: "实例的视图",
    since: "已持续",
    comma: "，",
    epoch: "代次 {n}",
    rack: "机架 {name}",
    group: "分组 {name}",
    boot: "启动",
    booted: "始于",
    heartbeat: "心跳",
    deadline: "下次自动判定时间",
    count: "{n} 个 GPU",
    act: "需要你处理吗？",
    incident: "事故",
    needs: "需要",
    held: "暂缓",
    leaves: "将离开",
    lemon: "不可靠评分",
    health: "上报",
    out: "不接收作业",
    ecs: "ECS",
    disconnected: "agent 已断开",
    drainedByUs: "由 gpu-recovery 排空",
    attempt: "尝试",
    job: "作业",
    rank: "rank",
    seen: "最近看到",
    noJobs: "没有作业占用该实例。",
    reserved: "为 {job} 保留：它在等待该实例。",
    waits: "{job} 在等待修复。",
    operator: "以运维人员身份登录后才能查看令牌。",
    about: "节点代理 的令牌。作为 ECS 守护任务运行或对上报签名的 agent 不需要令牌。",
  },
});
const TABS = ["history", "gpus", "checks", "jobs", "tokens"] as const;
const ORDERS: InstanceOrder[] = ["quarantine", "release"];
type One = Schemas["Instance"];

export function Instance() {
  const id = path.value[1] ?? "";
  const polled = usePolled(
    `instance ${id}`,
    (signal) => bodyOf(client.GET("/api/v2/instances/{instance_id}", { params: { path: { instance_id: id } }, signal })),
    (one) => (one?.status === "GONE" ? null : 10_000),
  );
  const [order, setOrder] = useState<Order>();
  const tab = viewOf(TABS, "tab", "history");
  return (
    <main class="container-fluid" id="content" tabIndex={-1}>
      <Loaded from={polled}>
        {(one) => (
          <>
            <Head one={one} ask={(name) => setOrder(orderAbout(name, one, () => polled.hurry()))} />
            <Tabs label={t("tabs")} names={TABS} present={tab} words={t} />
            {tab === "history" && <Decisions of={one.history} />}
            {tab === "gpus" && <Gpus one={one} />}
            {tab === "checks" && <Checks id={id} moved={`${one.status} ${one.status_at}`} />}
            {tab === "jobs" && <Jobs one={one} />}
            {tab === "tokens" && <AgentTokens id={id} />}
          </>
        )}
      </Loaded>
      {order !== undefined && <Confirm order={order} done={() => setOrder(undefined)} />}
    </main>
  );
}

function Head({ one, ask }: { one: One; ask: (order: InstanceOrder) => void }) {
  return (
    <header class="head">
      <h1 class="id">{one.instance_id}</h1>
      <p class="act">
        <strong>{t("act")}</strong> {mustAct(one)}{" "}
        {one.incident_id !== null && (
          <a href={to(["incidents", one.incident_id])}>
            {t("incident")} {one.incident_id}
          </a>
        )}
      </p>
      <p class="facts">
        <Status of={one.status} />
        {one.status === "QUARANTINED" && <strong> {quarantineOf(one)}</strong>} {t("since")} <Ago at={one.status_at} bare />
        {one.status === "QUARANTINED" && `${t("comma")}${untilOf(one)}`}
        {" · "}
        {t("count", { n: one.gpus })} · {t("epoch", { n: one.epoch })}
        {one.availability_zone !== "" && <> · {one.availability_zone}</>}
        {one.rack !== "" && <> · {t("rack", { name: one.rack })}</>}
        {one.group !== "" && <> · {t("group", { name: one.group })}</>}
        {" · "}
        {t("heartbeat")} <Heard agent={one.node_agent} />
      </p>
      <p class="facts muted">
        {one.boot_id !== null && (
          <>
            {t("boot")} <code>{one.boot_id.slice(0, 8)}</code>
            {one.booted_at !== null && (
              <>
                {" "}
                {t("booted")} <Ago at={one.booted_at} />
              </>
            )}
            {" · "}
          </>
        )}
        {t("ecs")} <code>{one.ecs_status}</code>
        {one.drained && ` (${t("drainedByUs")})`}
        {!one.agent_connected && <strong> · {t("disconnected")}</strong>}
        {one.deadline_at !== null && one.status !== "AVAILABLE" && (
          <>
            {" · "}
            {t("deadline")} <Clock at={one.deadline_at} />
          </>
        )}
      </p>
      {one.reason !== "" && (
        <p class="reason" lang="en">
          {one.reason}
        </p>
      )}
      <Facts one={one} />
      <OrderButtons orders={ORDERS} words={wordsOfOrder} whyNot={(name) => whyNot(name, one)} dangers={["quarantine"]} ask={ask} />
    </header>
  );
}

/** What stands about the instance: repairs, reports against it, and why it gets no job. Nothing if all is well. */
function Facts({ one }: { one: One }) {
  const reports = Object.entries(one.health).filter(([, report]) => report.status !== "OK");
  return (
    <dl class="fields">
      {one.need !== null && (
        <Fact name={t("needs")} strong={wordsFor("repair", one.need.rung)} sentence={one.need.evidence} at={one.need.seen_at} />
      )}
      {one.held !== null && <Fact name={t("held")} sentence={one.held.because} at={one.held.since} />}
      {one.departure !== null && (
        <Fact name={t("leaves")} strong={wordsFor("departure", one.departure.kind)} sentence={one.departure.sentence} at={one.departure.leaves_at} />
      )}
      {one.lemon.score > 0 && <Fact name={t("lemon")} strong={`${one.lemon.score} %`} sentence={one.lemon.made_of ?? ""} at={null} />}
      {reports.map(([kind, report]) => (
        <Fact key={kind} name={`${t("health")} ${wordsFor("source", kind)}`} strong={wordsFor("health", report.status)} sentence={report.sentence} at={report.since} />
      ))}
      {one.out_of_use.map((why) => (
        <Fact key={why.kind} name={t("out")} strong={wordsFor("out", why.kind)} sentence={why.because} at={why.since} />
      ))}
    </dl>
  );
}

function Fact({ name, strong = "", sentence, at }: { name: string; strong?: string; sentence: string; at: string | null }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {strong !== "" && <strong>{strong}</strong>} <span lang="en">{sentence}</span> {at !== null && <Ago at={at} />}
      </dd>
    </div>
  );
}

function Jobs({ one }: { one: One }) {
  const ranks = one.heartbeat?.ranks ?? [];
  const claims = Object.entries(one.claims);
  const waits = one.need?.job_id;
  return (
    <>
      {one.reserved_for !== null && <p>{t("reserved", { job: one.reserved_for })}</p>}
      {waits && <p>{t("waits", { job: waits })}</p>}
      {claims.length === 0 ? (
        <p>{t("noJobs")}</p>
      ) : (
        <Table
          columns={["job", "attempt", "rank", "seen"]}
          words={t}
          rows={claims.map(([job, attempt]) => {
            const rank = ranks.find((each) => each.job_id === job && each.attempt === attempt);
            return {
              key: job,
              cells: {
                job: <a href={to(["jobs", job])}>{job}</a>,
                attempt,
                rank: rank !== undefined && <a href={to(["jobs", job], { tab: "log", attempt, rank: rank.rank })}>{rank.rank}</a>,
                seen: rank !== undefined && <Ago at={rank.seen_at} />,
              },
            };
          })}
        />
      )}
    </>
  );
}

function AgentTokens({ id }: { id: string }) {
  return may("operator") ? <OwnTokens id={id} /> : <p>{t("operator")}</p>;
}

function OwnTokens({ id }: { id: string }) {
  const named = { params: { path: { instance_id: id } } };
  const polled = usePolled(
    `tokens of ${id}`,
    async (signal) =>
      (await bodyOf(client.GET("/api/v2/instances/{instance_id}/tokens", { ...named, signal }))).tokens.map((token) => ({
        ...token,
        id: token.token_id,
      })),
    () => 30_000,
  );
  return (
    <>
      <p class="muted">{t("about")}</p>
      <Tokens
        from={polled}
        calls={{
          holder: id,
          roles: false,
          command: `gpu-recovery token issue ${id}`,
          revoke: (token) =>
            bodyOf(
              client.DELETE("/api/v2/instances/{instance_id}/tokens/{token_id}", {
                params: { path: { instance_id: id, token_id: token } },
              }),
            ),
        }}
      />
    </>
  );
}
