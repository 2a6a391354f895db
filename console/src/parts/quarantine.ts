// Why an instance is quarantined: an operator ordered it, gpu-recovery found a fault, or a limit holds its repair back.
import { texts } from "../texts";
import { nameOf } from "./who";

const t = texts({
  en: {
    operator: "by {name}",
    fault: "by gpu-recovery, for a fault",
    held: "repair held back",
    untilRelease: "until an operator releases it",
    untilLimits: "until the fleet limits allow its repair",
  },
  zh: {
    operator: "由 {name} 隔离",
    fault: "由 gpu-recovery 因故障隔离",
    held: "修复被暂缓",
    untilRelease: "直到运维人员解除隔离",
    untilLimits: "直到机群限制允许修复",
  },
});

/** What is known about a quarantine. */
export interface Quarantined {
  held?: object | null;
  quarantined_by?: string | null;
}

/** Return who quarantined an instance, or that its repair is held back. */
export function quarantineOf(of: Quarantined): string {
  if (of.held) return t("held");
  if (!of.quarantined_by) return t("fault");
  return t("operator", { name: nameOf(of.quarantined_by) });
}

/** Return until when an instance is quarantined. */
export function untilOf(of: Quarantined): string {
  return t(of.held ? "untilLimits" : "untilRelease");
}
