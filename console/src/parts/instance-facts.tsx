// Facts about an instance that several pages show: its heartbeat, and whether a person must act.
import type { ComponentChildren } from "preact";
import type { Schemas } from "../api";
import { texts } from "../texts";
import { Ago } from "./time";

const t = texts({
  en: {
    never: "no agent has reported",
    HEARD: "on time",
    SUSPECT: "late",
    UNREACHABLE: "very late",
    LOST: "missing",
    actNo: "No. The instance may get jobs.",
    actSuspect: "No. The instance works, and gets no new job while this stands:",
    actRepair: "No. It is checked or repaired by itself. You are notified if that fails.",
    actHeld: "Not yet. Its repair is held back by the fleet limits, and begins by itself when they allow it. The fleet page shows them.",
    actRelease: "Yes. It stays out of use until an operator releases it. Deal with the reason first.",
    actDrained: "Yes, if it is to get jobs again: somebody set it to DRAINING in ECS, and gpu-recovery leaves that alone.",
    actSilent: "Look at it. Its node agent does not report, so faults of its GPUs may go unseen. Jobs on it go on while ECS shows them.",
    actLeaves: "No. AWS takes it away soon, and its jobs are moved before.",
    actGone: "No. It has left the cluster.",
  },
  zh: {
    never: "没有 agent 上报过",
    HEARD: "准时",
    SUSPECT: "迟到",
    UNREACHABLE: "严重迟到",
    LOST: "缺失",
    actNo: "不需要。该实例可以接收作业。",
    actSuspect: "不需要。该实例在工作，但在此情况消除前不接收新作业：",
    actRepair: "不需要。系统正在自动检查或修复；如果失败，会通知你。",
    actHeld: "暂时不需要。它的修复受机群限制而暂缓，限制允许后会自动开始。机群页面列出了这些限制。",
    actRelease: "需要。运维人员解除隔离之前，它一直停用。请先处理原因。",
    actDrained: "如果要让它重新接收作业，则需要：有人在 ECS 中把它设为 DRAINING，gpu-recovery 不会改动。",
    actSilent: "请查看。它的节点代理 没有上报，GPU 故障可能无法被发现。只要 ECS 显示作业在运行，作业就会继续。",
    actLeaves: "不需要。AWS 即将收回它，作业会提前移走。",
    actGone: "不需要。它已离开集群。",
  },
});

/** The age of the last heartbeat, and what it means. */
export function Heard({ agent }: { agent: Schemas["InstanceSummary"]["node_agent"] | undefined }) {
  if (agent === null || agent === undefined) return <span class="muted">{t("never")}</span>;
  return (
    <span class={agent.liveness === "HEARD" ? "" : "tone-repair"}>
      <Ago at={agent.seen_at} />
      {agent.liveness !== "HEARD" && ` ! ${t(agent.liveness)}`}
    </span>
  );
}

/** Return whether a person must act about an instance, as a sentence. */
export function mustAct(one: Schemas["InstanceSummary"] | Schemas["Instance"]): ComponentChildren {
  switch (one.status) {
    case "GONE":
      return t("actGone");
    case "QUARANTINED":
      return t(one.held !== null ? "actHeld" : "actRelease");
    case "CHECKING":
    case "RESETTING":
    case "REBOOTING":
    case "REPLACING":
    case "VERIFYING":
      return t("actRepair");
    default:
  }
  if (one.departure !== null) return t("actLeaves");
  if (one.ecs_status === "DRAINING" && !one.drained) return t("actDrained");
  if (one.silent_since !== null) return t("actSilent");
  const why = one.out_of_use[0]?.because ?? one.suspicion;
  if (!why) return t("actNo");
  return (
    <>
      {t("actSuspect")} <span lang="en">{why}</span>
    </>
  );
}
