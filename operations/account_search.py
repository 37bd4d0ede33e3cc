"""Everything in an account that belongs to one cluster, found by its tags and by the names that AWS and Kubernetes give.

Promises: what AWS's tagging service knows is asked for once, what it does not (or what carries no tag of ours) service
by service; the same thing is listed once. What a living stack owns is removed by `cdk destroy`, and no other command is
given for it: without an answer about the stacks nothing is listed. What `retain` keeps, and a key that waits for its
deletion, is expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from operations.account_checks import BROKEN, stack_names
from operations.aws import client, every
from operations.errors import of_aws
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
    problem: str = ""
    """Its stack, where that ended half-way."""


OF_EC2 = (
    *("vpc", "subnet", "internet-gateway", "route-table", "network-interface", "volume", "launch-template"),
    *("snapshot", "key-pair", "dhcp-options"),
)
COMMANDS = {("ec2", kind): f"aws ec2 delete-{kind} --{kind}-id {{id}}" for kind in OF_EC2} | {
    ("ec2", "natgateway"): "aws ec2 delete-nat-gateway --nat-gateway-id {id}",
    ("ec2", "elastic-ip"): "aws ec2 release-address --allocation-id {id}",
    ("ec2", "security-group"): "aws ec2 delete-security-group --group-id {id}",
    ("ec2", "instance"): "aws ec2 terminate-instances --instance-ids {id}",
    ("ec2", "vpc-endpoint"): "aws ec2 delete-vpc-endpoints --vpc-endpoint-ids {id}",
    ("ec2", "vpc-flow-log"): "aws ec2 delete-flow-logs --flow-log-ids {id}",
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
TAGS = "Tags[?starts_with(Key, 'aws:') || starts_with(Key, 'eks:')].Value"
RUNNING = f"Reservations[].Instances[] | [?State.Name != 'shutting-down' && State.Name != 'terminated'].[InstanceId, {TAGS}]"
"""AWS shows an instance for an hour after its end."""
VOLUMES = "Volumes[?State != 'deleting'].[VolumeId, Attachments[?DeleteOnTermination].InstanceId]"
OWN = "StackResourceSummaries[?ResourceStatus != 'DELETE_COMPLETE' && ResourceStatus != 'DELETE_SKIPPED'].PhysicalResourceId"
INTERFACES = "NetworkInterfaces[].[NetworkInterfaceId, [Attachment][?DeleteOnTermination].InstanceId]"
GROUPS = f"SecurityGroups[].[GroupId, {TAGS}]"
SECRETS = "SecretList[].[Name, [ARN]]"
TEMPLATES, SCALING = "LaunchTemplates[].LaunchTemplateId", "AutoScalingGroups[].AutoScalingGroupName"
REPOSITORIES, LOGS = "repositories[].repositoryName", "logGroups[].logGroupName"
SYSTEMS = "FileSystems[?Tags[?Key=='cluster' && Value=='{}'] && Tags[?Key=='project' && Value=='paddle-aws']].FileSystemId"
SERVICES = {"efs": "elasticfilesystem"}
"""What ARNs call a service that boto3 calls otherwise."""


def search(spec: ClusterSpec) -> tuple[list[Left], dict[str, list[str]]]:
    """What is there, in order; and why something could not be asked, with what that was."""
    asked = _Search(spec)
    asked.learn_owners()
    found: dict[tuple[str, str], Left] = {}
    unasked: dict[str, list[str]] = {}
    for what, look in asked.all():
        try:
            for left in look():
                found.setdefault((left.service, left.id), left)
        except Exception as error:
            sentence = of_aws(error)
            if sentence is None:
                raise
            unasked.setdefault(sentence, []).append(what)
    return sorted(found.values(), key=lambda left: (bool(left.expected), left.service, left.id)), unasked


class _Search:
    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self._client = cache(partial(client, region=spec.region))
        self._ours = [{"Name": "tag:cluster", "Values": [spec.name]}, {"Name": "tag:project", "Values": ["paddle-aws"]}]
        self._stacks: dict[str, str] = {}
        """Those that are there: their states."""
        self._owners: dict[str, str] = {}
        """The stack of what belongs to one, by AWS's id, name or ARN."""

    def learn_owners(self) -> None:
        """Which stacks there are, and what they own. Raises botocore's errors."""
        cloudformation = self._client("cloudformation")
        for name, state in every(cloudformation, "describe_stacks", "Stacks[].[StackName, StackStatus]"):
            if name in stack_names(self.spec) and state != "DELETE_COMPLETE":
                self._stacks[name] = state
                ids = every(cloudformation, "list_stack_resources", OWN, StackName=name)
                self._owners |= dict.fromkeys((name, *filter(None, ids)), name)

    def all(self) -> list[tuple[str, Callable[[], Iterator[Left]]]]:
        """What is asked for, by its name in "not asked"."""
        spec, ours, ec2, each = self.spec, self._ours, self._of_ec2, self._each
        kubernetes = (
            [{"Name": f"tag:kubernetes.io/cluster/{spec.cluster_name}", "Values": ["owned"]}],
            [{"Name": "tag:KubernetesCluster", "Values": [spec.name]}],
        )
        # The VPC CNI's own carry the cluster's name, and no stack knows them; a control plane's fixed one carries our tags.
        cni = [{"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": [spec.cluster_name]}]
        found = [
            ("stacks", lambda: (self._left("cloudformation", "stack", name) for name in self._stacks)),
            # Before the tags: only here it is known whether a key waits for its deletion, and what ends with which machine.
            ("keys", self.keys),
            ("instances", ec2("instance", "describe_instances", RUNNING, ours)),
            # But for the root disk of a machine that still ends, which is gone with it.
            ("volumes", ec2("volume", "describe_volumes", VOLUMES, *kubernetes, ours)),
            ("network interfaces", ec2("network-interface", "describe_network_interfaces", INTERFACES, cni, ours)),
            ("addresses", self.addresses),
            ("tags", self.tagged),
            # Kubernetes' own by its tags, and ours, which do not all carry those.
            ("security groups", ec2("security-group", "describe_security_groups", GROUPS, *kubernetes, ours)),
            ("networks", ec2("vpc", "describe_vpcs", "Vpcs[].VpcId", ours)),
            ("key pairs", self.key_pairs),
            ("launch templates", ec2("launch-template", "describe_launch_templates", TEMPLATES, ours)),
            # The tagging service does not know them.
            ("Auto Scaling groups", each("autoscaling", "group", "describe_auto_scaling_groups", SCALING, Filters=ours)),
            ("load balancers", self.balancers),
            ("log groups", self.logs),
            (
                "repositories",
                each("ecr", "repository", "describe_repositories", REPOSITORIES, lambda id: id.startswith(f"{spec.name}/")),
            ),
            ("buckets", each("s3", "", "list_buckets", "Buckets[].Name", self._is_bucket)),
            ("file systems", each("efs", "file-system", "describe_file_systems", SYSTEMS.format(spec.name))),
        ]
        if spec.cluster.self_managed:
            # What `retain: true` leaves of a control plane's volume, where it carries our tags; secrets also without a tag.
            snapshots = ec2("snapshot", "describe_snapshots", "Snapshots[].SnapshotId", ours, OwnerIds=["self"])
            named = [{"Key": "name", "Values": [f"{spec.name}/"]}]
            secrets = each("secretsmanager", "secret", "list_secrets", SECRETS, Filters=named)
            found += [("snapshots", snapshots), ("secrets", secrets)]
        elif spec.cluster.existing is None:
            found.append(("clusters", each("eks", "cluster", "list_clusters", "clusters[]", {spec.name}.__contains__)))
        return found

    def _each(
        self, service: str, kind: str, operation: str, path: str, match: Callable[[str], bool] = bool, **arguments: Any
    ) -> Callable[[], Iterator[Left]]:
        """Looks for the things of one kind whose names match; `path` finds ids, each with what may tell its owner, or alone."""

        def look() -> Iterator[Left]:
            for found in every(self._client(service), operation, path, **arguments):
                id, more = found if isinstance(found, list) else (found, None)
                if match(id):
                    yield self._left(SERVICES.get(service, service), kind, id, "", *more or ())

        return look

    def _of_ec2(
        self, kind: str, operation: str, path: str, *filters: list[dict[str, Any]], **arguments: Any
    ) -> Callable[[], Iterator[Left]]:
        """Looks for the things of one kind that any of the filters leaves."""
        looks = [self._each("ec2", kind, operation, path, Filters=one, **arguments) for one in filters]
        return lambda: (left for look in looks for left in look())

    def _left(self, service: str, kind: str, id: str, arn: str = "", *more: str) -> Left:
        """`more`: what else may tell the owner, as AWS's own tags, or the machine that it ends with."""
        owner = next((self._owners[one] for one in (id, arn, *more) if one in self._owners), None)
        kept = self.spec.retain and (service, kind) in KEPT
        what = f"{kind} {id}".strip()
        if owner is not None:
            # What hangs on it, a machine's disk for one, has the same owner.
            self._owners[id] = owner
            state = self._stacks[owner]
            if state in BROKEN:
                return Left(service, what, f"cdk destroy {owner}", "", f"{owner} is {state}")
            why = state if state.endswith("_IN_PROGRESS") else "deployed"
            return Left(service, what, "" if kept else f"cdk destroy {owner}", f"{why}, retain is true" if kept else why)
        template = COMMANDS.get((service, kind), "find it in the console, it is of a kind that is not known here: {arn}")
        region = f" --region {self.spec.region}" if template.startswith("aws ") and service not in ("iam", "route53") else ""
        command = template.format(id=id, arn=arn or id, part=id.split("/"))
        return Left(service, what, command + region, "retain is true" if kept else "")

    def keys(self) -> Iterator[Left]:
        for alias in every(self._client("kms"), "list_aliases", "Aliases[]"):
            if alias["AliasName"] == f"alias/{self.spec.name}":
                yield self._key(alias["TargetKeyId"])

    def _key(self, id: str) -> Left:
        state = self._client("kms").describe_key(KeyId=id)["KeyMetadata"]["KeyState"]
        left = self._left("kms", "key", id)
        # Nobody has to remove it: it goes by itself.
        return Left(left.service, left.id, "", "it waits for its deletion") if state == "PendingDeletion" else left

    def tagged(self) -> Iterator[Left]:
        filters = [{"Key": "project", "Values": ["paddle-aws"]}, {"Key": "cluster", "Values": [self.spec.name]}]
        path = f"ResourceTagMappingList[].[ResourceARN, {TAGS}]"
        for arn, values in every(self._client("resourcegroupstaggingapi"), "get_resources", path, TagFilters=filters):
            _, _, service, _, _, resource = arn.split(":", 5)
            # Of other services a part that a stack let go carries its tag as before.
            more = values if service == "eks" else ()
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
                yield from self._of_ec2(kind, "describe_instances", RUNNING, [{"Name": "instance-id", "Values": [id]}])()
            else:
                yield self._key(id) if (service, kind) == ("kms", "key") else self._left(service, kind, id, arn, *more)

    def addresses(self) -> Iterator[Left]:
        for address in self._client("ec2").describe_addresses(Filters=self._ours)["Addresses"]:
            yield self._left("ec2", "elastic-ip", address["AllocationId"], "", address.get("PublicIp", ""))

    def key_pairs(self) -> Iterator[Left]:
        """A pair that a self-managed cluster made carries its name and no tag; so does the parameter with its private key."""
        made = self.spec.cluster.ssh is not None and self.spec.cluster.ssh.key_pair is None
        for pair in self._client("ec2").describe_key_pairs()["KeyPairs"] if made else ():
            if pair["KeyName"] == self.spec.name:
                yield self._left("ec2", "key-pair", pair["KeyPairId"], "", pair["KeyName"])
                yield self._left("ssm", "parameter", f"/ec2/keypair/{pair['KeyPairId']}", "", pair["KeyName"])

    def balancers(self) -> Iterator[Left]:
        arns = list(every(self._client("elbv2"), "describe_load_balancers", "LoadBalancers[].LoadBalancerArn"))
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
            yield from self._each("logs", "log-group", "describe_log_groups", LOGS, logGroupNamePrefix=prefix)()

    def _is_bucket(self, name: str) -> bool:
        return name.startswith(f"{self.spec.name}-storage-") and name != self.spec.bucket.existing_name
