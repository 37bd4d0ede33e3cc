"""Checks whether a deployed cluster is ready for jobs, and what would block its destruction.

Reads only, unless told to fix. CloudFormation cannot delete a network that an object of Kubernetes
or a resource of a person still uses.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from constructs_lib.storage.stack_policy import KEPT
from k8s_charts.deployed import ClusterOutputs
from paddle_aws.operations.account import setup_documents
from paddle_aws.operations.account.access import tunnel
from paddle_aws.operations.account.aws import list_all
from paddle_aws.operations.account.check import (
    Check,
    CheckResult,
    CheckResults,
    ok,
    problem,
    warning,
)
from paddle_aws.operations.account.checks.version_checks import VersionChecks, refused_step
from paddle_aws.operations.account.cluster_account import ClusterAccount
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import BadInput, Failed
from paddle_aws.operations.options import IMAGE_FILE
from paddle_aws.stacks.cluster_spec import ClusterSpec

ACTIVATE = (
    "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status "
    "TagKey=cluster,Status=Active"
)
TAG: dict[str, CheckResult] = {
    "Active": ok("the budget counts by tag cluster"),
    "activated": ok(
        "tag cluster is activated for cost allocation: the budget counts from now on, in up to "
        "24 hours"
    ),
    "Inactive": warning(
        "the budget counts nothing: tag cluster is not activated, `paddle-aws doctor --fix` does it"
    ),
    "": warning(
        "the budget counts nothing: AWS lists tag cluster up to 24 hours after the first deploy, "
        "ask again then"
    ),
}
"""Findings by the status of the tag that a budget counts by; the status is empty if AWS does not
know the tag.
"""
GPU_LABEL = "paddle-aws/gpu"
"""The label of the nodes of a group with `gpu`."""
DRIVER, DRIVERS = "nvidia.com/cuda.driver-version.major", {11: 450, 12: 525, 13: 580}
"""GPU feature discovery's node label, and the oldest driver for each CUDA version, from NVIDIA's
compatibility page.
"""


class DeployedChecks:
    """The checks of one deployed cluster."""

    def __init__(self, spec: ClusterSpec, account: ClusterAccount, *, fix: bool = False) -> None:
        """`fix`: activate the tag that the budget counts by."""
        self.spec, self._account, self._client, self._fix = spec, account, account.client, fix
        self._ours = [{"Name": "tag:cluster", "Values": [spec.name]}]

    def list_readiness(self) -> list[Check]:
        """Returns the checks of whether jobs can run."""
        spec, nodes = self.spec, self.spec.nodes.values()
        if spec.cluster.self_managed:
            checks: list[Check] = [("version", self.version)]
        else:
            asked = VersionChecks(spec, self._client)
            checks = [
                ("cluster", lambda: [_health(asked.cluster["name"], asked.cluster)]),
                ("add-ons", lambda: [_health(*part) for part in asked.addons.items()]),
                ("node groups", lambda: [_health(*part) for part in asked.node_groups.items()]),
                *asked.list_checks(),
            ]
        if spec.cluster.self_managed or any(group.kind == "self-managed" for group in nodes):
            checks.append(("groups", self.groups))
        checks += [("mount targets", self.mount_targets), ("kubectl", self.kubernetes)]
        checks += [("setup", self.setup), ("stack policy", self.stack_policies)]
        if any(group.gpu for group in nodes):
            checks.append(("GPU driver", self.driver))
        if spec.budget and spec.budget.monthly_usd:
            checks.append(("budget", self.budget))
        if spec.cluster.has_tunnel:
            checks.append(("tunnel", self.tunnel))
        return checks

    def destroy(self) -> list[Check]:
        """Returns the checks of what would block `cdk destroy`."""
        if self.deployed is False:
            nothing = f"no stack of cluster {self.spec.name} is deployed: nothing to destroy"
            return [("stacks", lambda: [ok(nothing)])]
        rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        looks: list[tuple[str, Callable[[], Iterator[str]], str]] = [
            ("protection", self.protection, "no stack is protected from deletion"),
            ("members", self.members, "nobody is in the stacks' groups"),
            *((row["name"], partial(self.list_in_vpc, row), row["none"]) for row in rows),
            ("mount targets", self.foreign_mount_targets, "no other file system uses the VPC"),
        ]
        problems = [(name, partial(_obstacles, look, none)) for name, look, none in looks]
        return [("credentials", self._account.credentials), *problems]

    @property
    def deployed(self) -> bool | None:
        """Whether any stack of the cluster exists; None if AWS cannot be asked."""
        try:
            return bool(self._account.deployed_stacks)
        except Exception:
            return None

    def _output(self, key: str) -> str:
        if key not in self._account.outputs:
            raise BadInput(f"the deployed stacks have no output {key}: deploy all of them")
        return self._account.outputs[key]

    # Ready.

    def mount_targets(self) -> CheckResults:
        system = self._output("FileSystemId")
        if "FileSystemMountName" in self._account.outputs:
            described = self._client("fsx").describe_file_systems(FileSystemIds=[system])
            state = described["FileSystems"][0]["Lifecycle"]
            # FSx serves the file system while it grows or is backed up.
            served = state in ("AVAILABLE", "UPDATING")
            text = f"FSx for Lustre {system} is {state.lower()}"
            yield ok(text) if served else problem(f"{text}: pods cannot mount it")
            return
        if "AccessPointId" not in self._account.outputs:
            yield ok(f"{system} is not EFS: it has no mount targets to look at")
            return
        targets = self._client("efs").describe_mount_targets(FileSystemId=system)["MountTargets"]
        states = {target["AvailabilityZoneName"]: target["LifeCycleState"] for target in targets}
        zones = {
            zone
            for group in self.spec.nodes.values()
            for zone in (group.availability_zones or self.spec.network.zones)
        }
        for zone in sorted(zones):
            state = states.get(zone, "missing")
            text = f"the mount target of {system} in {zone} is {state}"
            yield (
                ok(text) if state == "available" else problem(f"{text}: pods there cannot mount it")
            )

    def tunnel(self) -> CheckResults:
        name = self.spec.tunnel_document
        document = self._client("ssm").describe_document(Name=name)["Document"]["Status"]
        running = tunnel.machines(self._client("ec2"), name)
        who = running[0] if running else "no machine"
        says = f"document {name} is {document}, {who} runs"
        yield (ok if running and document == "Active" else problem)(says)

    def stack_policies(self) -> CheckResults:
        api = self._client("cloudformation")
        names = [stack["StackName"] for stack in self._account.deployed_stacks]
        policies = {name: api.get_stack_policy(StackName=name) for name in names}
        bodies = {name: policy.get("StackPolicyBody") for name, policy in policies.items()}
        if unprotected := [name for name in names if json.loads(bodies[name] or "{}") != KEPT]:
            yield warning(
                f"a deploy may replace or remove data of {', '.join(unprotected)}: `paddle-aws "
                "protect` refuses that"
            )
        else:
            yield ok("no deploy may replace or remove what holds data")

    def budget(self) -> CheckResults:
        from botocore.exceptions import ClientError

        api, key = self._client("ce"), "cluster"
        try:
            answer = api.list_cost_allocation_tags(TagKeys=[key], Type="UserDefined")
            tags = {tag["TagKey"]: tag["Status"] for tag in answer["CostAllocationTags"]}
            status = tags.get(key, "")
            if status == "Inactive" and self._fix:
                status, active = "activated", [{"TagKey": key, "Status": "Active"}]
                done = api.update_cost_allocation_tags_status(CostAllocationTagsStatus=active)
                for refused in done.get("Errors", ()):
                    raise Failed(
                        f"AWS did not activate tag {key}, so the budget counts nothing: "
                        f"{refused['Message']}"
                    )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code not in ("AccessDeniedException", "ValidationException"):
                raise
            yield warning(
                f"this account may not ask whether the budget counts ({code}): an administrator "
                f"of the paying account can ask, and run `{ACTIVATE}`"
            )
            return
        yield TAG[status]

    def kubernetes(self) -> CheckResults:
        cluster = ClusterApi()
        version = cluster.get("/version")
        endpoint = self._account.outputs.get("ClusterEndpoint", cluster.server)
        if endpoint.rstrip("/") != cluster.server.rstrip("/"):
            yield warning(
                f"the current context is {cluster.server}, not this cluster: `paddle-aws "
                "kubeconfig` changes that"
            )
        yield ok(f"{cluster.server} answers, version {version.get('gitVersion', '?')}")

    def setup(self) -> CheckResults:
        cluster, mode = ClusterApi(), self._account.outputs.get("AutoMode", "")
        outputs = ClusterOutputs.placeholder().model_copy(update={"auto_mode": mode})
        manifests = setup_documents.documents(self.spec, outputs)
        missing = [
            f"{manifest['kind']} {manifest['metadata']['name']}"
            for manifest in manifests
            if cluster.find(cluster.path(manifest)) is None
        ]
        if missing:
            # An administrator's jobs do not need the deployers' rights.
            needed = any(manifest.startswith(("DaemonSet", "Node")) for manifest in missing)
            severity = problem if needed else warning
            yield severity(f"the cluster lacks {', '.join(missing)}: `paddle-aws setup` applies it")
        else:
            yield ok("all that `paddle-aws setup` applies is there")

    def driver(self) -> CheckResults:
        """Compares the current nodes' drivers with the CUDA of the image that was pushed last."""
        # Imported here: cdk8s starts Node, and `paddle-aws --help` need not wait for that.
        from k8s_charts import deployed as chosen
        from k8s_charts.pods.scheduling import GPU

        cuda, later = chosen.read_cuda(IMAGE_FILE), "each pod checks it before its attempt"
        nodes = [
            node
            for node in ClusterApi().items("/api/v1/nodes")
            if node["metadata"].get("labels", {}).get(GPU_LABEL) == "true"
            or GPU in node["status"].get("capacity", ())
        ]
        if not nodes:
            yield ok(f"no GPU node is there now: {later}")
        blind = [node for node in nodes if node["status"].get("capacity", {}).get(GPU, "0") == "0"]
        if blind:
            names = ", ".join(sorted(node["metadata"]["name"] for node in blind))
            yield problem(
                f"{len(blind)} of {len(nodes)} GPU nodes show no GPU, so no pod gets one "
                f"({names}): wait some minutes if they are new, then `kubectl -n kube-system logs "
                "daemonset/nvidia-device-plugin` says why"
            )
        nodes = [node for node in nodes if node not in blind]
        drivers = {node["metadata"].get("labels", {}).get(DRIVER, "") for node in nodes}
        for driver in sorted(drivers):
            says = (
                f"GPU nodes have driver {driver or 'unknown'}, the image CUDA {cuda or 'unknown'}"
            )
            least = DRIVERS.get(int(cuda.partition(".")[0] or 0), 0)
            if not (driver.isdigit() and least):
                yield warning(f"{says}: {later}")
            elif int(driver) < least:
                yield problem(
                    f"{says}: take nodes with driver {least} or newer, or an image with an older "
                    "CUDA"
                )
            else:
                yield ok(says)

    # Ready, for a self-managed control plane or self-managed node groups.

    def version(self) -> CheckResults:
        fault = refused_step(self.spec, self._account.outputs)
        yield (
            problem(fault)
            if fault
            else ok(f"the control plane runs Kubernetes {self._output('KubernetesVersion')}")
        )

    def groups(self) -> CheckResults:
        api, groups = self._client("autoscaling"), "AutoScalingGroups[]"
        why = "`aws autoscaling describe-scaling-activities` says why not more"
        for group in list_all(api, "describe_auto_scaling_groups", groups, Filters=self._ours):
            states = [
                (machine["LifecycleState"], machine["HealthStatus"])
                for machine in group.get("Instances", ())
            ]
            ready, desired = states.count(("InService", "Healthy")), group["DesiredCapacity"]
            text = f"{group['AutoScalingGroupName']} has {ready} of {desired} machines in service"
            yield ok(text) if ready >= desired else problem(f"{text}: {why}")

    # Destroy.

    def protection(self) -> Iterator[str]:
        unlock = (
            "aws cloudformation update-termination-protection --no-enable-termination-protection "
            "--stack-name"
        )
        for stack in self._account.deployed_stacks:
            if stack.get("EnableTerminationProtection"):
                yield f"{stack['StackName']} is protected: {unlock} {stack['StackName']}"

    def members(self) -> Iterator[str]:
        for member in self._account.list_members():
            yield f"{member.user} is in {member.group}, which IAM then keeps: {member.command}"

    def list_in_vpc(self, row: dict[str, Any]) -> Iterator[str]:
        """Yields the things of one kind in deployed_checks.yaml."""
        vpc = self._output("VpcId")
        in_vpc = {"Filters": [{"Name": "vpc-id", "Values": [vpc]}]}
        for look in row["looks"]:
            which = in_vpc if look["service"] == "ec2" else {}
            api, find = self._client(look["service"]), look["find"].replace("${vpc}", vpc)
            yield from (
                row["says"].format(*hit) for hit in list_all(api, look["call"], find, **which)
            )

    def foreign_mount_targets(self) -> Iterator[str]:
        efs, vpc = self._client("efs"), self._output("VpcId")
        systems = set(list_all(efs, "describe_file_systems", "FileSystems[].FileSystemId"))
        for system in sorted(systems - {self._account.outputs.get("FileSystemId")}):
            path = f"MountTargets[?VpcId == '{vpc}'].MountTargetId"
            for id in list_all(efs, "describe_mount_targets", path, FileSystemId=system):
                yield (
                    f"{id} of {system} uses the VPC: aws efs delete-mount-target "
                    f"--mount-target-id {id}"
                )


def _obstacles(look: Callable[[], Iterator[str]], none: str) -> CheckResults:
    """Reports every obstacle as a problem; `none` is the text if there is no obstacle."""
    obstacles = list(look())
    yield from (problem(text) for text in obstacles)
    if not obstacles:
        yield ok(none)


def _health(name: str, part: dict[str, Any]) -> CheckResult:
    """Returns the health of a cluster, an add-on or a node group, as EKS reports it."""
    issues = part.get("health", {}).get("issues", ())
    words = "; ".join(str(issue.get("message", issue.get("code", ""))) for issue in issues)
    good = part["status"] == "ACTIVE" and not words
    return (ok if good else problem)(
        f"{name} is {part['status']}" + (f": {words}" if words else "")
    )
