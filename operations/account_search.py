"""Everything in an account that belongs to one cluster, found by its tags and by the names that AWS and Kubernetes give.

Promises: what AWS's tagging service knows is asked for once, what it does not (or what carries no tag of ours) service
by service; the same thing is listed once. A key that waits for its deletion, and what `retain` keeps, is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
GONE = ("shutting-down", "terminated")
"""States of an instance that AWS shows for an hour after its end."""


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
        self._clients: dict[str, Any] = {}

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
            ("networks", self.networks),
            ("instances", self.instances),
            ("key pairs", self.key_pairs),
            ("launch templates", self.launch_templates),
            ("Auto Scaling groups", self.scaling_groups),
            ("secrets", self.secrets),
            ("load balancers", self.balancers),
            ("log groups", self.logs),
            ("repositories", self.repositories),
            ("buckets", self.buckets),
            ("file systems", self.file_systems),
        ]

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = client(service, self.spec.region)
        return self._clients[service]

    def _pages(self, service: str, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        yield from self._client(service).get_paginator(operation).paginate(**arguments)

    def _left(self, service: str, kind: str, id: str, arn: str = "") -> Left:
        template = COMMANDS.get((service, kind), "find it in the console, it is of a kind that is not known here: {arn}")
        expected = "retain is true" if self.spec.retain and (service, kind) in KEPT else ""
        region = f" --region {self.spec.region}" if template.startswith("aws ") and service not in ("iam", "route53") else ""
        command = template.format(id=id, arn=arn or id, part=id.split("/"))
        return Left(service, f"{kind} {id}".strip(), command + region, expected)

    def stacks(self) -> Iterator[Left]:
        names = stack_names(self.spec)
        for page in self._pages("cloudformation", "describe_stacks"):
            for stack in page["Stacks"]:
                if stack["StackName"] in names and stack["StackStatus"] != "DELETE_COMPLETE":
                    yield self._left("cloudformation", "stack", stack["StackName"])

    def keys(self) -> Iterator[Left]:
        """First of all: whether a key that the tags name is on its way out is known here alone."""
        for alias in (a for page in self._pages("kms", "list_aliases") for a in page["Aliases"]):
            if alias["AliasName"] == f"alias/{self.spec.name}":
                yield self._key(alias["TargetKeyId"])

    def _key(self, id: str) -> Left:
        state = self._client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
        left = self._left("kms", "key", id)
        # Nobody has to remove it: it goes by itself.
        return Left(left.service, left.id, "", "it waits for its deletion") if state == "PendingDeletion" else left

    def tagged(self) -> Iterator[Left]:
        filters = [{"Key": "project", "Values": ["paddle-aws"]}, {"Key": "cluster", "Values": [self.spec.name]}]
        for page in self._pages("resourcegroupstaggingapi", "get_resources", TagFilters=filters):
            for entry in page["ResourceTagMappingList"]:
                arn = entry["ResourceARN"]
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
                if (service, kind) == ("ec2", "instance") and self._ended(id):
                    continue
                yield self._key(id) if (service, kind) == ("kms", "key") else self._left(service, kind, id, arn)

    def _ended(self, instance: str) -> bool:
        """Whether it is only still shown."""
        found = self._client("ec2").describe_instances(Filters=[{"Name": "instance-id", "Values": [instance]}])
        states = [one["State"]["Name"] for reservation in found["Reservations"] for one in reservation["Instances"]]
        return all(state in GONE for state in states)

    def clusters(self) -> Iterator[Left]:
        if (
            not self.spec.cluster.self_managed
            and self.spec.cluster.existing is None
            and self.spec.name in self._client("eks").list_clusters()["clusters"]
        ):
            yield self._left("eks", "cluster", self.spec.name)

    def interfaces(self) -> Iterator[Left]:
        """The VPC CNI's own, which carry the cluster's name and which no stack knows; and a control plane's fixed one."""
        cni = [{"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": [self.spec.cluster_name]}]
        for filters in (cni, self._ours):
            for one in self._client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]:
                yield self._left("ec2", "network-interface", one["NetworkInterfaceId"])

    def groups(self) -> Iterator[Left]:
        """Kubernetes' own by its tags, and ours, which do not all carry those."""
        owned = [self._owned(tag) for tag in (f"kubernetes.io/cluster/{self.spec.cluster_name}", "KubernetesCluster")]
        for filters in (*owned, self._ours):
            for group in self._client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]:
                yield self._left("ec2", "security-group", group["GroupId"])

    def volumes(self) -> Iterator[Left]:
        for tag in (f"kubernetes.io/cluster/{self.spec.cluster_name}", "KubernetesCluster"):
            for volume in self._client("ec2").describe_volumes(Filters=self._owned(tag))["Volumes"]:
                # The root disk of a machine that still ends is gone with it.
                if volume["State"] != "deleting":
                    yield self._left("ec2", "volume", volume["VolumeId"])

    @property
    def _ours(self) -> list[dict[str, Any]]:
        return [{"Name": "tag:cluster", "Values": [self.spec.name]}, {"Name": "tag:project", "Values": ["paddle-aws"]}]

    def addresses(self) -> Iterator[Left]:
        for address in self._client("ec2").describe_addresses(Filters=self._ours)["Addresses"]:
            yield self._left("ec2", "elastic-ip", address["AllocationId"])

    def networks(self) -> Iterator[Left]:
        for vpc in self._client("ec2").describe_vpcs(Filters=self._ours)["Vpcs"]:
            yield self._left("ec2", "vpc", vpc["VpcId"])

    def instances(self) -> Iterator[Left]:
        for page in self._pages("ec2", "describe_instances", Filters=self._ours):
            for one in (one for reservation in page["Reservations"] for one in reservation["Instances"]):
                if one["State"]["Name"] not in GONE:
                    yield self._left("ec2", "instance", one["InstanceId"])

    def key_pairs(self) -> Iterator[Left]:
        """A pair that a self-managed cluster made carries its name and no tag; so does the parameter with its private key."""
        made = self.spec.cluster.ssh is not None and self.spec.cluster.ssh.key_pair is None
        for pair in self._client("ec2").describe_key_pairs()["KeyPairs"] if made else ():
            if pair["KeyName"] == self.spec.name:
                yield self._left("ec2", "key-pair", pair["KeyPairId"])
                yield self._left("ssm", "parameter", f"/ec2/keypair/{pair['KeyPairId']}")

    def launch_templates(self) -> Iterator[Left]:
        for page in self._pages("ec2", "describe_launch_templates", Filters=self._ours):
            for template in page["LaunchTemplates"]:
                yield self._left("ec2", "launch-template", template["LaunchTemplateId"])

    def scaling_groups(self) -> Iterator[Left]:
        """The tagging service does not know them."""
        for page in self._pages("autoscaling", "describe_auto_scaling_groups", Filters=self._ours):
            for group in page["AutoScalingGroups"]:
                yield self._left("autoscaling", "group", group["AutoScalingGroupName"])

    def secrets(self) -> Iterator[Left]:
        """Also without a tag: by their names."""
        if self.spec.cluster.self_managed:
            for page in self._pages(
                "secretsmanager", "list_secrets", Filters=[{"Key": "name", "Values": [f"{self.spec.name}/"]}]
            ):
                for secret in page["SecretList"]:
                    yield self._left("secretsmanager", "secret", secret["Name"])

    def snapshots(self) -> Iterator[Left]:
        """What `retain: true` leaves of a control plane's volume, where it carries our tags."""
        if self.spec.cluster.self_managed:
            for page in self._pages("ec2", "describe_snapshots", OwnerIds=["self"], Filters=self._ours):
                for snapshot in page["Snapshots"]:
                    yield self._left("ec2", "snapshot", snapshot["SnapshotId"])

    def _owned(self, tag: str) -> list[dict[str, Any]]:
        if tag == "KubernetesCluster":
            return [{"Name": "tag:KubernetesCluster", "Values": [self.spec.name]}]
        return [{"Name": f"tag:{tag}", "Values": ["owned"]}]

    def balancers(self) -> Iterator[Left]:
        elb = self._client("elbv2")
        arns = [one["LoadBalancerArn"] for one in elb.describe_load_balancers().get("LoadBalancers", ())]
        wanted = {f"kubernetes.io/cluster/{self.spec.cluster_name}", "elbv2.k8s.aws/cluster"}
        for start in range(0, len(arns), 20):
            for entry in elb.describe_tags(ResourceArns=arns[start : start + 20])["TagDescriptions"]:
                tags = {tag["Key"]: tag["Value"] for tag in entry["Tags"]}
                if wanted & tags.keys() and tags.get("elbv2.k8s.aws/cluster", self.spec.cluster_name) == self.spec.cluster_name:
                    arn = entry["ResourceArn"]
                    yield self._left("elasticloadbalancing", "loadbalancer", arn.split("loadbalancer/")[-1], arn)

    def logs(self) -> Iterator[Left]:
        name = self.spec.cluster_name
        prefixes = [f"/aws/eks/{name}/", f"/aws/containerinsights/{name}/"]
        prefixes += [f"/aws/lambda/{stack}-" for stack in sorted(stack_names(self.spec))]
        for prefix in prefixes:
            for page in self._pages("logs", "describe_log_groups", logGroupNamePrefix=prefix):
                for group in page["logGroups"]:
                    yield self._left("logs", "log-group", group["logGroupName"])

    def repositories(self) -> Iterator[Left]:
        for page in self._pages("ecr", "describe_repositories"):
            for repository in page["repositories"]:
                if repository["repositoryName"].startswith(f"{self.spec.name}/"):
                    yield self._left("ecr", "repository", repository["repositoryName"])

    def buckets(self) -> Iterator[Left]:
        for bucket in self._client("s3").list_buckets()["Buckets"]:
            if bucket["Name"].startswith(f"{self.spec.name}-storage-") and bucket["Name"] != self.spec.bucket.existing_name:
                yield self._left("s3", "", bucket["Name"])

    def file_systems(self) -> Iterator[Left]:
        for system in self._client("efs").describe_file_systems()["FileSystems"]:
            tags = {tag["Key"]: tag["Value"] for tag in system.get("Tags", ())}
            if tags.get("cluster") == self.spec.name and tags.get("project") == "paddle-aws":
                yield self._left("elasticfilesystem", "file-system", system["FileSystemId"])
