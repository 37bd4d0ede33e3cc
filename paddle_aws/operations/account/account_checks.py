"""Checks an account before a cluster is deployed into it.

Promises: reads only, unless told to fix; each check is independent of the others; whatever an
account does not let us read is reported as unchecked, never assumed. Quota codes are Service
Quotas' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import yaml

from paddle_aws.operations.account.aws import client, every
from paddle_aws.operations.errors import OperationError, translated
from paddle_aws.stacks.cluster_spec import PLATFORM_OUTPUT, TUNNEL_TYPE, ClusterSpec

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
ROOT_DISK, TUNNEL_DISK = 30, 8
"""GiB of the boot disks of a self-managed control plane (beside its volume) and of a tunnel's
machine.
"""
BROKEN = (
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "CREATE_FAILED",
    "DELETE_FAILED",
    "UPDATE_ROLLBACK_FAILED",
)


@dataclass(frozen=True)
class Machines:
    """A group of equal machines that the settings ask for."""

    name: str
    """The group's path in cluster.yaml."""
    types: Sequence[str]
    zones: Sequence[str]
    desired: int
    most: int
    spot: bool
    disk: int
    """GiB of each machine's disk."""


def machines(spec: ClusterSpec) -> Iterator[Machines]:
    """Yields every group of machines that the settings ask for."""
    zones = spec.network.zones
    for name, group in spec.nodes.items():
        sizes = (group.desired, group.max, group.spot, group.volume_gib)
        yield Machines(
            f"nodes.{name}", group.instance_types, group.availability_zones or zones, *sizes
        )
    if spec.cluster.self_managed:
        disk = ROOT_DISK + spec.cluster.volume_gib
        yield Machines(
            "cluster", [spec.cluster.instance_type], [spec.control_plane_zone], 1, 1, False, disk
        )
    if spec.cluster.has_tunnel:
        yield Machines("cluster.tunnel", [TUNNEL_TYPE], zones, 1, 1, False, TUNNEL_DISK)


def outputs_of(stack: Mapping[str, Any]) -> dict[str, str]:
    """Returns the outputs in CloudFormation's description of a stack."""
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def cluster_of(stack: Mapping[str, Any]) -> str | None:
    """Returns the name of the cluster that a stack is a part of; None: of none."""
    outputs = outputs_of(stack)
    if PLATFORM_OUTPUT not in outputs and "AccessPointId" in outputs:
        # Deployed before stacks said so: of these, the storage stack is told by its name.
        return str(stack["StackName"]).removesuffix("-storage")
    return outputs.get(PLATFORM_OUTPUT)


def belongs(stack: Mapping[str, Any], spec: ClusterSpec) -> bool:
    """Returns whether a stack is a part of the cluster, by its output; by its name while it has
    none yet.
    """
    named = outputs_of(stack).get(PLATFORM_OUTPUT)
    return named == spec.name if named else stack["StackName"] in spec.stack_names


class AccountChecks:
    """The checks of one cluster's settings."""

    def __init__(self, spec: ClusterSpec, *, fix: bool = False) -> None:
        """`fix`: delete what a cluster of this name has left in the next deploy's way."""
        self.spec, self._fix = spec, fix
        self.client = cache(partial(client, region=spec.region))
        """Returns a service's client in the cluster's region, made once."""

    def all(self) -> list[Check]:
        """Returns the checks in the order in which they are shown."""
        return [
            ("credentials", self.credentials),
            ("region", self.region),
            ("zones", self.zones),
            ("instance types", self.instance_types),
            ("quotas: vCPUs", self.vcpus),
            ("quotas: network", self.network),
            ("bootstrap", self.bootstrap),
            ("permissions", self.permissions),
            ("stacks", self.stacks),
            *([("support", self.support)] if self.makes_cluster else []),
            *([("log group", self.log_group)] if self._makes_log_group else []),
            *self.existing(),
        ]

    @cached_property
    def identity(self) -> dict[str, str]:
        """Whose credentials these are."""
        found: dict[str, str] = self.client("sts").get_caller_identity()
        return found

    @cached_property
    def deployed_stacks(self) -> list[dict[str, Any]]:
        """The cluster's own stacks that exist."""
        found = every(self.client("cloudformation"), "describe_stacks", "Stacks[]")
        return [stack for stack in found if belongs(stack, self.spec)]

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the deployed stacks."""
        return {
            name: value
            for stack in self.deployed_stacks
            for name, value in outputs_of(stack).items()
        }

    def other_clusters(self) -> set[str]:
        """Returns the names of other settings' clusters in this region."""
        found = every(self.client("cloudformation"), "describe_stacks", "Stacks[]")
        return {name for stack in found if (name := cluster_of(stack))} - {self.spec.name}

    def other_regions(self) -> list[str]:
        """Returns the other regions in which this cluster is deployed, of those that the account
        lets us ask.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session

        session = get_session()
        partition = session.get_partition_for_region(self.spec.region)
        regions = session.get_available_regions("cloudformation", partition)

        def has_stack(region: str) -> bool:
            try:
                stacks = every(client("cloudformation", region), "describe_stacks", "Stacks[]")
                return any(cluster_of(stack) == self.spec.name for stack in stacks)
            except (ClientError, BotoCoreError):
                return False  # The account has not opted in to this region.

        others = sorted(set(regions) - {self.spec.region})
        with ThreadPoolExecutor(8) as pool:
            return [
                region
                for region, has in zip(others, pool.map(has_stack, others), strict=True)
                if has
            ]

    def credentials(self) -> Found:
        try:
            with translated():
                yield "ok", f"account {self.identity['Account']}, as {self.identity['Arn']}"
        except OperationError as error:
            # Not a warning as in other checks: without an account nothing can be deployed.
            yield "problem", str(error)

    def region(self) -> Found:
        """Looks the region up in botocore's own list of each service's endpoints: asks nobody."""
        import botocore
        from botocore.session import get_session

        session, region = get_session(), self.spec.region
        partition = session.get_partition_for_region(region)
        lacking = [
            service
            for service in used_services(self.spec)
            # A global service, such as IAM, is in no region.
            if (regions := session.get_available_regions(service, partition))
            and region not in regions
        ]
        source = f"botocore {botocore.__version__}"
        if lacking:
            yield (
                "problem",
                f"{region} lacks {', '.join(lacking)}, which the cluster uses, as far as {source} "
                "knows: take another region, or a newer boto3 if AWS has it there by now",
            )
        else:
            yield "ok", f"{region} has every service that the cluster uses ({source})"

    def zones(self) -> Found:
        known = {
            zone["ZoneName"]: zone
            for zone in self.client("ec2").describe_availability_zones()["AvailabilityZones"]
        }
        for name in self.spec.network.zones:
            zone = known.get(name)
            if zone is None:
                yield (
                    "problem",
                    f"{name} is not one of this account's zones in {self.spec.region}: "
                    f"{', '.join(sorted(known))}",
                )
            elif zone["State"] != "available":
                yield "problem", f"{name} is {zone['State']}: take another zone"
            elif zone.get("ZoneId") in NO_EKS_ZONES and not self.spec.cluster.self_managed:
                yield (
                    "problem",
                    f"{name} is {zone['ZoneId']}, where EKS takes no cluster: take another zone",
                )
            else:
                yield "ok", f"{name} is available"

    def instance_types(self) -> Found:
        for group in machines(self.spec):
            filters = [{"Name": "instance-type", "Values": list(group.types)}]
            asked: dict[str, Any] = {"LocationType": "availability-zone", "Filters": filters}
            path = "InstanceTypeOfferings[].[InstanceType, Location]"
            offered = list(
                every(self.client("ec2"), "describe_instance_type_offerings", path, **asked)
            )
            for kind in group.types:
                lacking = [zone for zone in group.zones if [kind, zone] not in offered]
                if lacking:
                    yield (
                        "problem",
                        f"{kind} ({group.name}) is not offered in {', '.join(lacking)}: take "
                        "another type or zone",
                    )
                else:
                    yield "ok", f"{kind} ({group.name}) is offered in {', '.join(group.zones)}"

    def vcpus(self) -> Found:
        kinds = sorted({group.types[0] for group in machines(self.spec)})
        types = self.client("ec2").describe_instance_types(InstanceTypes=kinds)["InstanceTypes"]
        size = {one["InstanceType"]: int(one["VCpuInfo"]["DefaultVCpus"]) for one in types}
        wanted: dict[tuple[str, str], list[int]] = {}
        for group in machines(self.spec):
            kind = group.types[0]
            name, *codes = next(
                (row for family, row in VCPU_QUOTAS.items() if re.match(family, kind)), ("",)
            )
            if not codes or kind not in size:
                yield (
                    "warning",
                    f"{kind} ({group.name}) is not checked: look up its quota in Service Quotas",
                )
                continue
            what = f"{name} {'spot' if group.spot else 'on-demand'} instances"
            sums = wanted.setdefault((what, codes[group.spot]), [0, 0])
            sums[0] += size[kind] * group.desired
            sums[1] += size[kind] * group.most
        for (what, code), (start, most) in wanted.items():
            quota = self._quota("ec2", code)
            if quota < start:
                yield (
                    "problem",
                    f"{what}: {start} vCPUs are needed, the quota is {quota:g}: ask for more in "
                    "Service Quotas",
                )
            elif quota < most:
                yield (
                    "warning",
                    f"{what}: {most} vCPUs at the most, the quota is {quota:g}: the groups "
                    "cannot grow so far",
                )
            else:
                yield (
                    "ok",
                    f"{what}: {most} vCPUs at the most, the quota is {quota:g} (other instances "
                    "count too)",
                )

    def network(self) -> Found:
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
            yield "ok", "the network is there already"

    def _room(self, what: str, taken: int, more: int, quota: float) -> tuple[State, str]:
        found = f"{taken} {what} of {quota:g} are taken" + (
            f", {more} more are needed" if more else ""
        )
        full = more and taken + more > quota
        return ("problem", f"{found}: ask for more in Service Quotas") if full else ("ok", found)

    def _quota(self, service: str, code: str) -> float:
        return float(
            self.client("service-quotas").get_service_quota(ServiceCode=service, QuotaCode=code)[
                "Quota"
            ]["Value"]
        )

    def bootstrap(self) -> Found:
        spec, ssm = self.spec, self.client("ssm")
        advice = "run `paddle-aws bootstrap`"
        if spec.bootstrap_qualifier:
            advice = f"ask who keeps it for `cdk bootstrap --qualifier {spec.qualifier}`"
        try:
            version = int(
                ssm.get_parameter(Name=f"/cdk-bootstrap/{spec.qualifier}/version")["Parameter"][
                    "Value"
                ]
            )
        except ssm.exceptions.ParameterNotFound:
            yield (
                "problem",
                f"this account and region are not bootstrapped for qualifier {spec.qualifier}: "
                f"{advice}",
            )
            return
        if version < LEAST_BOOTSTRAP:
            yield (
                "problem",
                f"bootstrap version {version} is too old, {LEAST_BOOTSTRAP} is needed: {advice}",
            )
        else:
            yield "ok", f"bootstrap version {version}"
        if spec.deployment_policies:
            yield self._deployer()

    def _deployer(self) -> tuple[State, str]:
        """Checks whether CloudFormation deploys with the policies of a restricted deployer."""
        role = (
            f"cdk-{self.spec.qualifier}-cfn-exec-role-{self.identity['Account']}-{self.spec.region}"
        )
        has = self.client("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        names = [one["PolicyName"] for one in has]
        if f"{self.spec.policy_prefix}-deploy-1" in names:
            return "ok", f"CloudFormation deploys by {', '.join(names)}"
        found = f"deployer is restricted, and {role} has {', '.join(names) or 'no policy'}"
        return "problem", f"{found}: an administrator runs `paddle-aws bootstrap`"

    def permissions(self) -> Found:
        """Checks what the caller may do with IAM's own simulation, which does not know an
        organization's policies.

        The deployment policy governs what cdk's roles may do in turn (docs/deployment-policy.md).
        """
        iam, arn, refused = self.client("iam"), self.identity["Arn"], False
        if arn.endswith(":root"):
            yield (
                "warning",
                "you are the account's root: everything is allowed; work as a role instead "
                "(docs/people.md)",
            )
            return
        if match := re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d+):assumed-role/([^/]+)/.+", arn):
            arn = iam.get_role(RoleName=match[3])["Role"]["Arn"]
        for need in _needs(self.spec, arn.split(":")[1], self.identity["Account"]):
            if denied := _denied(iam, arn, need):
                refused = True
                state: State = "problem" if need.get("vital") else "warning"
                advice = "take the operator's role, or join its group (docs/people.md)"
                yield (
                    state,
                    f"{arn} may not {', '.join(denied)}, needed to {need['what']}: {advice}",
                )
        if not refused:
            yield "ok", f"{arn} may take cdk's roles and deploy, and reach the cluster afterwards"

    def stacks(self) -> Found:
        if not self.deployed_stacks:
            yield "ok", f"no stack is named {self.spec.name}-*: the names are free"
        for stack in self.deployed_stacks:
            name, status = stack["StackName"], stack["StackStatus"]
            tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())}
            if tags.get("cluster", self.spec.name) != self.spec.name:
                yield (
                    "problem",
                    f"{name} belongs to cluster {tags['cluster']}: take another name in "
                    "cluster.yaml",
                )
            elif status in BROKEN:
                yield (
                    "problem",
                    f"{name} is {status}: see its events, then `cdk destroy {name}` or delete it "
                    "in the console",
                )
            elif status.endswith("_IN_PROGRESS"):
                yield "warning", f"{name} is {status}: wait until that is over"
            else:
                yield "ok", f"{name} is {status}"

    @property
    def makes_cluster(self) -> bool:
        """Whether the settings ask for a new EKS cluster."""
        return not (self.spec.cluster.self_managed or self.spec.cluster.existing)

    @property
    def _makes_log_group(self) -> bool:
        return self.makes_cluster and self.spec.cluster.log_days > 0

    def support(self) -> Found:
        """Asks EKS until when it supports the Kubernetes version of the settings."""
        cluster = self.spec.cluster
        named = f"Kubernetes {cluster.version}"
        versions = self.client("eks").describe_cluster_versions(includeAll=True)["clusterVersions"]
        ends = {
            version["clusterVersion"]: version["endOfStandardSupportDate"]
            for version in versions
            if "endOfStandardSupportDate" in version
        }
        if cluster.version not in ends:
            newest = ", ".join(sorted(ends)[-3:]) or "none"
            yield (
                "problem",
                f"EKS in {self.spec.region} has no {named}; its newest are {newest}: set "
                "cluster.version to one of them",
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
            yield (
                "problem",
                f"standard support of {named} ended on {day}: set a newer cluster.version, or "
                f"cluster.support extended ({EXTENDED_PRICE})",
            )
        elif left < 0:
            yield "warning", f"standard support of {named} ended on {day}: {EXTENDED_PRICE}"
        elif left < SUPPORT_WARNING:
            yield "warning", f"standard support of {named} ends on {day}: {upgrade}"
        else:
            yield "ok", f"standard support of {named} ends on {day}"

    def log_group(self) -> Found:
        """Looks for the control plane's log group, which EKS makes again while a cluster ends
        (terraform-aws-modules/terraform-aws-eks#2763): CloudFormation creates none of a name that
        is taken.
        """
        name, logs = f"/aws/eks/{self.spec.cluster_name}/cluster", self.client("logs")
        groups = every(logs, "describe_log_groups", "logGroups[]", logGroupNamePrefix=name)
        if not any(group["logGroupName"] == name for group in groups):
            yield "ok", f"no log group is named {name}: the name is free"
        elif any(stack["StackName"].endswith("-cluster") for stack in self.deployed_stacks):
            yield "ok", f"{name} is the deployed cluster's"
        elif self.spec.cluster_name in self.client("eks").list_clusters()["clusters"]:
            yield (
                "problem",
                f"EKS has a cluster {self.spec.cluster_name} that none of these stacks made: take "
                "another name in cluster.yaml",
            )
        elif self._fix:
            logs.delete_log_group(logGroupName=name)
            yield "ok", f"{name}, which an ended cluster left, is deleted"
        else:
            yield (
                "problem",
                f"{name} is left of an ended cluster, and the deploy would stop at it: keep what "
                "you need of it, then `paddle-aws doctor --fix` deletes it",
            )

    def existing(self) -> list[Check]:
        """Returns a check for each part in account_checks.yaml that the settings name."""
        checks: list[Check] = []
        for row in _data()["existing"]:
            for group in self.spec.nodes if "*" in row["setting"] else [""]:
                setting = row["setting"].replace("*", group)
                found: Any = self.spec
                for name in setting.split("."):
                    found = (
                        found.get(name) if isinstance(found, dict) else getattr(found, name, None)
                    )
                if found:
                    checks.append(("existing parts", partial(self._existing, setting, found, row)))
        return checks or [
            ("existing parts", lambda: [("ok", "the settings name nothing that has to exist")])
        ]

    def _existing(self, setting: str, id: str, row: dict[str, Any]) -> Found:
        from botocore.exceptions import ClientError
        from jmespath import search

        try:
            given = {row["argument"]: [id] if row["argument"].endswith("s") else id}
            answer = getattr(self.client(row["service"]), row["call"])(**given)
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            if not ABSENT.search(code):
                raise
            yield (
                "problem",
                f"{id} ({setting}) does not exist ({code}): make or import it, or correct "
                f"{setting}",
            )
            return
        state = search(row["state"], answer) if "state" in row else None
        words = f"is {state}" if "state" in row else "exists"
        yield ("ok" if state in row.get("good", [None]) else "problem"), f"{id} ({setting}) {words}"


@cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    )
    return found


def used_services(spec: ClusterSpec) -> list[str]:
    """Returns the AWS services that a cluster uses, by botocore's names."""
    holds = {"always": True, spec.cluster.kind: True, "budget": bool(spec.budget)}
    holds["emptied"] = not (spec.retain or spec.bucket.existing_name)
    holds["protected"] = spec.protect.after_deploy
    rows = _data()["services"].items()
    used = (name for part, names in rows if holds.get(part) for name in names)
    return list(dict.fromkeys(used))


def _needs(spec: ClusterSpec, partition: str, account: str) -> Iterator[dict[str, Any]]:
    """Yields the permissions in account_checks.yaml that a cluster needs: actions, resources, and
    what they are needed for.
    """
    holds = {"always": True, spec.cluster.kind: True}
    holds |= {"tunnel": spec.cluster.has_tunnel, "key": bool(spec.key.existing_arn)}
    known = {
        "partition": partition,
        "account": account,
        "region": spec.region,
        "name": spec.name,
        "qualifier": spec.qualifier,
    }
    known |= {"cluster": spec.cluster_name, "key": spec.key.existing_arn or ""}
    for need in _data()["permissions"]:
        if holds.get(need.get("when", "always")):
            yield need | {"resources": [one.format(**known) for one in need["resources"]]}


def _denied(iam: Any, arn: str, need: dict[str, Any]) -> list[str]:
    """Returns the refused actions, each with the resource on which it is refused."""
    answer = iam.simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=need["actions"], ResourceArns=need["resources"]
    )
    denied = []
    for found in answer["EvaluationResults"]:
        # For several resources an answer may list each one's decision below the action's.
        each = [
            (one["EvalResourceName"], one["EvalResourceDecision"])
            for one in found.get("ResourceSpecificResults", ())
        ]
        for resource, decision in each or [
            (found.get("EvalResourceName", need["resources"][0]), found["EvalDecision"])
        ]:
            if decision != "allowed":
                denied.append(f"{found['EvalActionName']} on {resource}")
    return list(dict.fromkeys(denied))


State = Literal["ok", "warning", "problem"]
Found = Iterator[tuple[State, str]]
"""What a check yields: a state and its description."""


@dataclass(frozen=True)
class Finding:
    """One line of a check."""

    check: str
    state: State
    text: str
    """What was found, and what to do about it."""


Check = tuple[str, Callable[[], Iterable[tuple[State, str]]]]
"""A name, and what yields (state, text)."""


def run(checks: Sequence[Check]) -> list[Finding]:
    """Runs all checks; one that cannot be completed becomes a warning with its reason."""
    found = []
    for name, check in checks:
        try:
            with translated():
                found += [Finding(name, state, text) for state, text in check()]
        except Exception as error:
            # An answer that nobody foresaw must not keep the other findings from the user.
            text = (
                str(error)
                if isinstance(error, OperationError)
                else f"{type(error).__name__}: {error}"
            )
            found.append(Finding(name, "warning", f"not checked: {text}"))
    return found
