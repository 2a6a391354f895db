// The overview: what is broken, what is being done, and whether a person must act. Most important first.
import { useEffect, useRef, useState } from "preact/hooks";
import { bodyOf, client, type Schemas } from "../api";
import { absorb, events, useFeed } from "../feed";
import { applyEvents, loadFleet, nextMapMs } from "../fleet";
import { type Polled, usePolled } from "../live";
import { Code, wordsFor } from "../parts/codes";
import { Freshness } from "../parts/freshness";
import { HeatMap, type Mode } from "../parts/heatmap";
import { Loaded } from "../parts/loaded";
import { quarantineOf } from "../parts/quarantine";
import { Status, wordsOf } from "../parts/status";
import { Ago, Clock } from "../parts/time";
import { durations, gpuTime, notKnown, number, percent } from "../parts/units";
import { Use } from "../parts/use";
import { nameOf } from "../parts/who";
import { to } from "../place";
import { texts } from "../texts";
import "./overview.css";

const t = texts({
  en: {
    title: "Overview",
    gpus: "GPUs",
    inUse: "in use",
    free: "free",
    outOfUse: "get no job",
    underRepair: "instances under repair",
    checking: "instances checked",
    quarantined: "instances quarantined",
    silent: "instances silent",
    jobs: "Jobs by priority",
    priority: "Priority",
    running: "Running",
    waiting: "Waiting",
    noJobs: "No job runs or waits.",
    noQueue: "The scheduler has written nothing yet.",
    week: "Last 7 days",
    noWeek: "No history is kept yet.",
    share: "share of GPU time in which jobs run",
    ettr: "effective training time (ETTR)",
    noEttr: "the programs report no progress",
    ettrOf: "known for {share} of GPU time",
    recovery: "time to recover",
    available: "fleet available",
    lost: "GPU time lost to failures",
    mttf: "GPU time from failure to failure",
    noFailure: "no failure yet",
    person: "Needs a person",
    nobody: "No instance needs a person.",
    more: "{n} more",
    held: "{n} repairs are held back",
    deadLetters: "Dead letters: {n}",
    noDeadLetters: "No dead letters",
    notCounted: "Dead letters could not be counted",
    quotas: "Instances used / quota",
    user: "User",
    noQuotas: "No quotas are used.",
    map: "Fleet map",
    noMap: "The reconciler has written no map yet. It writes each minute.",
    incidents: "Open incidents",
    noIncidents: "No incident is open.",
    events: "Events",
    follow: "Follow",
    noEvents: "No events are kept yet.",
    breakerOpen: "The circuit breaker is open: no repair begins.",
    breakerHalf: "The circuit breaker is half open: one repair is the probe.",
    paused: "{by} has paused all repairs.",
    deaf: "Reporting outage: the node agents do not report.",
    observe: "Observe only: decisions are shown and not carried out.",
    unread: "Not known at present.",
    openOne: "1 incident is open",
    open: "{n} incidents are open",
    missing: "Not known at present: {parts}. The rest of the page is right.",
    fleet: "instances and limits",
    deadLettersPart: "dead letters",
    queue: "queue and quotas",
    openMost: "{n} or more incidents are open",
  },
  zh: {
    title: "总览",
    gpus: "GPU",
    inUse: "使用中",
    free: "空闲",
    outOfUse: "不接收作业",
    underRepair: "修复中的实例",
    checking: "检查中的实例",
    quarantined: "已隔离的实例",
    silent: "失联的实例",
    jobs: "各优先级作业",
    priority: "优先级",
    running: "运行",
    waiting: "等待",
    noJobs: "没有运行或等待的作业。",
    noQueue: "调度器尚未写入数据。",
    week: "最近 7 天",
    noWeek: "尚无历史数据。",
    share: "作业运行的 GPU 时间占比",
    ettr: "有效训练时间占比（ETTR）",
    noEttr: "程序没有报告进度",
    ettrOf: "基于 {share} 的 GPU 时间",
    recovery: "恢复耗时",
    available: "机群可用率",
    lost: "故障损失的 GPU 时间",
    mttf: "平均无故障 GPU 时间",
    noFailure: "尚无故障",
    person: "需要人工处理",
    nobody: "没有需要人工处理的实例。",
    more: "另有 {n} 台",
    held: "{n} 项修复被暂缓",
    deadLetters: "死信：{n}",
    noDeadLetters: "没有死信",
    notCounted: "无法统计死信",
    quotas: "实例 已用 / 配额",
    user: "用户",
    noQuotas: "没有使用中的配额。",
    map: "机群地图",
    noMap: "协调器尚未写入地图。它每分钟写入一次。",
    incidents: "未结束的事故",
    noIncidents: "没有未结束的事故。",
    events: "事件",
    follow: "跟随",
    noEvents: "尚无事件。",
    breakerOpen: "熔断器已打开：不会开始任何修复。",
    breakerHalf: "熔断器半开：正以一项修复试探。",
    paused: "{by} 已暂停所有修复。",
    deaf: "上报中断：节点代理 没有上报。",
    observe: "仅观察：只显示决定，不执行。",
    unread: "目前无法得知。",
    openOne: "1 起事故未结束",
    open: "{n} 起事故未结束",
    missing: "目前无法读取：{parts}。页面其余部分有效。",
    fleet: "实例与限制",
    deadLettersPart: "死信",
    queue: "队列与配额",
    openMost: "{n} 起或更多事故未结束",
  },
});

type Answer = Schemas["Overview"];
/** The words of the parts that the API may not have been able to read. */
const PARTS = { fleet: "fleet", queue: "queue", incidents: "incidents", events: "events", week: "week", dead_letters: "deadLettersPart" } as const;
/** Open incidents of an answer at most. */
const OPEN_MAX = 20;
const OVERVIEW_MS = 15_000;
const EVENTS_SHOWN = 20;

export function Overview() {
  const overview = usePolled(
    "overview",
    async (signal) => {
      const answer = await bodyOf(client.GET("/api/v2/overview", { signal }));
      absorb(answer.events);
      return answer;
    },
    () => OVERVIEW_MS,
  );
  const feed = useFeed();
  return (
    <main class="container-fluid" tabIndex={-1} id="content">
      <Loaded from={overview}>
        {(answer) => (
          <>
            <div class="headline">
              <h1>{t("title")}</h1>
              <Freshness at={answer.as_of} writer="reconciler" />
            </div>
            <Alerts of={answer} />
            <div class="overview">
              <Gpus of={answer} />
              <Jobs of={answer} />
              <Week from={answer} />
              <Person of={answer} />
              <FleetMap />
              <Incidents from={answer} />
              <Events feed={feed} />
              <Quotas of={answer} />
            </div>
          </>
        )}
      </Loaded>
    </main>
  );
}

/** What an operator must know before anything else. Nothing is shown while all is well. */
function Alerts({ of }: { of: Answer }) {
  const limits = of.limits;
  const toFleet = to(["fleet"]);
  const lines: { text: string; because?: string | null; grave: boolean; href: string; at?: string | null }[] = [];
  if (limits?.breaker.state === "OPEN") lines.push({ text: t("breakerOpen"), because: limits.breaker.because, grave: true, href: toFleet, at: limits.breaker.since });
  if (limits?.breaker.state === "HALF_OPEN") lines.push({ text: t("breakerHalf"), grave: false, href: toFleet, at: limits.breaker.since });
  if (limits?.deaf) lines.push({ text: t("deaf"), because: limits.deaf.because, grave: true, href: toFleet, at: limits.deaf.since });
  if (limits?.pause) lines.push({ text: t("paused", { by: nameOf(limits.pause.by) }), because: limits.pause.because, grave: false, href: toFleet, at: limits.pause.at });
  if (limits?.observe_only) lines.push({ text: t("observe"), grave: false, href: toFleet });
  if (of.missing.length > 0) lines.push({ text: t("missing", { parts: of.missing.map((part) => t(PARTS[part])).join(", ") }), grave: false, href: to([]) });
  if (of.incidents.length > 0) lines.push({ text: t(of.incidents.length === 1 ? "openOne" : of.incidents.length < OPEN_MAX ? "open" : "openMost", { n: of.incidents.length }), grave: false, href: to(["incidents"]) });
  if (lines.length === 0) return null;
  return (
    <ul class="alerts">
      {lines.map((line) => (
        <li key={line.text} class={line.grave ? "grave" : ""}>
          <span aria-hidden="true">! </span>
          <a href={line.href}>{line.text}</a> {line.because && <span lang="en">{line.because}</span>} {line.at && <Ago at={line.at} />}
        </li>
      ))}
    </ul>
  );
}

/** The sentence for a part without content: whether the API could not read the part, or there is nothing to tell. */
function emptyText(of: Answer, part: Answer["missing"][number], nothing: string): string {
  return of.missing.includes(part) ? t("unread") : nothing;
}

function Gpus({ of }: { of: Answer }) {
  const fleet = of.fleet;
  const count = (...statuses: string[]): number => statuses.reduce((sum, status) => sum + (fleet?.by_status[status] ?? 0), 0);
  return (
    <section class="third" aria-label={t("gpus")}>
      <h2>{t("gpus")}</h2>
      {fleet !== null && <Freshness at={of.as_of} writer="reconciler" />}
      {fleet === null ? (
        <p>{emptyText(of, "fleet", t("noMap"))}</p>
      ) : (
        <>
          <div class="big">
            {number(fleet.gpus_in_use)} / {number(fleet.gpus)}
          </div>
          <div>
            {t("inUse")}
            {fleet.gpus > 0 && `, ${percent(fleet.gpus_in_use / fleet.gpus)}`}
          </div>
          <dl>
            <dt>{t("free")}</dt>
            <dd>{number(fleet.gpus_free)}</dd>
            <dt>{t("outOfUse")}</dt>
            <dd>{number(fleet.gpus_out_of_use)}</dd>
            <dt>{t("checking")}</dt>
            <dd>{number(count("CHECKING"))}</dd>
            <dt>{t("underRepair")}</dt>
            <dd>{number(count("RESETTING", "REBOOTING", "REPLACING", "VERIFYING"))}</dd>
            <dt>{t("quarantined")}</dt>
            <dd>{number(count("QUARANTINED"))}</dd>
            <dt>{t("silent")}</dt>
            <dd>{number(fleet.silent)}</dd>
          </dl>
        </>
      )}
    </section>
  );
}

function Jobs({ of }: { of: Answer }) {
  const rows = of.totals.filter((total) => total.running.jobs + total.queued.jobs > 0);
  return (
    <section class="third" aria-label={t("jobs")}>
      <h2>{t("jobs")}</h2>
      {of.queue_as_of === null ? (
        <p>{emptyText(of, "queue", t("noQueue"))}</p>
      ) : rows.length === 0 ? (
        <p>{t("noJobs")}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">{t("priority")}</th>
              <th scope="col" class="number">
                {t("running")}
              </th>
              <th scope="col" class="number">
                {t("waiting")}
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((total) => (
              <tr key={total.priority}>
                <td>
                  <Code of="priority" is={total.priority} />
                </td>
                <td class="number">{number(total.running.jobs)}</td>
                <td class="number">{number(total.queued.jobs)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {of.queue_as_of !== null && <Freshness at={of.queue_as_of} writer="scheduler" />}
    </section>
  );
}

function Week({ from }: { from: Answer }) {
  const of = from.week;
  return (
    <section class="third" aria-label={t("week")}>
      <h2>{t("week")}</h2>
      {of === null ? (
        <p>{emptyText(from, "week", t("noWeek"))}</p>
      ) : (
        <dl>
          <dt>{t("share")}</dt>
          <dd>{of.running_share === null ? notKnown() : percent(of.running_share)}</dd>
          <dt>{t("ettr")}</dt>
          <dd>{of.ettr === null ? notKnown() : percent(of.ettr)}</dd>
          <dd class="note">{of.ettr === null ? t("noEttr") : t("ettrOf", { share: percent(of.ettr_share ?? 0) })}</dd>
          <dt>{t("recovery")}</dt>
          <dd>{durations(of.recovery_s_p50, of.recovery_s_p90)}</dd>
          <dt>{t("available")}</dt>
          <dd>{of.fleet_available === null ? notKnown() : percent(of.fleet_available)}</dd>
          <dt>{t("lost")}</dt>
          <dd>{lostIn(of)}</dd>
          <dt>{t("mttf")}</dt>
          <dd>{of.mttf_gpu_h === null ? t("noFailure") : gpuTime(of.mttf_gpu_h)}</dd>
        </dl>
      )}
    </section>
  );
}

/** Return the GPU time that failures have cost. Without a job nothing could be lost, and an incident always costs some. */
function lostIn(of: Schemas["Figures"]): string {
  const isKnown = of.gpu_h_lost > 0 || (of.incidents === 0 && of.gpu_h_held > 0);
  return gpuTime(isKnown ? of.gpu_h_lost : null);
}

function Person({ of }: { of: Answer }) {
  const letters = of.dead_letters === null ? null : Object.values(of.dead_letters).reduce((sum, count) => sum + count, 0);
  return (
    <section class="third" aria-label={t("person")}>
      <h2>{t("person")}</h2>
      {of.for_a_person.length === 0 ? (
        <p>{emptyText(of, "fleet", t("nobody"))}</p>
      ) : (
        <ul class="list scroll">
          {of.for_a_person.map((instance) => (
            <li key={instance.instance_id}>
              <span class="tone-out" aria-hidden="true">
                ✕{" "}
              </span>
              <a href={to(["instances", instance.instance_id])}>{instance.instance_id}</a> <Ago at={instance.since} bare /> {quarantineOf(instance)}
              <br />
              <span class="muted" lang="en">
                {instance.because}
              </span>
            </li>
          ))}
        </ul>
      )}
      {of.for_a_person_more > 0 && <p>{t("more", { n: of.for_a_person_more })}</p>}
      {of.held > 0 && (
        <p>
          <a href={to(["fleet"])}>{t("held", { n: of.held })}</a>
        </p>
      )}
      <p>
        {letters === null ? t("notCounted") : letters === 0 ? t("noDeadLetters") : <a href={to(["fleet"])}>{t("deadLetters", { n: letters })}</a>}
      </p>
    </section>
  );
}

function FleetMap() {
  const gpu = useRef(false);
  const [version, setVersion] = useState(0);
  const polled = usePolled("map", (signal) => loadFleet(signal, gpu.current), nextMapMs);
  const fleet = polled.data.value;
  const happened = events.value;
  // The events between two maps change squares at once.
  useEffect(() => {
    if (fleet && applyEvents(fleet, happened)) setVersion((count) => count + 1);
  }, [fleet, happened]);
  const choose = (mode: Mode): void => {
    const before = gpu.current;
    gpu.current = mode === "gpu";
    if (gpu.current && !before) polled.hurry(0, 0);
  };
  return (
    <section aria-label={t("map")}>
      <div class="headline">
        <h2>{t("map")}</h2>
        {fleet && <Freshness at={fleet.asOf} writer="reconciler" />}
      </div>
      <Loaded from={polled}>
        {(answer) => (answer === null || answer.members.ids.length === 0 ? <p>{t("noMap")}</p> : <HeatMap fleet={answer} version={version} onMode={choose} />)}
      </Loaded>
    </section>
  );
}

function Incidents({ from }: { from: Answer }) {
  const of = from.incidents;
  return (
    <section class="half" aria-label={t("incidents")}>
      <h2>{t("incidents")}</h2>
      {of.length === 0 ? (
        <p>{emptyText(from, "incidents", t("noIncidents"))}</p>
      ) : (
        <ul class="list scroll">
          {of.map((incident) => (
            <li key={incident.incident_id}>
              <a href={to(["incidents", incident.incident_id])}>{incident.incident_id}</a> {incident.phases.slice(-1).map((phase) => (
                <Status key={phase.since} of={phase.status} />
              ))}{" "}
              <Ago at={incident.opened_at} bare />{" "}
              {incident.cause !== null && <Code of="cause" is={incident.cause} />}
              <br />
              <span class="muted" lang="en">
                {incident.reason}
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** The newest events, newest first. They stay as they are while a person does not follow them. */
function Events({ feed }: { feed: Polled<true> }) {
  const [kept, setKept] = useState<Schemas["Event"][] | null>(null);
  const shown = (kept ?? events.value).slice(-EVENTS_SHOWN).reverse();
  return (
    <section class="half" aria-label={t("events")}>
      <div class="headline">
        <h2>{t("events")}</h2>
        <label>
          <input type="checkbox" role="switch" checked={kept === null} onChange={(event) => setKept(event.currentTarget.checked ? null : events.value)} />
          {t("follow")}
        </label>
      </div>
      <Loaded from={feed}>
        {() =>
          shown.length === 0 ? (
            <p>{t("noEvents")}</p>
          ) : (
            <ul class="list scroll" tabIndex={0} aria-label={t("events")}>
              {shown.map((event) => (
                <li key={event.id}>
                  <Clock at={event.at} /> <About event={event} />{" "}
                  {event.before !== null && event.after !== null && `${wordsOf(event.before)} → `}
                  {event.after !== null && <Status of={event.after} />}
                  <br />
                  <span class="muted" lang="en">
                    {event.reason}
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </section>
  );
}

/** The instance or the job that an event is about. An event of an instance may also name the job that waits. */
function About({ event }: { event: Schemas["Event"] }) {
  if (event.instance_id !== null) return <a href={to(["instances", event.instance_id])}>{event.instance_id}</a>;
  return event.job_id === null ? null : <a href={to(["jobs", event.job_id])}>{event.job_id}</a>;
}

/** Use and limit of the quotas: one row a user, one column a priority. */
function Quotas({ of }: { of: Answer }) {
  const priorities = [...new Set(of.totals.map((total) => total.priority as string))];
  const columns = [...priorities, ...new Set(of.quotas.map((quota) => quota.priority as string).filter((name) => !priorities.includes(name)))].filter((name) =>
    of.quotas.some((quota) => quota.priority === name),
  );
  const rows = [...new Set(of.quotas.map((quota) => `${quota.user}\n${quota.group}`))];
  return (
    <section aria-label={t("quotas")}>
      <h2>{t("quotas")}</h2>
      {rows.length === 0 ? (
        <p>{of.queue_as_of === null ? emptyText(of, "queue", t("noQueue")) : t("noQuotas")}</p>
      ) : (
        <div class="scroll" tabIndex={0} role="group" aria-label={t("quotas")}>
          <table class="rows">
            <thead>
              <tr>
                <th scope="col">{t("user")}</th>
                {columns.map((name) => (
                  <th scope="col" class="number" key={name}>
                    <Code of="priority" is={name} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => {
                const [user = "", group = ""] = row.split("\n");
                return (
                  <tr key={row}>
                    <th scope="row">
                      {user}
                      {group !== "" && ` · ${group}`}
                    </th>
                    {columns.map((name) => {
                      const quota = of.quotas.find((each) => each.user === user && each.group === group && each.priority === name);
                      return (
                        <td class="number" data-label={wordsFor("priority", name)} key={name}>
                          {quota === undefined ? "-" : <Use used={quota.used} limit={quota.limit} />}
                        </td>
                      );
                    })}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
