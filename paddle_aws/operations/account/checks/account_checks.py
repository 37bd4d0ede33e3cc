"""Checks an account before a cluster is deployed into it.

Promises: the checks only read, unless they are asked to fix. Each check is independent of the
others. If an account does not let us read something, the check reports it as unchecked, and assumes
nothing. Quota codes are Service Quotas' own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from paddle_aws.operations.account.access.entries import admits, is_same_principal
from paddle_aws.operations.account.aws import client, list_all
from paddle_aws.operations.account.check import (
    Check,
    CheckResult,
    CheckResults,
    ok,
    problem,
    warning,
)
from paddle_aws.operations.account.cluster_account import BROKEN, ClusterAccount
from paddle_aws.operations.account.machines import machines
from paddle_aws.stacks.cluster_spec import ClusterSpec

EXTENDED_PRICE = "extended support costs $0.60 an hour instead of $0.10"
"""AWS's announcement of its price, 2024 (AWS Containers Blog, "Amazon EKS extended support for
Kubernetes versions pricing").
"""
SUPPORT_WARNING = 90
"""Days before the end of standard support from which on it is a warning."""
LEAST_BOOTSTRAP = 6
"""The oldest bootstrap version with which cdk can deploy what this app synthesizes."""
NO_EKS_ZONES = ("use1-az3", "usw1-az2", "cac1-az3")
"""Zone ids in which EKS takes no cluster subnet (EKS user guide, network requirements)."""
VCPU_QUOTAS = {
    r"(g|gr|vt)\d": ("G and VT", "L-DB2E81BA", "L-3819A6DF"),
    r"p\d": ("P", "L-417A185B", "L-7212CCBC"),
    r"(?!dl|inf|trn|hpc|mac)[acdhimrtz]": ("standard", "L-1216C47A", "L-34B43A08"),
}
"""vCPU quotas by a pattern for how instance types begin: the family's name, and its on-demand and
spot quota codes.
"""
EIP_QUOTA = "L-0263D0A3"
VPC_QUOTA = "L-F678F1CE"
ABSENT = re.compile(r"NotFound|NoSuch|Malformed|InvalidArn|^404$")
"""AWS's error codes for a name under which nothing exists."""


class AccountChecks(ClusterAccount):
    """The checks of one cluster's settings."""

    def __init__(self, spec: ClusterSpec, *, fix: bool = False) -> None:
        """`fix`: delete what a cluster of this name has left in the next deploy's way."""
        super().__init__(spec)
        self._fix = fix

    def list_checks(self) -> list[Check]:
        """Returns the checks in the order in which they are shown."""
        return [
            ("credentials", self.credentials),
            ("region", self.region),
            ("region enabled", self.enabled),
            ("free plan", self.plan),
            ("zones", self.zones),
            ("instance types", self.instance_types),
            ("quotas: vCPUs", self.vcpus),
            ("quotas: network", self.network),
            ("bootstrap", self.bootstrap),
            ("permissions", self.permissions),
            ("services' roles", self.linked_roles),
            *([("FSx client", self.lustre)] if self.spec.file_system.lustre else []),
            ("stacks", self.stacks),
            *([("support", self.support)] if self.makes_cluster else []),
            *([("log group", self.log_group)] if self._makes_log_group else []),
            *self.list_existing_parts(),
        ]

    def region(self) -> CheckResults:
        """Looks the region up in botocore's own list of each service's endpoints: asks nobody."""
        import botocore
        from botocore.session import get_session

        session, region = get_session(), self.spec.region
        partition = session.get_partition_for_region(region)
        # A global service, such as IAM, is in no region.
        offered = {
            service: session.get_available_regions(service, partition) or [region]
            for service in used_services(self.spec)
        }
        lacking = [service for service, regions in offered.items() if region not in regions]
        source = f"botocore {botocore.__version__}"
        if lacking:
            yield problem(
                f"{region} lacks {', '.join(lacking)}, which the cluster uses, as far as {source} "
                "knows: take another region, or a newer boto3 if AWS has it there by now"
            )
        else:
            yield ok(f"{region} has every service that the cluster uses ({source})")

    def enabled(self) -> CheckResults:
        """Asks whether the account has opted in to the region: without, AWS takes its credentials
        for wrong there.
        """
        region = self.spec.region
        asked = client("ec2", "us-east-1" if self._in_aws else region)
        [found] = asked.describe_regions(RegionNames=[region], AllRegions=True)["Regions"]
        if found.get("OptInStatus") == "not-opted-in":
            yield problem(
                f"the account has not enabled {region}: enable it (Account, AWS Regions; it takes "
                "some minutes), or take another region"
            )
        else:
            yield ok(f"the account may use {region}")

    def plan(self) -> CheckResults:
        """Asks whether the account is on AWS's free plan, as new ones are since July 2025: it
        starts free-tier types alone (aws-samples/eks-workshop-v2#1644).
        """
        if not self._in_aws:
            return
        # An account of before has none.
        state = _find(client("freetier", "us-east-1").get_account_plan_state)
        kinds = sorted({kind for group in machines(self.spec) for kind in group.types})
        if state.get("accountPlanType") != "FREE":
            yield ok("the account is not on AWS's free plan")
            return
        free = {"Name": "free-tier-eligible", "Values": ["true"]}
        found = self.client("ec2").describe_instance_types(InstanceTypes=kinds, Filters=[free])
        eligible = {kind["InstanceType"] for kind in found["InstanceTypes"]}
        if refused := [kind for kind in kinds if kind not in eligible]:
            yield problem(
                f"the account is on AWS's free plan, which starts no {', '.join(refused)}: upgrade "
                "the plan (Billing and Cost Management), else EKS and NAT are paid for without "
                "nodes"
            )
        else:
            yield ok(f"AWS's free plan starts {', '.join(kinds)}")

    @property
    def _in_aws(self) -> bool:
        """Whether the region is of the partition `aws`, not of China or a government's."""
        from botocore.session import get_session

        return bool(get_session().get_partition_for_region(self.spec.region) == "aws")

    def zones(self) -> CheckResults:
        answer = self.client("ec2").describe_availability_zones()
        offered = {zone["ZoneName"]: zone for zone in answer["AvailabilityZones"]}
        for name in self.spec.network.zones:
            zone = offered.get(name)
            if zone is None:
                yield problem(
                    f"{name} is not one of this account's zones in {self.spec.region}: "
                    f"{', '.join(sorted(offered))}"
                )
            elif zone["State"] != "available":
                yield problem(f"{name} is {zone['State']}: take another zone")
            elif zone.get("ZoneId") in NO_EKS_ZONES and not self.spec.cluster.self_managed:
                yield problem(
                    f"{name} is {zone['ZoneId']}, where EKS takes no cluster: take another zone"
                )
            else:
                yield ok(f"{name} is available")

    def instance_types(self) -> CheckResults:
        for group in machines(self.spec):
            filters = [{"Name": "instance-type", "Values": list(group.types)}]
            asked: dict[str, Any] = {"LocationType": "availability-zone", "Filters": filters}
            path = "InstanceTypeOfferings[].[InstanceType, Location]"
            api, call = self.client("ec2"), "describe_instance_type_offerings"
            offered = list(list_all(api, call, path, **asked))
            for kind in group.types:
                lacking = [zone for zone in group.zones if [kind, zone] not in offered]
                if lacking:
                    yield problem(
                        f"{kind} ({group.name}) is not offered in {', '.join(lacking)}: take "
                        "another type or zone"
                    )
                else:
                    yield ok(f"{kind} ({group.name}) is offered in {', '.join(group.zones)}")

    def vcpus(self) -> CheckResults:
        kinds = sorted({group.types[0] for group in machines(self.spec)})
        types = self.client("ec2").describe_instance_types(InstanceTypes=kinds)["InstanceTypes"]
        size = {kind["InstanceType"]: int(kind["VCpuInfo"]["DefaultVCpus"]) for kind in types}
        vcpus_by_quota: dict[tuple[str, str], list[int]] = {}
        for group in machines(self.spec):
            kind = group.types[0]
            rows = [row for family, row in VCPU_QUOTAS.items() if re.match(family, kind)]
            if not rows or kind not in size:
                yield warning(
                    f"{kind} ({group.name}) is not checked: look up its quota in Service Quotas"
                )
                continue
            name, *codes = rows[0]
            what = f"{name} {'spot' if group.spot else 'on-demand'} instances"
            sums = vcpus_by_quota.setdefault((what, codes[group.spot]), [0, 0])
            sums[0] += size[kind] * group.desired
            sums[1] += size[kind] * group.most
        for (what, code), (start, most) in vcpus_by_quota.items():
            quota = self._quota("ec2", code)
            if quota < start:
                yield problem(
                    f"{what}: {start} vCPUs are needed, the quota is {quota:g}: ask for more in "
                    "Service Quotas"
                )
            elif quota < most:
                yield warning(
                    f"{what}: {most} vCPUs at the most, the quota is {quota:g}: the groups "
                    "cannot grow so far"
                )
            else:
                yield ok(
                    f"{what}: {most} vCPUs at the most, the quota is {quota:g} (other instances "
                    "count too)"
                )

    def network(self) -> CheckResults:
        spec, ec2 = self.spec, self.client("ec2")
        vpcs = ec2.describe_vpcs()["Vpcs"]
        mine = any({"Key": "cluster", "Value": spec.name} in vpc.get("Tags", ()) for vpc in vpcs)
        new = spec.network.existing is None
        addresses = spec.network.nat_gateways * new + spec.cluster.elastic_ip
        if new:
            yield self._room("VPCs", len(vpcs), 0 if mine else 1, self._quota("vpc", VPC_QUOTA))
        if addresses:
            taken = len(ec2.describe_addresses()["Addresses"])
            yield self._room(
                "Elastic IPs", taken, 0 if mine else addresses, self._quota("ec2", EIP_QUOTA)
            )
        if not new and not addresses:
            yield ok("the network is there already")

    def _room(self, what: str, taken: int, more: int, quota: float) -> CheckResult:
        needed = f", {more} more are needed" if more else ""
        sentence = f"{taken} {what} of {quota:g} are taken{needed}"
        full = more and taken + more > quota
        return problem(f"{sentence}: ask for more in Service Quotas") if full else ok(sentence)

    def _quota(self, service: str, code: str) -> float:
        api = self.client("service-quotas")
        return float(api.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]["Value"])

    def bootstrap(self) -> CheckResults:
        spec, ssm = self.spec, self.client("ssm")
        advice = "run `paddle-aws bootstrap`"
        if spec.bootstrap_qualifier:
            advice = f"ask who keeps it for `cdk bootstrap --qualifier {spec.qualifier}`"
        name = f"/cdk-bootstrap/{spec.qualifier}/version"
        try:
            version = int(ssm.get_parameter(Name=name)["Parameter"]["Value"])
        except ssm.exceptions.ParameterNotFound:
            yield problem(
                f"this account and region are not bootstrapped for qualifier {spec.qualifier}: "
                f"{advice}"
            )
            return
        if version < LEAST_BOOTSTRAP:
            yield problem(
                f"bootstrap version {version} is too old, {LEAST_BOOTSTRAP} is needed: {advice}"
            )
        else:
            yield ok(f"bootstrap version {version}")
        if spec.deployment_policies:
            yield self._deployer()

    def _deployer(self) -> CheckResult:
        """Checks whether CloudFormation deploys with the policies of a restricted deployer."""
        spec, account = self.spec, self.identity["Account"]
        role = f"cdk-{spec.qualifier}-cfn-exec-role-{account}-{spec.region}"
        has = self.client("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        names = [policy["PolicyName"] for policy in has]
        if f"{self.spec.policy_prefix}-deploy-1" in names:
            return ok(f"CloudFormation deploys by {', '.join(names)}")
        sentence = f"deployer is restricted, and {role} has {', '.join(names) or 'no policy'}"
        return problem(f"{sentence}: an administrator runs `paddle-aws bootstrap`")

    def permissions(self) -> CheckResults:
        """Checks what the caller may do with IAM's own simulation, which does not know an
        organization's policies.

        The deployment policy governs what cdk's roles may do in turn (docs/deployment-policy.md).
        """
        iam, arn, refused = self.client("iam"), self.identity["Arn"], False
        if arn.endswith(":root"):
            yield problem(
                "these credentials are the account's root, which may take no role, neither cdk's "
                "nor the operator's: log in as a user or a role (docs/people.md)"
            )
            return
        partition, account = arn.split(":")[1], self.identity["Account"]
        operator = self._operator_role(f"arn:{partition}:iam::{account}:role")
        knows = is_same_principal(arn, operator) or admits(self.spec, arn)
        if match := re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.+", arn):
            arn = iam.get_role(RoleName=match[3])["Role"]["Arn"]
        for need in _needs(self.spec, partition, account, None if knows else operator):
            if denied := _denied_actions(iam, arn, need):
                refused = True
                severity = problem if need.get("vital") else warning
                advice = "take the operator's role, or join its group (docs/people.md)"
                yield severity(
                    f"{arn} may not {', '.join(denied)}, needed to {need['what']}: {advice}"
                )
        if not refused:
            yield ok(f"{arn} may take cdk's roles and deploy, and reach the cluster afterwards")

    def linked_roles(self) -> CheckResults:
        """Asks for the roles with which services act for the account. AWS makes one at a service's
        first use, if the caller may; without Auto Scaling's or spot's no machine starts
        (hashicorp/terraform-provider-aws#28644, terraform-aws-modules/terraform-aws-eks#2565).
        """
        spec, complete = self.spec, True
        holds = {
            "always": True,
            spec.cluster.kind: True,
            "lustre": spec.file_system.lustre,
            "spot": any(group.spot for group in machines(spec)),
            "efs": not (spec.file_system.lustre or spec.file_system.existing),
        }
        for part, service, name in _data()["linked_roles"]:
            role = f"AWSServiceRoleFor{name}"
            if holds.get(part) and not _find(self.client("iam").get_role, RoleName=role):
                complete = False
                yield warning(
                    f"the account has no {role} yet, which the deploy makes if it may: `aws iam "
                    f"create-service-linked-role --aws-service-name {service}`"
                )
        if complete:
            yield ok("the services have their own roles in the account")

    def lustre(self) -> CheckResults:
        """Compares the nodes' kernel with those for which Amazon Linux has FSx's client."""
        version = self.spec.cluster.version
        if tuple(map(int, version.split("."))) >= (1, 36):
            yield problem(
                f"nodes of Kubernetes {version} run kernel 6.18, for which Amazon Linux has no FSx "
                'client that anybody has seen, so none would join: take cluster.version "1.35" '
                "(kernel 6.12)"
            )
        else:
            yield ok(f"nodes of Kubernetes {version} run a kernel with FSx's client")

    def _operator_role(self, roles: str) -> str:
        """Returns the role of the deployed stacks, or one of its name as none is known: AWS ends
        the name with letters of its own.
        """
        from botocore.exceptions import ClientError

        with contextlib.suppress(ClientError):
            if role := self.outputs.get("OperatorRoleArn"):
                return role
        return f"{roles}/{self.spec.name}-access-PeopleOperatorRoleAbCdEf"

    def stacks(self) -> CheckResults:
        if not self.deployed_stacks:
            yield ok(f"no stack is named {self.spec.name}-*: the names are free")
        for stack in self.deployed_stacks:
            name, status = stack["StackName"], stack["StackStatus"]
            tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
            if tags.get("cluster", self.spec.name) != self.spec.name:
                yield problem(
                    f"{name} belongs to cluster {tags['cluster']}: take another name in "
                    "cluster.yaml"
                )
            elif status in BROKEN:
                yield problem(
                    f"{name} is {status}: see its events, then `cdk destroy {name}` or delete it "
                    "in the console"
                )
            elif status.endswith("_IN_PROGRESS"):
                yield warning(f"{name} is {status}: wait until that is over")
            else:
                yield ok(f"{name} is {status}")

    @property
    def makes_cluster(self) -> bool:
        """Whether the settings ask for a new EKS cluster."""
        return not (self.spec.cluster.self_managed or self.spec.cluster.existing)

    @property
    def _makes_log_group(self) -> bool:
        return self.makes_cluster and self.spec.cluster.log_days > 0

    def support(self) -> CheckResults:
        """Asks EKS until when it supports the Kubernetes version of the settings."""
        cluster = self.spec.cluster
        named = f"Kubernetes {cluster.version}"
        versions = self.client("eks").describe_cluster_versions(includeAll=True)["clusterVersions"]
        date = "endOfStandardSupportDate"
        ends = {version["clusterVersion"]: version[date] for version in versions if date in version}
        if cluster.version not in ends:
            newest = ", ".join(sorted(ends)[-3:]) or "none"
            yield problem(
                f"EKS in {self.spec.region} has no {named}; its newest are {newest}: set "
                "cluster.version to one of them"
            )
            return
        end = ends[cluster.version]
        left, day = (end - datetime.now(UTC)).days, f"{end:%Y-%m-%d}"
        upgrade = f"upgrade before (docs/aws.md), {EXTENDED_PRICE}"
        if cluster.support == "standard":
            upgrade = (
                "EKS upgrades the control plane by itself soon after, and the nodes and add-ons "
                "stay behind: upgrade before (docs/aws.md)"
            )
        if left < 0 and cluster.support == "standard":
            yield problem(
                f"standard support of {named} ended on {day}: set a newer cluster.version, or "
                f"cluster.support extended ({EXTENDED_PRICE})"
            )
        elif left < 0:
            yield warning(f"standard support of {named} ended on {day}: {EXTENDED_PRICE}")
        elif left < SUPPORT_WARNING:
            yield warning(f"standard support of {named} ends on {day}: {upgrade}")
        else:
            yield ok(f"standard support of {named} ends on {day}")

    def log_group(self) -> CheckResults:
        """Looks for the control plane's log group, which EKS makes again while a cluster ends
        (terraform-aws-modules/terraform-aws-eks#2763): CloudFormation creates none of a name that
        is taken.
        """
        name, logs = f"/aws/eks/{self.spec.cluster_name}/cluster", self.client("logs")
        groups = list_all(logs, "describe_log_groups", "logGroups[]", logGroupNamePrefix=name)
        if not any(group["logGroupName"] == name for group in groups):
            yield ok(f"no log group is named {name}: the name is free")
        elif any(
            stack["StackName"].endswith("-cluster")
            # One that could not be created holds nothing.
            and stack["StackStatus"] != "ROLLBACK_COMPLETE"
            for stack in self.deployed_stacks
        ):
            yield ok(f"{name} is the deployed cluster's")
        elif self.spec.cluster_name in self.client("eks").list_clusters()["clusters"]:
            yield problem(
                f"EKS has a cluster {self.spec.cluster_name} that none of these stacks made: take "
                "another name in cluster.yaml"
            )
        elif self._fix:
            logs.delete_log_group(logGroupName=name)
            yield ok(f"{name}, which an ended cluster left, is deleted")
        else:
            yield problem(
                f"{name} is left of an ended cluster, and the deploy would fail because of it: "
                "copy what you need of it, then run `paddle-aws doctor --fix`, which deletes it"
            )

    def list_existing_parts(self) -> list[Check]:
        """Returns a check for each part in account_checks.yaml that the settings name."""
        checks: list[Check] = []
        for row in _data()["existing"]:
            for group in self.spec.nodes if "*" in row["setting"] else [""]:
                setting = row["setting"].replace("*", group)
                part: Any = self.spec
                for name in setting.split("."):
                    part = part.get(name) if isinstance(part, dict) else getattr(part, name, None)
                if part:
                    check = partial(self._check_existing, setting, part, row)
                    checks.append(("existing parts", check))
        nothing = ok("the settings name nothing that has to exist")
        return checks or [("existing parts", lambda: [nothing])]

    def _check_existing(self, setting: str, id: str, row: dict[str, Any]) -> CheckResults:
        from botocore.exceptions import ClientError
        from jmespath import search

        try:
            arguments = {row["argument"]: [id] if row["argument"].endswith("s") else id}
            answer = getattr(self.client(row["service"]), row["call"])(**arguments)
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if not ABSENT.search(code):
                raise
            yield problem(
                f"{id} ({setting}) does not exist ({code}): make or import it, or correct {setting}"
            )
            return
        state = search(row["state"], answer) if "state" in row else None
        words = f"is {state}" if "state" in row else "exists"
        severity = ok if state in row.get("good", [None]) else problem
        yield severity(f"{id} ({setting}) {words}")


def _find(call: Callable[..., Any], **arguments: Any) -> Any:
    """Returns a call's answer; empty if AWS knows no such thing."""
    from botocore.exceptions import ClientError

    try:
        return call(**arguments)
    except ClientError as error:
        if not ABSENT.search(error.response["Error"]["Code"]):
            raise
        return {}


@cache
def _data() -> dict[str, Any]:
    return dict(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")))


def used_services(spec: ClusterSpec) -> list[str]:
    """Returns the AWS services that a cluster uses, by botocore's names."""
    holds = {
        "always": True,
        spec.cluster.kind: True,
        "budget": spec.budget,
        "lustre": spec.file_system.lustre,
        "emptied": not (spec.retain or spec.bucket.existing_name),
        "protected": spec.protect.after_deploy,
    }
    rows = _data()["services"].items()
    return list(dict.fromkeys(name for part, names in rows if holds.get(part) for name in names))


def _needs(
    spec: ClusterSpec, partition: str, account: str, operator: str | None
) -> Iterator[dict[str, Any]]:
    """Yields the permissions in account_checks.yaml that a cluster needs: actions, resources, and
    what they are needed for. `operator`: the role to take; None: the cluster knows the caller.
    """
    holds = {
        "always": True,
        spec.cluster.kind: True,
        "takes role": operator is not None and not spec.cluster.self_managed,
        "tunnel": spec.cluster.has_tunnel,
        "key": spec.key.existing_arn,
    }
    values = {"partition": partition, "account": account, "operator": operator or ""}
    values |= {"region": spec.region, "name": spec.name, "qualifier": spec.qualifier}
    values |= {"cluster": spec.cluster_name, "key": spec.key.existing_arn or ""}
    for need in _data()["permissions"]:
        if holds.get(need.get("when", "always")):
            yield need | {"resources": [name.format(**values) for name in need["resources"]]}


def _denied_actions(iam: Any, arn: str, need: dict[str, Any]) -> list[str]:
    """Returns the refused actions, each with the resource on which it is refused."""
    answer = iam.simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=need["actions"], ResourceArns=need["resources"]
    )
    denied = []
    for result in answer["EvaluationResults"]:
        # For several resources an answer may list each one's decision below the action's.
        decisions = [
            (specific["EvalResourceName"], specific["EvalResourceDecision"])
            for specific in result.get("ResourceSpecificResults", ())
        ]
        whole = result.get("EvalResourceName", need["resources"][0]), result["EvalDecision"]
        for resource, decision in decisions or [whole]:
            if decision != "allowed":
                denied.append(f"{result['EvalActionName']} on {resource}")
    return list(dict.fromkeys(denied))
