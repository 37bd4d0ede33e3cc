"""Systems Manager's documents, which MiniStack has not.

Promises: a name is taken once; DescribeDocument and GetDocument tell what a template made. Limits: one version is kept, no
session begins.
"""

from __future__ import annotations

import json
from typing import Any

from calls import client
from ministack.core.responses import AccountRegionScopedDict, error_response_json, json_response
from ministack.services import ssm
from resource_types import Made, Properties, ResourceType, _pick

_documents = ssm._documents = AccountRegionScopedDict()
others = ssm.handle_request


async def _answer(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
    action = headers.get("x-amz-target", "").rpartition(".")[2]
    if not action.endswith("Document"):
        return await others(method, path, headers, body, query)
    asked = json.loads(body)
    name, there = asked["Name"], asked["Name"] in _documents
    if there == (action == "CreateDocument"):
        code = "DocumentAlreadyExists" if there else "InvalidDocument"
        return error_response_json(code, f"{code}: {name}", 400)
    if action == "DeleteDocument":
        del _documents[name]
        return json_response({})
    if action in ("CreateDocument", "UpdateDocument"):
        _documents[name] = {**_documents.get(name, {}), **asked, "Status": "Active", "DocumentFormat": "JSON"}
    if action == "GetDocument":
        return json_response({key: value for key, value in _documents[name].items() if key != "Tags"})
    told = {key: value for key, value in _documents[name].items() if key != "Content"}
    return json_response({"Document" if action == "DescribeDocument" else "DocumentDescription": told})


def _create(logical_id: str, props: Properties, stack: str) -> Made:
    given = _pick(props, "Name", "Content", "DocumentType", "UpdateMethod")
    kind, content = given["DocumentType"], json.dumps(given["Content"])
    client("ssm").create_document(Name=given["Name"], DocumentType=kind, Content=content, Tags=props.get("Tags") or [])
    return given["Name"], {}


def _update(physical_id: str, old: Properties, new: Properties) -> Made:
    client("ssm").update_document(Name=physical_id, Content=json.dumps(new["Content"]))
    return physical_id, {}


def _delete(physical_id: str, props: Properties) -> None:
    client("ssm").delete_document(Name=physical_id)


TYPES = {"AWS::SSM::Document": ResourceType(_create, _delete, _update, replacing=("Name", "DocumentType"))}


def apply() -> None:
    """Let Systems Manager answer for documents."""
    ssm.handle_request = _answer
