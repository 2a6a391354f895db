// Statuses of jobs and instances: colour, sign and words. The sign differs wherever the colour does.
import type { Schemas } from "../api";
import { texts } from "../texts";

type Known =
  | Schemas["JobStatus"]
  | Schemas["AttemptStatus"]
  | Schemas["InstanceStatus"]
  | Schemas["Incident"]["state"]
  | Schemas["IncidentOutcome"]
  | "free"
  | "used"
  | "silent";

const t = texts<Known>({
  en: {
    free: "free",
    used: "in use",
    silent: "silent",
    QUEUED: "queued",
    PENDING_RESOURCES: "waiting for GPUs",
    SUBMITTING: "starting",
    SUBMITTED: "tasks started",
    RUNNING: "running",
    LOST: "out of contact",
    SUSPENDING: "suspending",
    SUSPENDED: "suspended",
    STOPPING: "stopping",
    DIAGNOSING: "checking its instances",
    RECOVERING: "waiting to be started again",
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    CANCELED: "canceled",
    PENDING: "pending",
    STOPPED: "stopped",
    AVAILABLE: "available",
    CHECKING: "checking",
    RESETTING: "resetting GPUs",
    REBOOTING: "rebooting",
    VERIFYING: "verifying",
    QUARANTINED: "quarantined",
    REPLACING: "replacing",
    GONE: "gone",
    open: "open",
    closed: "closed",
    recovered: "recovered",
    failed: "failed",
    canceled: "canceled",
    in_service: "back in service",
    gone: "gone",
  },
  zh: {
    free: "空闲",
    used: "使用中",
    silent: "失联",
    QUEUED: "排队中",
    PENDING_RESOURCES: "等待 GPU",
    SUBMITTING: "启动中",
    SUBMITTED: "任务已创建",
    RUNNING: "运行中",
    LOST: "失联",
    SUSPENDING: "挂起中",
    SUSPENDED: "已挂起",
    STOPPING: "停止中",
    DIAGNOSING: "检查实例中",
    RECOVERING: "等待重新启动",
    SUCCEEDED: "成功",
    FAILED: "失败",
    CANCELED: "已取消",
    PENDING: "待启动",
    STOPPED: "已停止",
    AVAILABLE: "可用",
    CHECKING: "检查中",
    RESETTING: "重置 GPU 中",
    REBOOTING: "重启中",
    VERIFYING: "验证中",
    QUARANTINED: "已隔离",
    REPLACING: "更换中",
    GONE: "已离开",
    open: "未结束",
    closed: "已结束",
    recovered: "已恢复",
    failed: "失败",
    canceled: "已取消",
    in_service: "恢复服务",
    gone: "已离开",
  },
});

/** Tone (a colour of the style sheet), sign, and letter of each state. */
const LOOKS: Record<Known, { tone: string; sign: string; letter: string }> = {
  free: { tone: "free", sign: "○", letter: "" },
  used: { tone: "used", sign: "●", letter: "" },
  silent: { tone: "silent", sign: "~", letter: "~" },
  QUEUED: { tone: "free", sign: "…", letter: "" },
  PENDING_RESOURCES: { tone: "free", sign: "…", letter: "" },
  SUBMITTING: { tone: "used", sign: "↗", letter: "" },
  SUBMITTED: { tone: "used", sign: "↗", letter: "" },
  RUNNING: { tone: "used", sign: "▶", letter: "" },
  LOST: { tone: "silent", sign: "~", letter: "~" },
  SUSPENDING: { tone: "free", sign: "‖", letter: "" },
  SUSPENDED: { tone: "free", sign: "‖", letter: "" },
  STOPPING: { tone: "repair", sign: "■", letter: "" },
  DIAGNOSING: { tone: "check", sign: "⌕", letter: "C" },
  RECOVERING: { tone: "repair", sign: "↻", letter: "R" },
  SUCCEEDED: { tone: "good", sign: "✓", letter: "" },
  FAILED: { tone: "out", sign: "✕", letter: "X" },
  CANCELED: { tone: "silent", sign: "⊘", letter: "" },
  PENDING: { tone: "free", sign: "…", letter: "" },
  STOPPED: { tone: "silent", sign: "□", letter: "" },
  AVAILABLE: { tone: "free", sign: "○", letter: "" },
  CHECKING: { tone: "check", sign: "⌕", letter: "C" },
  RESETTING: { tone: "repair", sign: "↺", letter: "G" },
  REBOOTING: { tone: "repair", sign: "↻", letter: "R" },
  REPLACING: { tone: "repair", sign: "⇄", letter: "P" },
  VERIFYING: { tone: "verify", sign: "◎", letter: "V" },
  QUARANTINED: { tone: "out", sign: "✕", letter: "X" },
  GONE: { tone: "silent", sign: "⊘", letter: "" },
  // An incident: open, or how it ended.
  open: { tone: "repair", sign: "!", letter: "" },
  closed: { tone: "good", sign: "✓", letter: "" },
  recovered: { tone: "good", sign: "✓", letter: "" },
  failed: { tone: "out", sign: "✕", letter: "" },
  canceled: { tone: "silent", sign: "⊘", letter: "" },
  in_service: { tone: "good", sign: "✓", letter: "" },
  gone: { tone: "silent", sign: "⊘", letter: "" },
};

function isKnown(state: string): state is Known {
  return Object.hasOwn(LOOKS, state);
}

/** Return the look of a state. A state that this console does not know is grey and keeps its own name. */
export function lookOf(state: string): { tone: string; sign: string; letter: string } {
  return isKnown(state) ? LOOKS[state] : { tone: "silent", sign: "?", letter: "?" };
}

/** Return the words for a state in the present language; its own name if this console does not know the state. */
export function wordsOf(state: string): string {
  return isKnown(state) ? t(state) : state;
}

/** A status with its sign. */
export function Status({ of }: { of: string }) {
  const look = lookOf(of);
  return (
    <span class={`status tone-${look.tone}`} title={of}>
      <span class="sign" aria-hidden="true">
        {look.sign}
      </span>
      {wordsOf(of)}
    </span>
  );
}
