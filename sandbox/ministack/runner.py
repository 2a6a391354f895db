"""Runner of MiniStack: starts it with patches for the AWS behaviour that the product needs and MiniStack lacks.

MiniStack is the AWS of the sandbox. `PATCHES` lists each difference from AWS that would hide a defect of the product,
or would make a correct deployment fail. Each patch is one function, which runs before the server starts. For each patch
`tests/sandbox/ministack/test_runner.py` shows that plain MiniStack still needs it, and that the patched MiniStack
behaves as AWS does. The patches change private names, so the release is pinned.

Run as `python -m sandbox.ministack.runner`. Settings come from the environment, as those of MiniStack itself do
(GATEWAY_PORT, BIND_HOST, AUTH, …):

- `SANDBOX_LAMBDA_WIDTH`: processes per function for asynchronous events (default 2, about 35 MB each).
- `SANDBOX_SCHEDULE_SPEED`: factor by which `rate(...)` schedules run more often than stated (default 1).
- `SANDBOX_IMAGE_STAND_IN`: the image that is run from a package, see `sandbox/ray_cluster.py` (default: none).
"""

from __future__ import annotations

import contextvars
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ministack import app  # type: ignore[import-untyped]
from ministack.core import iam_actions, iam_evaluator, lambda_runtime  # type: ignore[import-untyped]
from ministack.core.arn import parse_arn  # type: ignore[import-untyped]
from ministack.core.responses import error_response_json  # type: ignore[import-untyped]
from ministack.services import eventbridge, lambda_svc, scheduler, sqs, sts  # type: ignore[import-untyped]
from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]

from sandbox import credentials, payload_limits
from sandbox.ministack.worker_processes import (
    packages_are_shared,
    processes_are_forked,
    processes_start_in_turn,
    raising_keeps_the_process,
)
from sandbox.request_guard import RequestGuard

MINISTACK_VERSION = "1.5.33"
CLUSTER_USER_AGENT = "gpu-recovery-sandbox"
END_OF_LOG = "\x1eend-of-log"
THROTTLE_PAUSE_S = 0.2
SCHEDULE_SWEEP_S = 0.5
WORKER_POLL_S = 0.05
OWN_PAGES = ("/_ministack/", "/_localstack/", "/health")
READY = "/_ministack/ready"
ON_STREAMS = ("GetLogEvents", "PutLogEvents")

# Reason why the present delivery did not reach its target: (error code, message). None after a delivery.
_undelivered: contextvars.ContextVar[tuple[str, str] | None] = contextvars.ContextVar("undelivered", default=None)


class AsyncInvocationQueue:
    """Queue of asynchronous invocations of one function, as Lambda has it.

    A failed event is retried after 1 s, 2 s, … (MiniStack's own delays), and then goes to the on-failure destination.
    A throttled event waits, and the wait is not counted as a try. The threads are daemons, so a sandbox that stops does
    not wait for them.
    """

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for number in range(width):
            threading.Thread(target=self._work, daemon=True, name=f"async-{name}-{number}").start()

    def _work(self) -> None:
        while True:
            self._waiting.get()()

    def submit(self, record: dict[str, Any], event: Any, tries: int = 0, delay_s: float = 0.0) -> None:
        """Queue one invocation in the caller's context (account and region), now or after `delay_s` seconds."""
        context = contextvars.copy_context()

        def put() -> None:
            self._waiting.put(lambda: context.run(self._invoke, record, event, tries))

        if delay_s:
            timer = threading.Timer(delay_s, put)
            timer.daemon = True
            timer.start()
        else:
            put()

    def _invoke(self, record: dict[str, Any], event: Any, tries: int) -> None:
        result = lambda_svc._execute_function_with_config_scope(record, event)
        settings = invoke_settings(record)
        if result.get("throttle"):
            self.submit(record, event, tries, THROTTLE_PAUSE_S)
        elif result.get("error") and tries < settings.get("MaximumRetryAttempts", 2):
            self.submit(record, event, tries + 1, lambda_svc._LAMBDA_ASYNC_RETRY_BASE_SECONDS * 2**tries)
        elif result.get("error"):
            destination = (settings.get("DestinationConfig") or {}).get("OnFailure", {}).get("Destination")
            if destination:
                lambda_svc._route_async_failure(destination, self.name, event, result)


def invoke_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Return the function's EventInvokeConfig: the API sets it unqualified, CloudFormation for `$LATEST`."""
    return lambda_svc._event_invoke_config(record, None) or lambda_svc._event_invoke_config(record, "$LATEST") or {}


def asynchronous_events() -> None:
    """Make rules and schedules invoke Lambda asynchronously: retries, then the on-failure destination.

    Plain MiniStack calls the function once and ignores an exception, so a handler that raises would look healthy. It
    also starts one process for each event in progress, 37 MB each.
    """
    width = int(os.environ.get("SANDBOX_LAMBDA_WIDTH", "2"))
    queues: dict[str, AsyncInvocationQueue] = {}

    def dispatch_to_lambda(arn: str, payload: str) -> None:
        func, config, name = lambda_svc._get_func_record_for_ref(arn)
        if not func or not config:
            _undelivered.set(("NO_RESOURCE", f"function {name} does not exist"))
            return
        if name not in queues:
            queues[name] = AsyncInvocationQueue(name, width)
        queues[name].submit(lambda_svc._execution_record_for_config(func, config), json.loads(payload))

    eventbridge._dispatch_to_lambda = dispatch_to_lambda


def queues_by_their_own_rules() -> None:
    """Make a rule put a message on a queue through SendMessage, so that a FIFO queue deduplicates.

    Plain MiniStack appends to the queue's list. There a constant message arrives at every tick, while AWS drops its
    repetitions for five minutes. And there a queue without content-based deduplication accepts the message.
    """

    def dispatch_to_sqs(spec: Any, payload: str, sqs_parameters: dict[str, str] | None = None) -> None:
        request = {"QueueUrl": spec.resource, "MessageBody": payload}
        group = (sqs_parameters or {}).get("MessageGroupId")
        if group:
            request["MessageGroupId"] = group
        try:
            sqs._act_send_message(request, spec.resource)
        except sqs._Err as refusal:
            code = "NO_RESOURCE" if refusal.code == "QueueDoesNotExist" else "SDK_CLIENT_ERROR"
            _undelivered.set((code, str(refusal)))

    eventbridge._dispatch_to_sqs = dispatch_to_sqs


def rule_dead_letters() -> None:
    """Send an event that cannot reach its target to the target's dead-letter queue, with the reason as attributes.

    Plain MiniStack stores the DeadLetterConfig and never uses it.
    """
    invoke_target = eventbridge._invoke_target

    def invoke_or_dead_letter(
        target: dict[str, Any], event: dict[str, Any], rule: dict[str, Any], view: Any = None
    ) -> None:
        _undelivered.set(None)
        view = view or eventbridge._pattern_event_view(event)
        invoke_target(target, event, rule, view)
        reason = _undelivered.get()
        dead_letter_arn = (target.get("DeadLetterConfig") or {}).get("Arn")
        if reason is None or not dead_letter_arn:
            return
        facts = {
            "RULE_ARN": rule.get("Arn", ""),
            "TARGET_ARN": target.get("Arn", ""),
            "ERROR_CODE": reason[0],
            "ERROR_MESSAGE": reason[1],
        }
        name = parse_arn(dead_letter_arn).resource
        sqs._act_send_message(
            {
                "QueueUrl": name,
                "MessageBody": json.dumps(view.event_with_detail()),
                "MessageAttributes": {k: {"DataType": "String", "StringValue": v} for k, v in facts.items() if v},
            },
            name,
        )

    eventbridge._invoke_target = invoke_or_dead_letter


def cluster_speaks_for_ecs() -> None:
    """Accept `aws.*` events from our cluster, which is the ECS of the sandbox. Its user agent identifies it.

    AWS accepts `aws.*` sources from its own services only. With this patch the deployed template has the production
    rules, without a source that exists only for tests.
    """
    from_cluster: contextvars.ContextVar[bool] = contextvars.ContextVar("from_cluster", default=False)
    handle_request, put_events = eventbridge.handle_request, eventbridge._put_events

    async def handle(method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]) -> Any:
        from_cluster.set(CLUSTER_USER_AGENT in headers.get("user-agent", ""))
        return await handle_request(method, path, headers, body, query)

    def put(data: dict[str, Any], allow_aws_source: bool = False) -> Any:
        return put_events(data, allow_aws_source or from_cluster.get())

    eventbridge.handle_request = handle
    eventbridge._put_events = put


def end_of_log() -> None:
    """Let the worker of a Python function mark the end of an invocation's log.

    Plain MiniStack waits for a pause instead: 54 ms for a handler without output, and a late line is added to the next
    invocation.
    """
    before, flush, after = lambda_runtime._PYTHON_WORKER_SCRIPT.rpartition("        _real_stdout.flush()")
    if not flush:
        raise RuntimeError("the worker script of MiniStack no longer ends an invocation by flushing its answer")
    mark = f"        sys.stderr.write({END_OF_LOG + chr(10)!r}); sys.stderr.flush()\n"
    lambda_runtime._PYTHON_WORKER_SCRIPT = before + mark + flush + after

    def lines_to_the_mark(self: Any, hard_cap: float = 5.0) -> str:
        lines: list[str] = []
        deadline = time.monotonic() + hard_cap
        while time.monotonic() < deadline:
            try:
                line = self._stderr_queue.get(timeout=WORKER_POLL_S)
            except queue.Empty:
                if not self._stderr_thread.is_alive() and self._stderr_queue.empty():
                    break  # the worker died in the handler, so no mark will come
                continue
            if line == END_OF_LOG:
                break
            lines.append(line)
        return "\n".join(lines)

    lambda_runtime.Worker._drain_stderr_bounded = lines_to_the_mark


def loopback_is_tls() -> None:
    """Treat loopback requests as TLS. With AUTH=true a policy that enforces TLS would deny plain HTTP.

    The default origin is for work without a request, such as a schedule's message to a queue.
    """
    iam_evaluator._request_origin = contextvars.ContextVar("origin", default=("127.0.0.1", True))
    pin = iam_evaluator.pin_request_origin
    app.pin_request_origin = lambda ip, _secure: pin(ip, True)


def schedule_speed() -> None:
    """Run `rate(...)` schedules `SANDBOX_SCHEDULE_SPEED` times as often, and sweep often enough to fire them.

    Raises:
        ValueError: The speed is not positive.
    """
    speed = float(os.environ.get("SANDBOX_SCHEDULE_SPEED", "1"))
    if speed <= 0:
        raise ValueError(f"SANDBOX_SCHEDULE_SPEED must be positive, not {speed}")
    parse = eventbridge._parse_rate_seconds

    def seconds(expression: str) -> float | None:
        stated = parse(expression)
        return None if stated is None else stated / speed

    eventbridge._parse_rate_seconds = seconds
    eventbridge._SCHEDULER_TICK_INTERVAL = SCHEDULE_SWEEP_S
    scheduler._SCHEDULE_TICK_INTERVAL = SCHEDULE_SWEEP_S


def streams_are_resources() -> None:
    """Authorize reads and writes of a log stream by the stream's ARN, instead of the ARN of its group."""
    extract_resource_arn = iam_actions.extract_resource_arn

    def resource(service: str, method: str, path: str, headers: dict[str, str], body: bytes, *rest: Any) -> str:
        arn: str = extract_resource_arn(service, method, path, headers, body, *rest)
        action = headers.get("x-amz-target", "").rsplit(".", 1)[-1]
        if service != "logs" or action not in ON_STREAMS:
            return arn
        return f"{arn}:log-stream:{json.loads(body).get('logStreamName', '')}"

    iam_actions.extract_resource_arn = resource


def only_the_sandbox_has_credentials() -> None:
    """Know no root key but the configured one, check its signature, and give each function a secret of its own.

    Plain MiniStack takes the key `test` and every account id for the root user, and checks no signature of theirs. It
    makes the secrets of functions from their ARNs, which every user of this computer can do as well. A root user may
    create a function, which runs as the user who started the sandbox. The cluster derives the secrets in the same way.
    """
    secret, root = os.environ[credentials.SECRET_VARIABLE], os.environ["AWS_ACCESS_KEY_ID"]
    plain = lambda_runtime.execution_credentials

    def execution_credentials(config: dict[str, Any]) -> dict[str, str]:
        variables: dict[str, str] = plain(config)
        key = variables["AWS_ACCESS_KEY_ID"]
        session = sts._sessions[key]
        session["SecretAccessKey"] = credentials.secret_access_key(secret, key)
        session["SessionToken"] = credentials.secret_access_key(secret, f"token of {key}")
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": session["SecretAccessKey"],
            "AWS_SESSION_TOKEN": session["SessionToken"],
        }

    for module in (lambda_runtime, lambda_svc):
        module.execution_credentials = execution_credentials
    for module in (iam_evaluator, sts):
        module.is_root_access_key = lambda key: key == root
    iam_evaluator._is_root_key = lambda key: False  # whose signatures are not checked


def only_the_sandbox_may_call() -> None:
    """Refuse requests that may come from a web page, and unsigned requests for the pages of MiniStack itself.

    Plain MiniStack answers `/_ministack/…` without a signature: messages of queues, code of functions, reset. It allows
    every origin, so that a page in the user's browser could call it. `/_ministack/ready` stays open: it says only that
    the server is ready.
    """
    guard = RequestGuard(os.environ.pop(credentials.SECRET_VARIABLE), int(os.environ["GATEWAY_PORT"]))
    plain = app.app

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":  # no part of the sandbox uses one
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await plain(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = guard.cross_site_refusal(headers)
        if not refusal and scope["path"].startswith(OWN_PAGES) and scope["path"] != READY:
            target = (scope["raw_path"] + b"?" + scope["query_string"]).decode("latin-1").removesuffix("?")
            refusal = guard.refusal(scope["method"], target, headers, b"")
        if not refusal:
            await plain(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": refusal.encode()})

    app.app = guarded


def alarms_on_expressions() -> None:
    """Accept CloudFormation's alarms on expressions (metric math).

    Plain MiniStack refuses them, so that the production template could not be deployed. Such an alarm never has data
    here and stays as it is: MiniStack has none of the services' metrics that the expressions are about.
    """
    plain = provisioners._cw_metric_alarm_record

    def record(name: str, props: dict[str, Any]) -> Any:
        expressions = [each["Expression"] for each in props.get("Metrics", []) if "Expression" in each]
        if not expressions:
            return plain(name, props)
        single = {key: value for key, value in props.items() if key != "Metrics"}
        return plain(name, {**single, "Namespace": "metric math", "MetricName": expressions[0]})

    provisioners._cw_metric_alarm_record = record


def payloads_are_limited() -> None:
    """Refuse PutEvents requests and invocations that are too large for AWS.

    Plain MiniStack accepts every size.
    """
    put_events, handle_request = eventbridge._put_events, lambda_svc.handle_request

    def put(data: dict[str, Any], allow_aws_source: bool = False) -> Any:
        refusal = payload_limits.entries_refusal(data.get("Entries", []))
        return error_response_json(*refusal, 400) if refusal else put_events(data, allow_aws_source)

    async def handle(method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]) -> Any:
        refusal = None
        if path.endswith("/invocations"):
            refusal = payload_limits.invocation_refusal(headers.get("x-amz-invocation-type", ""), body)
        return (
            error_response_json(*refusal, 413) if refusal else await handle_request(method, path, headers, body, query)
        )

    eventbridge._put_events = put
    lambda_svc.handle_request = handle


def filter_level_is_a_variable() -> None:
    """Tell a function with JSON logs the level of Lambda's own filter, which Powertools obeys before its own setting.

    Plain MiniStack sets neither variable, so that a setting without effect on AWS would work in the sandbox. MiniStack
    adds the variables of the credentials to those of the process last.
    """
    plain = lambda_runtime.execution_credentials

    def execution_variables(config: dict[str, Any]) -> dict[str, str]:
        variables: dict[str, str] = plain(config)
        logging = config.get("LoggingConfig") or {}
        if logging.get("LogFormat") != "JSON":
            return variables
        level = logging.get("ApplicationLogLevel", "INFO")
        return variables | {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": level}

    lambda_runtime.execution_credentials = execution_variables


def image_is_run_from_a_package() -> None:
    """Run the image that `SANDBOX_IMAGE_STAND_IN` names from a package of its files, in a process as other functions.

    Plain MiniStack needs Docker for a function with an image. The function keeps its image in what the API of Lambda
    tells, and its role, its variables, its timeout and its triggers.
    """
    stand_in: dict[str, Any] = json.loads(os.environ.pop("SANDBOX_IMAGE_STAND_IN", "{}"))
    if not stand_in:
        return
    package = Path(stand_in["package"]).read_bytes()
    with_docker = lambda_svc._execute_function_docker

    def execute(func: dict[str, Any], event: Any, request_id: str) -> Any:
        config = func.get("config") or func
        if config.get("ImageUri") != stand_in["image"]:
            return with_docker(func, event, request_id)
        stated = config.get("Environment", {}).get("Variables", {})
        run_as = {
            **config,
            "Runtime": "python3.13",
            "Handler": stand_in["handler"],
            "Environment": {"Variables": {**stated, **stand_in["variables"]}},
        }
        return lambda_svc._execute_function_warm({**func, "config": run_as, "code_zip": package}, event, request_id)

    lambda_svc._execute_function_docker = execute


PATCHES: tuple[Callable[[], None], ...] = (
    asynchronous_events,
    queues_by_their_own_rules,
    rule_dead_letters,
    cluster_speaks_for_ecs,
    end_of_log,
    raising_keeps_the_process,
    packages_are_shared,
    processes_are_forked,
    processes_start_in_turn,
    loopback_is_tls,
    schedule_speed,
    streams_are_resources,
    only_the_sandbox_has_credentials,
    only_the_sandbox_may_call,
    alarms_on_expressions,
    payloads_are_limited,
    filter_level_is_a_variable,
    image_is_run_from_a_package,
)


def main() -> None:
    """Install every patch and serve until SIGTERM. Raises RuntimeError for another release of MiniStack."""
    installed = version("ministack")
    if installed != MINISTACK_VERSION:
        raise RuntimeError(f"the sandbox is written against ministack {MINISTACK_VERSION}, not {installed}")
    for patch in PATCHES:
        patch()
    app.main()


if __name__ == "__main__":
    main()
