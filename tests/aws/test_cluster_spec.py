"""cluster.yaml: what is refused, and in which words."""

# Sentences are data here.
# ruff: noqa: E501

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from settings.errors import SettingError
from stacks.cluster_spec import ClusterSpec

OWN = "retain: false\ncluster: {kind: self-managed"
REFUSED_OF_A_SELF_MANAGED_CLUSTER = [
    ("retain: false\ncluster: {elastic_ip: true}", "cluster.elastic_ip is true: allowed with cluster.kind self-managed only, and the kind is eks"),
    ("retain: false\nname: paddle-access", "name is paddle-access: names that end with -access, -network, -storage, -cluster, -nodes, -watch are those of another cluster's stacks"),
    ("retain: false\nname: aws-team", "name is aws-team: AWS keeps names that begin with aws, amazon, amzn and sg- to itself"),
    ("retain: false\nnodes: {coredns: {}}", "nodes is coredns: names of add-ons, and those that end with -self-managed, are taken; name the group otherwise"),
    ("retain: false\nnetwork: {cidr: 10.0.0.0/255.255.0.0}", "network.cidr is 10.0.0.0/255.255.0.0: allowed is an IPv4 range such as 10.0.0.0/16, with no bits set behind the prefix"),
    ("retain: false\nbucket: {existing_name: a--x-s3}", "bucket.existing_name is a--x-s3: allowed is one such as their-training-data"),
    ("retain: false\ncluster: {kind: k3s}", "cluster.kind must be eks or self-managed (found k3s)"),
    (OWN + ", oidc_provider: true}", "cluster.oidc_provider is true: allowed with cluster.kind eks only, and the kind is self-managed"),
    (OWN + ", log_days: 30}", "cluster.log_days is 30: allowed with cluster.kind eks only, and the kind is self-managed"),
    (OWN + ", version: '2.0'}", "cluster.version is 2.0: allowed is a Kubernetes version such as 1.35"),
    (OWN + ", instance_type: t4g.small}", "cluster.instance_type is t4g.small: allowed is an x86-64 EC2 instance type such as t3.medium"),
    (OWN + ", instance_type: t2.medium}", "cluster.instance_type is t2.medium: it is from before Nitro, and a volume has no NVMe name there: allowed is one such as t3.medium"),
    (OWN + "}\nnodes: {w: {instance_types: [m5.large, m4.large]}}", "nodes.w.instance_types is m4.large: it is from before Nitro: allowed with cluster.kind self-managed is one such as m5.large"),
    (OWN + ", snapshots: {schedule: hourly}}", "cluster.snapshots.schedule must be like 0 */6 * * * (found hourly)"),
    (OWN + ", ssh: {allowed_from: [0.0.0.0/0]}}", "cluster.ssh.allowed_from is 0.0.0.0/0: SSH is never opened to everybody; name your own range, such as 10.0.0.0/16"),
    (OWN + ", public_access_from: [203.0.113.7/32]}", "cluster.public_access_from is 203.0.113.7/32: the control plane has no public address: set cluster.elastic_ip true, or leave it empty"),
    (OWN + ", pod_cidr: 10.0.0.0/16}", "cluster.pod_cidr is 10.0.0.0/16: it overlaps network.cidr (10.0.0.0/16): take a range apart from it"),
    (OWN + ", pod_cidr: 10.43.0.0/16}", "cluster.pod_cidr is 10.43.0.0/16: it overlaps cluster.service_cidr (10.43.0.0/16): take a range apart from it"),
    (OWN + ", pod_cidr: 10.42.0.0/22}", "cluster.pod_cidr is 10.42.0.0/22: each machine takes a /24 of it, which makes 4, and there may be 7: take a wider range"),
    (OWN + ", availability_zone: us-west-2c}", "cluster.availability_zone is us-west-2c: allowed is one of the network's zones (us-west-2a, us-west-2b)"),
    (OWN + ", private_address: 10.0.64.3}", "cluster.private_address is 10.0.64.3: allowed is an address in 10.0.64.0/18 (the private subnet of us-west-2a, but for its first four and its last)"),
    (OWN + ", elastic_ip: true, private_address: 10.0.64.9}", "cluster.private_address is 10.0.64.9: allowed is an address in 10.0.0.0/24 (the public subnet of us-west-2a, but for its first four and its last two)"),
    (OWN + ", elastic_ip: true, private_address: 10.0.0.254}", "cluster.private_address is 10.0.0.254: allowed is an address in 10.0.0.0/24 (the public subnet of us-west-2a, but for its first four and its last two)"),
    (OWN + ", private_address: nine}", "cluster.private_address is nine: allowed is an address in 10.0.64.0/18"),
    (OWN + ", elastic_ip: true}\nnetwork: {nat_gateways: 0, interface_endpoints: true}", "cluster.elastic_ip is true: there is no public subnet in us-west-2a (network.nat_gateways 0, or none named in network.existing)"),
    (OWN + "}\nlogs: {days: 30}", "logs.days is 30: container logs go to CloudWatch with cluster.kind eks only: set it 0 (docs/self-managed.md)"),
    (OWN + "}\nnodes: {w: {kind: managed}}", "nodes.w.kind is managed: allowed with cluster.kind eks only, and the kind is self-managed"),
    (OWN + "}\nnodes: {w: {gpu: true, instance_types: [g5.xlarge]}}", "nodes.w.gpu is true: allowed with cluster.kind eks only, and the kind is self-managed"),
]  # fmt: skip

REFUSED = [
    ("", "s.yaml holds nothing: allowed are `setting: value` lines"),
    ("- a", "s.yaml holds a list: allowed are `setting: value` lines"),
    ("a: [", "s.yaml is not valid YAML: line 1: expected the node content, but found '<stream end>'"),
    ("retain: true\nretain: false", "s.yaml is not valid YAML: line 2: retain is given twice"),
    (
        "name: x",
        "s.yaml: retain is missing: true: a destroy keeps file system, bucket, key and image repository. false: it deletes them with everything in them",
    ),
    ("retain: maybe", "s.yaml: retain must be true or false (found maybe)"),
    ("Retain: true", "s.yaml: Retain is not a setting: did you mean retain?"),
    ("1: x", "s.yaml is not valid YAML: line 1: the key 1 is no text: put it in quotes"),
    ("~: x", "s.yaml is not valid YAML: line 1: the key ~ is no text: put it in quotes"),
    (
        "? [a]\n: 1",
        "s.yaml is not valid YAML: line 1: a list or a group of settings stands where the name of a setting belongs",
    ),
    ("retain: false\nnetwrk: {}", "s.yaml: netwrk is not a setting: did you mean network?"),
    ("retain: false\nnetwork: {natgateways: 3}", "s.yaml: network.natgateways is not a setting: did you mean nat_gateways?"),
    (
        "retain: false\nnodes: {workers: {desird: 3}}",
        "s.yaml: nodes.workers.desird is not a setting: did you mean desired?",
    ),
    ("retain: false\nnetwork: 7", "s.yaml: network must be a group of settings (found 7)"),
    (
        "retain: false\nname: My_Cluster",
        "s.yaml: name is My_Cluster: allowed are lower-case letters, digits and single hyphens, a letter first, no hyphen last",
    ),
    (
        "retain: false\nname: a--b",
        "s.yaml: name is a--b: allowed are lower-case letters, digits and single hyphens, a letter first, no hyphen last",
    ),
    ("retain: false\nname: no", "s.yaml: name must be text (found false): put it in quotes"),
    ("retain: false\nowner: ''", "s.yaml: owner must not be empty"),
    ("retain: false\nregion: Oregon", "s.yaml: region must be like us-west-2 (found Oregon)"),
    ("retain: false\nnetwork: {nat_gateways: true}", "s.yaml: network.nat_gateways must be a whole number (found true)"),
    (
        "retain: false\nnetwork: {nat_gateways: '1'}",
        's.yaml: network.nat_gateways must be a whole number (found "1"): leave the quotes out',
    ),
    ("retain: false\nnodes: {workers: {spot: 'yes'}}", "s.yaml: nodes.workers.spot must be true or false (found yes)"),
    ("retain: false\nnodes: {Workers: {}}", "s.yaml: nodes.Workers must be like workers (found Workers)"),
    (
        "retain: false\ncluster: {administrators: [admin]}",
        "s.yaml: cluster.administrators[0] must be like arn:aws:iam::123456789012:role/Admin (found admin)",
    ),
    (
        "retain: false\ncluster: {addons: {coredns: v1.0}}",
        "s.yaml: cluster.addons.coredns must be like v1.2.3-eksbuild.1 (found v1.0)",
    ),
    (
        "retain: false\nkey: {existing_arn: alias/theirs}",
        "s.yaml: key.existing_arn must be like arn:aws:kms:us-west-2:123456789012:key/01234567-89ab-cdef-0123-456789abcdef (found alias/theirs)",
    ),
    (
        "retain: false\nregion: eu-north-1\nnetwork: {availability_zones: [eu-north-1a, eu-north-1b]}\n"
        "nodes: {w: {}}\nbudget: {monthly_usd: 9, emails: [a@b.de]}",
        "s.yaml: budget.monthly_usd is 9: CloudFormation has no budgets in eu-north-1: leave it out, and alarms and dashboard come "
        "alone",
    ),
    (
        "retain: false\njobs: {namespace: kube-system}",
        "s.yaml: jobs.namespace is kube-system: kube-* belongs to the cluster; choose one for training jobs, such as paddle",
    ),
    ("retain: false\nname: " + "a" * 41, "s.yaml: name must be text of at most 40 characters (found " + "a" * 41 + ")"),
    (
        "retain: false\nnetwork: {cidr: 10.0.0.0/8}",
        "s.yaml: network.cidr is 10.0.0.0/8: allowed is a private IPv4 range from /16 to /24, such as 10.0.0.0/16",
    ),
    (
        "retain: false\nnetwork: {cidr: 10.0.0.1/16}",
        "s.yaml: network.cidr is 10.0.0.1/16: allowed is an IPv4 range such as 10.0.0.0/16, with no bits set behind the prefix",
    ),
    (
        "retain: false\nnetwork: {cidr: 10.0.0.0/24}\nnodes: {workers: {max: 20}}",
        "s.yaml: network.cidr is 10.0.0.0/24: its private subnet in us-west-2a has 59 addresses, and 10 nodes with their pods take "
        "320: take a wider range or fewer nodes",
    ),
    (
        "retain: false\ncluster: {service_cidr: 10.0.64.0/18}",
        "s.yaml: cluster.service_cidr is 10.0.64.0/18: it overlaps network.cidr (10.0.0.0/16): take a range apart from it",
    ),
    (
        "retain: false\nnetwork: {availability_zones: [us-west-2a]}",
        "s.yaml: network.availability_zones is us-west-2a: EKS wants two at least; to keep nodes in one zone, set "
        "nodes.<group>.availability_zones",
    ),
    (
        "retain: false\nnetwork: {availability_zones: [us-west-2a, eu-west-1b]}",
        "s.yaml: network.availability_zones is eu-west-1b: allowed are zones of region us-west-2, such as us-west-2a",
    ),
    (
        "retain: false\nnetwork: {nat_gateways: 3}",
        "s.yaml: network.nat_gateways is 3: allowed is 0, 1, or 2 (one for each of network.availability_zones)",
    ),
    (
        "retain: false\nnetwork: {nat_gateways: 0}",
        "s.yaml: network.nat_gateways is 0: without NAT nodes reach AWS by network.interface_endpoints alone: set them true",
    ),
    (
        "retain: false\nnetwork: {flow_log_days: 8}",
        "s.yaml: network.flow_log_days must be 0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288 or 3653 (found 8)",
    ),
    (
        "retain: false\nnodes: {workers: {desired: 9}}",
        "s.yaml: nodes.workers.desired is 9: allowed is nodes.workers.min (1) to nodes.workers.max (6)",
    ),
    (
        "retain: false\nnodes: {workers: {min: 7, desired: 7}}",
        "s.yaml: nodes.workers.min is 7: allowed is 0 to nodes.workers.max (6)",
    ),
    ("retain: false\nnodes: {workers: {desired: many}}", "s.yaml: nodes.workers.desired must be a whole number (found many)"),
    (
        "retain: false\nnodes: {trainers: {gpu: true, instance_types: [g5.xlarge]}, cpu: {taints: [{key: batch}]}}",
        "s.yaml: nodes is trainers, cpu: every group is tainted (gpu adds a taint too), and coredns and the EFS driver would "
        "never start: add a group without gpu and taints",
    ),
    (
        "retain: false\nnodes: {workers: {min: 0, desired: 0}, trainers: {gpu: true, instance_types: [g5.xlarge]}}",
        "s.yaml: nodes.workers.desired is 0: coredns and the EFS driver would never start without a node: allowed is 1 or more in "
        "one group without taints (to pay for no node, destroy paddle-nodes)",
    ),
    (
        "retain: false\nnodes: {workers: {gpu: true}}",
        "s.yaml: nodes.workers.instance_types is m5.large: nodes.workers.gpu is true: allowed are NVIDIA types such as g5.xlarge",
    ),
    (
        "retain: false\nnodes: {workers: {instance_types: [p5.48xlarge]}}",
        "s.yaml: nodes.workers.instance_types is p5.48xlarge: its GPUs would lie idle: set nodes.workers.gpu true, or take "
        "another type",
    ),
    (
        "retain: false\nnodes: {workers: {instance_types: [m7g.large]}}",
        "s.yaml: nodes.workers.instance_types is m7g.large: the trainer image is for x86-64, and this type is arm",
    ),
    (
        "retain: false\nnodes: {workers: {efa: true, instance_types: [c5n.18xlarge]}}",
        "s.yaml: nodes.workers.efa is true: it works within one zone: name exactly one in nodes.workers.availability_zones",
    ),
    (
        "retain: false\nnodes: {workers: {availability_zones: [us-west-2c]}}",
        "s.yaml: nodes.workers.availability_zones is us-west-2c: allowed are network.availability_zones (us-west-2a, us-west-2b)",
    ),
    (
        "retain: false\nnodes: {workers: {ssh: {key_pair: k, allowed_from: [0.0.0.0/0]}}}",
        "s.yaml: nodes.workers.ssh.allowed_from is 0.0.0.0/0: SSH is never opened to everybody; name your own range, such as "
        "10.0.0.0/16",
    ),
    (
        "retain: false\nnodes: {workers: {kind: self-managed, auto_repair: true}}",
        "s.yaml: nodes.workers.auto_repair is true: allowed with nodes.workers.kind managed only; an Auto Scaling group checks by "
        "itself",
    ),
    (
        "retain: false\nnodes: {workers: {kind: fargate}}",
        "s.yaml: nodes.workers.kind must be managed or self-managed (found fargate)",
    ),
    ("retain: false\nnodes: {}", "s.yaml: nodes must not be empty"),
    ("retain: false\ncluster: {version: 1.35}", "s.yaml: cluster.version must be text (found 1.35): put it in quotes"),
    (
        'retain: false\ncluster: {version: "1.29"}',
        "s.yaml: cluster.version is 1.29: allowed is one of 1.34, 1.35, 1.36 (EKS standard support)",
    ),
    (
        "retain: false\ncluster: {public_access_from: [0.0.0.0/0]}",
        "s.yaml: cluster.public_access_from is 0.0.0.0/0: the endpoint is never opened to everybody; name your own range, such as "
        "203.0.113.7/32",
    ),
    (
        "retain: false\ncluster: {administrators: ['arn:aws:iam::000000000000:role/a'], readers: ['arn:aws:iam::000000000000:role/a']}",
        "s.yaml: cluster.administrators is arn:aws:iam::000000000000:role/a: EKS takes one access entry for each: name it once among "
        "cluster.administrators, deployers and readers",
    ),
    (
        "retain: false\nfile_system: {throughput: provisioned}",
        "s.yaml: file_system.provisioned_mib_per_second is empty: file_system.throughput is provisioned: name the MiB/s, 1 to 3414",
    ),
    (
        "retain: false\nfile_system: {provisioned_mib_per_second: 5}",
        "s.yaml: file_system.provisioned_mib_per_second is 5: allowed with file_system.throughput provisioned only, not elastic",
    ),
    (
        "retain: false\nfile_system: {throughput: elastic, existing: {id: fs-01234567, security_group: sg-01234567}}",
        "s.yaml: file_system.throughput is elastic: file_system.existing names a file system that is there already; leave one of the "
        "two out",
    ),
    (
        "retain: false\nbucket: {existing_name: theirs, keep_logs_days: 9}",
        "s.yaml: bucket.keep_logs_days is 9: bucket.existing_name names a bucket that is there already; leave one of the two out",
    ),
    (
        "retain: false\nregion: us-west-2\nkey: {existing_arn: 'arn:aws:kms:eu-west-1:000000000000:key/0-1'}",
        "s.yaml: key.existing_arn is arn:aws:kms:eu-west-1:000000000000:key/0-1: allowed is a key in region us-west-2",
    ),
    (
        "retain: false\ntags: {owner: me}",
        "s.yaml: tags.owner is me: taken, whatever its case: project, cluster, owner, KubernetesCluster, Name and aws: are set by the project or AWS, and each key stands once",
    ),
    *[
        (f"retain: false\n{text}", f"s.yaml: {sentence}")
        for text, sentence in [
            (
                "tags: {Owner: me}",
                "tags.Owner is me: taken, whatever its case: project, cluster, owner, KubernetesCluster, Name and aws: are set by the project or AWS, and each key stands once",
            ),
            (
                "tags: {team: a, Team: b}",
                "tags.Team is b: taken, whatever its case: project, cluster, owner, KubernetesCluster, Name and aws: are set by the project or AWS, and each key stands once",
            ),
            (
                "tags: {'a?*': b}",
                "tags.a?* is b: allowed are keys of 1 to 128 characters and values of up to 256: letters, digits, spaces and _.:/=+@-",
            ),
            (
                "region: us-moon-1",
                "region is us-moon-1: AWS has no such region, as far as this boto3 knows: allowed is one such as us-west-2",
            ),
            (
                "cluster: {public_access_from: [0.0.0.0/1, 128.0.0.0/1]}",
                "cluster.public_access_from is 0.0.0.0/1, 128.0.0.0/1: the endpoint is never opened to everybody; name your own range, such as 203.0.113.7/32",
            ),
            (
                "nodes: {w: {ssh: {key_pair: k, allowed_from: [0.0.0.0/2, 64.0.0.0/2, 128.0.0.0/2]}}}",
                "nodes.w.ssh.allowed_from is 0.0.0.0/2, 64.0.0.0/2, 128.0.0.0/2: SSH is never opened to everybody; name your own range, such as 10.0.0.0/16",
            ),
            *[
                (
                    f"network: {{cidr: {cidr}}}",
                    f"network.cidr is {cidr}: allowed is a private IPv4 range from /16 to /24, such as 10.0.0.0/16",
                )
                for cidr in ("127.0.0.0/16", "169.254.0.0/16", "0.0.0.0/16", "8.8.0.0/16")
            ],
            (
                "cluster: {service_cidr: 100.64.0.0/16}",
                "cluster.service_cidr is 100.64.0.0/16: allowed is a private IPv4 range from /12 to /24, such as 172.20.0.0/16",
            ),
            (
                "network: {existing: {id: vpc-01234567, cidr: 10.0.0.0/16, private_subnets: {us-west-2a: subnet-xx yy}}}",
                "network.existing.private_subnets.us-west-2a must be like subnet-0123456789abcdef0 (found subnet-xx yy)",
            ),
            (
                "network: {existing: {id: vpc-01234567, cidr: 10.0.0.0/16, private_subnets: {us-west-2a: subnet-01234567, us-west-2b: subnet-01234567}}}",
                "network.existing.private_subnets is subnet-01234567, subnet-01234567: each subnet stands once, in one zone, private or public",
            ),
            (
                "network: {existing: {id: vpc-01234567, cidr: 10.0.0.0/16, private_subnets: {us-west-2a: subnet-01234567}, public_subnets: {us-west-2a: subnet-01234567}}}",
                "network.existing.private_subnets is subnet-01234567, subnet-01234567: each subnet stands once, in one zone, private or public",
            ),
            *[
                (
                    f"network: {{existing: {{id: vpc-01234567, cidr: {cidr}, private_subnets: {{us-west-2a: subnet-01234567}}}}}}",
                    f"network.existing.cidr is {cidr}: no VPC has this range: allowed is /16 to /28, such as 10.0.0.0/16",
                )
                for cidr in ("127.0.0.0/16", "169.254.0.0/16", "0.0.0.0/16", "10.0.0.0/8")
            ],
            (
                "bucket: {existing_name: a..b}",
                "bucket.existing_name must be like their-training-data (found a..b)",
            ),
            (
                "bucket: {existing_name: 192.168.1.1}",
                "bucket.existing_name is 192.168.1.1: allowed is one such as their-training-data",
            ),
            ("budget: {emails: [a@b.c, a@b.c]}", "budget.emails is a@b.c, a@b.c: each address may stand once"),
            (
                "nodes: {w: {instance_types: [m5.large, m5.large]}}",
                "nodes.w.instance_types is m5.large, m5.large: each instance type may stand once",
            ),
            (
                "nodes: {w: {taints: [{key: a}, {key: a, value: b}]}}",
                "nodes.w.taints is a:NoSchedule, a:NoSchedule: each taint may stand once",
            ),
            (
                f"nodes: {{w: {{taints: [{', '.join(f'{{key: a{number}}}' for number in range(51))}]}}}}",
                "nodes.w.taints must have at most 50 entries (found 51)",
            ),
            (
                "nodes: {x: {}, w: {gpu: true, instance_types: [g5.xlarge], taints: [{key: nvidia.com/gpu}]}}",
                "nodes.w.taints is nvidia.com/gpu:NoSchedule: nodes.w.gpu adds it already: leave it out",
            ),
            (
                "nodes: {w: {placement_group: true, availability_zones: [us-west-2a], instance_types: [t3.large]}}",
                "nodes.w.instance_types is t3.large: nodes.w.placement_group is true, and EC2 takes none of its family into one: allowed are types such as m5.large",
            ),
            (
                "nodes: {w: {efa: true, availability_zones: [us-west-2a], instance_types: [m5.large]}}",
                "nodes.w.instance_types is m5.large: nodes.w.efa is true, and it has no Elastic Fabric Adapter: allowed are types such as c5n.18xlarge",
            ),
            (
                "nodes: {w: {efa: true, availability_zones: [us-west-2a], instance_types: [c5n.metal, c5n.4xlarge]}}",
                "nodes.w.instance_types is c5n.4xlarge: nodes.w.efa is true, and it has no Elastic Fabric Adapter: allowed are c5n.18xlarge, c5n.9xlarge, c5n.metal",
            ),
            (
                "nodes: {w: {labels: {node.eks.amazonaws.com/x: y}}}",
                "nodes.w.labels.node.eks.amazonaws.com/x is y: kubelets may not set labels of eks.amazonaws.com; use a domain of your own",
            ),
            (
                "nodes: {w: {labels: {eks.amazonaws.com/x: y}}}",
                "nodes.w.labels.eks.amazonaws.com/x is y: kubelets may not set labels of eks.amazonaws.com; use a domain of your own",
            ),
        ]
    ],
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[sentence[:60] for _, sentence in REFUSED])
def test_refused_with_one_sentence_that_names_the_field(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        ClusterSpec.load(file)
    assert str(caught.value).replace(f"{tmp_path}/", "") == sentence


@pytest.mark.parametrize(
    "text",
    [
        "network: {cidr: 100.64.0.0/16}",
        "key: {existing_arn: 'arn:aws:kms:us-west-2:000000000000:key/mrk-01'}",
        "nodes: {w: {labels: {mykubernetes.io/x: y, node.kubernetes.io/x: y}}}",
        # A family that the list of instance types does not know yet.
        "nodes: {w: {efa: true, placement_group: true, availability_zones: [us-west-2a], instance_types: [m99.large, m6i.32xlarge]}}",
    ],
)
def test_what_aws_takes_is_taken(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"retain: false\n{text}\n")
    ClusterSpec.load(tmp_path / "s.yaml")


def test_an_existing_vpc_and_a_new_one_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    existing = (
        "{id: vpc-01234567, cidr: 10.9.0.0/16, private_subnets: {us-west-2a: subnet-00000001, us-west-2b: subnet-00000002}}"
    )
    file.write_text(f"retain: false\nnetwork: {{nat_gateways: 1, existing: {existing}}}")
    with pytest.raises(SettingError, match=r"network.nat_gateways is 1: network.existing names a VPC that is there already"):
        ClusterSpec.load(file)


def test_the_shortest_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("retain: true")
    assert ClusterSpec.load(file).nodes["workers"].desired == 3


def test_groups_may_share_settings_by_an_anchor(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("retain: true\nnodes:\n  a: &shared {max: 9, volume_gib: 80}\n  b:\n    <<: *shared\n    max: 4\n")
    nodes = ClusterSpec.load(file).nodes
    assert [(group.max, group.volume_gib) for group in nodes.values()] == [(9, 80), (4, 80)]


def test_every_wrong_setting_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "retain: maybe\nregoin: eu-west-1\nnetwork: {nat_gateways: 5}\nbudget: {monthly_usd: 0, emails: [me]}\n"
        "nodes: {w: {min: 9, spot: 1}, x: {max: 2}}\n"
    )
    with pytest.raises(SettingError) as caught:
        ClusterSpec.load(file)
    assert str(caught.value).splitlines() == [
        "s.yaml: regoin is not a setting: did you mean region?",
        "s.yaml: retain must be true or false (found maybe)",
        "s.yaml: network.nat_gateways is 5: allowed is 0, 1, or 2 (one for each of network.availability_zones)",
        "s.yaml: nodes.w.spot must be true or false (found 1)",
        "s.yaml: nodes.x.desired is 3: allowed is nodes.x.min (1) to nodes.x.max (2)",
        "s.yaml: budget.monthly_usd must be at least 1 (found 0)",
        "s.yaml: budget.emails[0] must be like somebody@example.com (found me)",
        "s.yaml: nodes.w.min is 9: allowed is 0 to nodes.w.max (6)",
    ]


@pytest.mark.parametrize(("text", "sentence"), REFUSED_OF_A_SELF_MANAGED_CLUSTER)
def test_each_refusal_of_a_self_managed_cluster_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(SettingError) as refused:
        ClusterSpec.load(file)
    assert str(refused.value) == f"s.yaml: {sentence}"


def test_one_zone_and_tainted_nodes_are_enough_for_a_self_managed_cluster() -> None:
    taint = {"taints": [{"key": "batch"}]}
    spec = ClusterSpec.model_validate(
        {
            "retain": False,
            "network": {"cidr": "172.20.0.0/16", "availability_zones": ["us-west-2a"]},
            "cluster": {"kind": "self-managed", "elastic_ip": True, "administrators": []},
            "nodes": {"w": taint},
        }
    )
    assert (spec.control_plane_zone, spec.control_plane_address) == ("us-west-2a", "172.20.0.9")
    assert spec.cluster.services == "10.43.0.0/16"


def test_the_shipped_file_names_the_schema(project: Path) -> None:
    first = (project / "cluster.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=docs/cluster.schema.json"


def test_every_field_is_described() -> None:
    schema = ClusterSpec.model_json_schema()
    groups = {"ClusterSpec": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, group in groups.items()
        for key, value in group["properties"].items()
        if "description" not in value
    ]
    assert bare == []


def test_reading_settings_needs_no_cdk(project: Path) -> None:
    code = (
        "import sys, stacks.cluster_spec; print([m for m in sys.modules if m.split('.')[0] in ('aws_cdk', 'jsii', 'constructs')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=project).stdout.strip() == "[]"


@pytest.mark.slow
def test_the_app_says_it_in_one_line_and_exits_2(tmp_path: Path, project: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("retain: false\nnodes: {workers: {desired: 9}}")
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps({"config": str(file)})}
    ran = subprocess.run([sys.executable, "app.py"], capture_output=True, text=True, cwd=project, env=environment)
    assert ran.returncode == 2
    assert ran.stderr == "bad.yaml: nodes.workers.desired is 9: allowed is nodes.workers.min (1) to nodes.workers.max (6)\n"
