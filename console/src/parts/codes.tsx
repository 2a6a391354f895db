// Codes of the API in the words of the page. TypeScript checks that each code of the API has words in both languages.
import type { Schemas } from "../api";
import { type Language, language } from "../texts";

type Words = (code: string) => string | undefined;

/** Return a function from a code to its words in the present language; undefined for a code that is not known. */
export function codes<Code extends string>(all: Record<Language, Record<Code, string>>): Words {
  return (code) => (Object.hasOwn(all[language.value], code) ? all[language.value][code as Code] : undefined);
}

const WORDS = {
  cause: codes<Schemas["Cause"]>({
    en: {
      GPU_FAULT: "GPU fault",
      GPU_CONTEXT: "CUDA error without a hardware fault",
      DRIVER: "driver fault",
      NODE_FAULT: "instance fault",
      NETWORK: "network fault",
      NETWORK_SLOW: "slow network",
      RDMA: "RDMA fault",
      METADATA_SERVER: "metadata server",
      CALLER: "calling process",
      WORKER_HANG: "hanging worker",
      WORKER_CRASH: "crashed worker",
      WORKER_ERROR: "error of a worker",
      WORKER_STARTUP: "worker does not start",
      STRAGGLER: "slow worker",
      UNEVEN_STAGE: "uneven pipeline stage",
      GPU_MEMORY: "out of GPU memory",
      HOST_MEMORY: "out of host memory",
      CPU_CONTENTION: "busy processors",
      EVENT_UNDELIVERED: "undelivered event",
      EVENT_UNPROCESSED: "unprocessed event",
      GPU_NOT_RELEASED: "GPU memory not released",
      LOCK_HELD: "held lock",
      APPLICATION: "error of the program",
      CONFIGURATION: "configuration error",
      NUMERICAL: "numerical error (NaN)",
      RESOURCES: "not enough GPUs",
      STORAGE: "storage fault",
      EXTERNAL: "external service",
      PREEMPTED: "ended by another scheduler",
      UNKNOWN: "not known",
    },
    zh: {
      GPU_FAULT: "GPU 故障",
      GPU_CONTEXT: "CUDA 错误（非硬件）",
      DRIVER: "驱动故障",
      NODE_FAULT: "实例故障",
      NETWORK: "网络故障",
      NETWORK_SLOW: "网络缓慢",
      RDMA: "RDMA 故障",
      METADATA_SERVER: "元数据服务器",
      CALLER: "调用方进程",
      WORKER_HANG: "worker 卡住",
      WORKER_CRASH: "worker 崩溃",
      WORKER_ERROR: "worker 报错",
      WORKER_STARTUP: "worker 未能启动",
      STRAGGLER: "worker 过慢",
      UNEVEN_STAGE: "流水线阶段不均衡",
      GPU_MEMORY: "显存不足",
      HOST_MEMORY: "主机内存不足",
      CPU_CONTENTION: "CPU 争用",
      EVENT_UNDELIVERED: "事件未送达",
      EVENT_UNPROCESSED: "事件未处理",
      GPU_NOT_RELEASED: "显存未释放",
      LOCK_HELD: "锁被占用",
      APPLICATION: "程序错误",
      CONFIGURATION: "配置错误",
      NUMERICAL: "数值错误（NaN）",
      RESOURCES: "GPU 数量不足",
      STORAGE: "存储故障",
      EXTERNAL: "外部服务",
      PREEMPTED: "被其他调度器终止",
      UNKNOWN: "未知",
    },
  }),
  remedy: codes<Schemas["Remedy"]>({
    en: {
      FAIL: "fail the job",
      RESTART: "start the job again",
      WAIT: "try again later",
      LEAVE_OUT: "start again without these instances",
      CHECK: "check these instances",
      RELEASE: "end the process that holds the resource",
      PERSON: "an operator must act",
      NOTHING: "nothing",
    },
    zh: {
      FAIL: "作业失败",
      RESTART: "重新启动作业",
      WAIT: "稍后重试",
      LEAVE_OUT: "避开这些实例重新启动",
      CHECK: "检查这些实例",
      RELEASE: "结束占用资源的进程",
      PERSON: "需要运维人员处理",
      NOTHING: "不处理",
    },
  }),
  failure: codes<Schemas["FailureKind"]>({
    en: {
      INSUFFICIENT_RESOURCES: "not enough resources",
      USER_ERROR: "error of the user",
      RUNTIME_ERROR: "error at run time",
      UNKNOWN: "not known",
      HOST_FAULT: "instance fault",
      HARDWARE: "hardware fault",
      INTERRUPTED: "interrupted",
      REPAIR: "repair of an instance",
      INCONCLUSIVE: "no check result",
    },
    zh: {
      INSUFFICIENT_RESOURCES: "资源不足",
      USER_ERROR: "用户错误",
      RUNTIME_ERROR: "运行时错误",
      UNKNOWN: "未知",
      HOST_FAULT: "实例故障",
      HARDWARE: "硬件故障",
      INTERRUPTED: "被中断",
      REPAIR: "实例修复",
      INCONCLUSIVE: "检查没有结论",
    },
  }),
  probe: codes<Schemas["Probe"]>({
    en: {
      "self-report": "report of the program",
      "kernel log": "kernel log",
      "DCGM r1": "DCGM, level 1",
      "pairwise allgather": "all-gather of pairs",
      reboot: "reboot",
    },
    zh: {
      "self-report": "程序的上报",
      "kernel log": "内核日志",
      "DCGM r1": "DCGM 1 级",
      "pairwise allgather": "两两 all-gather",
      reboot: "重启",
    },
  }),
  scope: codes<Schemas["ScopeKind"]>({
    en: { gpu: "GPU", rank: "rank", worker: "worker", instance: "instance", rack: "rack", job: "job" },
    zh: { gpu: "GPU", rank: "rank", worker: "worker", instance: "实例", rack: "机架", job: "作业" },
  }),
  repair: codes<Schemas["RepairLevel"]>({
    en: { CHECK: "check", RESET: "GPU reset", REBOOT: "reboot", REPLACE: "replacement" },
    zh: { CHECK: "检查", RESET: "重置 GPU", REBOOT: "重启", REPLACE: "更换" },
  }),
  outcome: codes<"HEALTHY" | "REBOOT" | "REPLACE" | "CONFIGURATION" | "INCONCLUSIVE" | "GONE" | "SUSPECTED">({
    en: {
      HEALTHY: "healthy",
      REBOOT: "needs a reboot",
      REPLACE: "needs a replacement",
      CONFIGURATION: "configuration error",
      INCONCLUSIVE: "no result",
      GONE: "instance gone",
      SUSPECTED: "suspected",
    },
    zh: {
      HEALTHY: "健康",
      REBOOT: "需要重启",
      REPLACE: "需要更换",
      CONFIGURATION: "配置错误",
      INCONCLUSIVE: "没有结论",
      GONE: "实例已离开",
      SUSPECTED: "可疑",
    },
  }),
  out: codes<Schemas["OutOfUse"]>({
    en: {
      held: "repair held back",
      quarantined: "quarantined",
      repair: "check or repair",
      draining: "draining in ECS",
      orphaned: "ranks unknown to ECS",
      impaired: "reported as impaired",
      lost: "node agent missing",
      leaving: "about to leave",
      disconnected: "ECS agent disconnected",
    },
    zh: {
      held: "修复被暂缓",
      quarantined: "已隔离",
      repair: "检查或修复中",
      draining: "在 ECS 中排空",
      orphaned: "有 ECS 未知的 rank",
      impaired: "被报告为受损",
      lost: "节点代理 失联",
      leaving: "即将离开",
      disconnected: "ECS agent 已断开",
    },
  }),
  source: codes<"CONTAINER_RUNTIME" | "ACCELERATED_COMPUTE" | "DAEMON" | "AGENT_CONNECTIVITY" | "SYSTEM_STATUS" | "INSTANCE_STATUS" | "NODE_AGENT">({
    en: {
      CONTAINER_RUNTIME: "container runtime (ECS)",
      ACCELERATED_COMPUTE: "accelerators (ECS)",
      DAEMON: "daemon (ECS)",
      AGENT_CONNECTIVITY: "agent connectivity (ECS)",
      SYSTEM_STATUS: "system status (EC2)",
      INSTANCE_STATUS: "instance status (EC2)",
      NODE_AGENT: "node agent",
    },
    zh: {
      CONTAINER_RUNTIME: "容器运行时（ECS）",
      ACCELERATED_COMPUTE: "加速器（ECS）",
      DAEMON: "守护任务（ECS）",
      AGENT_CONNECTIVITY: "agent 连接（ECS）",
      SYSTEM_STATUS: "系统状态（EC2）",
      INSTANCE_STATUS: "实例状态（EC2）",
      NODE_AGENT: "节点代理",
    },
  }),
  health: codes<Schemas["HealthStatus"] | Schemas["GpuHealth"]>({
    en: {
      OK: "in order",
      IMPAIRED: "impaired",
      INSUFFICIENT_DATA: "not enough data",
      INITIALIZING: "initializing",
      ok: "in order",
      impaired: "impaired",
      unknown: "not known",
    },
    zh: {
      OK: "正常",
      IMPAIRED: "受损",
      INSUFFICIENT_DATA: "数据不足",
      INITIALIZING: "初始化中",
      ok: "正常",
      impaired: "受损",
      unknown: "未知",
    },
  }),
  departure: codes<Schemas["DepartureKind"]>({
    en: { INTERRUPTION: "Spot interruption", RETIREMENT: "retirement", MAINTENANCE: "maintenance", REBALANCE: "rebalance recommendation" },
    zh: { INTERRUPTION: "Spot 中断", RETIREMENT: "退役", MAINTENANCE: "维护", REBALANCE: "再平衡建议" },
  }),
  short: codes<Schemas["RejectionKind"]>({
    en: {
      gpus: "free GPUs",
      cluster: "more GPUs than the cluster has",
      held: "a repair that is held back",
      turn: "its turn",
      quota: "its quota",
      jobs: "the limit of running jobs",
      own: "its own instances",
      room: "instances that are being vacated",
      permission: "a permission of the deployment",
      check: "the stop of an idle check",
    },
    zh: {
      gpus: "空闲 GPU",
      cluster: "集群没有这么多 GPU",
      held: "暂缓的修复",
      turn: "轮到它",
      quota: "它的配额",
      jobs: "运行作业数上限",
      own: "它自己的实例",
      room: "正在腾出的实例",
      permission: "部署缺少的权限",
      check: "空闲检查被停止",
    },
  }),
  priority: codes<Schemas["Job"]["priority"]>({
    en: { EXTREME_HIGH: "EXTREME_HIGH", VERY_HIGH: "VERY_HIGH", HIGH: "HIGH", ABOVE_NORMAL: "ABOVE_NORMAL", NORMAL: "NORMAL", LOW: "LOW" },
    zh: { EXTREME_HIGH: "极高", VERY_HIGH: "很高", HIGH: "高", ABOVE_NORMAL: "较高", NORMAL: "普通", LOW: "低" },
  }),
  role: codes<Schemas["Role"]>({
    en: { viewer: "viewer", user: "user", operator: "operator" },
    zh: { viewer: "查看者", user: "用户", operator: "运维人员" },
  }),
  queue: codes<Schemas["DeadLetterQueue"]>({
    en: { failed: "failed", undelivered: "undelivered", scheduler: "scheduler" },
    zh: { failed: "处理失败", undelivered: "未送达", scheduler: "调度器" },
  }),
  severity: codes<"SEV2" | "SEV3" | "SEV4">({
    en: { SEV2: "an operator must act", SEV3: "for your information", SEV4: "resolved" },
    zh: { SEV2: "需要运维人员处理", SEV3: "供参考", SEV4: "已解决" },
  }),
};
export type Kind = keyof typeof WORDS;

/** Return the words for a code in the present language; the code itself if this console does not know the code. */
export function wordsFor(kind: Kind, code: string): string {
  return WORDS[kind](code) ?? code;
}

/** A code in words. The title has the code. A code that this console does not know is shown as it is. */
export function Code({ of, is }: { of: Kind; is: string }) {
  return <InWords is={is} words={WORDS[of](is)} />;
}

/** A code with the words for it; the code alone if there are none. */
export function InWords({ is, words }: { is: string; words: string | undefined }) {
  return words === undefined ? <code lang="en">{is}</code> : <span title={is}>{words}</span>;
}
