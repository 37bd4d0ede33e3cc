"""Systems Manager's documents, which MiniStack has not: records of what templates say, which GetDocument tells.

Limits: botocore checks nothing of them, one version is kept, and no session begins.
"""

from __future__ import annotations

import json
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, error_response_json, json_response
from ministack.services import ssm
from resource_types import Made, Properties, ResourceType, add, only

_documents = ssm._documents = AccountRegionScopedDict()
others = ssm.handle_request


async def _answer(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
    if not headers.get("x-amz-target", "").endswith(".GetDocument"):
        return await others(method, path, headers, body, query)
    found = _documents.get(json.loads(body)["Name"])
    return json_response(found) if found else error_response_json("InvalidDocument", "There is no such document.", 400)


def _create(logical_id: str, props: Properties, stack: str) -> Made:
    only(props, "Name", "Content", "DocumentType", "UpdateMethod")
    if props["Name"] in _documents:
        raise ValueError(f"Document with name {props['Name']} already exists")
    return _update(props["Name"], {}, props)


def _update(physical_id: str, old: Properties, new: Properties) -> Made:
    content, kind = json.dumps(new["Content"]), new["DocumentType"]
    _documents[physical_id] = {"Name": physical_id, "Content": content, "DocumentType": kind, "Status": "Active"}
    return physical_id, {}


def _delete(physical_id: str, props: Properties) -> None:
    _documents.pop(physical_id, None)


def apply() -> None:
    """Let Systems Manager answer for documents."""
    ssm.handle_request = _answer
    add({"AWS::SSM::Document": ResourceType(_create, _delete, _update, replacing=("Name", "DocumentType"))})
