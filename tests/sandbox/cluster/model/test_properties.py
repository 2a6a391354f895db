"""Whatever happens in whatever order, the accounting holds and events tell the truth in order."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandbox.cluster.model import describe, instances, tasks
from sandbox.cluster.model.cluster import AwsApiError, ClusterModel
from sandbox.cluster.model.statuses import ProcessState, TaskStatus
from tests.tiers import examples

GPUS = 3
PICK = st.integers(min_value=0, max_value=30)
DEFINITION = {
    "taskDefinitionArn": "arn:aws:ecs:us-east-1:000000000000:task-definition/train:1",
    "family": "train",
    "containerDefinitions": [{"name": "main", "image": "x", "command": ["true"], "cpu": 7, "memory": 11}],
}
INSTANCE_STEPS = [
    instances.agent_disconnected,
    instances.agent_reconnected,
    instances.went_down,
    instances.came_back,
    instances.begin_stop,
    instances.stopped,
    instances.begin_start,
    instances.started,
    instances.begin_terminate,
    instances.terminated,
]


class AnyOrder(RuleBasedStateMachine):
    """Operations and facts in any order, even orders that no machine could produce."""

    @initialize()
    def start(self):
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        self.cluster = ClusterModel("c", "000000000000", "us-east-1")
        self.versions = {}
        self.latest = {}
        self.launch()
        self.launch()

    def do(self, operation, *given, **named):
        self.now += timedelta(seconds=1)
        try:
            outcome = operation(self.cluster, *given, now=self.now, **named)
        except AwsApiError:
            return
        for event in outcome.events:
            resource = event["resources"][0]
            if "version" in event["detail"]:
                assert event["detail"]["version"] == self.versions.get(resource, 0) + 1
                self.versions[resource] = event["detail"]["version"]
                self.latest[resource] = event["detail"]

    def instance(self, pick):
        return list(self.cluster.instances.values())[pick % len(self.cluster.instances)]

    def task(self, pick, *processes):
        found = [t for t in self.cluster.tasks.values() if t.is_live and t.process in processes]
        return found[pick % len(found)] if found else None

    @rule()
    def launch(self):
        if len(self.cluster.instances) < 4:
            self.do(instances.launch, GPUS)

    @rule(gpus=st.sampled_from(["0", "1", "2", "3", "4", "ALL"]), where=st.none() | PICK, count=st.integers(1, 3))
    def run_task(self, gpus, where, count):
        override = {"name": "main", "resourceRequirements": [{"type": "GPU", "value": gpus}]}
        request = {"cluster": "c", "count": count, "overrides": {"containerOverrides": [override]}}
        if where is not None:
            expression = f"ec2InstanceId == {self.instance(where).instance_id}"
            request["placementConstraints"] = [{"type": "memberOf", "expression": expression}]
        self.do(tasks.run_task, request, DEFINITION)

    @rule(pick=PICK)
    def process_started(self, pick):
        if task := self.task(pick, ProcessState.NONE):
            self.do(tasks.process_started, task)

    @rule(pick=PICK, code=st.none() | st.sampled_from([0, 1, 137]))
    def process_ended(self, pick, code):
        if task := self.task(pick, ProcessState.RUNNING):
            self.do(tasks.process_ended, task, code)

    @rule(pick=PICK)
    def stop_task(self, pick):
        if task := self.task(pick, *ProcessState):
            self.do(tasks.stop_task, task.arn, None)

    @rule(pick=PICK, step=st.sampled_from(INSTANCE_STEPS))
    def step_instance(self, pick, step):
        self.do(step, self.instance(pick))

    @rule(pick=PICK, status=st.sampled_from(["ACTIVE", "DRAINING"]))
    def update_state(self, pick, status):
        request = {"containerInstances": [self.instance(pick).arn], "status": status}
        self.do(instances.update_container_instances_state, request)

    @rule(pick=PICK, force=st.booleans())
    def deregister(self, pick, force):
        self.do(instances.deregister, self.instance(pick).arn, force=force)

    def live(self, instance):
        return [t for t in self.cluster.tasks.values() if t.is_live and t.instance_id == instance.instance_id]

    @invariant()
    def no_gpu_is_held_by_two_live_tasks(self):
        for instance in self.cluster.instances.values():
            held = [gpu for task in self.live(instance) for gpu in task.gpu_ids]
            assert len(held) == len(set(held))
            assert set(held) <= set(instance.gpus)

    @invariant()
    def remaining_is_registered_minus_held(self):
        request = {"containerInstances": [i.arn for i in self.cluster.instances.values()]}
        for view in describe.describe_container_instances(self.cluster, request)["containerInstances"]:
            live = self.live(self.cluster.instances[view["ec2InstanceId"]])
            remaining = {r["name"]: r for r in view["remainingResources"]}
            registered = {r["name"]: r for r in view["registeredResources"]}
            held = {gpu for task in live for gpu in task.gpu_ids}
            assert set(remaining["GPU"]["stringSetValue"]) == set(registered["GPU"]["stringSetValue"]) - held
            for name, each in (("CPU", 7), ("MEMORY", 11)):
                expected = registered[name]["integerValue"] - each * len(live)
                assert remaining[name]["integerValue"] == expected

    @invariant()
    def the_last_event_of_a_resource_is_what_describe_says(self):
        for task in self.cluster.tasks.values():
            view = describe.describe_tasks(self.cluster, {"tasks": [task.arn]}, self.now)["tasks"][0]
            told = self.latest[task.arn]
            for member in ("lastStatus", "desiredStatus", "version"):
                assert told[member] == view[member]
        for instance in self.cluster.instances.values():
            told = self.latest[instance.arn]
            assert told["agentConnected"] == instance.agent_connected
            assert (told["status"], told["version"]) == (instance.status, instance.version)

    @invariant()
    def a_stopped_task_stays_stopped(self):
        for task in self.cluster.tasks.values():
            if task.stopped_at is not None:
                assert task.last_status is TaskStatus.STOPPED
                assert task.desired_status is TaskStatus.STOPPED


AnyOrder.TestCase.settings = examples(1)
TestAnyOrder = AnyOrder.TestCase
