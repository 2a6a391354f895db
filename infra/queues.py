"""SQS queues: the scheduler's queue, the Ray runner's queue and the dead-letter queues."""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

_RECEIVES_MAX = 5
"""Receives of a message for the scheduler, after which SQS moves the message to the dead-letter queue."""
_RAY_RECEIVES_MAX = 2
"""The same for a message for the Ray runner."""
_RAY_DELAY_S = 2
"""Seconds after which a message for the Ray runner becomes visible. By then the sender has saved its command as due."""


class Queues(Construct):
    """The queues. `with_ray` adds the two queues of the Ray runner."""

    def __init__(self, scope: Construct, construct_id: str, *, with_ray: bool = False) -> None:
        super().__init__(scope, construct_id)
        self.scheduler_dead_letters = _queue(self, "SchedulerDeadLetters", fifo=True)
        # A FIFO queue with one message group makes the scheduler the only writer of placements. After a failure the
        # whole group waits for the visibility timeout, so the timeout is only slightly longer than the function's.
        self.scheduler = _queue(
            self,
            "Scheduler",
            fifo=True,
            visibility_timeout=Duration.seconds(120),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.scheduler_dead_letters, max_receive_count=_RECEIVES_MAX),
        )
        # This queue also has one message group, so that one run of the Ray runner is active at a time. After two
        # failures a message no longer blocks the others: the reconciler finds commands that were not carried out.
        self.ray_dead_letters = _queue(self, "RayDeadLetters", fifo=True) if with_ray else None
        self.ray = self._ray(self.ray_dead_letters) if self.ray_dead_letters is not None else None
        # Events that EventBridge could not deliver to a function or a queue.
        self.undelivered = _queue(self, "Undelivered")
        # Events that a function received and failed to process three times.
        self.failed = _queue(self, "Failed")

    def _ray(self, dead_letters: sqs.Queue) -> sqs.Queue:
        return _queue(
            self,
            "Ray",
            fifo=True,
            delivery_delay=Duration.seconds(_RAY_DELAY_S),
            visibility_timeout=Duration.seconds(120),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=_RAY_RECEIVES_MAX),
        )

    @property
    def urls(self) -> dict[str, str]:
        """URLs of the queues, by the name of the stack output."""
        return {
            "SchedulerQueueUrl": self.scheduler.queue_url,
            **({"RayQueueUrl": self.ray.queue_url} if self.ray is not None else {}),
            **{f"{name}QueueUrl": queue.queue_url for name, queue in self.dead_letter_queues.items()},
        }

    @property
    def dead_letter_queues(self) -> dict[str, sqs.Queue]:
        """Queues that are empty in normal operation, by the name that the alarm shows."""
        return {
            "SchedulerDeadLetters": self.scheduler_dead_letters,
            "Undelivered": self.undelivered,
            "Failed": self.failed,
            **({"RayDeadLetters": self.ray_dead_letters} if self.ray_dead_letters is not None else {}),
        }


def _queue(
    scope: Construct,
    construct_id: str,
    *,
    fifo: bool = False,
    delivery_delay: Duration | None = None,
    visibility_timeout: Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        construct_id,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(14),
        delivery_delay=delivery_delay,
        visibility_timeout=visibility_timeout,
        dead_letter_queue=dead_letter_queue,
        # EventBridge sets no de-duplication id, so SQS computes the id from the body. Two events always differ in their
        # id and time.
        fifo=fifo or None,
        content_based_deduplication=fifo or None,
    )
