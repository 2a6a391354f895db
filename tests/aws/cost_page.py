"""What docs/costs.md says in numbers: calls counted on the production code, and a month's estimate made of them.

python -m tests.aws.cost_page    writes the tables of the page, of its Chinese page and of both READMEs again

DynamoDB's units are reckoned from the sizes of what was really written and read. An index entry counts as rewritten by
every write of its item, which is more than DynamoDB asks for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.aws.token_store import DynamoTokenStore, NodeTokensWithInstance
from gpu_recovery.core.gpu_utilisation import utilisation_text
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth, RunningRank
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.metrics import METRICS, TOTALS
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.ecs_events.health import deliver
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver

from sandbox.cluster.model.records import ModelInstance
from tests.aws.call_counting import CountingWorld, counting_world
from tests.aws.ecs_events import instance_event, rank_event, task_event
from tests.aws.list_prices import PRICES
from tests.markdown import READMES

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
CHINESE_PAGE = PAGE.with_name("costs.zh.md")
COLUMNS = ("Lambda", "reads", "writes", "read units", "write units", "ECS", "EC2", "SQS", "bus", "SNS", "S3")
TRAIN_S = 1800.0


def nothing(envelope: object) -> tuple[float, ...]:
    """Whatever happens, nobody hears of it but whom the counting tells."""
    return ()


# -- what happens ------------------------------------------------------------------------------------------------------


def single_events() -> Iterator[tuple[str, Counter[str]]]:
    """Events one at a time, told by hand to a gang of eight ranks whose own events nobody hears."""
    with counting_world(nothing, instances=8) as world:
        job_id = world.submit(8)
        world.until(lambda: len(world.ranks(job_id)) == 8, "the gang did not run")

        arns = [world.rank(job_id, number).arn for number in range(8)]

        def rank(number: int, status: str, **ended: Any) -> Callable[[], None]:
            event = rank_event(job_id, 1, number, status, at=world.timeline.now, **ended)
            event["detail"]["taskArn"] = arns[number]
            return world.told(event)

        foreign = task_event("somebody-elses", "ecs-svc/1", "RUNNING", {})
        yield "a task of another user starts or ends", world.spent(world.told(foreign))
        starts = [world.spent(rank(number, "RUNNING")) for number in range(8)]
        yield "a rank starts", starts[0]
        yield "the last rank of eight starts", starts[-1]
        yield "a rank ends well, others still run", world.spent(rank(0, "STOPPED", exit_code=0))
        yield (
            "an event of a container instance: a placement, or its agent",
            world.spent(_flap(world, world.model_instance(1))),
        )
        machine = {
            "detail-type": "EC2 Instance State-change Notification",
            "source": "aws.ec2",
            "detail": {"instance-id": "i-0fedcba9876543210", "state": "running"},
        }
        words = notifications_of(machine, world.timeline.now)
        hearing = lambda: world.invoke("ecs_instance_monitor", lambda: deliver(world.recovery, words))  # noqa: E731
        yield "an event of an EC2 instance outside the cluster", world.spent(hearing)
        failed = world.spent(rank(1, "STOPPED", exit_code=139))
        assert world.job(job_id).status is JobStatus.STOPPING
        yield "the first rank of eight fails", failed
        yield "another rank of that gang ends", world.spent(rank(2, "STOPPED", exit_code=143))


def _flap(world: CountingWorld, machine: ModelInstance) -> Callable[[], None]:
    event = instance_event(machine.instance_id, machine.version + 1, containerInstanceArn=machine.arn)
    return world.instance_told(event)


def minute(instances: int) -> Counter[str]:
    """One minute in which nothing happens: a round of the reconciler and one of the scheduler."""
    with counting_world(instances=instances) as world:
        world.queue_snapshots = None  # every fifth minute has one, and a row of its own
        world.let_pass(600)
        return world.spent(lambda: world.let_pass(60))


def queue_for_the_console(idle: Counter[str]) -> Counter[str]:
    """The console snapshot of the queue in five minutes in which nothing happens."""
    with counting_world(instances=2) as world:
        world.let_pass(600)
        spent = world.spent(lambda: world.let_pass(300))
        spent.subtract({name: 5 * number for name, number in idle.items()})
        return spent


def good_job(ranks: int, idle: Counter[str]) -> Counter[str]:
    """A job from its submission to its end, without the rounds of its time."""
    with counting_world(instances=ranks, train_s=TRAIN_S) as world:
        return _without_rounds(world, lambda: world.until_end(world.submit(ranks)), idle)


def incident(ranks: int, idle: Counter[str]) -> Counter[str]:
    """From a GPU that falls off the bus until the job runs again, without the rounds of that time."""
    with counting_world(instances=ranks, train_s=TRAIN_S) as world:
        job_id = world.submit(ranks)
        world.until_status(job_id, JobStatus.RUNNING)
        world.let_pass(300)

        def heal() -> None:
            world.break_gpu(world.model_instance(0))
            world.until(lambda: world.job(job_id).attempt == 2, "it was not relaunched")
            world.until_status(job_id, JobStatus.RUNNING)

        spent = _without_rounds(world, heal, idle)
        assert world.fleet.boots == {world.model_instance(0).instance_id: 1}
        return spent


def idle_check() -> Counter[str]:
    """An idle check of 20 minutes on one of two instances, without what the same time costs without a check."""
    spent: list[Counter[str]] = []
    for every_s in (3_600, 0):
        policy = replace(PRESETS[Preset.ADAPTIVE], idle_check_every_s=every_s)
        with counting_world(instances=2, policy=policy) as world:
            world.queue_snapshots = None
            world.let_pass(3_590)
            spent.append(world.spent(lambda world=world: world.let_pass(1_270)))  # type: ignore[misc]
            assert sum(one.idle_check is not None for one in world.instances()) == (every_s > 0)
    with_check, without = spent
    with_check.subtract(without)
    return with_check


def _without_rounds(world: CountingWorld, work: Callable[[], object], idle: Counter[str]) -> Counter[str]:
    begun = world.timeline.now
    spent = world.spent(work)
    minutes = round((world.timeline.now - begun).total_seconds() / 60)
    return Counter({name: max(0, spent[name] - minutes * idle[name]) for name in COLUMNS})


def heartbeats() -> Counter[str]:
    """Five minutes of one instance whose agent reports: twenty heartbeats of a rank, one of them with the inventory.

    The deployment keeps a GPU history.

    The token is read once a minute, and the record of the instance with it, as by a function that serves many.
    """
    with counting_world(instances=1) as world:
        job_id = world.submit(1)
        world.until_status(job_id, JobStatus.RUNNING)
        instance = world.model_instance(0).instance_id
        store, ears = (
            DynamoTokenStore(client("dynamodb"), world._instance_table),
            HeartbeatReceiver(world.node_recovery, gauges=GaugeRecorder(world.counting, print)),
        )
        tokens = NodeTokensWithInstance(store, ears.lookup.needs_claims_of, ears.lookup.use_record)
        token_id = issue(store, b"a key", instance, world.timeline.now, "a test", AskedToken()).record.token_id
        rank = RunningRank(job_id, 1, 0, 0, pid=4_000, start_ticks=123_456)
        fields = {f"field_of_nvml_{n}": 123_456 for n in range(24)}  # an agent's inventory of 8 GPUs has 6.4 kB
        gauges = {"utilization": 100, "temperature": 62, "power_mw": 690_000, "memory": {"used": 80 * 2**30}}
        gpus = [{"uuid": f"GPU-{n:032x}", "index": n, **fields, **gauges} for n in range(8)]
        sequence = iter(range(1, 1_000))

        def work(number: int) -> None:
            if number % 4 == 0:
                assert tokens.load_token(token_id)
            inventory = {"agent": "0.1.0", "driver": "580.65.06", "gpus": gpus} if number == 0 else None
            ears.receive(
                AgentReport(
                    instance,
                    "0b7c1d2e-1111-4222-8333-444455556666",
                    100.0,
                    next(sequence),
                    interval_s=15,
                    running=(rank,),
                    health=GpuHealth.OK,
                    digest="0123456789abcdef",
                    inventory=inventory,
                    utilisation=utilisation_text([100] * 8),
                )
            )

        def beat(number: int) -> None:
            world.timeline.now += timedelta(seconds=15)
            world.invoke("node_api", lambda: work(number))

        beat(0)  # the first of a function reads the token and the claims
        return world.spent(lambda: [beat(number) for number in range(20)])


def measured(*, whole: bool = True) -> dict[str, Counter[str]]:
    """Every row of the page's first table; without `whole`, no job, and of the incidents the small one."""
    rows = dict(single_events())
    rows[FIVE_MINUTES] = heartbeats()
    idle = {instances: minute(instances) for instances in (2, 8, 20)}
    rows |= {f"a minute in which nothing happens, {number} instances": each for number, each in idle.items()}
    rows[QUEUE_FOR_THE_CONSOLE] = queue_for_the_console(idle[2])
    rows[IDLE_CHECK] = idle_check()
    for ranks in (2, 8):
        if whole:
            rows[f"a job of {ranks} ranks that trains for half an hour and succeeds"] = good_job(ranks, idle[ranks])
        if whole or ranks == 2:
            row = f"an incident of {ranks} ranks, from the fault until the job runs again"
            rows[row] = incident(ranks, idle[ranks])
    return rows


def shown() -> dict[str, Counter[str]]:
    """Every row of the page's first table, as the page has it."""
    begin, end = marks_of("calls")
    _, _, *rows = PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip().splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {
        name: Counter({column: float(cell) for column, cell in zip(COLUMNS, counted, strict=True)})  # type: ignore[misc]
        for name, *counted in cells
    }


FIVE_MINUTES = "five minutes of heartbeats of one instance"
IDLE_CHECK = "an idle check of one instance"
QUEUE_FOR_THE_CONSOLE = "five minutes in which nothing happens: the queue for the web console"

# -- a month -----------------------------------------------------------------------------------------------------------

MINUTES = 43_800
VOLUMES = {
    "an event of a container instance: a placement, or its agent": 60_000,
    "a task of another user starts or ends": 5_000,
    "a job of 8 ranks that trains for half an hour and succeeds": 300,
    "an incident of 8 ranks, from the fault until the job runs again": 10,
    "a minute in which nothing happens, 20 instances": MINUTES,
    QUEUE_FOR_THE_CONSOLE: MINUTES // 5,
}
"""What happens in the month that is reckoned with."""
EVENT_S, ROUND_S, MEMORY_GB, ROUND_MEMORY_GB = 0.15, 0.5, 0.5, 1.73
LOG_BYTES = 2_000
"""Assumed, not measured: how long an invocation and a round take, and what one writes into its log."""
ALARM_METRICS = 90
"""Metrics that alarms watch: an alarm on an expression costs as much as an alarm on each of its metrics.

The tests of infra/ compare the number with the templates.
"""
RECORDED_WRITE_UNITS, RECORDED_READ_UNITS = 5.6, 1.42
"""Units of an event of ours in the event history, on average over an incident. A test of the recorder counts them."""
RECORDER_MEMORY_GB = 0.25
PRIORITIES_IN_USE = 2
"""Assumed: the number of priorities that jobs have in a month. The totals of the others have no values."""


def metrics_with_values() -> int:
    """How many metrics a month has at most: all but the totals of priorities that no job has."""
    return len(METRICS) - len(TOTALS) * (len(Priority) - PRIORITIES_IN_USE) // len(Priority)


def volumes(rows: dict[str, Counter[str]]) -> dict[str, float]:
    """How much of each priced thing the month takes."""
    total: Counter[str] = Counter()
    for name, times in VOLUMES.items():
        for column, each in rows[name].items():
            total[column] += each * times  # type: ignore[assignment]
    rounds = rows["a minute in which nothing happens, 20 instances"]["Lambda"] * MINUTES
    gb_seconds = rounds * ROUND_S * ROUND_MEMORY_GB + (total["Lambda"] - rounds) * EVENT_S * MEMORY_GB
    ticks = 3 * MINUTES  # the schedule's message is sent, received and deleted
    recorded = total["bus"]  # each event of ours is an invocation of the event recorder
    gb_seconds += recorded * EVENT_S * RECORDER_MEMORY_GB
    total["Lambda"] += recorded
    return {
        "Lambda requests": total["Lambda"],
        "Lambda GB-seconds, arm64": gb_seconds,
        "DynamoDB write units": total["write units"] + recorded * RECORDED_WRITE_UNITS,
        "DynamoDB read units": total["read units"] + recorded * RECORDED_READ_UNITS,
        "SQS requests, FIFO": total["SQS"] + ticks,
        "events on a bus of our own": total["bus"],
        "S3 requests": total["S3"],  # all at the price of a write, which most of them are
        "X-Ray traces": total["Lambda"],
        "CloudWatch Logs, GB": total["Lambda"] * LOG_BYTES / 1e9,
        "CloudWatch metrics": metrics_with_values(),
        "CloudWatch alarms, by metric": ALARM_METRICS,
        "CloudWatch dashboard": 1,
        "KMS key": 1,
        "Secrets Manager secret": 3,
    }


FLEETS = (20, 1_000, 10_000)
WINDOWS = MINUTES / 5
BEAT_S, BEAT_MEMORY_GB = 0.02, 0.25
"""Assumed: how long a heartbeat's invocation takes, the wait for DynamoDB included."""
HTTP_PRICE = 1.00e-6


def heartbeats_of(instances: int, rows: dict[str, Counter[str]]) -> dict[str, float]:
    """A month of heartbeats of so many instances, in USD by what is paid; the reconciler's look at them included."""
    each = rows[FIVE_MINUTES]
    times, beats = WINDOWS * instances, WINDOWS * instances * each["Lambda"]
    sweep = MINUTES * instances
    return {
        "HTTP API": beats * HTTP_PRICE,
        "Lambda": beats * (PRICES["Lambda requests"] + BEAT_S * BEAT_MEMORY_GB * PRICES["Lambda GB-seconds, arm64"]),
        "DynamoDB writes": times * each["write units"] * PRICES["DynamoDB write units"],
        "DynamoDB reads": (times * each["read units"] + sweep) * PRICES["DynamoDB read units"],
    }


def table_of_heartbeats(rows: dict[str, Counter[str]]) -> str:
    """The third table, as Markdown."""
    months = [heartbeats_of(instances, rows) for instances in FLEETS]
    lines = [f"| USD a month | {' | '.join(f'{n:,} instances' for n in FLEETS)} |", "|---|" + "--:|" * len(FLEETS)]
    lines += [f"| {name} | " + " | ".join(f"{month[name]:,.2f}" for month in months) + " |" for name in months[0]]
    total = " | ".join(f"**{sum(month.values()):,.0f}**" for month in months)
    return "\n".join([*lines, f"| **total** | {total} |"])


# -- the page ----------------------------------------------------------------------------------------------------------


CHINESE = {
    "What happens": "发生的事",
    "reads": "读",
    "writes": "写",
    "read units": "读单位",
    "write units": "写单位",
    "bus": "总线",
    "a task of another user starts or ends": "别的用户的任务开始或结束",
    "a rank starts": "一个 rank 启动",
    "the last rank of eight starts": "八个 rank 中的最后一个启动",
    "a rank ends well, others still run": "一个 rank 正常结束，其他的还在运行",
    "an event of a container instance: a placement, or its agent": "容器实例的一个事件：放置，或它的代理",
    "an event of an EC2 instance outside the cluster": "集群之外的 EC2 实例的一个事件",
    "the first rank of eight fails": "八个 rank 中的第一个失败",
    "another rank of that gang ends": "该整组的另一个 rank 结束",
    FIVE_MINUTES: "一台实例五分钟的心跳",
    r"a minute in which nothing happens, (\d+) instances": r"什么也没有发生的一分钟，\1 台实例",
    IDLE_CHECK: "一台实例的一次空闲检查",
    QUEUE_FOR_THE_CONSOLE: "什么也没有发生的五分钟：供 Web 控制台使用的队列",
    r"a job of (\d+) ranks that trains for half an hour and succeeds": r"\1 个 rank 的作业，训练半小时后成功",
    r"an incident of (\d+) ranks, from the fault until the job runs again": (
        r"\1 个 rank 的事故，从故障到作业再次运行"
    ),
    "Item": "项目",
    "Volume": "用量",
    "Price, USD": "价格，美元",
    "USD a month": "每月，美元",
    "Lambda requests": "Lambda 请求",
    "Lambda GB-seconds, arm64": "Lambda GB-秒，arm64",
    "DynamoDB write units": "DynamoDB 写单位",
    "DynamoDB read units": "DynamoDB 读单位",
    "DynamoDB writes": "DynamoDB 写",
    "DynamoDB reads": "DynamoDB 读",
    "SQS requests, FIFO": "SQS 请求，FIFO",
    "events on a bus of our own": "自有总线上的事件",
    "S3 requests": "S3 请求",
    "X-Ray traces": "X-Ray 追踪",
    "CloudWatch Logs, GB": "CloudWatch Logs，GB",
    "CloudWatch metrics": "CloudWatch 指标",
    "CloudWatch alarms, by metric": "CloudWatch 告警，按指标计",
    "CloudWatch dashboard": "CloudWatch 仪表板",
    "KMS key": "KMS 密钥",
    "Secrets Manager secret": "Secrets Manager 机密",
    r"([\d.]+) a million": r"每百万 \1",
    r"([\d,]+) instances": r"\1 台实例",
    r"\*\*total\*\*": "**合计**",
}
"""The words of the tables in Chinese, by pattern. Each pattern is a whole cell."""


def marks_of(table: str) -> tuple[str, str]:
    """The comments between which the page has a table."""
    return f"<!-- {table} -->", f"<!-- end of {table} -->"


def table_of_calls(rows: dict[str, Counter[str]]) -> str:
    """The first table, as Markdown."""
    lines = [f"| What happens | {' | '.join(COLUMNS)} |", "|---|" + "--:|" * len(COLUMNS)]
    for name, counted in rows.items():
        lines.append(f"| {name} | " + " | ".join(f"{counted[column]:g}" for column in COLUMNS) + " |")
    return "\n".join(lines)


def table_of_a_month(rows: dict[str, Counter[str]]) -> str:
    """The second table, as Markdown."""
    lines = ["| Item | Volume | Price, USD | USD a month |", "|---|--:|--:|--:|"]
    total = 0.0
    for name, volume in volumes(rows).items():
        cost = volume * PRICES[name]
        total += cost
        price = f"{PRICES[name] * 1e6:g} a million" if PRICES[name] < 0.01 else f"{PRICES[name]:.2f}"
        amount = f"{volume:,.0f}" if volume == round(volume) or volume > 1000 else f"{volume:.2f}"
        lines.append(f"| {name} | {amount} | {price} | {cost:.2f} |")
    lines.append(f"| **total** | | | **{total:.0f}** |")
    return "\n".join(lines)


def written(text: str, rows: dict[str, Counter[str]], *, chinese: bool = False) -> str:
    """The page, in either language, with its tables made anew."""
    tables = {"calls": table_of_calls, "month": table_of_a_month, "heartbeats": table_of_heartbeats}
    for name, made in tables.items():
        table = in_chinese(made(rows)) if chinese else made(rows)
        marks = marks_of(name)
        text = re.sub(f"{marks[0]}.*?{marks[1]}", f"{marks[0]}\n\n{table}\n\n{marks[1]}", text, flags=re.DOTALL)
    return text


def in_chinese(table: str) -> str:
    """A table with its words in Chinese."""
    for english, words in CHINESE.items():
        table = re.sub(rf"(?<=\| ){english}(?= \|)", words, table)
    return table


def summarised(text: str, rows: dict[str, Counter[str]]) -> str:
    """A README, in either language, with the sum of the month made anew."""
    total = round(sum(volume * PRICES[name] for name, volume in volumes(rows).items()))
    text = re.sub(r"about \d+ USD a month", f"about {total} USD a month", text)
    return re.sub(r"每月约 \d+ 美元", f"每月约 {total} 美元", text)


if __name__ == "__main__":
    counted = measured()
    for page in (PAGE, CHINESE_PAGE):
        made = written(page.read_text(encoding="utf-8"), counted, chinese=page == CHINESE_PAGE)
        page.write_text(made, encoding="utf-8")
    for readme in READMES:
        readme.path.write_text(summarised(readme.text, counted), encoding="utf-8")
