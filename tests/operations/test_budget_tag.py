"""`doctor` on the tag that a budget counts by: what it says in each state, and what `--fix` does."""

from __future__ import annotations

from typing import Any

import pytest
from aws_api import AwsApi
from commands import Run

from operations.account_checks import AccountChecks
from operations.deployed_checks import ACTIVATE, DeployedChecks
from stacks.cluster_spec import ClusterSpec

SPEC = ClusterSpec.model_validate({"retain": False, "budget": {"monthly_usd": 10, "emails": ["a@b.de"]}})


def said(spec: ClusterSpec = SPEC, *, fix: bool = False) -> list[tuple[str, str]]:
    checks = dict(DeployedChecks(spec, AccountChecks(spec), fix=fix).ready())
    return list(checks["budget"]())


def tag(status: str) -> dict[str, Any]:
    return {"CostAllocationTags": [{"TagKey": "cluster", "Type": "UserDefined", "Status": status}]}


def test_each_state_says_what_to_do(aws_api: AwsApi) -> None:
    aws_api.answer("ce", "ListCostAllocationTags", {"CostAllocationTags": []})
    [(state, text)] = said()
    assert state == "warning" and "AWS lists tag cluster up to 24 hours after the first deploy" in text
    aws_api.answer("ce", "ListCostAllocationTags", tag("Inactive"))
    [(state, text)] = said()
    assert state == "warning" and text.endswith("`paddle-aws doctor --fix`")
    aws_api.answer("ce", "ListCostAllocationTags", tag("Active"))
    assert said() == [("ok", "the budget counts by tag cluster")]
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == []


def test_fix_activates_the_tag_and_nothing_else(aws_api: AwsApi) -> None:
    aws_api.answer("ce", "ListCostAllocationTags", tag("Inactive"))
    aws_api.answer("ce", "UpdateCostAllocationTagsStatus", {"Errors": []})
    [(state, text)] = said(fix=True)
    assert state == "ok" and "the budget counts within 24 hours" in text
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == [
        {"CostAllocationTagsStatus": [{"TagKey": "cluster", "Status": "Active"}]}
    ]
    error = {"TagKey": "cluster", "Code": "TagKeyNotFound", "Message": "no such tag"}
    aws_api.answer("ce", "UpdateCostAllocationTagsStatus", {"Errors": [error]})
    [(state, text)] = said(fix=True)
    assert state == "problem" and "TagKeyNotFound: no such tag" in text


@pytest.mark.parametrize("code", ["AccessDeniedException", "ValidationException"])
def test_an_account_that_does_not_pay_is_told_who_can(aws_api: AwsApi, code: str) -> None:
    aws_api.refuse("ce", "ListCostAllocationTags", code, "Linked account doesn't have access to cost allocation tags.")
    [(state, text)] = said(fix=True)
    assert state == "warning" and code in text and f"`{ACTIVATE}`" in text


def test_without_a_sum_no_tag_is_asked_for() -> None:
    spec = ClusterSpec.model_validate({"retain": False, "budget": {"emails": ["a@b.de"]}})
    assert "budget" not in dict(DeployedChecks(spec, AccountChecks(spec)).ready())


def test_fix_is_for_a_cluster_that_stays(run: Run) -> None:
    done = run("doctor", "--fix", "--destroy")
    assert done.code == 2 and done.err.startswith("--fix mends a cluster that stays")
