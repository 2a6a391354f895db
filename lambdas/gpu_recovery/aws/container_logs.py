"""Container logs, read from CloudWatch Logs."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.clients import client
from gpu_recovery.core.log_location import LogPage


@cache
def _logs() -> Any:
    return client("logs")


class AwsJobLogs:
    """`job_api.dependencies.JobLogs` on CloudWatch Logs in the region of the deployment."""

    def read(self, group: str, stream: str, region: str, most: int, place: str | None) -> LogPage | str:
        """Read one page of a log stream.

        Args:
            group: the log group.
            stream: the log stream.
            region: the region of the log group; "" for the region of the deployment.
            most: upper bound of lines.
            place: the token of the page before; None for the last page of the stream.

        Returns:
            The page, or the reason as one sentence if the log cannot be read.
        """
        if region and region != _logs().meta.region_name:
            return f"its log is kept in {region}, where this deployment does not read"
        request: dict[str, Any] = {"logGroupName": group, "logStreamName": stream, "limit": most}
        request |= {"startFromHead": True, "nextToken": place} if place else {"startFromHead": False}
        try:
            answer = _logs().get_log_events(**request)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ResourceNotFoundException":
                return f"nothing is kept in {group} of {stream} yet, or no longer"
            if code == "AccessDeniedException":
                return f"this deployment may not read {group}: name it in gpu-recovery:training_log_groups"
            if code == "InvalidParameterException" and place:
                return f"the place in {stream} is known no longer: begin without a cursor"
            raise
        lines = tuple((_time(event["timestamp"]), str(event["message"])) for event in answer.get("events", []))
        return LogPage(lines, answer.get("nextForwardToken"))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
