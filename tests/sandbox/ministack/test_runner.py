"""Each patch of the runner: what plain MiniStack does, and what ours does, which is what AWS does."""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox.ministack import command
from sandbox.payload_limits import PAYLOAD_BYTES_MAX
from tests.sandbox.ministack_server import IMAGE, ROLE, Cloud, lines
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
MISSING = "arn:aws:lambda:us-east-1:000000000000:function:gone"
TLS_ONLY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "sqs:*",
                "Resource": "*",
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }
)


def imported(name: str) -> Any:
    """A module of MiniStack or of the runner. At the top of this module it would cost every worker 40 MB."""
    return import_module(name)


def runner() -> Any:
    """The runner, with the patches that are not applied yet."""
    return imported("sandbox.ministack.runner")


def failing_function(cloud: Cloud, retries: int = 2, **qualifier: str) -> tuple[str, str, Path, str]:
    """A function that records and raises, with an on-failure queue: (name, ARN, record, URL of the queue)."""
    name, arn, seen = cloud.function("record(event.get('detail')); raise RuntimeError('broken')")
    url, queue = cloud.queue()
    cloud.client("lambda").put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=retries,
        DestinationConfig={"OnFailure": {"Destination": queue}},
        **qualifier,
    )
    return name, arn, seen, url


def test_plain_ministack_calls_a_failing_target_once(plain: Cloud) -> None:
    """A rule's failing function is called once, while an Event invocation of it is retried twice and buried."""
    name, arn, seen, failures = failing_function(plain)
    plain.send(plain.rule({"Arn": arn}), "from the rule")
    wait_until(lambda: lines(seen))
    plain.client("lambda").invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps({"detail": "direct"}))
    buried = wait_until(lambda: plain.messages(failures))
    assert [json.loads(m["Body"])["requestPayload"]["detail"] for m in buried] == ["direct"]
    assert lines(seen) == ["from the rule", "direct", "direct", "direct"]


@pytest.mark.parametrize(("retries", "qualifier"), [(2, {}), (1, {"Qualifier": "$LATEST"})])
def test_a_failing_target_is_retried_and_reaches_the_on_failure_queue(
    whole: Cloud, retries: int, qualifier: dict[str, str]
) -> None:
    """Ours retries as often as configured, by API or CloudFormation, and then sends the event where failures go."""
    _, arn, seen, failures = failing_function(whole, retries, **qualifier)
    whole.send(whole.rule({"Arn": arn}), "from the rule")
    (buried,) = wait_until(lambda: whole.messages(failures))
    body = json.loads(buried["Body"])
    assert body["requestPayload"]["detail"] == "from the rule"
    assert body["responsePayload"]["errorMessage"] == "broken"
    assert lines(seen) == ["from the rule"] * (1 + retries)


def test_a_function_that_recovers_is_called_no_more(whole: Cloud) -> None:
    """The second try succeeds, so there is no third one and nothing is buried."""
    _, arn, seen = whole.function(
        "record(event['detail'])\n"
        "    if len(open(event['detail']['file']).readlines()) < 2: raise RuntimeError('not yet')\n"
        "    record('done')"
    )
    source = whole.rule({"Arn": arn})
    detail = {"file": str(seen)}
    whole.send(source, detail)
    wait_until(lambda: "done" in lines(seen))
    # A later event of another function passes the same retry delays; by then a third try would have shown.
    _, other, _, failures = failing_function(whole)
    whole.send(whole.rule({"Arn": other}), "later")
    wait_until(lambda: whole.messages(failures))
    assert lines(seen) == [detail, detail, "done"]


def test_a_burst_of_events_uses_two_processes(whole: Cloud) -> None:
    """Twenty events in hand at once are all handled, by the width of the line and not by a process for each."""
    _, arn, seen = whole.function("record([event['detail'], os.getpid()])")
    source = whole.rule({"Arn": arn})
    for number in range(20):
        whole.send(source, number)
    wait_until(lambda: len(lines(seen)) == 20)
    assert sorted(number for number, _ in lines(seen)) == list(range(20))
    assert len({pid for _, pid in lines(seen)}) <= 2


def test_plain_ministack_forgets_an_event_whose_target_is_gone(plain: Cloud) -> None:
    """The target's dead-letter queue stays empty."""
    url, queue = plain.queue()
    plain.send(plain.rule({"Arn": MISSING, "DeadLetterConfig": {"Arn": queue}}), "lost")
    assert plain.messages(url) == []


@pytest.mark.parametrize("target", [MISSING, "arn:aws:sqs:us-east-1:000000000000:gone"])
def test_an_event_whose_target_is_gone_is_buried_with_the_reason(whole: Cloud, target: str) -> None:
    """The dead-letter queue gets the whole event, the rule, the target and the error code."""
    url, queue = whole.queue()
    whole.send(whole.rule({"Arn": target, "DeadLetterConfig": {"Arn": queue}}), "kept")
    (message,) = whole.messages(url)
    facts = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert json.loads(message["Body"])["detail"] == "kept"
    assert (facts["TARGET_ARN"], facts["ERROR_CODE"]) == (target, "NO_RESOURCE")
    assert ":rule/" in facts["RULE_ARN"]


def test_plain_ministack_refuses_aws_sources_from_everyone(plain: Cloud) -> None:
    """Even from the cluster's user agent."""
    assert plain.send("aws.ecs", {}, runner().CLUSTER_USER_AGENT) == 1


def test_only_the_cluster_may_send_aws_events(whole: Cloud) -> None:
    """`aws.ecs` passes with the cluster's user agent, is delivered as such, and is refused to everyone else."""
    url, queue = whole.queue()
    events = whole.client("events")
    events.put_rule(Name="ecs", EventPattern=json.dumps({"source": ["aws.ecs"]}))
    events.put_targets(Rule="ecs", Targets=[{"Id": "queue", "Arn": queue}])
    assert whole.send("aws.ecs", "from the cluster", runner().CLUSTER_USER_AGENT) == 0
    assert whole.send("aws.ecs", "from somebody") == 1
    bodies = [json.loads(message["Body"]) for message in whole.messages(url)]
    assert [(body["source"], body["detail"]) for body in bodies] == [("aws.ecs", "from the cluster")]


class SlowLog:
    """A worker whose line comes late: after `line_after_s`, as under load, followed by the mark."""

    def __init__(self, line_after_s: float) -> None:
        self._stderr_queue: queue.Queue[str] = queue.Queue()
        self._stderr_thread = threading.Thread(target=self._write, args=(line_after_s,))
        self._stderr_thread.start()

    def _write(self, line_after_s: float) -> None:
        time.sleep(line_after_s)
        for line in ("late", runner().END_OF_LOG, "of the next invocation"):
            self._stderr_queue.put(line)


def test_plain_ministack_guesses_the_end_of_a_log() -> None:
    """A line that is late is not waited for, and nothing in the worker tells the end."""
    lambda_runtime = imported("ministack.core.lambda_runtime")
    assert lambda_runtime.Worker._drain_stderr_bounded(SlowLog(1.0)) == ""
    assert "end-of-log" not in lambda_runtime._PYTHON_WORKER_SCRIPT


def test_a_late_line_belongs_to_its_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours reads to the mark: neither less nor more."""
    lambda_runtime = imported("ministack.core.lambda_runtime")
    for owner, name in ((lambda_runtime.Worker, "_drain_stderr_bounded"), (lambda_runtime, "_PYTHON_WORKER_SCRIPT")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back what the patch replaces
    assert runner().end_of_log in runner().PATCHES
    runner().end_of_log()
    assert lambda_runtime.Worker._drain_stderr_bounded(SlowLog(0.2)) == "late"


def test_a_log_ends_where_its_invocation_ends(whole: Cloud) -> None:
    """Every line belongs to the invocation that printed it, silent invocations have none, the mark is never seen."""
    name, _, _ = whole.function("[print('line', event['run'], i) for i in range(event['lines'])]")
    for run, count in enumerate([300, 0, 2, 300, 1]):
        answer = whole.client("lambda").invoke(
            FunctionName=name, LogType="Tail", Payload=json.dumps({"run": run, "lines": count})
        )
        log = base64.b64decode(answer.get("LogResult", "")).decode()
        printed = [line for line in log.splitlines() if line.startswith("line ")]
        assert runner().END_OF_LOG not in log
        assert {line.split()[1] for line in printed} <= {str(run)}
        assert printed[-1:] == ([f"line {run} {count - 1}"] if count else [])


def test_a_handler_that_dies_still_answers(whole: Cloud) -> None:
    """There is no mark to come when the worker is gone: the invocation ends as an error with what was printed."""
    name, _, _ = whole.function("print('last words', flush=True); os._exit(3)")
    answer = whole.client("lambda").invoke(FunctionName=name, LogType="Tail")
    assert answer["FunctionError"] == "Unhandled"
    assert "last words" in base64.b64decode(answer["LogResult"]).decode()


def packages_of_two_processes(cloud: Cloud) -> set[str]:
    """The folders from which two processes of one function run, each of which ends itself."""
    name, _, seen = cloud.function("record([os.getpid(), os.path.realpath(__file__)]); os._exit(3)")
    for _ in range(2):
        cloud.client("lambda").invoke(FunctionName=name)
    (first, _), (second, _) = lines(seen)
    assert first != second
    return {path for _, path in lines(seen)}


def test_plain_ministack_unpacks_a_function_for_each_process(plain: Cloud) -> None:
    """As often as a process starts."""
    assert len(packages_of_two_processes(plain)) == 2


def test_processes_of_a_function_share_its_unpacked_package(whole: Cloud) -> None:
    """Unpacked once. Another function has another package."""
    (path,) = packages_of_two_processes(whole)
    assert packages_of_two_processes(whole) != {path}


def processes_of_two_exceptions(cloud: Cloud) -> int:
    """How many processes a function has for two events, both of which make it raise."""
    name, _, seen = cloud.function("record(os.getpid()); raise RuntimeError(f'broken {event}')")
    for number in range(2):
        answer = cloud.client("lambda").invoke(FunctionName=name, Payload=json.dumps(number))
        told = json.loads(answer["Payload"].read())
        assert answer["FunctionError"] == "Unhandled"
        assert told["errorMessage"] == f"broken {number}" and told["errorType"], told
    return len(set(lines(seen)))


def test_plain_ministack_ends_the_process_of_a_handler_that_raises(plain: Cloud) -> None:
    """So that each retry is a cold start."""
    assert processes_of_two_exceptions(plain) == 2


def test_a_handler_that_raises_keeps_its_process(whole: Cloud) -> None:
    """As on AWS: the caller has the same error, and the next event finds the process warm."""
    assert processes_of_two_exceptions(whole) == 1


def test_plain_ministack_denies_loopback_where_tls_is_enforced(plain: Cloud) -> None:
    """A queue that denies plain HTTP denies us."""
    url, _ = plain.queue()
    plain.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": TLS_ONLY})
    with pytest.raises(ClientError, match="AccessDenied"):
        plain.client("sqs").send_message(QueueUrl=url, MessageBody="hello")


def test_loopback_counts_as_tls(whole: Cloud) -> None:
    """For a request of ours and for a schedule's message, which no request started."""
    url, queue = whole.queue(Policy=TLS_ONLY)
    whole.client("sqs").send_message(QueueUrl=url, MessageBody="hello")
    assert [message["Body"] for message in whole.messages(url)] == ["hello"]
    whole.rule({"Arn": queue, "Input": '"tick"'}, "rate(1 minute)")
    assert wait_until(lambda: whole.messages(url))[0]["Body"] == '"tick"'


def test_plain_schedules_are_swept_every_ten_seconds() -> None:
    """A minute is a minute, so a demonstration would wait for it."""
    eventbridge, scheduler = imported("ministack.services.eventbridge"), imported("ministack.services.scheduler")
    assert eventbridge._parse_rate_seconds("rate(1 minute)") == 60
    assert eventbridge._SCHEDULER_TICK_INTERVAL == scheduler._SCHEDULE_TICK_INTERVAL == 10


def test_plain_ministack_repeats_a_constant_message_on_a_fifo_queue(plain: Cloud) -> None:
    """Two events with one constant input are two messages."""
    url, queue = plain.queue(**FIFO)
    source = plain.rule({"Arn": queue, "Input": "{}", "SqsParameters": {"MessageGroupId": "scheduler"}})
    plain.send(source, 1)
    plain.send(source, 2)
    assert len(plain.messages(url)) == 2


def test_a_fifo_queue_deduplicates_what_rules_send(whole: Cloud) -> None:
    """As on AWS a constant input is one message in five minutes, and whole events are one message each."""
    constant_url, constant = whole.queue(**FIFO)
    group = {"SqsParameters": {"MessageGroupId": "scheduler"}}
    source = whole.rule({"Arn": constant, "Input": "{}", **group})
    for number in range(3):
        whole.send(source, number)
    assert len(whole.messages(constant_url)) == 1
    url, queue = whole.queue(**FIFO)
    source = whole.rule({"Arn": queue, **group})
    for number in range(3):
        whole.send(source, number)
    whole_events = wait_until(lambda: whole.messages(url))
    assert [json.loads(message["Body"])["detail"] for message in whole_events] == [0, 1, 2]
    assert {message["Attributes"]["MessageGroupId"] for message in whole_events} == {"scheduler"}


def test_a_fifo_queue_refuses_a_rule_without_a_group(whole: Cloud) -> None:
    """The event goes to the dead-letter queue with the queue's own refusal."""
    url, queue = whole.queue(**FIFO)
    dead_url, dead = whole.queue()
    whole.send(whole.rule({"Arn": queue, "DeadLetterConfig": {"Arn": dead}}), "no group")
    (message,) = whole.messages(dead_url)
    assert "MessageGroupId" in message["MessageAttributes"]["ERROR_MESSAGE"]["StringValue"]
    assert whole.messages(url) == []


def test_a_rate_rule_ticks_through_a_fifo_queue_to_its_function(whole: Cloud) -> None:
    """The scheduler's tick: rule -> FIFO queue with a message group -> function, again and again."""
    name, _, seen = whole.function("record([r['attributes']['MessageGroupId'] for r in event['Records']])")
    _, queue = whole.queue(**FIFO)
    whole.client("lambda").create_event_source_mapping(FunctionName=name, EventSourceArn=queue, BatchSize=10)
    whole.rule({"Arn": queue, "SqsParameters": {"MessageGroupId": "scheduler"}}, "rate(1 minute)")
    wait_until(lambda: len(lines(seen)) >= 3)
    assert {group for batch in lines(seen) for group in batch} == {"scheduler"}


def test_a_failing_schedule_is_retried_and_buried(whole: Cloud) -> None:
    """EventBridge Scheduler's own schedules take the same road."""
    _, arn, seen, failures = failing_function(whole)
    whole.client("scheduler").create_schedule(
        Name=whole.name("schedule"),
        ScheduleExpression="rate(1 minute)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": "arn:aws:iam::000000000000:role/scheduler"},
    )
    wait_until(lambda: whole.messages(failures))
    assert len(lines(seen)) >= 3


def test_a_function_may_do_what_its_role_allows_and_no_more(whole: Cloud) -> None:
    """Role policies are enforced: a role without permissions cannot send a message."""
    url, _ = whole.queue()
    name, _, _ = whole.function(
        "import boto3; boto3.client('sqs').send_message(QueueUrl=event['url'], MessageBody='x')"
    )
    answer = whole.client("lambda").invoke(FunctionName=name, Payload=json.dumps({"url": url}))
    assert "AccessDenied" in json.load(answer["Payload"])["errorMessage"]
    assert whole.messages(url) == []


def _resource_of_a_log(operation: str) -> str:
    body = json.dumps({"logGroupName": "/ecs/g", "logStreamName": "train/main/t"}).encode()
    headers = {"x-amz-target": f"Logs_20140328.{operation}"}
    account = command.ACCOUNT
    iam_actions = imported("ministack.core.iam_actions")
    found: str = iam_actions.extract_resource_arn("logs", "POST", "/", headers, body, {}, command.REGION, account)
    return found.partition(f"{account}:")[2]


def test_plain_ministack_asks_the_log_group_for_what_is_in_a_stream() -> None:
    """A right to read streams, which is what AWS asks for, would be none."""
    assert _resource_of_a_log("GetLogEvents") == "log-group:/ecs/g"


def test_a_log_stream_is_a_resource_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and writing it; it is made in its group."""
    iam_actions = imported("ministack.core.iam_actions")
    monkeypatch.setattr(iam_actions, "extract_resource_arn", iam_actions.extract_resource_arn)
    runner().streams_are_resources()
    assert _resource_of_a_log("GetLogEvents") == "log-group:/ecs/g:log-stream:train/main/t"
    assert _resource_of_a_log("PutLogEvents") == "log-group:/ecs/g:log-stream:train/main/t"
    assert _resource_of_a_log("CreateLogStream") == "log-group:/ecs/g"


def _deployed_alarm(cloud: Cloud) -> tuple[str, list[dict[str, Any]]]:
    """The end of a stack with one alarm on an expression, and the alarms of that name."""
    name = cloud.name("alarm")
    stat = {"Metric": {"Namespace": "AWS/Lambda", "MetricName": "Errors"}, "Period": 300, "Stat": "Sum"}
    alarm = {
        "AlarmName": name,
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "TreatMissingData": "notBreaching",
        "Metrics": [
            {"Id": "total", "Expression": "SUM(METRICS())"},
            {"Id": "one", "MetricStat": stat, "ReturnData": False},
        ],
    }
    template = {"Resources": {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm}}}
    stacks = cloud.client("cloudformation")
    stacks.create_stack(StackName=name, TemplateBody=json.dumps(template))

    def ended() -> str:
        status: str = stacks.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        return "" if status.endswith("IN_PROGRESS") else status

    return wait_until(ended), cloud.client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]


def test_plain_ministack_deploys_no_alarm_on_an_expression(plain: Cloud) -> None:
    """The whole stack is rolled back."""
    status, alarms = _deployed_alarm(plain)
    assert (status, alarms) == ("ROLLBACK_COMPLETE", [])


def test_an_alarm_on_an_expression_is_deployed(whole: Cloud) -> None:
    """With its threshold and its treatment of missing data."""
    status, (alarm,) = _deployed_alarm(whole)
    assert status == "CREATE_COMPLETE"
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (0, "notBreaching")


LARGE = {"text": "x" * PAYLOAD_BYTES_MAX}


def test_plain_ministack_takes_what_is_too_large_for_aws(plain: Cloud) -> None:
    """As an event, and as the payload of an asynchronous invocation."""
    assert plain.send("test", LARGE) == 0
    name, _, _ = plain.function("pass")
    invoke = plain.client("lambda").invoke
    assert invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(LARGE))["StatusCode"] == 202


def test_what_is_too_large_for_aws_is_refused(whole: Cloud) -> None:
    """Events and asynchronous payloads of 256 KB; a synchronous payload may have 6 MB."""
    with pytest.raises(ClientError, match="Total size of the entries in the request is over the limit"):
        whole.send("test", LARGE)
    assert whole.send("aws.ecs", {"text": "x" * (PAYLOAD_BYTES_MAX - 100)}, runner().CLUSTER_USER_AGENT) == 0
    name, _, seen = whole.function("record(len(event['text']))")
    invoke = whole.client("lambda").invoke
    with pytest.raises(
        ClientError, match=r"RequestEntityTooLargeException.*is too large for the Event invocation type"
    ):
        invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(LARGE))
    invoke(FunctionName=name, Payload=json.dumps(LARGE))
    assert lines(seen) == [PAYLOAD_BYTES_MAX]


SHOW_LEVEL = "record([os.environ.get('AWS_LAMBDA_LOG_FORMAT'), os.environ.get('AWS_LAMBDA_LOG_LEVEL')])"


def levels_of(cloud: Cloud, *configurations: dict[str, str]) -> list[list[str | None]]:
    """The log format and level that a function finds in its environment, with each LoggingConfig."""
    found = []
    for configuration in configurations:
        name, _, seen = cloud.function(SHOW_LEVEL)
        awslambda = cloud.client("lambda")
        awslambda.update_function_configuration(FunctionName=name, LoggingConfig=configuration)
        awslambda.invoke(FunctionName=name)
        found += lines(seen)
    return found


def test_plain_ministack_tells_a_function_no_log_level(plain: Cloud) -> None:
    """So that a level of the function's own would count, which Lambda's own filter overrules."""
    assert levels_of(plain, {"LogFormat": "JSON", "ApplicationLogLevel": "WARN"}) == [[None, None]]


def test_a_function_is_told_the_level_of_lambdas_filter(whole: Cloud) -> None:
    """INFO unless it is configured, and none where logs are text."""
    told = levels_of(whole, {"LogFormat": "JSON", "ApplicationLogLevel": "WARN"}, {"LogFormat": "JSON"})
    assert told == [["JSON", "WARN"], ["JSON", "INFO"]]
    assert levels_of(whole, {"LogFormat": "Text"}) == [[None, None]]


def answer_of_an_image(cloud: Cloud, image: str = IMAGE) -> dict[str, Any]:
    """What a function with this image answers, and what the API of Lambda tells of it."""
    awslambda, name = cloud.client("lambda"), cloud.name("image")
    awslambda.create_function(
        FunctionName=name,
        Role=ROLE,
        PackageType="Image",
        Code={"ImageUri": image},
        Timeout=10,
        Environment={"Variables": {"OWN": "own", "GIVEN": "as deployed"}},
    )
    wait_until(lambda: awslambda.get_function_configuration(FunctionName=name)["State"] == "Active")
    answer = awslambda.invoke(FunctionName=name, Payload=json.dumps("event"))
    told = awslambda.get_function(FunctionName=name)
    return {
        "failed": "FunctionError" in answer,
        "answer": json.loads(answer["Payload"].read()),
        "image": told["Code"]["ImageUri"],
        "type": told["Configuration"]["PackageType"],
    }


def test_plain_ministack_runs_no_image_without_docker(plain: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does ours run any other image than the one it was given a package for."""
    assert answer_of_an_image(plain)["failed"]
    assert runner().image_is_run_from_a_package in runner().PATCHES


def test_an_image_is_run_from_the_package_that_stands_for_it(whole: Cloud) -> None:
    """With the function's own variables, those of the sandbox first. The API still tells of an image."""
    assert answer_of_an_image(whole) == {
        "failed": False,
        "answer": ["event", "own", "by the sandbox"],
        "image": IMAGE,
        "type": "Image",
    }
    assert answer_of_an_image(whole, IMAGE.replace("runner", "other"))["failed"]
