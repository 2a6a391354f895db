"""Chinese texts of the tables that the benchmark of recovery policies writes into docs/simulator.zh.md."""

from __future__ import annotations

import re

CELLS = {
    "policy": "策略",
    "range": "范围",
    "overhead": "开销",
    "own way": "自己的步骤",
    "recovery p50": "恢复 p50",
    "stops": "停止",
    "operator calls": "人工介入",
    "an operator alone": "只有运维人员",
    "reboot only": "只重启",
    "replace only, 20 % cap": "只更换，上限 20 %",
    "EKS + JobSet": "EKS + JobSet",
    "HyperPod training operator": "HyperPod 训练 operator",
    "swap and leave out repeaters": "换掉机器，并避开屡次出错的机器",
    "`adaptive`": "`adaptive`",
    "`adaptive` without node agents": "没有节点代理的 `adaptive`",
    "`adaptive` with node agents, in place": "有节点代理的 `adaptive`，原地重启",
    "the product's own way at its best": "产品自己的步骤，最佳情况",
    "the same with node agents, in place: a model": "同上，有节点代理，原地重启：模型",
    "and with standby processes": "并且有待命进程",
    "and with a copy in memory each minute": "并且每分钟在内存中保存一份副本",
    "and with standby processes: a model": "并且有待命进程：模型",
    "and with a copy in memory each minute: a model": "并且每分钟在内存中保存一份副本：模型",
    "bound": "界限",
    "bound with a copy in memory each minute": "每分钟在内存中保存一份副本时的界限",
    "llama3 at 256 instances": "256 台实例上的 llama3",
    "llama3, 4 days": "llama3，4 天",
    "rsc1, 2 days": "rsc1，2 天",
    "each on top of those above": "每一项都在以上各项之上",
    "as it is": "现状",
    "a hang is noticed by missing progress": "由缺失的进度发现卡住",
    "one call of ECS starts ten ranks, agents stop them": "ECS 的一次调用启动十个 rank，由代理停止它们",
    "the processes start again in their containers": "进程在其容器内重新启动",
    "the first end of a rank and passive evidence name the machine; all are checked only on a return": (
        "rank 的第一次结束和被动证据指出机器；只在再次出现时检查全部"
    ),
    "processes stand by on each machine and spare": "每台机器和备用上都有进程待命",
    "collectives give up after a minute": "集合通信在一分钟之后放弃",
    "a copy of the state goes into memory each minute": "每分钟在内存中保存一份状态副本",
    "400 calls of ECS a second, burst 1,000": "每秒 400 次 ECS 调用，突发 1,000",
    "training goes on a minute after the processes run": "进程运行一分钟之后训练继续",
}
"""Chinese cells by the English cells. A cell without Chinese text stays as it is."""
SPARES = re.compile(r"(.+), (\d+) spares")


def in_chinese(table: str) -> str:
    """Return a table of the English page with Chinese texts and the same numbers."""
    return "\n".join(_row(line) if line.startswith("| ") else line for line in table.split("\n"))


def _row(line: str) -> str:
    return "| " + " | ".join(cell(one.strip()) for one in line.strip().strip("|").split(" | ")) + " |"


def cell(text: str) -> str:
    """Return a cell in Chinese."""
    spares = SPARES.fullmatch(text)
    if text not in CELLS and spares is not None:
        return f"{cell(spares[1])}，{spares[2]} 台备用"
    return CELLS.get(text, re.sub(r"(?<=\d) to (?=\d)", " 至 ", text).replace(" min", " 分钟"))
