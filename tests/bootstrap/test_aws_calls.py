"""Each call of the AWS CLI in the scripts exists as AWS's own models have it: its options, and the fields of its --query.

The AWS CLI derives its commands from the same models; `aws s3` is the CLI's own and is not among them.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from machine import SCRIPTS

pytestmark = pytest.mark.slow

COMMON = {"region", "output", "query"}


def calls() -> list[tuple[str, str, str, str]]:
    """Script, service, operation, and the rest of the line."""
    found = []
    for path in (*SCRIPTS.glob("*.sh"), SCRIPTS / "ecr-credentials"):
        text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        # Python's list of words reads like a line, too.
        text = re.sub(r'", "|\["', " ", text)
        found += [
            (path.name, *call) for call in re.findall(r"\baws (ec2|secretsmanager|cloudformation|s3api|ecr) ([a-z-]+)(.*)", text)
        ]
    return found


def like(shape: Any, depth: int = 0) -> Any:
    """An answer of this shape, with one of everything."""
    if shape.type_name == "structure":
        return {name: like(member, depth + 1) for name, member in shape.members.items()} if depth < 8 else {}
    if shape.type_name == "list":
        return [like(shape.member, depth + 1)]
    return "something"


def test_there_are_calls() -> None:
    assert {call[2] for call in calls()} == {
        "attach-volume",
        "describe-instances",
        "describe-volumes",
        "get-login-password",
        "get-secret-value",
        "head-object",
        "put-secret-value",
        "signal-resource",
    }


def test_each_call_is_one_that_aws_knows() -> None:
    import jmespath
    from botocore import xform_name
    from botocore.session import get_session

    models: dict[str, Any] = {}
    for script, service, operation, rest in calls():
        if operation == "get-login-password":  # The CLI's own; it is get-authorization-token, decoded.
            assert set(re.findall(r"--([a-z-]+)", rest)) <= COMMON
            continue
        # `s3api` is how the CLI calls the service itself, `s3` being commands of its own.
        model = models.setdefault(service, get_session().get_service_model(service.removesuffix("api")))
        known = {xform_name(name, "-"): name for name in model.operation_names}
        described = model.operation_model(known[operation])
        options = {xform_name(name, "-") for name in described.input_shape.members}
        given = set(re.findall(r" --([a-z-]+)", rest.split("|")[0]))
        assert given <= options | COMMON, f"{script}: {operation} has no {given - options - COMMON}"
        assert {xform_name(name, "-") for name in described.input_shape.required_members} <= given, f"{script}: {operation}"
        query = re.search(r"--query (?:'([^']+)'|(\S+))", rest)
        if query:
            answer = jmespath.search(query[1] or query[2], like(described.output_shape))
            assert answer and None not in (answer if isinstance(answer, list) else [answer]), f"{script}: {query[0]}"
