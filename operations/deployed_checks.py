"""Whether a deployed cluster is ready for jobs, and what would keep it from being destroyed.

Promises: reads only. The sticking points are the known ones: what Kubernetes or a person made in the VPC does not
belong to any stack, and CloudFormation can delete no network that something still uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from operations.account_checks import AccountChecks, stack_names
from operations.errors import BadInput, OperationError
from operations.findings import Check, State
from stacks.cluster_spec import ClusterSpec

Found = Iterator[tuple[State, str]]
STACK = "aws:cloudformation:stack-name"


class DeployedChecks:
    """The checks of one deployed cluster."""

    def __init__(self, spec: ClusterSpec, account: AccountChecks) -> None:
        self.spec, self._account = spec, account

    def ready(self) -> list[Check]:
        """Whether jobs can run."""
        from operations.own_cluster_checks import OwnClusterChecks

        own = OwnClusterChecks(self.spec, self._account, self._outputs)
        both: list[Check] = [("mount targets", self.mount_targets), ("kubectl", self.kubernetes)]
        if self.spec.cluster.self_managed:
            return [*own.all(), *both]
        groups: list[Check] = [("groups", own.groups)] if self.spec.own_groups else []
        return [("cluster", self.cluster), ("add-ons", self.addons), ("node groups", self.node_groups), *groups, *both]

    def destroy(self) -> list[Check]:
        """What would be in the way of `cdk destroy`."""
        if self.deployed is False:
            nothing: State = "ok"
            return [("stacks", lambda: [(nothing, f"no stack of cluster {self.spec.name} is deployed: nothing to destroy")])]
        return [
            ("credentials", self._account.credentials),
            ("protection", self.protection),
            ("load balancers", self.load_balancers),
            ("network interfaces", self.interfaces),
            ("security groups", self.security_groups),
            ("instances", self.instances),
            ("mount targets", self.foreign_mount_targets),
            ("endpoints", self.endpoints),
            ("data", self.data),
        ]

    @property
    def deployed(self) -> bool | None:
        """Whether any stack of the cluster is there; None where that cannot be asked."""
        try:
            return bool(self._stacks)
        except Exception:
            return None

    @cached_property
    def _stacks(self) -> list[dict[str, Any]]:
        pages = self._client("cloudformation").get_paginator("describe_stacks").paginate()
        names = stack_names(self.spec)
        return [stack for page in pages for stack in page["Stacks"] if stack["StackName"] in names]

    @cached_property
    def _outputs(self) -> dict[str, str]:
        return {out["OutputKey"]: out["OutputValue"] for stack in self._stacks for out in stack.get("Outputs", ())}

    def _client(self, service: str) -> Any:
        return self._account.client(service)

    def _output(self, key: str) -> str:
        if key not in self._outputs:
            raise BadInput(f"the deployed stacks have no output {key}: deploy all of them")
        return self._outputs[key]

    # Ready.

    def cluster(self) -> Found:
        found = self._client("eks").describe_cluster(name=self.spec.cluster_name)["cluster"]
        good = found["status"] == "ACTIVE"
        yield ("ok" if good else "problem"), f"{found['name']} is {found['status']}, Kubernetes {found.get('version', '?')}"

    def addons(self) -> Found:
        eks, cluster = self._client("eks"), self.spec.cluster_name
        for name in eks.list_addons(clusterName=cluster)["addons"]:
            yield _health(name, eks.describe_addon(clusterName=cluster, addonName=name)["addon"])

    def node_groups(self) -> Found:
        eks, cluster = self._client("eks"), self.spec.cluster_name
        for name in eks.list_nodegroups(clusterName=cluster)["nodegroups"]:
            yield _health(name, eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"])

    def mount_targets(self) -> Found:
        system = self._output("FileSystemId")
        targets = self._client("efs").describe_mount_targets(FileSystemId=system)["MountTargets"]
        states = {target["AvailabilityZoneName"]: target["LifeCycleState"] for target in targets}
        wanted = {zone for group in self.spec.nodes.values() for zone in (group.availability_zones or self.spec.network.zones)}
        for zone in sorted(wanted):
            state = states.get(zone)
            has = "no" if state is None else f"a {state}"
            if state == "available":
                yield "ok", f"{system} has its mount target in {zone}"
            else:
                yield "problem", f"{system} has {has} mount target in {zone}: pods there cannot mount it"

    def kubernetes(self) -> Found:
        from operations.cluster import Cluster

        try:
            cluster = Cluster.connect()
            version = cluster.get("/version")
        except OperationError as error:
            yield "warning", str(error)
            return
        if "ClusterEndpoint" in self._outputs and self._outputs["ClusterEndpoint"].rstrip("/") != cluster.server.rstrip("/"):
            yield "warning", f"the current context is {cluster.server}, not this cluster: `paddle-aws kubeconfig` changes that"
        yield "ok", f"{cluster.server} answers, version {version.get('gitVersion', '?')}"

    # Destroy.

    def protection(self) -> Found:
        kept = [stack["StackName"] for stack in self._stacks if stack.get("EnableTerminationProtection")]
        unlock = "aws cloudformation update-termination-protection --no-enable-termination-protection --stack-name"
        for name in kept:
            yield "problem", f"{name} is protected: {unlock} {name}"
        if not kept:
            yield "ok", "no stack is protected from deletion"

    @property
    def _in_vpc(self) -> list[dict[str, Any]]:
        return [{"Name": "vpc-id", "Values": [self._output("VpcId")]}]

    def load_balancers(self) -> Found:
        vpc = self._output("VpcId")
        newer = self._client("elbv2").describe_load_balancers().get("LoadBalancers", [])
        older = self._client("elb").describe_load_balancers().get("LoadBalancerDescriptions", [])
        names = [one["LoadBalancerName"] for one in newer if one.get("VpcId") == vpc]
        names += [one["LoadBalancerName"] for one in older if one.get("VPCId") == vpc]
        for name in names:
            yield (
                "problem",
                f"{name} was made by a Service or an Ingress: delete that with kubectl, while the cluster is there",
            )
        if not names:
            yield "ok", "none in the VPC"

    def interfaces(self) -> Found:
        left = []
        for one in self._client("ec2").describe_network_interfaces(Filters=self._in_vpc)["NetworkInterfaces"]:
            # A control plane's fixed interface waits for its machine, and goes with its stack.
            managed = one.get("RequesterManaged") or one.get("InterfaceType", "interface") != "interface" or STACK in _tags(one)
            if one.get("Status") == "available" and not managed:
                id, about = one["NetworkInterfaceId"], one.get("Description") or "no description"
                left.append(id)
                yield "problem", f"{id} hangs free ({about}): aws ec2 delete-network-interface --network-interface-id {id}"
        if not left:
            yield "ok", "none hangs free in the VPC"

    def security_groups(self) -> Found:
        foreign = 0
        for group in self._client("ec2").describe_security_groups(Filters=self._in_vpc)["SecurityGroups"]:
            tags, name, id = _tags(group), group["GroupName"], group["GroupId"]
            # EKS's own group goes with the cluster.
            eks = name.startswith("eks-cluster-sg-") or "aws:eks:cluster-name" in tags
            if STACK not in tags and name != "default" and not eks:
                foreign += 1
                yield "problem", f"{id} ({name}) is of no stack: aws ec2 delete-security-group --group-id {id}"
        if not foreign:
            yield "ok", "all are the stacks' own"

    def instances(self) -> Found:
        foreign = 0
        for reservation in self._client("ec2").describe_instances(Filters=self._in_vpc)["Reservations"]:
            for instance in reservation["Instances"]:
                ours = {"eks:nodegroup-name", "aws:autoscaling:groupName", STACK} & _tags(instance)
                if not ours and instance["State"]["Name"] != "terminated":
                    foreign += 1
                    id = instance["InstanceId"]
                    yield "problem", f"{id} is of no stack: aws ec2 terminate-instances --instance-ids {id}"
        if not foreign:
            yield "ok", "none but the cluster's nodes"

    def foreign_mount_targets(self) -> Found:
        efs, vpc, foreign = self._client("efs"), self._output("VpcId"), 0
        for system in efs.describe_file_systems()["FileSystems"]:
            if system["FileSystemId"] == self._outputs.get("FileSystemId"):
                continue
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
                if target.get("VpcId") == vpc:
                    foreign += 1
                    yield (
                        "problem",
                        (
                            f"{target['MountTargetId']} of {system['FileSystemId']} uses the VPC: "
                            f"aws efs delete-mount-target --mount-target-id {target['MountTargetId']}"
                        ),
                    )
        if not foreign:
            yield "ok", "no other file system uses the VPC"

    def endpoints(self) -> Found:
        foreign = 0
        for endpoint in self._client("ec2").describe_vpc_endpoints(Filters=self._in_vpc)["VpcEndpoints"]:
            if STACK not in _tags(endpoint):
                foreign += 1
                yield (
                    "problem",
                    (
                        f"{endpoint['VpcEndpointId']} is of no stack: "
                        f"aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {endpoint['VpcEndpointId']}"
                    ),
                )
        if not foreign:
            yield "ok", "all are the stacks' own"

    def data(self) -> Found:
        parts = "file system, bucket, key and images"
        if self.spec.cluster.self_managed and self.spec.retain:
            yield "ok", "the volume of the cluster's state leaves an EBS snapshot: cluster.volume_snapshot begins with one"
        elif self.spec.cluster.self_managed:
            yield "warning", "the cluster's state, which is every Kubernetes object, goes with its volume"
        if self.spec.retain:
            yield "ok", f"retain is true: {parts} stay, and go on costing money"
        else:
            yield "warning", f"retain is false: {parts} go with everything in them; `paddle-aws results` brings passes home first"


def _health(name: str, part: dict[str, Any]) -> tuple[State, str]:
    """Of an add-on or a node group, as EKS tells it."""
    issues = "; ".join(str(issue.get("message", issue.get("code", ""))) for issue in part.get("health", {}).get("issues", ()))
    good = part["status"] == "ACTIVE" and not issues
    return ("ok" if good else "problem"), f"{name} is {part['status']}" + (f": {issues}" if issues else "")


def _tags(resource: dict[str, Any]) -> set[str]:
    """Names of a resource's tags."""
    return {tag["Key"] for tag in [*resource.get("Tags", ()), *resource.get("TagSet", ())]}
