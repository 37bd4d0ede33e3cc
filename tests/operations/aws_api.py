"""AWS's answers in tests, for what no emulator has: quotas, simulated policies, sessions. They
replace botocore's sending.

AWS's own service models, which botocore carries, check requests and answers. An operation without
an answer is refused as AWS refuses an unknown action, or goes to the emulator (`upstream`). Limit:
nothing is sent, signed or retried.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.loaders import create_loader
from botocore.validate import ParamValidator

Parameters = dict[str, Any]
Answer = Callable[[Parameters], dict[str, Any] | None]
"""None: the request goes to the emulator, or is refused if there is none."""
ENVIRONMENT = {
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test"),
    **dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull),
    "AWS_DEFAULT_REGION": "us-west-2",
}
LOADER = functools.cache(create_loader)
"""Loads AWS's models once for all tests."""


class Refused(Exception):
    """AWS's refusal: a code and a message."""


class AwsApi:
    """The APIs of all services in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, upstream: bool = False) -> None:
        self.answers: dict[tuple[str, str], Answer] = {}
        self.requests: list[tuple[str, Parameters]] = []
        self.wrong: list[str] = []
        """Requests and answers that do not fit AWS's models."""
        real = BaseClient._make_api_call

        def call(client: Any, operation: str, given: Parameters) -> Any:
            model = client.meta.service_model
            answer = self.answers.get((model.service_name, operation))
            self.requests.append((operation, given))
            try:
                output = answer(given) if answer is not None else None
                if output is None and upstream:
                    return real(client, operation, given)
                if output is None:
                    raise Refused("InvalidAction", "no test answers it")
            except Refused as refused:
                code, message = (*refused.args, "")[:2]
                raise client.exceptions.from_code(code)(
                    {"Error": {"Code": code, "Message": message}}, operation
                ) from None
            shapes = model.operation_model(operation)
            for shape, value in ((shapes.input_shape, given), (shapes.output_shape, output)):
                if shape is None:  # An operation that answers nothing.
                    continue
                report = ParamValidator().validate(value, shape)
                self.wrong += [f"{operation}: {report.generate_report()}"] * report.has_errors()
            return output

        monkeypatch.setattr(BaseClient, "_make_api_call", call)
        monkeypatch.setattr("botocore.session.create_loader", LOADER)
        for name, value in () if upstream else ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)

    def answer(self, service: str, operation: str, with_: Answer | dict[str, Any]) -> None:
        """Sets what an operation answers from now on."""
        self.answers[(service, operation)] = with_ if callable(with_) else lambda _: with_

    def refuse(self, service: str, operation: str, code: str, message: str = "") -> None:
        """Refuses an operation from now on."""

        def refused(_: Parameters) -> dict[str, Any]:
            raise Refused(code, message)

        self.answers[(service, operation)] = refused

    def asked(self, operation: str) -> list[Parameters]:
        """The parameters of each request for an operation."""
        return [given for name, given in self.requests if name == operation]
