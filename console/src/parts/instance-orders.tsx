// Orders about instances: what each does, to which jobs, and how it is sent.
import { bodyOf, client, type Schemas } from "../api";
import { to } from "../place";
import { may } from "../session";
import { texts } from "../texts";
import type { Order } from "./confirm";
import { wordsOf } from "./status";

const t = texts({
  en: {
    quarantine: "Quarantine",
    release: "Release",
    quarantineSays: "{id} is set to DRAINING in ECS and gets no new job until an operator releases it.",
    claims: "Jobs that run on it. They go on, and keep their GPUs until they end. If a job is started again, it is started elsewhere:",
    noClaims: "No job runs on it.",
    repair: "Its repair is given up: it is {status} now. A reboot that has begun is not undone.",
    check: "Its health check is stopped. A job that waits for the result is told that the check could not tell.",
    waits: "{job} waits for this instance. It is told that the instance does not come back, and goes on elsewhere.",
    releaseSays: "{id} is checked first. If the check passes, it gets jobs again; if the check finds a fault, it is repaired or quarantined again.",
    releaseWorking: "If it was quarantined without a finding against it, it gets jobs again at once: a job still works on it, so it is not checked.",
    done: "{id} is {status}:",
    signIn: "Sign in as an operator to do this.",
    already: "It is quarantined already.",
    gone: "It has left the cluster.",
    notOut: "Only a quarantined instance can be released. It is {status}.",
  },
  zh: {
    quarantine: "隔离",
    release: "解除隔离",
    quarantineSays: "{id} 会在 ECS 中设为 DRAINING，在运维人员解除隔离之前不接收新作业。",
    claims: "正在它上面运行的作业会继续运行，并占用 GPU 直到结束；如果重新启动，会在别处启动：",
    noClaims: "没有作业在它上面运行。",
    repair: "放弃对它的修复：它现为“{status}”。已经开始的重启无法撤销。",
    check: "停止对它的健康检查。等待结果的作业会得知检查没有结论。",
    waits: "{job} 在等待该实例。它会得知该实例不再回来，并改用其他实例。",
    releaseSays: "先检查 {id}。通过后重新接收作业；如果检查发现故障，会再次修复或隔离。",
    releaseWorking: "如果隔离时没有发现它有问题，则立即重新接收作业：仍有作业在它上面运行，所以不检查。",
    done: "{id} 现为“{status}”：",
    signIn: "以运维人员身份登录后才能这样做。",
    already: "它已被隔离。",
    gone: "它已离开集群。",
    notOut: "只有已隔离的实例才能解除隔离。它现为“{status}”。",
  },
});

export type InstanceOrder = "quarantine" | "release";
type One = Schemas["Instance"];

/** Return why the present session cannot give an order about an instance; "" if it can. */
export function whyNot(order: InstanceOrder, one: One): string {
  if (!may("operator")) return t("signIn");
  if (one.status === "GONE") return t("gone");
  if (order === "release") return one.status === "QUARANTINED" ? "" : t("notOut", { status: wordsOf(one.status) });
  return one.status === "QUARANTINED" && one.held === null ? t("already") : "";
}

/** Return the words of an order's button. */
export function wordsOfOrder(order: InstanceOrder): string {
  return t(order);
}

/** Return the dialog of an order about one instance. `done` is called once the order was carried out. */
export function orderAbout(order: InstanceOrder, one: One, done: () => void): Order {
  const id = one.instance_id;
  const named = { params: { path: { instance_id: id } } };
  return {
    title: t(order),
    says: order === "quarantine" ? <Quarantine one={one} /> : <Release one={one} />,
    ...(order === "quarantine" ? { reason: "needed" as const } : {}),
    send: async (because) => {
      const after = await bodyOf(
        order === "quarantine"
          ? client.POST("/api/v2/instances/{instance_id}/quarantine", { ...named, body: { because } })
          : client.POST("/api/v2/instances/{instance_id}/release", named),
      );
      done();
      return (
        <>
          {t("done", { id, status: wordsOf(after.status) })} <span lang="en">{after.reason}</span>
        </>
      );
    },
  };
}

function Quarantine({ one }: { one: One }) {
  const jobs = Object.entries(one.claims);
  const waits = one.need?.job_id ?? one.reserved_for;
  return (
    <>
      <p>{t("quarantineSays", { id: one.instance_id })}</p>
      {jobs.length === 0 ? (
        <p>{t("noClaims")}</p>
      ) : (
        <>
          <p>{t("claims")}</p>
          <ul>
            {jobs.map(([job, attempt]) => (
              <li key={job}>
                <a href={to(["jobs", job])}>{job}</a> ({attempt})
              </li>
            ))}
          </ul>
        </>
      )}
      {one.status === "CHECKING" && <p>{t("check")}</p>}
      {["RESETTING", "REBOOTING", "REPLACING", "VERIFYING"].includes(one.status) && <p>{t("repair", { status: wordsOf(one.status) })}</p>}
      {waits && !(waits in one.claims) && <p>{t("waits", { job: waits })}</p>}
    </>
  );
}

function Release({ one }: { one: One }) {
  const jobs = Object.keys(one.claims);
  return (
    <>
      <p>{t("releaseSays", { id: one.instance_id })}</p>
      {jobs.length > 0 && (
        <p>
          {t("releaseWorking")} <strong>{jobs.join(", ")}</strong>
        </p>
      )}
    </>
  );
}
