// The fleet page: what holds repairs back, which instances need a person, and the dead letters. Orders are for operators.
import { type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { bodyOf, client, type Schemas, serverNow } from "../api";
import { usePolled } from "../live";
import { announce } from "../parts/announce";
import { Code, wordsFor } from "../parts/codes";
import { Confirm, type Order } from "../parts/confirm";
import { Freshness } from "../parts/freshness";
import { orderAbout, whyNot, wordsOfOrder } from "../parts/instance-orders";
import { Loaded } from "../parts/loaded";
import { Sentence } from "../parts/problem";
import { quarantineOf } from "../parts/quarantine";
import { Ago } from "../parts/time";
import { nameOf } from "../parts/who";
import { to } from "../place";
import { may } from "../session";
import { texts } from "../texts";
import "./overview.css";

const t = texts({
  en: {
    title: "Fleet",
    none: "The reconciler has written nothing yet. It writes each minute.",
    repairs: "Repairs",
    atOnce: "under repair, of at most",
    held: "held back",
    replaceOn: "replacements are allowed",
    replaceOff: "replacements are off",
    observe: "observe only: nothing is carried out",
    instances: "GPU instances",
    breaker: "Circuit breaker",
    CLOSED: "closed",
    OPEN: "open: no repair begins",
    HALF_OPEN: "half open: one repair is the probe",
    blamed: "blamed now, opens at",
    probe: "probe",
    probeAt: "a probe may begin",
    pause: "Pause",
    notPaused: "Repairs are not paused.",
    pausedBy: "Paused by {by}:",
    outage: "Reporting",
    noOutage: "The node agents report.",
    isOutage: "The node agents do not report.",
    by: "Quarantined",
    pauseOrder: "Pause repairs",
    pauseSays: "No reset, no reboot and no replacement begins until repairs are permitted again. Repairs under way go on, and so do health checks. {n} instances are under repair now, {held} are held back.",
    paused: "Repairs are paused.",
    unpauseOrder: "Permit repairs",
    unpauseSays: "Repairs may begin again. {held} repairs are held back now; each is tried at its next look.",
    unpaused: "Repairs may begin again.",
    resetOrder: "Close the breaker",
    resetSays: "All {blamed} blamed instances are forgotten, and repairs may begin. {held} repairs are held back now. If the cause is a network, a rack or the check itself, healthy instances will be rebooted.",
    reset: "The breaker is closed.",
    heldTitle: "Repairs that are held back",
    noHeld: "No repair is held back.",
    personTitle: "Instances that need a person",
    noPerson: "No instance needs a person.",
    instance: "Instance",
    since: "Since",
    rung: "Repair",
    because: "Why",
    evidence: "Evidence",
    outTitle: "Instances that get no job",
    noOut: "Every instance may get jobs.",
    kind: "Kind",
    more: "{n} more are not listed.",
    showMore: "Show more ({n})",
    lettersTitle: "Dead letters",
    letters: "An event that a function failed on, or that could not be delivered.",
    queue: "Queue",
    count: "Letters",
    first: "First letters",
    noLetters: "No dead letters.",
    redriveOrder: "Redrive",
    redriveSays: "Up to 100 letters of the queue {queue} are sent again to the functions that they were for. A letter that is refused stays in the queue.",
    redriven: "{sent} letters were sent again, {kept} stay in the queue.",
    operator: "Sign in as an operator to use this.",
    live: "after your order",
  },
  zh: {
    title: "机群",
    none: "协调器尚未写入数据。它每分钟写入一次。",
    repairs: "修复",
    atOnce: "台修复中，上限",
    held: "项暂缓",
    replaceOn: "允许更换实例",
    replaceOff: "不更换实例",
    observe: "仅观察：不执行任何操作",
    instances: "GPU 实例",
    breaker: "熔断器",
    CLOSED: "闭合",
    OPEN: "打开：不会开始修复",
    HALF_OPEN: "半开：正以一项修复试探",
    blamed: "台实例当前有嫌疑，打开阈值",
    probe: "试探",
    probeAt: "可开始试探",
    pause: "暂停",
    notPaused: "修复未暂停。",
    pausedBy: "由 {by} 暂停：",
    outage: "上报",
    noOutage: "节点代理 正常上报。",
    isOutage: "节点代理 没有上报。",
    by: "隔离",
    pauseOrder: "暂停修复",
    pauseSays: "在恢复之前不会开始重置、重启或更换。进行中的修复和健康检查继续。现有 {n} 台实例修复中，{held} 项暂缓。",
    paused: "修复已暂停。",
    unpauseOrder: "恢复修复",
    unpauseSays: "修复可以重新开始。现有 {held} 项暂缓，各自在下次检查时重试。",
    unpaused: "修复可以重新开始。",
    resetOrder: "闭合熔断器",
    resetSays: "清除全部 {blamed} 台实例的嫌疑记录，修复可以开始。现有 {held} 项暂缓。如果原因是网络、机架或检查本身，健康的实例会被重启。",
    reset: "熔断器已闭合。",
    heldTitle: "被暂缓的修复",
    noHeld: "没有被暂缓的修复。",
    personTitle: "需要人工处理的实例",
    noPerson: "没有需要人工处理的实例。",
    instance: "实例",
    since: "持续",
    rung: "修复方式",
    because: "原因",
    evidence: "证据",
    outTitle: "不接收作业的实例",
    noOut: "所有实例都可接收作业。",
    kind: "类别",
    more: "另有 {n} 条未列出。",
    showMore: "显示更多（{n}）",
    lettersTitle: "死信",
    letters: "函数处理失败或无法投递的事件。",
    queue: "队列",
    count: "数量",
    first: "最前的死信",
    noLetters: "没有死信。",
    redriveOrder: "重新投递",
    redriveSays: "队列 {queue} 中最多 100 封死信将重新发送给原来的函数。被拒绝的留在队列中。",
    redriven: "已重新发送 {sent} 封，{kept} 封留在队列中。",
    operator: "以运维人员身份登录后可用。",
    live: "来自你的操作",
  },
});

type Limits = Schemas["Fleet"];
const LIMITS_MS = 15_000;
const LETTERS_MS = 60_000;

export function Fleet() {
  const [order, setOrder] = useState<Order | null>(null);
  const [answered, setAnswered] = useState<{ limits: Limits; at: number } | null>(null);
  const polled = usePolled(
    "limits",
    (signal) => bodyOf(client.GET("/api/v2/fleet/limits", { signal })),
    () => LIMITS_MS,
  );
  return (
    <main class="container-fluid" tabIndex={-1} id="content">
      <Loaded from={polled}>
        {(answer) => {
          // The answer to an order is newer than the snapshot until the reconciler writes the next.
          const live = answered !== null && (answer.as_of === null || Date.parse(answer.as_of) < answered.at) ? answered.limits : null;
          const limits = live ?? answer.limits;
          const ordered = (next: Limits, sentence: string): string => {
            setAnswered({ limits: next, at: serverNow() });
            return sentence;
          };
          return (
            <>
              <div class="headline">
                <h1>{t("title")}</h1>
                {live !== null ? <span class="freshness">{t("live")}</span> : <Freshness at={answer.as_of} writer="reconciler" />}
              </div>
              {limits === null ? <p>{t("none")}</p> : <Shown limits={limits} ordered={ordered} ask={setOrder} />}
            </>
          );
        }}
      </Loaded>
      {order !== null && <Confirm order={order} done={() => setOrder(null)} />}
    </main>
  );
}

interface Asked {
  limits: Limits;
  ordered: (next: Limits, sentence: string) => string;
  ask: (order: Order) => void;
}

function Shown({ limits, ordered, ask }: Asked) {
  const { breaker, pause, deaf } = limits;
  const blamed = Object.keys(breaker.blamed).length;
  const numbers = { n: limits.repairing.length, held: limits.held.length, blamed };
  const pauseRepairs: Order = {
    title: t("pauseOrder"),
    says: <p>{t("pauseSays", numbers)}</p>,
    reason: "needed",
    send: async (because) => ordered(await bodyOf(client.POST("/api/v2/fleet/pause", { body: { because } })), t("paused")),
  };
  const permitRepairs: Order = {
    title: t("unpauseOrder"),
    says: <p>{t("unpauseSays", numbers)}</p>,
    send: async () => ordered(await bodyOf(client.POST("/api/v2/fleet/unpause")), t("unpaused")),
  };
  const closeBreaker: Order = {
    title: t("resetOrder"),
    says: <p>{t("resetSays", numbers)}</p>,
    send: async () => ordered(await bodyOf(client.POST("/api/v2/fleet/reset-breaker")), t("reset")),
  };
  return (
    <div class="fleet">
      <section aria-label={t("repairs")}>
        <h2>{t("repairs")}</h2>
        <p>
          <strong>{limits.repairing.length}</strong> {t("atOnce")} {limits.repairs_at_once_max} · <strong>{limits.held.length}</strong> {t("held")}
        </p>
        <Ids of={limits.repairing} />
        <p class="muted">
          {limits.gpu_instances.toLocaleString()} {t("instances")} · {t(limits.replace ? "replaceOn" : "replaceOff")}
        </p>
        {limits.observe_only && (
          <p>
            <strong>{t("observe")}</strong>
          </p>
        )}
      </section>
      <section aria-label={t("breaker")}>
        <h2>{t("breaker")}</h2>
        <p>
          <strong class={breaker.state === "CLOSED" ? "tone-good" : "tone-repair"}>
            {breaker.state === "CLOSED" ? "✓ " : "! "}
            {t(breaker.state)}
          </strong>{" "}
          {breaker.since !== null && <Ago at={breaker.since} />}
        </p>
        {breaker.because !== null && <p lang="en">{breaker.because}</p>}
        <p class="muted">
          {blamed} {t("blamed")} {breaker.opens_at}
          {breaker.probe !== null && (
            <>
              {" "}
              · {t("probe")} <a href={to(["instances", breaker.probe])}>{breaker.probe}</a>
            </>
          )}
          {breaker.probe_at !== null && (
            <>
              {" "}
              · {t("probeAt")} <Ago at={breaker.probe_at} />
            </>
          )}
        </p>
        <Ids of={Object.keys(breaker.blamed)} />
        <Orders>
          <Give order={closeBreaker} ask={ask} disabled={breaker.state === "CLOSED" && blamed === 0} />
        </Orders>
      </section>
      <section aria-label={t("pause")}>
        <h2>{t("pause")}</h2>
        {pause === null ? (
          <p>{t("notPaused")}</p>
        ) : (
          <p>
            <strong>! {t("pausedBy", { by: nameOf(pause.by) })}</strong> <span lang="en">{pause.because}</span> <Ago at={pause.at} />
          </p>
        )}
        <Orders>{pause === null ? <Give order={pauseRepairs} ask={ask} /> : <Give order={permitRepairs} ask={ask} />}</Orders>
      </section>
      <section aria-label={t("outage")}>
        <h2>{t("outage")}</h2>
        {deaf === null ? (
          <p>{t("noOutage")}</p>
        ) : (
          <p>
            <strong>! {t("isOutage")}</strong> <span lang="en">{deaf.because}</span> <Ago at={deaf.since} />
          </p>
        )}
      </section>
      <section class="whole" aria-label={t("personTitle")}>
        <h2>
          {t("personTitle")} ({limits.for_a_person.length})
        </h2>
        <Rows of={limits.for_a_person} none={t("noPerson")} names={["instance", "since", "by", "because"]}>
          {(each) => [
            <Link id={each.instance_id} />,
            <Ago at={each.since} bare />,
            quarantineOf(each),
            <span lang="en">{each.because}</span>,
            <GiveRelease id={each.instance_id} ask={ask} />,
          ]}
        </Rows>
      </section>
      <section class="whole" aria-label={t("heldTitle")}>
        <h2>
          {t("heldTitle")} ({limits.held.length})
        </h2>
        <Rows of={limits.held} none={t("noHeld")} names={["instance", "since", "rung", "because", "evidence"]}>
          {(each) => [
            <Link id={each.instance_id} />,
            <Ago at={each.since} bare />,
            each.rung !== null && <Code of="repair" is={each.rung} />,
            <span lang="en">{each.because}</span>,
            <span lang="en">{each.evidence}</span>,
          ]}
        </Rows>
      </section>
      <Letters ask={ask} />
      <section class="whole" aria-label={t("outTitle")}>
        <h2>
          {t("outTitle")} ({limits.out_of_use.length + limits.out_of_use_more})
        </h2>
        <Rows of={limits.out_of_use} none={t("noOut")} names={["instance", "kind", "since", "because"]}>
          {(each) => [
            <Link id={each.instance_id} />,
            <Code of="out" is={each.kind} />,
            each.since === null ? "-" : <Ago at={each.since} bare />,
            <span lang="en">{each.because}</span>,
          ]}
        </Rows>
        {limits.out_of_use_more > 0 && <p>{t("more", { n: limits.out_of_use_more })}</p>}
      </section>
    </div>
  );
}

/** The button that releases an instance. The record is read first: the dialog says what happens to its jobs. */
function GiveRelease({ id, ask }: { id: string; ask: (order: Order) => void }) {
  const [busy, setBusy] = useState(false);
  const allowed = may("operator");
  const open = async (): Promise<void> => {
    setBusy(true);
    try {
      const one = await bodyOf(client.GET("/api/v2/instances/{instance_id}", { params: { path: { instance_id: id } } }));
      const why = whyNot("release", one);
      if (why === "") ask(orderAbout("release", one, () => undefined));
      else announce(why);
    } catch (error) {
      announce(<Sentence of={error as Error} />);
    } finally {
      setBusy(false);
    }
  };
  return (
    <button class="secondary" disabled={!allowed || busy} title={allowed ? undefined : t("operator")} onClick={() => void open()}>
      {wordsOfOrder("release")}
    </button>
  );
}

/** The dead letters. Only operators may read them. */
function Letters({ ask }: { ask: (order: Order) => void }) {
  if (!may("operator")) {
    return (
      <section class="whole" aria-label={t("lettersTitle")}>
        <h2>{t("lettersTitle")}</h2>
        <p>{t("operator")}</p>
      </section>
    );
  }
  return <ReadLetters ask={ask} />;
}

function ReadLetters({ ask }: { ask: (order: Order) => void }) {
  const polled = usePolled(
    "letters",
    (signal) => bodyOf(client.GET("/api/v2/dead-letters", { signal })),
    () => LETTERS_MS,
  );
  const redrive = (queue: Schemas["DeadLetters"]["queues"][number]): Order => ({
    title: t("redriveOrder"),
    says: <p>{t("redriveSays", { queue: wordsFor("queue", queue.queue) })}</p>,
    typed: String(queue.letters),
    send: async () => {
      const answer = await bodyOf(client.POST("/api/v2/dead-letters/redrive", { params: { query: { queue: queue.queue } } }));
      polled.hurry(3_000, 10_000);
      const kept = answer.letters.filter((letter) => letter.kept_because !== null).length;
      return answer.stopped_because ?? t("redriven", { sent: answer.letters.length - kept, kept });
    },
  });
  return (
    <section class="whole" aria-label={t("lettersTitle")}>
      <h2>{t("lettersTitle")}</h2>
      <p class="muted">{t("letters")}</p>
      <Loaded from={polled}>
        {({ queues }) => (
          <Rows of={queues.filter((queue) => queue.letters > 0 || queue.shown.length > 0)} none={t("noLetters")} names={["queue", "count", "first"]}>
            {(queue) => [
              <Code of="queue" is={queue.queue} />,
              queue.letters,
              <ul class="list">
                {queue.shown.map((letter) => (
                  <li key={letter.message_id}>
                    <code lang="en">
                      {letter.for ?? "?"} ← {letter.source ?? "?"}
                    </code>{" "}
                    {letter.kept_because !== null && <em lang="en">{letter.kept_because}</em>}
                  </li>
                ))}
              </ul>,
              <Give order={redrive(queue)} ask={ask} />,
            ]}
          </Rows>
        )}
      </Loaded>
    </section>
  );
}

const SHOWN = 100;

/** A table of at most a hundred rows, with the rest on request. The last cell has no heading: it holds the order. */
function Rows<T>({ of, none, names, children }: { of: T[]; none: string; names: Parameters<typeof t>[0][]; children: (each: T) => ComponentChildren[] }) {
  const [most, setMost] = useState(SHOWN);
  if (of.length === 0) return <p>{none}</p>;
  return (
    <>
      <table class="rows">
        <thead>
          <tr>
            {names.map((name) => (
              <th scope="col" key={name}>
                {t(name)}
              </th>
            ))}
            <td />
          </tr>
        </thead>
        <tbody>
          {of.slice(0, most).map((each, row) => (
            <tr key={row}>
              {children(each).map((cell, column) => (
                <td key={column} data-label={column < names.length ? t(names[column] as Parameters<typeof t>[0]) : ""}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {of.length > most && (
        <button class="secondary outline" onClick={() => setMost(most + SHOWN)}>
          {t("showMore", { n: of.length - most })}
        </button>
      )}
    </>
  );
}

function Link({ id }: { id: string }) {
  return <a href={to(["instances", id])}>{id}</a>;
}

function Ids({ of }: { of: string[] }) {
  if (of.length === 0) return null;
  return (
    <ul class="list">
      {of.slice(0, 20).map((id) => (
        <li key={id}>
          <Link id={id} />
        </li>
      ))}
      {of.length > 20 && <li>{t("more", { n: of.length - 20 })}</li>}
    </ul>
  );
}

function Orders({ children }: { children: ComponentChildren }) {
  return <div class="orders">{children}</div>;
}

/** The button of an order. Who may not give the order sees why. */
function Give({ order, ask, disabled = false }: { order: Order; ask: (order: Order) => void; disabled?: boolean }) {
  const allowed = may("operator");
  return (
    <button class="secondary" disabled={!allowed || disabled} title={allowed ? undefined : t("operator")} onClick={() => ask(order)}>
      {order.title}
    </button>
  );
}
