"""Table of the Lambda functions. `infra/lambda_functions.py` creates them.

A row states the trigger, timeout, memory, permissions and variables of a function. Rules, queues, API, alarms and
tests read the table, so a new function needs only a new row.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from infra.permissions import Permission as P

PACKAGE = Path(__file__).parent.parent / "lambdas"
"""Folder of the deployment package."""
ONE_PROCESSOR_MIB = 1_769
"""Memory with which Lambda gives a function one whole processor (Developer Guide, configure memory).

The functions that read the whole fleet or the whole queue have it. With 10,000 instances and 50,000 waiting jobs they
then stay within a third of their time and memory (`benchmarks/results.json`, key `fleet`). The functions that stop a
gang after the end of a rank have it, too: they write an order for each rank, which takes processor time.
"""
SCHEDULER_BATCH = 10
"""Messages that one run of the scheduler receives at most. One run answers every waiting message."""


class Trigger(StrEnum):
    """Trigger of a function: an event rule, a schedule, a queue, another function or a route of the HTTP API."""

    TRAINING_TASKS = "TrainingTasks"
    CHECK_TASKS = "CheckTasks"
    CONTAINER_INSTANCES = "ContainerInstances"
    SCHEDULE = "Schedule"
    SCHEDULER_QUEUE = "SchedulerQueue"
    LEFT_COMMANDS = "LeftCommands"
    RECORDED_EVENTS = "RecordedEvents"
    HTTP = "Http"
    NODE_HTTP = "NodeHttp"

    @property
    def is_asynchronous(self) -> bool:
        """Whether Lambda queues the event itself. Then an error only causes retries and a message to `Failed`."""
        return self not in (Trigger.SCHEDULER_QUEUE, Trigger.HTTP, Trigger.NODE_HTTP)


@dataclass(frozen=True)
class FunctionRow:
    """A Lambda function.

    Args:
        name: name of the handler module; also the name of the function in this repository.
        trigger: what invokes the function.
        timeout_s: timeout in seconds, less than 120. The lease of a command (`command_lease_s`) is longer, so that a
            lease outlives the function that holds it.
        memory_mib: memory in MiB.
        permissions: permissions of the role.
        extra_environment: names of variables that the function gets besides those of every function.
        often: whether the function runs so often that Lambda's own log lines about each run would cost more than the
            runs. Then Lambda logs only warnings, where it can filter its lines.
    """

    name: str
    trigger: Trigger
    timeout_s: int
    memory_mib: int
    permissions: frozenset[P]
    extra_environment: frozenset[str] = frozenset()
    often: bool = False

    @property
    def handler(self) -> str:
        """Handler in Lambda's form, `module.function`."""
        return f"{self.name}.handler"

    @property
    def is_central(self) -> bool:
        """Whether no other function can take over the function's work: the reconciler and the scheduler."""
        return self.trigger in (Trigger.SCHEDULE, Trigger.SCHEDULER_QUEUE)

    @property
    def alarm_group(self) -> str:
        """Name of the functions that share an alarm on errors.

        Each central function has an alarm of its own, which errors of others do not hide.
        """
        if self.trigger in (Trigger.HTTP, Trigger.NODE_HTTP):
            return "ApiFunction"
        return self.construct_id if self.is_central else "EventFunction"

    @property
    def construct_id(self) -> str:
        """Construct id: the name in camel case."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_DIAGNOSE = frozenset({P.DESCRIBE_TASK_DEFINITIONS, P.READ_TRAINING_LOGS})
_NOTIFY = frozenset({P.NOTIFY_OPERATORS, P.PUBLISH_EVENTS, P.WAKE_SCHEDULER, P.RECORD_ATTEMPTS})
# A function carries out the commands that follow from its event at once, so it also needs the permissions of the next
# steps. Examples: after the confirmed end of a rank the logs are read and checks begin; a refused launch stops the
# tasks that it had started. A task that is not recorded is recognised, among other things, by its container instance.
_FOLLOW = (
    _NOTIFY
    | _DIAGNOSE
    | {
        P.WRITE_JOBS,
        P.WRITE_INSTANCES,
        P.DESCRIBE_TASKS,
        P.LIST_TASKS,
        P.STOP_TASKS,
        P.RUN_CHECKS,
        P.DESCRIBE_CONTAINER_INSTANCES,
    }
)
_READMIT = frozenset({P.SET_CONTAINER_INSTANCE_STATE})
# The functions that answer the internet leave commands for the cluster in the record (`execution/hand_over.py`). So
# they may neither run, stop nor describe tasks, and change no container instance.
_LEAVE = frozenset({P.WRITE_JOBS, P.WRITE_INSTANCES, P.WAKE_COMMAND_EXECUTOR})
_REPAIR = frozenset(
    {
        P.READ_VERDICTS,
        P.SET_CONTAINER_INSTANCE_STATE,
        P.DEREGISTER_CONTAINER_INSTANCES,
        P.REBOOT_INSTANCES,
        P.TAG_INSTANCES,
        P.REPLACE_INSTANCES,
        P.DESCRIBE_EC2_INSTANCES,
        P.DESCRIBE_EC2_STATUS,
    }
)
_LAUNCH = frozenset({P.RUN_TRAINING, P.DESCRIBE_EC2_INSTANCES})
_RESYNC = frozenset({P.LIST_CONTAINER_INSTANCES})
_SERVE = frozenset(
    {
        P.READ_OPERATOR_TOKEN,
        P.READ_NODE_TOKEN_KEY,
        P.READ_SIGNING_KEY,
        P.READ_RAY_LOGS,
        P.REDRIVE,
        P.READ_EVENT_HISTORY,
        P.READ_CONSOLE,
        P.READ_VERDICTS,
    }
)
_AUTHENTICATE_NODES = frozenset({P.READ_NODE_TOKEN_KEY})

_API_ENVIRONMENT = frozenset(
    {
        "OPERATOR_TOKEN_SECRET",
        "NODE_TOKEN_KEY_SECRET",
        "SIGNING_KEY_SECRET",
        "FAILED_QUEUE_URL",
        "UNDELIVERED_QUEUE_URL",
        "SCHEDULER_DEAD_LETTERS_URL",
        "TRAINING_TASK_FAMILIES",
        "TRAINING_ROLE_ARNS",
        "TRAINING_LOG_GROUPS",
        "USER_PRIORITY_MAX",
        "API_AUTH",
        "API_ROLES",
        "COMMAND_EXECUTOR_FUNCTION",
        "EVENT_HISTORY_TABLE_NAME",
        "EVENT_RECORDER_FUNCTION",
        "GPU_HISTORY",
    }
)
_NODE_ENVIRONMENT = frozenset(
    {
        "NODE_ROLE_ARNS",
        "NODE_AGENT_ROLE_ARN",
        "NODE_TOKEN_KEY_SECRET",
        "COMMAND_EXECUTOR_FUNCTION",
        "EVENT_HISTORY_TABLE_NAME",
        "GPU_HISTORY",
    }
)

FUNCTIONS = (
    # After the last rank's end a held instance is checked. The instance must be ACTIVE for the check.
    FunctionRow(
        "ecs_task_handler",
        Trigger.TRAINING_TASKS,
        110,
        ONE_PROCESSOR_MIB,
        _FOLLOW | _READMIT,
        frozenset({"NODE_AGENT_FAMILY"}),
    ),
    FunctionRow("dcgm_task_monitor", Trigger.CHECK_TASKS, 110, 512, _FOLLOW | _REPAIR),
    FunctionRow("ecs_instance_monitor", Trigger.CONTAINER_INSTANCES, 110, 512, _FOLLOW | _REPAIR),
    # The reconciler carries out commands that any other function did not finish, so it needs all their permissions.
    FunctionRow(
        "reconciler",
        Trigger.SCHEDULE,
        110,
        ONE_PROCESSOR_MIB,
        _FOLLOW | _REPAIR | _LAUNCH | _RESYNC | {P.WRITE_CONSOLE},
    ),
    FunctionRow(
        "scheduler",
        Trigger.SCHEDULER_QUEUE,
        110,
        ONE_PROCESSOR_MIB,
        _FOLLOW | _LAUNCH | {P.PLACE_JOBS, P.WRITE_CONSOLE},
    ),
    # The command executor is not the reconciler: its invocations would hide that the schedule no longer invokes the
    # reconciler. It executes every expired command of the record that it is woken for.
    FunctionRow("command_executor", Trigger.LEFT_COMMANDS, 110, ONE_PROCESSOR_MIB, _FOLLOW | _REPAIR | _LAUNCH),
    # The event recorder writes what readers see and decides nothing, so it reaches no table of the recovery loop.
    FunctionRow(
        "event_recorder",
        Trigger.RECORDED_EVENTS,
        60,
        256,
        frozenset({P.WRITE_EVENT_HISTORY}),
        frozenset({"EVENT_HISTORY_TABLE_NAME"}),
    ),
    # The job API reads logs and task definitions for its own answers.
    FunctionRow(
        "job_api",
        Trigger.HTTP,
        29,
        ONE_PROCESSOR_MIB,
        _LEAVE | _NOTIFY | _DIAGNOSE | _SERVE,
        _API_ENVIRONMENT,
    ),
    # The node API delivers agent reports to jobs and instances. It does not call ECS or EC2 and reads no log. So it
    # also leaves the record of an attempt, which has a log tail. Of the secrets it reads only the issuer key of node
    # tokens. That key makes no token that the job API accepts. It has half the memory of the others: in a large fleet
    # it runs hundreds of times a second, mostly for one write.
    FunctionRow(
        "node_api",
        Trigger.NODE_HTTP,
        29,
        256,
        (_LEAVE | _NOTIFY | _AUTHENTICATE_NODES | {P.WRITE_GAUGES}) - {P.RECORD_ATTEMPTS},
        _NODE_ENVIRONMENT,
        often=True,
    ),
)
"""The functions of every deployment. `infra/ray_runner.py` adds another if there is a Ray cluster."""
