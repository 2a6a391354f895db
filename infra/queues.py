"""Every queue of the stack: the scheduler's, and the three places where a message ends that nobody could handle."""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

_RECEIVES_MAX = 5


class Queues(Construct):
    def __init__(self, scope: Construct, construct_id: str) -> None:
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
        # Events that EventBridge could not hand to a function or a queue at all.
        self.undelivered = _queue(self, "Undelivered")
        # Events that a function took and then failed on, three times.
        self.failed = _queue(self, "Failed")

    @property
    def urls(self) -> dict[str, str]:
        return {
            "SchedulerQueueUrl": self.scheduler.queue_url,
            **{f"{name}QueueUrl": queue.queue_url for name, queue in self.dead_ends.items()},
        }

    @property
    def dead_ends(self) -> dict[str, sqs.Queue]:
        """Queues that are empty while all is well; the key names the alarm."""
        return {
            "SchedulerDeadLetters": self.scheduler_dead_letters,
            "Undelivered": self.undelivered,
            "Failed": self.failed,
        }


def _queue(
    scope: Construct,
    construct_id: str,
    *,
    fifo: bool = False,
    visibility_timeout: Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        construct_id,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(14),
        visibility_timeout=visibility_timeout,
        dead_letter_queue=dead_letter_queue,
        # EventBridge gives no de-duplication id; a whole event differs from the next one by its id and time.
        fifo=fifo or None,
        content_based_deduplication=fifo or None,
    )
