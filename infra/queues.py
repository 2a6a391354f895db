"""Every queue of the stack: the scheduler's, and the three places where a message ends that nobody could handle."""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

_RECEIVES_MAX = 5
_RAY_RECEIVES_MAX = 2
_RAY_DELAY_S = 2


class Queues(Construct):
    def __init__(self, scope: Construct, construct_id: str, *, with_ray: bool = False) -> None:
        super().__init__(scope, construct_id)
        self.scheduler_dead_letters = _queue(self, "SchedulerDeadLetters", fifo=True)
        # FIFO with one message group makes the scheduler the only writer of placements. The wait after a failure is
        # the visibility timeout, in which the whole group stands still: just above the function's timeout, no more.
        self.scheduler = _queue(
            self,
            "Scheduler",
            fifo=True,
            visibility_timeout=Duration.seconds(120),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.scheduler_dead_letters, max_receive_count=_RECEIVES_MAX),
        )
        # To the function that reaches the Ray cluster: one group as well, so that it is alone, and after two failures
        # out of the way of the others, for the reconciler finds what is left undone. The delay lets whoever wakes it
        # enter the order as due first.
        self.ray_dead_letters = _queue(self, "RayDeadLetters", fifo=True) if with_ray else None
        self.ray = self._ray(self.ray_dead_letters) if self.ray_dead_letters is not None else None
        # Events that EventBridge could not hand to a function or a queue at all.
        self.undelivered = _queue(self, "Undelivered")
        # Events that a function took and then failed on, three times.
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
        return {
            "SchedulerQueueUrl": self.scheduler.queue_url,
            **({"RayQueueUrl": self.ray.queue_url} if self.ray is not None else {}),
            **{f"{name}QueueUrl": queue.queue_url for name, queue in self.dead_letter_queues.items()},
        }

    @property
    def dead_letter_queues(self) -> dict[str, sqs.Queue]:
        """Queues that are empty while all is well; the key names the alarm."""
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
        # EventBridge gives no de-duplication id; a whole event differs from the next one by its id and time.
        fifo=fifo or None,
        content_based_deduplication=fifo or None,
    )
