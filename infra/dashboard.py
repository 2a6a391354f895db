"""CloudWatch dashboard of the stack, for an operator during an incident.

From top to bottom: alarms; recoveries and the time that they take; jobs and instances; the queue by priority; repairs,
circuit breaker and pause; delivery of events; functions; tables, topics and API.
"""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct
from gpu_recovery.core.metrics import INSTANCES_ENTERED, JOBS_ENTERED, PHASES, TOTALS
from gpu_recovery.core.queue.priority import Priority

from infra.alarms import RUNBOOKS, Alarms
from infra.metrics import FIVE_MINUTES, HOUR, OPERATIONS, MonitoredResources, of_rule, of_table, our_metric, undelivered

_WIDTH, _HEIGHT = 24, 6
"""Width of the dashboard and height of a widget, in grid units of CloudWatch."""
_WELCOME = f"""# gpu-recovery
A red square below names its runbook in its description; all of them: `{RUNBOOKS}/README.md`.
First look: `gpu-recovery list`, `gpu-recovery instances`, `gpu-recovery fleet`.
One job or one instance: `gpu-recovery explain JOB`, `gpu-recovery instances ID`.
To stop all repairs: `gpu-recovery fleet pause --because WHY`.
"""
_Lines = Sequence[cloudwatch.IMetric]


class Dashboard(Construct):
    """The dashboard.

    Args:
        watched: the resources with the metrics to show.
        alarms: the alarms to show.
    """

    def __init__(self, scope: Construct, construct_id: str, *, watched: MonitoredResources, alarms: Alarms) -> None:
        super().__init__(scope, construct_id)
        page = cloudwatch.Dashboard(
            self, "Page", default_interval=Duration.days(1), period_override=cloudwatch.PeriodOverride.INHERIT
        )
        page.add_widgets(
            cloudwatch.TextWidget(markdown=_WELCOME, width=_WIDTH // 3, height=_HEIGHT),
            cloudwatch.AlarmStatusWidget(
                alarms=alarms.all,
                title="Alarms",
                width=_WIDTH - _WIDTH // 3,
                height=_HEIGHT,
                sort_by=cloudwatch.AlarmStatusWidgetSortBy.STATE_UPDATED_TIMESTAMP,
            ),
        )
        for row in (
            _recoveries(),
            _time(),
            _states(),
            *_queue(),
            _repairs(),
            _delivery(watched),
            _functions(watched),
            _services(watched),
        ):
            page.add_widgets(*row)


def _recoveries() -> list[cloudwatch.IWidget]:
    by_outcome = ("RecoveriesStarted", "RecoveriesSucceeded", "RecoveriesFailed", "RecoveriesCanceled")
    return [
        _graph("Recoveries, by outcome, in an hour", [our_metric(name, "Sum", HOUR) for name in by_outcome]),
        _graph(
            "Recoveries under way: oldest, and latest past its deadline (s)",
            [our_metric(name, "Maximum") for name in ("RecoveryAgeSeconds", "OverdueSeconds")],
        ),
        _graph(
            "GPU-hours lost in an hour; diagnoses whose remedy held, or did not, at the right",
            [our_metric("GpuHoursLost", "Sum", HOUR)],
            right=[our_metric(name, "Sum", HOUR) for name in ("VerdictsHeld", "VerdictsFailed")],
        ),
    ]


def _time() -> list[cloudwatch.IWidget]:
    def p50_and_p90(name: str) -> list[cloudwatch.IMetric]:
        return [our_metric(name, statistic, HOUR, f"{name} {statistic}") for statistic in ("p50", "p90")]

    phases = [our_metric(name, "p50", HOUR) for name in dict.fromkeys(PHASES.values())]
    return [
        _graph("From stop to running again (s)", p50_and_p90("RecoverySeconds")),
        _graph("From failure to decision (s)", p50_and_p90("DetectionSeconds")),
        _graph("Where a recovery's time goes, p50 of each phase (s)", phases, stacked=True),
    ]


def _states() -> list[cloudwatch.IWidget]:
    return [
        _graph("Jobs, by status entered", [our_metric(name, "Sum") for name in JOBS_ENTERED]),
        _graph("Instances, by status entered", [our_metric(name, "Sum") for name in INSTANCES_ENTERED]),
        _graph(
            "Heartbeat timeouts; seconds of LOST jobs and of reporting outages at the right",
            [our_metric("InstancesSilent", "Sum")],
            right=[our_metric("LostSeconds", "Maximum"), our_metric("DeafSeconds", "Maximum")],
        ),
    ]


def _queue() -> list[list[cloudwatch.IWidget]]:
    """Return two rows: what runs and what waits, as jobs, instances and GPUs by priority."""
    priorities = sorted(Priority, reverse=True)
    titles = {"running": "Running", "queued": "Waiting in the queue"}
    return [
        [
            _graph(
                f"{title}, by priority: {'GPUs' if what == 'gpus' else what}",
                [our_metric(TOTALS[state, what, each], "Maximum", label=each.name) for each in priorities],
                stacked=True,
            )
            for what in ("jobs", "instances", "gpus")
        ]
        for state, title in titles.items()
    ]


def _repairs() -> list[cloudwatch.IWidget]:
    repairs = (
        "InstanceResetting",
        "Reboots",
        "FalseReboots",
        "InstanceReplacing",
        "InstanceQuarantined",
        "RepairsHeld",
    )
    return [
        _graph("Repairs in an hour", [our_metric(name, "Sum", HOUR) for name in repairs]),
        _graph(
            "Fleet limits: seconds with an open breaker or a pause; instances under repair at the right",
            [our_metric("BreakerOpenSeconds", "Maximum"), our_metric("PausedSeconds", "Maximum")],
            right=[our_metric("UnderRepair", "Maximum"), our_metric("BreakerOpened", "Sum")],
        ),
        _graph(
            "Messages to operators, and unsent events; other failures at the right",
            [our_metric(name, "Sum") for name in ("NoticesSent", "NoticesFailed", "Unsaid")],
            right=[our_metric(name, "Sum") for name in ("PlacementsFailed", "SnapshotFailed", "GpuSamplesFailed")],
        ),
    ]


def _delivery(watched: MonitoredResources) -> list[cloudwatch.IWidget]:
    failures = ("FailedInvocations", "InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq")
    return [
        _graph(
            "Dead letters: messages that no function could process",
            [
                queue.metric_approximate_number_of_messages_visible(
                    period=FIVE_MINUTES, statistic="Maximum", label=name
                )
                for name, queue in watched.dead_letter_queues.items()
            ],
        ),
        _graph(
            "Events that rules could not deliver",
            [
                of_rule(rule, name, f"{rule_name} {name}")
                for rule_name, rule in watched.rules.items()
                for name in failures
            ],
        ),
        _graph(
            "Wait of the oldest message of a function (s), messages at the right",
            [
                queue.metric_approximate_age_of_oldest_message(
                    period=FIVE_MINUTES, statistic="Maximum", label=f"{name} age"
                )
                for name, queue in watched.work_queues.items()
            ],
            right=[
                queue.metric_approximate_number_of_messages_visible(
                    period=FIVE_MINUTES, statistic="Maximum", label=f"{name} messages"
                )
                for name, queue in watched.work_queues.items()
            ],
        ),
    ]


def _functions(watched: MonitoredResources) -> list[cloudwatch.IWidget]:
    functions = watched.functions.items()
    return [
        _graph(
            "Function errors", [function.metric_errors(period=FIVE_MINUTES, label=name) for name, function in functions]
        ),
        _graph(
            "Functions refused by Lambda; events lost and loops stopped, at the right",
            [function.metric_throttles(period=FIVE_MINUTES, label=name) for name, function in functions],
            right=[
                function.metric(metric, period=FIVE_MINUTES, statistic="Sum", label=f"{name} {label}")
                for metric, label, functions_of_metric in (
                    ("DestinationDeliveryFailures", "lost", watched.asynchronous),
                    ("RecursiveInvocationsDropped", "stopped", watched.functions),
                )
                for name, function in functions_of_metric.items()
            ],
        ),
        _graph(
            "Function duration, p99 (ms)",
            [
                function.metric_duration(period=FIVE_MINUTES, statistic="p99", label=name)
                for name, function in functions
            ],
        ),
    ]


def _services(watched: MonitoredResources) -> list[cloudwatch.IWidget]:
    tables = watched.tables.items()
    api = watched.api
    return [
        _graph(
            "Calls that DynamoDB refused, those it failed on at the right",
            [
                of_table(table, metric, operation, f"{name}: {refused} refused")
                for name, table in tables
                for metric, operation, refused in (
                    ("ReadThrottleEvents", "", "reads"),
                    ("WriteThrottleEvents", "", "writes"),
                    ("ThrottledRequests", "Query", "queries"),
                )
            ],
            right=[
                of_table(table, "SystemErrors", operation, f"{name}: {operation}")
                for name, table in tables
                for operation in OPERATIONS
            ],
        ),
        _graph("Messages SNS could not deliver", [undelivered(topic, name) for name, topic in watched.topics.items()]),
        _graph(
            "Job API: answers 4xx and 5xx, latency p99 at the right (ms)",
            [
                api.metric_client_error(period=FIVE_MINUTES, statistic="Sum", label="4xx"),
                api.metric_server_error(period=FIVE_MINUTES, statistic="Sum", label="5xx"),
            ],
            right=[api.metric_latency(period=FIVE_MINUTES, statistic="p99", label="latency")],
        ),
    ]


def _graph(
    title: str, left: _Lines, *, right: _Lines = (), stacked: bool = False, width: int = _WIDTH // 3
) -> cloudwatch.GraphWidget:
    # The axes begin at zero. An axis that begins at the minimum of its curve magnifies small variations.
    axis = cloudwatch.YAxisProps(min=0, show_units=False)
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        stacked=stacked,
        left_y_axis=axis,
        right_y_axis=axis,
        width=width,
        height=_HEIGHT,
    )
