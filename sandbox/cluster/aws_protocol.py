"""AWS protocol server from botocore's models: HTTP request -> operation and parameters -> response -> HTTP response.

ECS uses JSON 1.1. EC2 and Auto Scaling use their variants of the query protocol with XML responses. The server checks
requests and responses against the service model. So a misspelt member, of the caller or of the sandbox, is an error
at its first use.
"""

import json
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import botocore.session
from botocore import xform_name
from botocore.model import OperationModel, Shape
from botocore.validate import ParamValidator

from sandbox.cluster.model.cluster import AwsApiError
from sandbox.request_guard import RequestGuard

JSON_1_1 = "application/x-amz-json-1.1"
EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
AUTO_SCALING_NAMESPACE = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
_session = botocore.session.get_session()
_models = {name: _session.get_service_model(name) for name in ("ecs", "ec2", "autoscaling")}
_target_prefix = _models["ecs"].metadata["targetPrefix"]


def _check(shape: Shape | None, value: Any, what: str, error: Callable[[str], AwsApiError]) -> None:
    if shape is None:
        return
    report = ParamValidator().validate(value, shape)
    if report.has_errors():
        raise error(f"{what}: {report.generate_report()}")


def to_json(shape: Any, value: Any) -> Any:
    """Return a response in JSON 1.1: timestamps are epoch seconds, and members with None are left out."""
    if shape.type_name == "structure":
        return {k: to_json(shape.members[k], v) for k, v in value.items() if v is not None}
    if shape.type_name == "list":
        return [to_json(shape.member, item) for item in value]
    if shape.type_name == "map":
        return {key: to_json(shape.value, item) for key, item in value.items()}
    return value.timestamp() if isinstance(value, datetime) else value


def _query_name(name: str, shape: Shape) -> str:
    text: str = shape.serialization.get("queryName") or shape.serialization.get("name") or name
    return text[0].upper() + text[1:]


def from_query(shape: Any, fields: dict[str, str], prefix: str = "") -> Any:
    """Return the flat fields of a query (`Filter.1.Value.2`) as nested parameters; None if `prefix` has no field."""
    if shape.type_name == "structure":
        dot = f"{prefix}." if prefix else ""
        members = {
            name: from_query(member, fields, dot + _query_name(name, member)) for name, member in shape.members.items()
        }
        return {name: value for name, value in members.items() if value is not None} or None
    if shape.type_name == "list":
        items: list[Any] = []
        while (item := from_query(shape.member, fields, f"{prefix}.{len(items) + 1}")) is not None:
            items.append(item)
        return items or None
    text = fields.get(prefix)
    if text is None:
        return None
    if shape.type_name == "boolean":
        return text == "true"
    return int(text) if shape.type_name in {"integer", "long"} else text


def to_xml(shape: Any, value: Any, name: str) -> str:
    """Return `value` as an XML element called `name`; members with None are left out."""
    if shape.type_name == "structure":
        inner = "".join(
            to_xml(shape.members[k], v, shape.members[k].serialization.get("name", k))
            for k, v in value.items()
            if v is not None
        )
    elif shape.type_name == "list":
        inner = "".join(to_xml(shape.member, item, shape.member.serialization.get("name", "item")) for item in value)
    elif isinstance(value, bool):
        inner = str(value).lower()
    elif isinstance(value, datetime):
        inner = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    else:
        inner = escape(str(value))
    return f"<{name}>{inner}</{name}>"


class AwsProtocol:
    """Translates between HTTP bodies and the operations.

    `apis` has an object with a method per operation for each of `ecs`, `ec2` and `autoscaling`. `control` handles the
    /_sandbox paths.
    """

    def __init__(self, apis: dict[str, Any], control: Callable[[str, str, dict[str, Any]], Any]) -> None:
        self._apis, self.control = apis, control

    def _call(self, service: str, model: OperationModel, params: dict[str, Any]) -> Any:
        codes = {"ecs": "InvalidParameterException", "ec2": "InvalidParameterValue", "autoscaling": "ValidationError"}
        code = codes[service]
        _check(model.input_shape, params, model.name, lambda text: AwsApiError(code, text))
        method = getattr(self._apis[service], xform_name(model.name), None)
        if method is None:
            message = f"The sandbox does not implement {service}:{model.name}."
            raise AwsApiError("UnsupportedOperation", message, 501)
        answer = method(**params)
        _check(
            model.output_shape,
            answer,
            f"{model.name}, our answer",
            lambda text: AwsApiError("ServerException", text, 500),
        )
        return answer

    def ecs(self, target: str, body: bytes) -> bytes:
        """Run the ECS operation of the header X-Amz-Target; returns the response's body. Raises AwsApiError."""
        prefix, _, operation = target.partition(".")
        if prefix != _target_prefix or operation not in _models["ecs"].operation_names:
            raise AwsApiError("UnknownOperationException", f"no such target: {target}", 501)
        model = _models["ecs"].operation_model(operation)
        answer = self._call("ecs", model, json.loads(body or b"{}"))
        return json.dumps(to_json(model.output_shape, answer)).encode()

    def ec2(self, body: bytes) -> bytes:
        """Run the EC2 operation of a query; returns the response's body. Raises AwsApiError."""
        operation, inner = self._query("ec2", body, "<return>true</return>")
        head = f'<{operation}Response xmlns="{EC2_NAMESPACE}"><requestId>sandbox</requestId>'
        return f"{head}{inner}</{operation}Response>".encode()

    def autoscaling(self, body: bytes) -> bytes:
        """Run the Auto Scaling operation of a query; returns the response's body. Raises AwsApiError.

        Operations with lists are not supported, because Auto Scaling names the members of lists otherwise than EC2.
        """
        operation, inner = self._query("autoscaling", body, "")
        head = f'<{operation}Response xmlns="{AUTO_SCALING_NAMESPACE}"><{operation}Result>'
        tail = f"</{operation}Result><ResponseMetadata><RequestId>sandbox</RequestId></ResponseMetadata>"
        return f"{head}{inner}{tail}</{operation}Response>".encode()

    def _query(self, service: str, body: bytes, no_output: str) -> tuple[str, str]:
        """Return the operation's name and its response as XML: `no_output` for an operation without output."""
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
        operation = fields.get("Action", "")
        if operation not in _models[service].operation_names:
            raise AwsApiError("InvalidAction", f"The action {operation} is not valid for this web service.")
        model = _models[service].operation_model(operation)
        answer = self._call(service, model, from_query(model.input_shape, fields) or {})
        if model.output_shape is None:
            return operation, no_output
        return operation, to_xml(model.output_shape, answer, "x").removeprefix("<x>").removesuffix("</x>")


def _ecs_error(error: AwsApiError) -> bytes:
    return json.dumps({"__type": error.code, "message": error.message} | error.members).encode()


def _ec2_error(error: AwsApiError) -> bytes:
    text = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    return f"<Response><Errors><Error>{text}</Error></Errors><RequestID>sandbox</RequestID></Response>".encode()


def _auto_scaling_error(error: AwsApiError) -> bytes:
    text = f"<Type>Sender</Type><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    return f"<ErrorResponse><Error>{text}</Error><RequestId>sandbox</RequestId></ErrorResponse>".encode()


def _handler(protocol: AwsProtocol, guard: Callable[[], RequestGuard]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body in one packet

        def do_GET(self) -> None:
            if not self._is_refused(b""):
                self._control("GET", b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self._is_refused(body):
                return
            target = self.headers.get("X-Amz-Target")
            if self.path.startswith("/_sandbox/"):
                self._control("POST", body)
            elif target is not None:
                self._answer(JSON_1_1, lambda: protocol.ecs(target, body), _ecs_error)
            elif f"Version={_models['autoscaling'].api_version}".encode() in body.split(b"&"):
                self._answer("text/xml", lambda: protocol.autoscaling(body), _auto_scaling_error)
            else:
                self._answer("text/xml", lambda: protocol.ec2(body), _ec2_error)

        def _is_refused(self, body: bytes) -> bool:
            headers = {name.lower(): value for name, value in self.headers.items()}
            refusal = guard().refusal(self.command, self.path, headers, body)
            if refusal:
                self._send(403, JSON_1_1, _ecs_error(AwsApiError("AccessDeniedException", refusal, 403)))
            return bool(refusal)

        def _control(self, method: str, body: bytes) -> None:
            def answer() -> bytes:
                return json.dumps(protocol.control(method, self.path, json.loads(body or b"{}"))).encode()

            self._answer("application/json", answer, _ecs_error)

        def _answer(self, kind: str, work: Callable[[], bytes], refusal: Callable[[AwsApiError], bytes]) -> None:
            try:
                status, data = 200, work()
            except AwsApiError as error:
                status, data = error.status, refusal(error)
            except Exception as error:  # the caller gets a response and does not wait; then the error is raised
                traceback.print_exc()
                self._send(500, kind, refusal(AwsApiError("ServerException", repr(error))))
                raise
            self._send(status, kind, data)

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Write no access log, because stdout must hold only the line with the address."""

    return Handler


class ProtocolServer(ThreadingHTTPServer):
    """HTTP server of the cluster, with one thread for each connection."""

    request_queue_size = 512  # the default of 5 makes parallel callers wait for SYN retries
    daemon_threads = True


def server(protocol: AwsProtocol, port: int, secret: str) -> ProtocolServer:
    """Return a server on the loopback interface. Port 0 takes a free port: see `server_address`.

    `secret` is the secret of the sandbox, whose holders the server answers.
    """
    listener = ProtocolServer(("127.0.0.1", port), _handler(protocol, lambda: guard))
    guard = RequestGuard(secret, listener.server_address[1])
    return listener
