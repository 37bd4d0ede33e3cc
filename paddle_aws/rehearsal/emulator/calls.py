"""AWS API calls from inside the emulator to its own services.

Promises: a resource handler calls a service through AWS's own API. botocore checks the names and
types of the parameters against AWS's models, which MiniStack does not: a misspelled property fails
here by name. MiniStack's service in this process answers, in the account and region of the stack,
and never over HTTP, because the handlers run on the event loop that would have to answer.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.awsrequest
import botocore.config
import botocore.session
from ministack.app import SERVICE_REGISTRY, _get_module
from ministack.core.responses import get_account_id, get_region
from urllib3 import HTTPResponse

_session = botocore.session.Session()


def client(service: str) -> Any:
    """Returns a botocore client whose requests the emulator answers within the call, in the account
    and region of the stack.
    """
    return _client(service, get_account_id(), get_region())


@functools.lru_cache(maxsize=64)
def _client(service: str, account: str, region: str) -> Any:
    client = _session.create_client(
        service,
        region_name=region,
        endpoint_url="http://localhost",
        aws_access_key_id=account,
        aws_secret_access_key="in-process",
        config=botocore.config.Config(retries={"max_attempts": 0}),
    )
    module = SERVICE_REGISTRY[service]["module"]
    client.meta.events.register("before-send.*.*", functools.partial(_answer, module))
    return client


def _input(service: str, operation: str) -> Any:
    about = client(service).meta
    name = about.method_to_api_mapping[operation]
    return about.service_model.operation_model(name).input_shape


def members(service: str, operation: str) -> set[str]:
    """Returns the names of a call's parameters."""
    return set(_input(service, operation).members)


def call(service: str, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Calls a service with a template's properties and returns the answer. Names get the API's
    spelling, and text becomes numbers and booleans where the API has these. Raises ValueError with
    the name of a property that the call does not have.
    """
    return getattr(client(service), operation)(**_convert(_input(service, operation), parameters))


def _convert(shape: Any, value: Any) -> Any:
    kind = shape.type_name
    if kind == "structure" and isinstance(value, Mapping):
        names = {name.lower(): name for name in shape.members}
        if unknown := sorted(name for name in value if name.lower() not in names):
            raise ValueError(f"Encountered unsupported property {', '.join(unknown)}")
        members = {names[name.lower()]: item for name, item in value.items()}
        return {name: _convert(shape.members[name], item) for name, item in members.items()}
    if kind == "list":
        items = value if isinstance(value, list) else [value]
        return [_convert(shape.member, item) for item in items]
    if kind == "map" and isinstance(value, Mapping):
        return {key: _convert(shape.value, item) for key, item in value.items()}
    if kind == "boolean":
        return str(value).lower() == "true"
    numbers = {"integer": int, "long": int, "float": float, "double": float}
    return {**numbers, "string": str}.get(kind, lambda same: same)(value)


def _answer(module_name: str, request: Any, **_: Any) -> Any:
    module = _get_module(module_name)
    address = urlsplit(request.url)
    headers = {
        str(key).lower(): value.decode() if isinstance(value, bytes) else str(value)
        for key, value in request.headers.items()
    }
    body = request.body or b""
    if isinstance(body, str):
        body = body.encode()
    query = parse_qs(address.query, keep_blank_values=True)
    arguments = (request.method, unquote(address.path), headers, body, query)
    if hasattr(module, "_handle_request_sync"):
        status, response_headers, content = module._handle_request_sync(*arguments)
    else:
        coroutine = module.handle_request(*arguments)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            status, response_headers, content = stop.value
        else:
            coroutine.close()
            raise RuntimeError(
                f"{module_name} waits for something before it answers: it cannot be called from a "
                "resource handler"
            )
    content = content.encode() if isinstance(content, str) else content or b""
    raw = HTTPResponse(io.BytesIO(content), preload_content=False)
    return botocore.awsrequest.AWSResponse(request.url, status, response_headers, raw)
