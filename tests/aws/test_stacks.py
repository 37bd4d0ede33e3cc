"""The stacks as a whole: lifetimes, tags, and what a person reads at synth."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddle_aws.operations.account.checks.account_checks import used_services
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_aws.stacks.part import removal_summary

from .conftest import CFNLINT, built

UNTAGGED = yaml.safe_load(Path(__file__).with_name("untagged.yaml").read_text())
LIVES = ["access", "network", "storage", "cluster", "nodes", "watch"]


def test_a_stack_leans_on_longer_lives_and_on_all_whose_values_it_imports(
    each_variant: Any,
) -> None:
    """Otherwise a destroy takes the stacks in the wrong order, and CloudFormation refuses."""
    for stack in each_variant.assembly.stacks:
        needed = {dependency.id for dependency in stack.dependencies}
        lives = [LIVES.index(life) for name in needed if (life := name.rpartition("-")[2]) in LIVES]
        assert max(lives, default=-1) < LIVES.index(stack.stack_name.rpartition("-")[2]), (
            stack.stack_name
        )
        assert (
            set(re.findall(r'"Fn::ImportValue": "([^:"]+):', json.dumps(stack.template))) <= needed
        ), stack.stack_name


def test_everything_carries_the_four_tags(each_variant: Any) -> None:
    required_tags = {"project", "cluster", "owner", "KubernetesCluster"}
    for template in each_variant.templates.values():
        for name, resource in template.get("Resources", {}).items():
            # The CDK's own marker in a cluster's stack is a bare resource that no tag reaches.
            if resource["Type"] in UNTAGGED or "KubectlReadyBarrier" in name:
                continue
            text = json.dumps(
                {k: v for k, v in resource.get("Properties", {}).items() if "Tag" in k}
            )
            tags = {tag for tag in required_tags if f'"{tag}"' in text}
            # Only one of a node's security groups, EKS's own, may carry the cluster's tag: load
            # balancers choose by it.
            group = (
                resource["Type"] == "AWS::EC2::SecurityGroup"
                and not each_variant.spec.cluster.self_managed
            )
            assert tags == required_tags - ({"KubernetesCluster"} if group else set()), (
                resource["Type"],
                name,
            )


@pytest.mark.parametrize(
    ("settings", "line"), yaml.safe_load(Path(__file__).with_name("kept_or_lost.yaml").read_text())
)
def test_one_line_says_what_a_destroy_keeps_and_loses(settings: dict[str, Any], line: str) -> None:
    kept = removal_summary(ClusterSpec.model_validate(settings)).splitlines()[0]
    assert kept == f"paddle: retain is {line}"


def test_adding_a_group_touches_nothing_else() -> None:
    before = built(nodes={"workers": {}})
    after = built(nodes={"workers": {}, "more": {}})
    for stack in ("access", "network", "storage", "cluster"):
        assert before.templates[stack] == after.templates[stack]
    shared = set(before.templates["nodes"]["Resources"])
    assert shared < set(after.templates["nodes"]["Resources"])
    groups = after.whole("AWS::EKS::Nodegroup")
    for name, group in before.whole("AWS::EKS::Nodegroup").items():
        assert groups[name] == group


def test_doctor_looks_for_each_service_of_the_templates(each_variant: Any) -> None:
    types = {
        resource["Type"]
        for template in each_variant.templates.values()
        for resource in template.get("Resources", {}).values()
    }
    services = {kind.split("::")[1].lower() for kind in types if kind.startswith("AWS::")}
    assert services - {"cdk"} <= set(used_services(each_variant.spec))


SOMEWHERE = {"AWS::Budgets::Budget", "AWS::FSx::FileSystem"}


@pytest.mark.slow
def test_every_type_exists_in_every_region(types: set[str]) -> None:
    """Budgets are an exception, and FSx in New Zealand: `doctor` names it."""
    types_by_region = [
        set(json.loads(file.read_text()))
        for file in (CFNLINT / "schemas" / "providers").glob("*.json")
        if re.fullmatch(r"(us-gov|af|ap|ca|cn|eu|il|me|mx|sa|us)-[a-z]+-\d", file.stem)
    ]
    assert len(types_by_region) > 30 and all(
        types - there <= SOMEWHERE for there in types_by_region
    )
