"""Each reason for which a finding is acknowledged is a fact in the template of every variant that gives it.

A reason that is not listed here fails: whoever writes one says what makes it true.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import CfnResource, Stack
from constructs import IConstruct

import stacks.k3s_cluster
import stacks.k3s_nodes
import stacks.watch  # noqa: F401
from constructs_lib import acknowledged
from constructs_lib.ec2 import machine
from stacks.cluster_spec import ClusterSpec

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
FILES = {"shipped": PROJECT / "cluster.yaml", **{file.stem: file for file in Path(__file__).parent.glob("variants/*.yaml")}}
ACTIONS = PROJECT / "node_modules" / "@cloud-copilot" / "iam-data" / "data" / "actions"
"""AWS's Service Authorization Reference, as the simulator of the tests carries it."""


@dataclass(frozen=True)
class Use:
    """One reason, given for one construct of one variant."""

    built: Any
    scope: IConstruct
    findings: tuple[str, ...]

    @property
    def template(self) -> dict[str, Any]:
        return self.built.templates[Stack.of(self.scope).stack_name.removeprefix(f"{self.built.spec.name}-")]

    @property
    def ids(self) -> list[str]:
        stack = Stack.of(self.scope)
        return [str(stack.resolve(one.logical_id)) for one in self.scope.node.find_all() if isinstance(one, CfnResource)]

    def own(self, kind: str) -> list[dict[str, Any]]:
        """Properties of the resources of one type that the reason is about."""
        found = {name: self.template["Resources"][name] for name in self.ids}
        return [one.get("Properties", {}) for one in found.values() if one["Type"] == kind]

    def beside(self, kind: str) -> list[dict[str, Any]]:
        """Properties of all resources of one type in the same stack."""
        return [one.get("Properties", {}) for one in self.template["Resources"].values() if one["Type"] == kind]

    @property
    def statements(self) -> list[dict[str, Any]]:
        """Those whose resources the findings name."""
        named = {match[1] for finding in self.findings if (match := re.match(r".*\[Resource::(.*)\]$", finding))}
        policies = self.own("AWS::IAM::ManagedPolicy")
        every = [one for policy in policies for one in policy["PolicyDocument"]["Statement"]]
        found = [one for one in every if named & {acknowledged._spelled(each) for each in listed(one["Resource"])}]
        assert found, f"no statement is on {named}"
        return found

    @property
    def actions(self) -> set[str]:
        return {action for one in self.statements for action in listed(one["Action"])}

    def only(self, *actions: str) -> bool:
        return self.actions == set(actions)

    def on(self, text: str) -> bool:
        """Whether each statement is on something that ends so."""
        return all(any(acknowledged._spelled(each).endswith(text) for each in listed(one["Resource"])) for one in self.statements)


def said(use: Use, sid: str) -> list[dict[str, Any]]:
    """The statements of that Sid."""
    policies = use.own("AWS::IAM::ManagedPolicy")
    found = [one for policy in policies for one in policy["PolicyDocument"]["Statement"] if one["Sid"] == sid]
    assert found, f"no statement is {sid}"
    return found


def doing(use: Use, sid: str) -> set[str]:
    return {action for one in said(use, sid) for action in listed(one["Action"])}


def reads(actions: set[str]) -> bool:
    return all(told(action)["accessLevel"] in ("List", "Read") for action in actions)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def told(action: str) -> dict[str, Any]:
    """What AWS says of an action."""
    service, name = action.lower().split(":")
    found: dict[str, Any] = json.loads((ACTIONS / f"{service}.json").read_text())[name]
    return found


def takes_no_resource(actions: set[str]) -> bool:
    return all(not told(action)["resourceTypes"] for action in actions)


def only_describes(actions: set[str]) -> bool:
    return all(":Describe" in action and told(action)["accessLevel"] in ("List", "Read") for action in actions)


SESSIONS = {
    "ssm:UpdateInstanceInformation",
    *(f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")),
}


def managed(use: Use) -> set[str]:
    arns = [arn for role in use.own("AWS::IAM::Role") for arn in role["ManagedPolicyArns"]]
    return {acknowledged._spelled(arn).rpartition("/")[2] for arn in arns}


def star_is_auto_scalings(use: Use) -> bool:
    [key] = use.own("AWS::KMS::Key")
    stars = [one for one in key["KeyPolicy"]["Statement"] if one["Principal"] in ("*", {"AWS": "*"})]
    return bool(stars) and all({"kms:CallerAccount", "aws:PrincipalArn"} <= conditions(one) for one in stars)


def conditions(statement: dict[str, Any]) -> set[str]:
    return {key for each in statement["Condition"].values() for key in each}


def named_zones(use: Use) -> bool:
    kinds = ("AWS::EC2::Subnet", "AWS::EC2::Volume", "AWS::AutoScaling::AutoScalingGroup")
    found = [one for kind in kinds for one in use.own(kind)]
    zones = [zone for one in found for zone in listed(one.get("AvailabilityZone") or one["AvailabilityZones"])]
    return bool(zones) and set(zones) <= set(use.built.spec.network.zones)


def nodes_are_private(use: Use) -> bool:
    groups = [*use.built.resources("AWS::EKS::Nodegroup"), *use.built.resources("AWS::AutoScaling::AutoScalingGroup")]
    where = json.dumps([[group.get("Subnets"), group.get("VPCZoneIdentifier")] for group in groups]).lower()
    return "privatesubnet" in where and "publicsubnet" not in where


def takes_logs(use: Use) -> bool:
    [place] = [
        one["LoggingConfiguration"]["DestinationBucketName"]
        for one in use.beside("AWS::S3::Bucket")
        if "LoggingConfiguration" in one
    ]
    return place == {"Ref": use.ids[0]}


def cloudformation_alone_calls_it(use: Use) -> bool:
    callers = ("AWS::Lambda::Permission", "AWS::Lambda::EventSourceMapping", "AWS::Lambda::Url", "AWS::Events::Rule")
    tokens = {json.dumps(one["ServiceToken"]) for one in use.beside("Custom::EmptyBucket")}
    return not any(use.built.resources(kind) for kind in callers) and tokens == {json.dumps({"Fn::GetAtt": [use.ids[0], "Arn"]})}


def settled_in_the_launch_template(use: Use) -> bool:
    [group] = use.own("AWS::AutoScaling::AutoScalingGroup")
    given = group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateId"]["Ref"]
    data = use.template["Resources"][given]["Properties"]["LaunchTemplateData"]
    sealed = all(disk["Ebs"]["Encrypted"] for disk in data["BlockDeviceMappings"])
    return sealed and data["MetadataOptions"]["HttpTokens"] == "required"


def from_itself(use: Use) -> bool:
    rules = use.own("AWS::EC2::SecurityGroupIngress")
    return bool(rules) and all(one["GroupId"] == one["SourceSecurityGroupId"] for one in rules)


def written(use: Use) -> bool:
    """Whether the control plane may write the secret."""
    policies = [one for policy in use.beside("AWS::IAM::ManagedPolicy") for one in policy["PolicyDocument"]["Statement"]]
    writable = [json.dumps(one["Resource"]) for one in policies if "secretsmanager:PutSecretValue" in listed(one["Action"])]
    return any(f'"{use.ids[0]}"' in each for each in writable)


def generated(use: Use) -> bool:
    return "GenerateSecretString" in use.own("AWS::SecretsManager::Secret")[0]


def saved_on_a_schedule(use: Use) -> bool:
    return re.search(r"etcd-snapshot-schedule-cron\W+[0-9*]", json.dumps(use.beside("AWS::EC2::LaunchTemplate"))) is not None


def backups(state: str) -> Callable[[Use], bool]:
    return lambda use: [one["BackupPolicy"]["Status"] for one in use.own("AWS::EFS::FileSystem")] == [state]


def bootstraps_roles(use: Use) -> bool:
    documented = (PROJECT / "docs" / "deployment-policy.md").exists()
    return (
        use.only("sts:AssumeRole")
        and documented
        and all(f"role/cdk-{use.built.spec.qualifier}-" in finding for finding in use.findings)
    )


FACTS: dict[str, Callable[[Use], bool]] = {
    "the star in NodeVolumes is limited to this account's own role of Auto Scaling, by kms:CallerAccount and aws:PrincipalArn": (
        star_is_auto_scalings
    ),
    "sessions that one has begun oneself": lambda use: all("session/<aws:user" in each for each in use.findings),
    "the stacks of this one cluster, by its name": lambda use: all(
        f":stack/{use.built.spec.name}-" in finding and finding.endswith("/*]") for finding in use.findings
    ),
    "CDK's bootstrap roles; behind them CloudFormation is an administrator unless bootstrapped with our policy": bootstraps_roles,
    "machines that carry this cluster's tag, by condition": (
        lambda use: all("ssm:resourceTag/cluster" in conditions(one) for one in said(use, "ShellMachines"))
    ),
    "the tunnel's machine, by its tag": (
        lambda use: all("ssm:resourceTag/paddle-aws/tunnel" in conditions(one) for one in said(use, "TunnelMachine"))
    ),
    "one machine, replaced when it fails: who opens a tunnel sees whether it runs": (
        lambda use: all(group["MinSize"] == group["MaxSize"] == "1" for group in use.own("AWS::AutoScaling::AutoScalingGroup"))
    ),
    "EC2's Describe takes no resource": lambda use: takes_no_resource(doing(use, "FindTunnel")),
    "ECR's login takes no resource": lambda use: takes_no_resource(doing(use, "ImageLogin")),
    "a tag of the bill has no resource": lambda use: takes_no_resource(doing(use, "BudgetTag")),
    "doctor and leftovers ask what there is, and lock reads AWS's public lists: no data": lambda use: reads(doing(use, "Look")),
    "what carries this cluster's name, and AWS's and the CDK's own parameters": lambda use: reads(doing(use, "LookAtOurs")),
    "closing the default group needs a custom resource (CloudFormation cannot edit it); nothing of ours carries it": (
        lambda use: "DefaultSecurityGroup" not in json.dumps(use.built.templates)
    ),
    "this is what makes a subnet public; nodes lie in the private ones": nodes_are_private,
    "the caller names the zones on purpose: no look-up at synth": named_zones,
    "a volume is in one zone, which the caller names: no look-up at synth": named_zones,
    "the zone of its volume and its interface, which the caller names": named_zones,
    "automatic_backups is off: the caller wants no backups of what it holds": backups("DISABLED"),
    "automatic_backups is on: AWS Backup's own plan takes it; the rule looks for a plan of one's own": backups("ENABLED"),
    "versions bring back what was deleted; a copy in another region would double the cost": (
        lambda use: use.own("AWS::S3::Bucket")[0]["VersioningConfiguration"] == {"Status": "Enabled"}
    ),
    "log delivery would need a key opened to a service: SSE-S3 seals access logs": (
        lambda use: "AES256" in json.dumps(use.own("AWS::S3::Bucket")[0]["BucketEncryption"]) and takes_logs(use)
    ),
    "it is where accesses are logged: a log of its own accesses would feed itself": takes_logs,
    "CloudFormation alone calls it, waits for its answer and says why it failed: it needs no reserved concurrency, no "
    "dead-letter queue and no VPC": cloudformation_alone_calls_it,
    "it is there to delete every object of this bucket": lambda use: "s3:DeleteObject" in use.actions,
    "what EKS's documents ask for; AWS keeps it in step with the control plane": (
        lambda use: managed(use) == {"AmazonEKSClusterPolicy"}
    ),
    "what EKS's documents ask for; AWS keeps them in step with the daemons": lambda use: (
        managed(use) == set(machine.NODE_POLICIES)
    ),
    "AWS's own list of what a pull from ECR calls": lambda use: managed(use) == {machine.PULL_ONLY},
    "what the add-on's documents ask for; AWS keeps it in step with the agent": (
        lambda use: managed(use) == {"CloudWatchAgentServerPolicy"}
    ),
    "training data may lie anywhere in this one bucket": lambda use: use.only("s3:GetObject"),
    "all objects of this one bucket": lambda use: use.only("s3:GetObject"),
    "all groups of logs of this one cluster": lambda use: all(use.built.spec.cluster_name in each for each in use.findings),
    "answers of log queries are not resources of their own": (
        lambda use: doing(use, "LogAnswers") == {"logs:GetQueryResults", "logs:StopQuery"}
    ),
    "all that is uploaded below sources/": lambda use: use.on("/sources/*"),
    "training data, which the data job splits": lambda use: use.only("s3:GetObject") and use.on("/sources/*"),
    "a command for a person names a role of another stack": (
        lambda use: "Fn::ImportValue" in json.dumps(use.template["Outputs"]["KubeconfigCommand"])
    ),
    machine.SESSIONS: lambda use: use.actions == SESSIONS,
    f"EC2's Describe takes no resource; {machine.SESSIONS}": (
        lambda use: (
            use.actions >= SESSIONS and takes_no_resource(use.actions - SESSIONS) and only_describes(use.actions - SESSIONS)
        )
    ),
    f"the Describe of EFS reads names and no data; {machine.SESSIONS}": (
        lambda use: use.actions >= SESSIONS and only_describes(use.actions - SESSIONS)
    ),
    "file systems are found by Describe, which reads names and no data": lambda use: only_describes(use.actions),
    "disks and IMDSv2 are settled in the launch template, which the rules do not follow into a mixed-instances policy": (
        settled_in_the_launch_template
    ),
    machine.SCALING_ACTIVITIES: lambda use: len(use.own("AWS::AutoScaling::AutoScalingGroup")) == 1,
    "the source is the group itself": from_itself,
    "k3s opens its state, or lets nodes join, by the one it started with: one that a rotation writes locks them out": (
        lambda use: generated(use) and not written(use)
    ),
    "the control plane writes it at each start and once a month: what a rotation wrote would open nothing": (
        lambda use: written(use) and not generated(use)
    ),
    "a machine with this cluster's own tag, by condition": (
        lambda use: all("aws:ResourceTag/paddle-aws/control-plane" in conditions(one) for one in use.statements)
    ),
    "the snapshots are the only objects below it": lambda use: use.on("/cluster/snapshots/*"),
    "the control plane saves its state to the bucket on a schedule, and a restore begins with that": saved_on_a_schedule,
}


@pytest.fixture(scope="module")
def uses(shipped: Any) -> Iterator[list[tuple[str, str, Use]]]:
    """(variant, reason, use) of every variant."""
    made: list[tuple[IConstruct, str, tuple[str, ...]]] = []
    real = acknowledged.acknowledge

    def noted(scope: IConstruct, reason: str, *findings: str) -> None:
        made.append((scope, reason, findings))
        real(scope, reason, *findings)

    found: list[tuple[str, str, Use]] = []
    with pytest.MonkeyPatch.context() as patch:
        for module in list(sys.modules.values()):
            if getattr(module, "acknowledge", None) is real:
                patch.setattr(module, "acknowledge", noted)
        for name, file in FILES.items():
            made.clear()
            built = type(shipped)(ClusterSpec.load(file))
            found += [(name, reason, Use(built, scope, findings)) for scope, reason, findings in made]
    yield found


def test_every_reason_is_a_fact_in_every_variant(uses: list[tuple[str, str, Use]]) -> None:
    assert {reason for _, reason, _ in uses} == set(FACTS), "say here what makes it true"
    untrue = [(name, use.scope.node.path, reason) for name, reason, use in uses if not FACTS[reason](use)]
    assert untrue == [], "\n".join(map(str, untrue))
