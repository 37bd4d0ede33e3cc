"""The stacks as a whole: lifetimes, outputs, tags, and what a person reads at synth."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.cluster_spec import NO_BUDGETS, ClusterSpec
from stacks.part import removal_summary

from .conftest import CFNLINT

LIVES = ["access", "network", "storage", "cluster", "nodes", "watch"]


def test_a_stack_leans_on_longer_lives_and_on_all_whose_values_it_imports(each_variant: Any) -> None:
    """Else a destroy takes them in the wrong order, and CloudFormation refuses."""
    for stack in each_variant.assembly.stacks:
        needed = {dependency.id for dependency in stack.dependencies}
        lives = [LIVES.index(life) for name in needed if (life := name.rpartition("-")[2]) in LIVES]
        assert max(lives, default=-1) < LIVES.index(stack.stack_name.rpartition("-")[2]), stack.stack_name
        assert set(re.findall(r'"Fn::ImportValue": "([^:"]+):', json.dumps(stack.template))) <= needed, stack.stack_name


# Types that CloudFormation gives no tags, or that are no thing of their own.
UNTAGGED = {
    *("AWS::EC2::Route", "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::VPCGatewayAttachment", "AWS::KMS::Alias"),
    *("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress", "AWS::EFS::MountTarget", "AWS::S3::BucketPolicy"),
    *("AWS::IAM::ManagedPolicy", "AWS::IAM::Group", "AWS::IAM::InstanceProfile", "AWS::Route53::RecordSet"),
    *("AWS::SNS::Subscription", "AWS::SNS::TopicPolicy", "AWS::CloudWatch::Dashboard", "AWS::Budgets::Budget"),
    *("AWS::EC2::EIPAssociation", "AWS::EC2::VPCDHCPOptionsAssociation"),
    # A change of its tags would make a new pair under a name that is taken.
    "AWS::EC2::KeyPair",
    *("Custom::EmptyBucket", "AWS::CDK::Metadata", "AWS::CloudFormation::WaitConditionHandle"),
}


def test_everything_carries_the_four_tags(each_variant: Any) -> None:
    wanted = {"project", "cluster", "owner", "KubernetesCluster"}
    for template in each_variant.templates.values():
        for name, resource in template.get("Resources", {}).items():
            # The CDK's own marker in a cluster's stack is a bare resource: no tag reaches it.
            if resource["Type"] in UNTAGGED or "KubectlReadyBarrier" in name:
                continue
            text = json.dumps({k: v for k, v in resource.get("Properties", {}).items() if "Tag" in k})
            found = {tag for tag in wanted if f'"{tag}"' in text}
            # Of a node's groups exactly one, EKS's own, may carry the cluster's tag: load balancers choose by it.
            group = resource["Type"] == "AWS::EC2::SecurityGroup" and not each_variant.spec.cluster.self_managed
            assert found == wanted - ({"KubernetesCluster"} if group else set()), (resource["Type"], name)


@pytest.mark.parametrize(("settings", "line"), yaml.safe_load(Path(__file__).with_name("kept_or_lost.yaml").read_text()))
def test_one_line_says_what_a_destroy_keeps_and_loses(settings: dict[str, Any], line: str) -> None:
    assert removal_summary(ClusterSpec.model_validate(settings)) == f"paddle: retain is {line}"


def test_adding_a_group_touches_nothing_else(built: Any) -> None:
    one = built(nodes={"workers": {}})
    two = built(nodes={"workers": {}, "more": {}})
    for stack in ("access", "network", "storage", "cluster"):
        assert one.templates[stack] == two.templates[stack]
    shared = set(one.templates["nodes"]["Resources"])
    assert shared < set(two.templates["nodes"]["Resources"])
    groups = two.whole("AWS::EKS::Nodegroup")
    for name, group in one.whole("AWS::EKS::Nodegroup").items():
        assert groups[name] == group


@pytest.mark.slow
def test_every_type_exists_in_every_region(types: set[str]) -> None:
    """But for budgets, which are refused there."""
    missing = {}
    for file in (CFNLINT / "schemas" / "providers").glob("*.json"):
        if re.fullmatch(r"(us-gov|af|ap|ca|cn|eu|il|me|mx|sa|us)-[a-z]+-\d", file.stem):
            missing[file.stem] = types - set(json.loads(file.read_text()))
    assert {region for region, types in missing.items() if types == {"AWS::Budgets::Budget"}} == set(NO_BUDGETS)
    assert [types for region, types in missing.items() if region not in NO_BUDGETS and types] == []
    assert len(missing) > len(NO_BUDGETS)
