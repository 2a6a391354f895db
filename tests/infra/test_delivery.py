"""No event may vanish: every hop has retries and a place where its dead end."""

import pytest

from infra.functions import FUNCTIONS, Trigger
from tests.infra.deployment import Deployment

pytestmark = pytest.mark.slow

TARGETS = {
    "RulesTrainingTasks": "FunctionsEcsTaskHandlerFunction.Arn",
    "RulesCheckTasks": "FunctionsDcgmTaskMonitorFunction.Arn",
    "RulesContainerInstances": "FunctionsEcsInstanceMonitorFunction.Arn",
    "RulesMachines": "FunctionsEcsInstanceMonitorFunction.Arn",
    "RulesMachinePlans": "FunctionsEcsInstanceMonitorFunction.Arn",
    "RulesStatusChecks": "FunctionsEcsInstanceMonitorFunction.Arn",
    "RulesReconcile": "FunctionsReconcilerFunction.Arn",
    "RulesSchedule": "QueuesScheduler.Arn",
    "RulesRecordedEvents": "FunctionsEventRecorderFunction.Arn",
}


def test_every_rule_has_the_one_target_it_should(deployment: Deployment) -> None:
    """Rule by rule; a new rule belongs into the list."""
    rules = deployment.at_run_time("AWS::Events::Rule")
    assert {name: [target["Arn"] for target in rule["Targets"]] for name, rule in rules.items()} == {
        name: [arn] for name, arn in TARGETS.items()
    }


@pytest.mark.parametrize("rule", TARGETS)
def test_a_target_has_retries_and_a_dead_letter_queue(deployment: Deployment, rule: str) -> None:
    """EventBridge gives up after an hour, and then keeps the event where an alarm sees it."""
    (target,) = deployment.at_run_time("AWS::Events::Rule")[rule]["Targets"]
    assert target["DeadLetterConfig"] == {"Arn": "QueuesUndelivered.Arn"}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 24}


def test_every_rule_may_write_to_the_dead_letter_queue(deployment: Deployment) -> None:
    """A dead letter queue whose policy names no rule loses the letters."""
    policy = deployment.only("AWS::SQS::QueuePolicy", "QueuesUndelivered")
    allowed = {
        statement["Condition"]["ArnEquals"]["aws:SourceArn"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    }
    assert allowed == {f"{rule}.Arn" for rule in TARGETS}


def test_a_function_invoked_asynchronously_retries_twice_and_keeps_what_failed(deployment: Deployment) -> None:
    """An error inside a handler is no failure of EventBridge: only Lambda's own retries and destination see it."""
    configured = deployment.of_type("AWS::Lambda::EventInvokeConfig")
    expected = {
        f"Functions{row.construct_id}FunctionEventInvokeConfig"
        for row in FUNCTIONS
        if row.trigger not in (Trigger.HTTP, Trigger.NODE_HTTP, Trigger.SCHEDULER_QUEUE)
    }
    assert set(configured) == expected
    for config in configured.values():
        assert config["MaximumRetryAttempts"] == 2
        assert config["DestinationConfig"] == {"OnFailure": {"Destination": "QueuesFailed.Arn"}}


@pytest.mark.parametrize("rule", ["RulesReconcile", "RulesSchedule"])
def test_schedules_tick_every_minute(deployment: Deployment, rule: str) -> None:
    """Deadlines are noticed within a minute."""
    assert deployment.at_run_time("AWS::Events::Rule")[rule]["ScheduleExpression"] == "rate(1 minute)"


def test_a_tick_is_a_whole_event_in_the_schedulers_one_message_group(deployment: Deployment) -> None:
    """One group makes one writer; a constant body would be dropped as a duplicate of the tick before."""
    (target,) = deployment.at_run_time("AWS::Events::Rule")["RulesSchedule"]["Targets"]
    assert target["SqsParameters"] == {"MessageGroupId": "scheduler"}
    assert not {"Input", "InputPath", "InputTransformer"} & target.keys()


def test_the_schedulers_queue_is_fifo_with_a_fifo_dead_letter_queue(deployment: Deployment) -> None:
    """A FIFO queue can only give up to another FIFO queue."""
    queues = deployment.of_type("AWS::SQS::Queue")
    scheduler = queues["QueuesScheduler"]
    assert scheduler["FifoQueue"] is True
    assert scheduler["ContentBasedDeduplication"] is True
    assert scheduler["RedrivePolicy"] == {"deadLetterTargetArn": "QueuesSchedulerDeadLetters.Arn", "maxReceiveCount": 5}
    assert queues["QueuesSchedulerDeadLetters"]["FifoQueue"] is True


def test_a_message_stays_hidden_for_as_long_as_the_scheduler_may_run(deployment: Deployment) -> None:
    """Otherwise a slow run is joined by a second one."""
    timeout = deployment.only("AWS::Lambda::Function", "Scheduler")["Timeout"]
    assert deployment.of_type("AWS::SQS::Queue")["QueuesScheduler"]["VisibilityTimeout"] > timeout


def test_the_scheduler_takes_ten_messages_of_its_queue_at_once(deployment: Deployment) -> None:
    """One run answers all that wait."""
    mapping = deployment.only("AWS::Lambda::EventSourceMapping")
    assert mapping["EventSourceArn"] == "QueuesScheduler.Arn"
    assert mapping["FunctionName"] == "FunctionsSchedulerFunction"
    assert mapping["BatchSize"] == 10


def test_queues_are_encrypted_refuse_plain_http_and_keep_dead_letters_for_two_weeks(deployment: Deployment) -> None:
    """Each of the four, the scheduler's own included."""
    queues = deployment.of_type("AWS::SQS::Queue")
    assert len(queues) == 4
    for name, queue in queues.items():
        assert queue["SqsManagedSseEnabled"] is True
        assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
        denied = [
            statement
            for statement in deployment.only("AWS::SQS::QueuePolicy", f"{name}Policy")["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
        ]
        assert [statement["Condition"] for statement in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]
