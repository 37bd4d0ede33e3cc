"""AWS's query APIs of the tests, for what no emulator has: prices, quotas, instance types, simulated policies, sessions.

What is real: boto3 sends HTTP and reads HTTP. Requests are matched by the operation that they name; answers are written by
AWS's own service models, which botocore carries, so that an answer of a shape that AWS does not give fails the test.
Refusals and throttling are HTTP answers too, and are tried again by botocore itself.

Limits: signatures are not checked; no state but what a test's answer keeps; an operation without an answer goes on to
`upstream` (the emulator), or is refused as AWS refuses an action that it does not know; JSON and form protocols only.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import OperationModel, Shape
from botocore.validate import ParamValidator
from http_server import Server

Parameters = dict[str, Any]
"""Of JSON protocols the document, of form protocols the flat form (`Filter.1.Name`)."""
Answer = Callable[[Parameters], dict[str, Any]]

SERVICES = {"servicequotas": "service-quotas", "tagging": "resourcegroupstaggingapi"}
"""Names in signatures that differ from botocore's."""


class Refused(Exception):
    """What AWS answers instead."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


class AwsApi(Server):
    """The APIs of all services."""

    def __init__(self, upstream: str | None = None) -> None:
        self.upstream = upstream
        self.answers: dict[tuple[str, str], Answer] = {}
        self.requests: list[tuple[str, str, Parameters]] = []
        self.rest: dict[str, dict[str, Any]] = {}
        """Documents of REST protocols by path, taken as they are."""
        self.wrong: list[str] = []
        """Answers of tests that are none of AWS's."""
        self._session = botocore.session.get_session()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        assert not self.wrong, self.wrong

    def answer(self, service: str, operation: str, with_: Answer | dict[str, Any]) -> None:
        """What an operation answers from now on."""
        self.answers[(service, operation)] = with_ if callable(with_) else lambda _: with_

    def refuse(self, service: str, operation: str, code: str, message: str = "", status: int = 400) -> None:
        """An operation is refused from now on."""

        def refused(_: Parameters) -> dict[str, Any]:
            raise Refused(code, message, status)

        self.answers[(service, operation)] = refused

    def asked(self, operation: str) -> list[Parameters]:
        """With what an operation was asked for."""
        return [parameters for _, found, parameters in self.requests if found == operation]

    def model(self, service: str, operation: str) -> OperationModel:
        return self._session.get_service_model(service).operation_model(operation)


class _Handler(BaseHTTPRequestHandler):
    api: AwsApi

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        signed = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", self.headers.get("Authorization", ""))
        name = signed[1] if signed else ""
        service = SERVICES.get(name, name)
        target = self.headers.get("X-Amz-Target", "")
        form = not target
        parameters: Parameters = dict(parse_qsl(body.decode())) if form else json.loads(body or b"{}")
        operation = parameters.get("Action", "") if form else target.rpartition(".")[2]
        self.api.requests.append((service, operation, parameters))
        answer = self.api.answers.get((service, operation))
        if answer is None and self.api.upstream is not None:
            return self._pass_on(body)
        try:
            if answer is None:
                raise Refused("InvalidAction", f"{operation} is not an action of {service} here")
            model = self.api.model(service, operation)
            found = answer(parameters)
            problems = ParamValidator().validate(found, model.output_shape)
            if problems.has_errors():
                self.api.wrong.append(f"{operation}: {problems.generate_report()}")
                raise Refused("ValidationException", self.api.wrong[-1])
            self._send(200, _xml(model, found) if form else json.dumps(found, default=str))
        except Refused as refused:
            error = f"<Error><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message></Error>"
            text = (
                f"<Response><Errors>{error}</Errors></Response>"
                if service == "ec2"
                else f"<ErrorResponse>{error}</ErrorResponse>"
            )
            self._send(refused.status, text if form else json.dumps({"__type": refused.code, "message": refused.message}))

    def do_GET(self) -> None:
        if (found := self.api.rest.get(self.path)) is not None:
            return self._send(200, json.dumps(found))
        self._pass_on(b"")

    do_PUT = do_DELETE = do_HEAD = do_GET

    def _send(self, code: int, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, body: bytes) -> None:
        if self.api.upstream is None:
            return self._send(400, json.dumps({"__type": "InvalidAction", "message": f"nobody answers {self.path} here"}))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")}
        request = urllib.request.Request(self.api.upstream + self.path, data=body or None, method=self.command, headers=headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                self._send(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            self._send(error.code, error.read().decode())


AwsApi.handler = _Handler


def _xml(model: OperationModel, found: dict[str, Any]) -> str:
    """A form protocol's answer, its elements named as the model names them."""
    inside = _members(model.output_shape, found)
    if model.service_model.metadata["protocol"] == "ec2":
        return f"<{model.name}Response><requestId>0</requestId>{inside}</{model.name}Response>"
    result = f"<{model.name}Result>{inside}</{model.name}Result>"
    return f"<{model.name}Response>{result}<ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></{model.name}Response>"


def _members(shape: Shape, found: dict[str, Any]) -> str:
    members = [(shape.members[name], name, value) for name, value in found.items()]
    return "".join(_element(member, member.serialization.get("name", name), value) for member, name, value in members)


def _element(shape: Shape, name: str, value: Any) -> str:
    if shape.type_name == "structure":
        return f"<{name}>{_members(shape, value)}</{name}>"
    if shape.type_name == "list":
        item = shape.member.serialization.get("name", "member")
        return f"<{name}>{''.join(_element(shape.member, item, one) for one in value)}</{name}>"
    if shape.type_name == "boolean":
        return f"<{name}>{str(value).lower()}</{name}>"
    return f"<{name}>{escape(str(value))}</{name}>"
