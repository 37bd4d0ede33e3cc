"""Everything in an account that belongs to one cluster, found by its tags and by the names that AWS and Kubernetes give.

Promises: what AWS's tagging service knows is asked for once, what it does not (or what carries no tag of ours) service
by service; the same thing is listed once. A key that waits for its deletion, and what `retain` keeps, is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from operations.account_checks import stack_names
from operations.aws import client
from operations.errors import of_a_library
from stacks.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Left:
    """One thing."""

    service: str
    id: str
    command: str
    """What removes it; empty: it goes by itself."""
    expected: str = ""
    """Why it may be there; empty: it should not."""


COMMANDS = {
    ("ec2", "vpc"): "aws ec2 delete-vpc --vpc-id {id}",
    ("ec2", "subnet"): "aws ec2 delete-subnet --subnet-id {id}",
    ("ec2", "natgateway"): "aws ec2 delete-nat-gateway --nat-gateway-id {id}",
    ("ec2", "elastic-ip"): "aws ec2 release-address --allocation-id {id}",
    ("ec2", "internet-gateway"): "aws ec2 delete-internet-gateway --internet-gateway-id {id}",
    ("ec2", "route-table"): "aws ec2 delete-route-table --route-table-id {id}",
    ("ec2", "security-group"): "aws ec2 delete-security-group --group-id {id}",
    ("ec2", "network-interface"): "aws ec2 delete-network-interface --network-interface-id {id}",
    ("ec2", "volume"): "aws ec2 delete-volume --volume-id {id}",
    ("ec2", "instance"): "aws ec2 terminate-instances --instance-ids {id}",
    ("ec2", "vpc-endpoint"): "aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id}",
    ("ec2", "launch-template"): "aws ec2 delete-launch-template --launch-template-id {id}",
    ("ec2", "vpc-flow-log"): "aws ec2 delete-flow-logs --flow-log-ids {id}",
    ("ec2", "snapshot"): "aws ec2 delete-snapshot --snapshot-id {id}",
    ("ec2", "key-pair"): "aws ec2 delete-key-pair --key-pair-id {id}",
    ("ec2", "dhcp-options"): "aws ec2 delete-dhcp-options --dhcp-options-id {id}",
    ("ec2", "placement-group"): "aws ec2 delete-placement-group --group-id {id}",
    ("autoscaling", "group"): "aws autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name {id}",
    ("secretsmanager", "secret"): "aws secretsmanager delete-secret --force-delete-without-recovery --secret-id {id}",
    ("ssm", "parameter"): "aws ssm delete-parameter --name {id}",
    ("sns", "topic"): "aws sns delete-topic --topic-arn {arn}",
    ("elasticfilesystem", "file-system"): "aws efs delete-file-system --file-system-id {id}",
    ("elasticfilesystem", "access-point"): "aws efs delete-access-point --access-point-id {id}",
    # Not `aws s3 rb --force`: it leaves older versions, and then cannot remove the bucket.
    ("s3", ""): "python3 -c \"import boto3; b = boto3.resource('s3').Bucket('{id}'); b.object_versions.delete(); b.delete()\"",
    ("ecr", "repository"): "aws ecr delete-repository --force --repository-name {id}",
    ("kms", "key"): "aws kms schedule-key-deletion --key-id {id}",
    ("logs", "log-group"): "aws logs delete-log-group --log-group-name {id}",
    ("cloudformation", "stack"): "aws cloudformation delete-stack --stack-name {id}",
    ("eks", "cluster"): "aws eks delete-cluster --name {id}",
    ("eks", "nodegroup"): "aws eks delete-nodegroup --cluster-name {part[0]} --nodegroup-name {part[1]}",
    ("eks", "addon"): "aws eks delete-addon --cluster-name {part[0]} --addon-name {part[1]}",
    ("eks", "access-entry"): (
        "aws eks delete-access-entry --cluster-name {part[0]} --principal-arn arn:aws:iam::{part[2]}:{part[1]}/{part[3]}"
    ),
    ("eks", "podidentityassociation"): (
        "aws eks delete-pod-identity-association --cluster-name {part[0]} --association-id {part[1]}"
    ),
    ("cloudwatch", "alarm"): "aws cloudwatch delete-alarms --alarm-names {id}",
    ("route53", "hostedzone"): "aws route53 delete-hosted-zone --id {id}",
    ("elasticloadbalancing", "loadbalancer"): "aws elbv2 delete-load-balancer --load-balancer-arn {arn}",
    ("lambda", "function"): "aws lambda delete-function --function-name {id}",
    ("iam", "role"): "aws iam delete-role --role-name {id}",
    ("iam", "policy"): "aws iam delete-policy --policy-arn {arn}",
}
KEPT = {
    ("elasticfilesystem", "file-system"),
    ("elasticfilesystem", "access-point"),
    ("s3", ""),
    ("ecr", "repository"),
    ("kms", "key"),
    ("ec2", "snapshot"),
}
"""What `retain: true` keeps: of a self-managed cluster's state a snapshot too."""
RUNNING = "Reservations[].Instances[] | [?State.Name != 'shutting-down' && State.Name != 'terminated'].InstanceId"
"""AWS shows an instance for an hour after its end."""


def search(spec: ClusterSpec) -> tuple[list[Left], dict[str, list[str]]]:
    """What is there, in order; and why something could not be asked, with what that was."""
    asked = _Search(spec)
    found: dict[tuple[str, str], Left] = {}
    unasked: dict[str, list[str]] = {}
    for what, look in asked.all():
        try:
            for left in look():
                found.setdefault((left.service, left.id), left)
        except Exception as error:
            sentence = of_a_library(error)
            if sentence is None:
                raise
            unasked.setdefault(sentence[1], []).append(what)
    return sorted(found.values(), key=lambda left: (bool(left.expected), left.service, left.id)), unasked


class _Search:
    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._client = cache(partial(client, region=spec.region))
        self._ours = [{"Name": "tag:cluster", "Values": [spec.name]}, {"Name": "tag:project", "Values": ["paddle-aws"]}]
        self._kubernetes = (
            [{"Name": f"tag:kubernetes.io/cluster/{spec.cluster_name}", "Values": ["owned"]}],
            [{"Name": "tag:KubernetesCluster", "Values": [spec.name]}],
        )

    def all(self) -> list[tuple[str, Callable[[], Iterator[Left]]]]:
        return [
            ("stacks", self.stacks),
            ("keys", self.keys),
            ("tags", self.tagged),
            ("clusters", self.clusters),
            ("network interfaces", self.interfaces),
            ("security groups", self.groups),
            ("volumes", self.volumes),
            ("snapshots", self.snapshots),
            ("addresses", self.addresses),
            ("networks", partial(self._of_ec2, "vpc", "describe_vpcs", "Vpcs[].VpcId")),
            ("instances", partial(self._of_ec2, "instance", "describe_instances", RUNNING)),
            ("key pairs", self.key_pairs),
            (
                "launch templates",
                partial(self._of_ec2, "launch-template", "describe_launch_templates", "LaunchTemplates[].LaunchTemplateId"),
            ),
            ("Auto Scaling groups", self.scaling_groups),
            ("secrets", self.secrets),
            ("load balancers", self.balancers),
            ("log groups", self.logs),
            ("repositories", self.repositories),
            ("buckets", self.buckets),
            ("file systems", self.file_systems),
        ]

    def _list(self, service: str, operation: str, path: str, **arguments: Any) -> Iterator[Any]:
        """What `path` (JMESPath) finds on every page of an answer."""
        found = self._client(service).get_paginator(operation).paginate(**arguments).search(path)
        return (one for one in found if one is not None)

    def _of_ec2(
        self, kind: str, operation: str, path: str, filters: list[dict[str, Any]] | None = None, **arguments: Any
    ) -> Iterator[Left]:
        """Things of one kind that the filters leave: with our tags, where none are given."""
        for id in self._list("ec2", operation, path, Filters=filters or self._ours, **arguments):
            yield self._left("ec2", kind, id)

    def _left(self, service: str, kind: str, id: str, arn: str = "") -> Left:
        template = COMMANDS.get((service, kind), "find it in the console, it is of a kind that is not known here: {arn}")
        expected = "retain is true" if self.spec.retain and (service, kind) in KEPT else ""
        region = f" --region {self.spec.region}" if template.startswith("aws ") and service not in ("iam", "route53") else ""
        command = template.format(id=id, arn=arn or id, part=id.split("/"))
        return Left(service, f"{kind} {id}".strip(), command + region, expected)

    def stacks(self) -> Iterator[Left]:
        names = stack_names(self.spec)
        for stack in self._list("cloudformation", "describe_stacks", "Stacks[?StackStatus != 'DELETE_COMPLETE'].StackName"):
            if stack in names:
                yield self._left("cloudformation", "stack", stack)

    def keys(self) -> Iterator[Left]:
        """First of all: whether a key that the tags name is on its way out is known here alone."""
        for alias in self._list("kms", "list_aliases", "Aliases[]"):
            if alias["AliasName"] == f"alias/{self.spec.name}":
                yield self._key(alias["TargetKeyId"])

    def _key(self, id: str) -> Left:
        state = self._client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
        left = self._left("kms", "key", id)
        # Nobody has to remove it: it goes by itself.
        return Left(left.service, left.id, "", "it waits for its deletion") if state == "PendingDeletion" else left

    def tagged(self) -> Iterator[Left]:
        filters = [{"Key": "project", "Values": ["paddle-aws"]}, {"Key": "cluster", "Values": [self.spec.name]}]
        arns = "ResourceTagMappingList[].ResourceARN"
        for arn in self._list("resourcegroupstaggingapi", "get_resources", arns, TagFilters=filters):
            _, _, service, _, _, resource = arn.split(":", 5)
            # `vpc/vpc-1`, `log-group:/aws/eks/x`, and of buckets the name alone.
            match = re.fullmatch(r"([a-z-]+)[:/](.+)", resource)
            kind, id = (match[1], match[2]) if match else ("topic" if service == "sns" else "", resource)
            if (service, kind) == ("cloudformation", "stack"):
                id = id.split("/")[0]
            if (service, kind) == ("secretsmanager", "secret"):
                # AWS puts six letters of its own behind the name.
                id = id[:-7]
            if (service, kind) == ("ssm", "parameter") and "/" in id:
                id = f"/{id}"
            if (service, kind) == ("ec2", "instance"):
                yield from self._of_ec2(kind, "describe_instances", RUNNING, [{"Name": "instance-id", "Values": [id]}])
            else:
                yield self._key(id) if (service, kind) == ("kms", "key") else self._left(service, kind, id, arn)

    def clusters(self) -> Iterator[Left]:
        ours = not self.spec.cluster.self_managed and self.spec.cluster.existing is None
        if ours and self.spec.name in self._list("eks", "list_clusters", "clusters[]"):
            yield self._left("eks", "cluster", self.spec.name)

    def interfaces(self) -> Iterator[Left]:
        """The VPC CNI's own, which carry the cluster's name and which no stack knows; and a control plane's fixed one."""
        cni = [{"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": [self.spec.cluster_name]}]
        path = "NetworkInterfaces[].NetworkInterfaceId"
        for filters in (cni, self._ours):
            yield from self._of_ec2("network-interface", "describe_network_interfaces", path, filters)

    def groups(self) -> Iterator[Left]:
        """Kubernetes' own by its tags, and ours, which do not all carry those."""
        for filters in (*self._kubernetes, self._ours):
            yield from self._of_ec2("security-group", "describe_security_groups", "SecurityGroups[].GroupId", filters)

    def volumes(self) -> Iterator[Left]:
        """But for the root disk of a machine that still ends, which is gone with it."""
        for filters in self._kubernetes:
            yield from self._of_ec2("volume", "describe_volumes", "Volumes[?State != 'deleting'].VolumeId", filters)

    def snapshots(self) -> Iterator[Left]:
        """What `retain: true` leaves of a control plane's volume, where it carries our tags."""
        if self.spec.cluster.self_managed:
            yield from self._of_ec2("snapshot", "describe_snapshots", "Snapshots[].SnapshotId", OwnerIds=["self"])

    def addresses(self) -> Iterator[Left]:
        for address in self._client("ec2").describe_addresses(Filters=self._ours)["Addresses"]:
            yield self._left("ec2", "elastic-ip", address["AllocationId"])

    def key_pairs(self) -> Iterator[Left]:
        """A pair that a self-managed cluster made carries its name and no tag; so does the parameter with its private key."""
        made = self.spec.cluster.ssh is not None and self.spec.cluster.ssh.key_pair is None
        for pair in self._client("ec2").describe_key_pairs()["KeyPairs"] if made else ():
            if pair["KeyName"] == self.spec.name:
                yield self._left("ec2", "key-pair", pair["KeyPairId"])
                yield self._left("ssm", "parameter", f"/ec2/keypair/{pair['KeyPairId']}")

    def scaling_groups(self) -> Iterator[Left]:
        """The tagging service does not know them."""
        path = "AutoScalingGroups[].AutoScalingGroupName"
        for name in self._list("autoscaling", "describe_auto_scaling_groups", path, Filters=self._ours):
            yield self._left("autoscaling", "group", name)

    def secrets(self) -> Iterator[Left]:
        """Also without a tag: by their names."""
        named = [{"Key": "name", "Values": [f"{self.spec.name}/"]}]
        if self.spec.cluster.self_managed:
            for name in self._list("secretsmanager", "list_secrets", "SecretList[].Name", Filters=named):
                yield self._left("secretsmanager", "secret", name)

    def balancers(self) -> Iterator[Left]:
        arns = list(self._list("elbv2", "describe_load_balancers", "LoadBalancers[].LoadBalancerArn"))
        wanted = {f"kubernetes.io/cluster/{self.spec.cluster_name}", "elbv2.k8s.aws/cluster"}
        for start in range(0, len(arns), 20):
            for entry in self._client("elbv2").describe_tags(ResourceArns=arns[start : start + 20])["TagDescriptions"]:
                tags = {tag["Key"]: tag["Value"] for tag in entry["Tags"]}
                if wanted & tags.keys() and tags.get("elbv2.k8s.aws/cluster", self.spec.cluster_name) == self.spec.cluster_name:
                    arn = entry["ResourceArn"]
                    yield self._left("elasticloadbalancing", "loadbalancer", arn.split("loadbalancer/")[-1], arn)

    def logs(self) -> Iterator[Left]:
        name = self.spec.cluster_name
        prefixes = [f"/aws/eks/{name}/", f"/aws/containerinsights/{name}/"]
        prefixes += [f"/aws/lambda/{stack}-" for stack in sorted(stack_names(self.spec))]
        for prefix in prefixes:
            for group in self._list("logs", "describe_log_groups", "logGroups[].logGroupName", logGroupNamePrefix=prefix):
                yield self._left("logs", "log-group", group)

    def repositories(self) -> Iterator[Left]:
        for name in self._list("ecr", "describe_repositories", "repositories[].repositoryName"):
            if name.startswith(f"{self.spec.name}/"):
                yield self._left("ecr", "repository", name)

    def buckets(self) -> Iterator[Left]:
        for name in self._list("s3", "list_buckets", "Buckets[].Name"):
            if name.startswith(f"{self.spec.name}-storage-") and name != self.spec.bucket.existing_name:
                yield self._left("s3", "", name)

    def file_systems(self) -> Iterator[Left]:
        for system in self._list("efs", "describe_file_systems", "FileSystems[]"):
            tags = {tag["Key"]: tag["Value"] for tag in system.get("Tags", ())}
            if tags.get("cluster") == self.spec.name and tags.get("project") == "paddle-aws":
                yield self._left("elasticfilesystem", "file-system", system["FileSystemId"])
