"""Chinese texts about the recovery contract of a job and the bill of a downtime."""

from __future__ import annotations

RECOVERY = {
    "{time} to notice the failure": "发现故障 {time}",
    "{time} to stop the ranks": "停止 rank {time}",
    "{time} to find and check the cause": "查找并检查原因 {time}",
    "{time} to repair an instance": "修复实例 {time}",
    "{time} to wait for free instances": "等待空闲实例 {time}",
    "{time} to start the ranks": "启动 rank {time}",
    "{time} until the training went on": "等待训练继续 {time}",
    "{time} suspended, which does not count": "挂起 {time}（不计入）",
    "hardware": "硬件",
    "network": "网络",
    "application": "程序",
    "interruption by AWS, such as Spot": "AWS 中断，例如 Spot",
    "missing capacity or permission": "缺少容量或权限",
    "a user": "用户操作",
    "not known": "未知",
    "keep one idle spare instance": "保留一台空闲的备用实例",
    "report progress (reports_progress: true), so that a hang is noticed within two minutes": (
        "报告进度（reports_progress: true），使卡住在两分钟内被发现"
    ),
    "progress reports": "有进度报告",
    "no progress reports (if the program reports progress, set reports_progress: true)": (
        "没有进度报告（如果程序上报进度，请设置 reports_progress: true）"
    ),
    "restart in place (restart_in_place: true, with node agents)": "原地重启（restart_in_place: true，需要节点代理）",
    "keep one warm spare (warm_spares: 1, with restart in place and node agents)": (
        "保留一个热备（warm_spares: 1，需要原地重启和节点代理）"
    ),
    "save memory checkpoints in each step": "每一步保存内存检查点",
    "{number} in {days} days (90 % range {low} to {high})": "{days} 天内 {number} 次（90 % 区间 {low} 到 {high}）",
    "met in 95 % of the incidents": "在 95 % 的事故中满足",
    "NOT met in 95 % of the incidents": "不能在 95 % 的事故中满足",
    "down time within the limit in {down} %, lost time in {lost} %": (
        "停机时间不超过上限的占 {down} %，损失时间不超过上限的占 {lost} %"
    ),
    "incidents": "预计事故",
    "downtime of an incident": "每次事故的停机时间",
    "lost time of an incident": "每次事故的损失时间",
    "recovery contract": "恢复约定",
    "changes that meet the contract": "可以满足约定的改变",
    "no change that is known here": "没有已知的方法",
    "a checkpoint every {minutes} min, spare instances: {spares}": "每 {minutes} 分钟一个检查点，备用实例：{spares}",
    "{rate} per 1,000 instance-days: {number} incidents in {gpu_days} GPU-days of this fleet, and published": (
        "每 1,000 实例天 {rate} 次：本机群 {gpu_days} GPU 天中有 {number} 次事故，并结合公开的故障率"
    ),
    (
        "{rate} per 1,000 instance-days: the published rate (RSC-1), and {number} incidents in {gpu_days} "
        "GPU-days of this fleet, too few for a rate of its own"
    ): (
        "每 1,000 实例天 {rate} 次：公开的故障率（RSC-1），并结合本机群 {gpu_days} GPU 天中的 {number} 次事故，"
        "次数太少，还不足以得出自己的故障率"
    ),
    "{rate} per 1,000 instance-days: the published rate (RSC-1); this fleet has no figures yet": (
        "每 1,000 实例天 {rate} 次：公开的故障率（RSC-1）；本机群还没有数据"
    ),
    "{rate} per 1,000 instance-days: the published rate (RSC-1); the figures of this fleet could not be read": (
        "每 1,000 实例天 {rate} 次：公开的故障率（RSC-1）；无法读取本机群的数据"
    ),
    "{number} recoveries of this fleet, and published times": "本机群的 {number} 次恢复，以及公开的时间",
    "assumed": "假设",
    "failure rate": "故障率",
    "source of the times": "时间的来源",
    "down for {time}: {phases}; cause: {cause}": "停机 {time}：{phases}；原因：{cause}",
    "down now, for {time}: {phases}; cause: {cause}": "正在停机，已 {time}：{phases}；原因：{cause}",
    "how much work was done again is not known": "重做了多少工作未知",
    "work of {time} was done again": "重做了 {time} 的工作",
    "recovery contract: kept": "恢复约定：已遵守",
    "recovery contract: NOT kept": "恢复约定：未遵守",
    "down for {minutes} min at most": "停机最多 {minutes} 分钟",
    "lost {minutes} min at most": "损失最多 {minutes} 分钟",
    "{half} min in half of the cases, {most} min at most in 95 %": "一半情况下 {half} 分钟，95 % 的情况下最多 {most} 分钟",
    "save a checkpoint every {minutes} min": "每 {minutes} 分钟保存一个检查点",
    "{changes}; then 95 % are down for {down} min at most and lose {lost} min at most": (
        "{changes}；之后 95 % 的事故最多停机 {down} 分钟，最多损失 {lost} 分钟"
    ),
    ", and ": "，并且",
    "downtime": "停机",
    "lost so far": "累计损失",
}
"""Texts by their English form."""
