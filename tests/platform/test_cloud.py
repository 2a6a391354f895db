"""The AWS of these tests itself: an incident leaves nothing of it in memory."""

from __future__ import annotations

from moto.core.model_instances import model_data

from tests.platform.cloud import Cloud, Sleeps


def kept() -> int:
    """The number of objects that moto keeps in the lists of its classes."""
    return sum(len(model.instances_tracked) for models in model_data.values() for model in models.values())  # type: ignore[attr-defined]


def test_a_new_cloud_keeps_no_object_of_the_one_before(sleeps: Sleeps) -> None:
    """moto lists every object that it makes. A worker that plays hundreds of incidents would take gigabytes."""
    numbers = []
    for _ in range(3):
        cloud = Cloud()
        cloud.quiet_client("sns").create_topic(Name="t")
        queue = cloud.quiet_client("sqs").create_queue(QueueName="q")["QueueUrl"]
        for number in range(5):
            cloud.quiet_client("sqs").send_message(QueueUrl=queue, MessageBody=str(number))
        numbers.append(kept())
    assert numbers[1] == numbers[2] > 0  # the first cloud of a process makes objects that stay
