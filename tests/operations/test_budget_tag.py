"""`doctor` on the tag that a budget counts by: what it says in each state, and what `--fix` does."""

from __future__ import annotations

from typing import Any

import pytest
from aws_api import AwsApi
from commands import Run

from operations.account.account_checks import AccountChecks
from operations.account.deployed_checks import ACTIVATE, DeployedChecks
from operations.errors import Failed
from stacks.cluster_spec import ClusterSpec

SPEC = ClusterSpec.model_validate({"retain": False, "budget": {"monthly_usd": 10, "emails": ["a@b.de"]}})


def said(spec: ClusterSpec = SPEC, *, fix: bool = False) -> list[tuple[str, str]]:
    checks = dict(DeployedChecks(spec, AccountChecks(spec), fix=fix).ready())
    return list(checks["budget"]())


def tag(status: str) -> dict[str, Any]:
    return {"CostAllocationTags": [{"TagKey": "cluster", "Type": "UserDefined", "Status": status}]}


@pytest.mark.parametrize(
    ("tags", "state", "words"),
    [
        ({"CostAllocationTags": []}, "warning", "AWS lists tag cluster up to 24 hours after the first deploy"),
        (tag("Inactive"), "warning", "`paddle-aws doctor --fix` does it"),
        (tag("Active"), "ok", "the budget counts by tag cluster"),
    ],
)
def test_each_state_says_what_to_do(aws_api: AwsApi, tags: dict[str, Any], state: str, words: str) -> None:
    aws_api.answer("ce", "ListCostAllocationTags", tags)
    [(found, text)] = said()
    assert found == state and words in text
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == []


def test_fix_activates_the_tag_and_nothing_else(aws_api: AwsApi) -> None:
    aws_api.answer("ce", "ListCostAllocationTags", tag("Inactive"))
    aws_api.answer("ce", "UpdateCostAllocationTagsStatus", {"Errors": []})
    [(state, text)] = said(fix=True)
    assert state == "ok" and "the budget counts from now on" in text
    assert aws_api.asked("UpdateCostAllocationTagsStatus") == [
        {"CostAllocationTagsStatus": [{"TagKey": "cluster", "Status": "Active"}]}
    ]
    error = {"TagKey": "cluster", "Code": "TagKeyNotFound", "Message": "no such tag"}
    aws_api.answer("ce", "UpdateCostAllocationTagsStatus", {"Errors": [error]})
    with pytest.raises(Failed, match="so the budget counts nothing: no such tag"):
        said(fix=True)


@pytest.mark.parametrize("code", ["AccessDeniedException", "ValidationException"])
def test_an_account_that_does_not_pay_is_told_who_can(aws_api: AwsApi, code: str) -> None:
    aws_api.refuse("ce", "ListCostAllocationTags", code, "Linked account doesn't have access to cost allocation tags.")
    [(state, text)] = said(fix=True)
    assert state == "warning" and code in text and f"`{ACTIVATE}`" in text


def test_without_a_sum_no_tag_is_asked_for() -> None:
    spec = ClusterSpec.model_validate({"retain": False, "budget": {"emails": ["a@b.de"]}})
    assert "budget" not in dict(DeployedChecks(spec, AccountChecks(spec)).ready())


def test_fix_without_a_budget_is_refused(run: Run) -> None:
    done = run("doctor", "--fix")
    assert done.code == 2 and done.err.startswith("--fix activates the tag that budget.monthly_usd counts by")
