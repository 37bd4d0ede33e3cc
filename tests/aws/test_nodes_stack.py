"""Nodes: what they are, what they carry, when they start."""

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

from constructs_lib.ec2.node_shape import NodeShape
from constructs_lib.eks.cluster import TrainingCluster
from constructs_lib.eks.managed_nodes import ManagedNodes
from constructs_lib.eks.self_managed_nodes import SelfManagedNodes
from constructs_lib.storage.file_system import SharedFileSystem


def _data(cluster: Any, group: str) -> dict[str, Any]:
    templates = cluster.whole("AWS::EC2::LaunchTemplate").items()
    (data,) = [template["Properties"]["LaunchTemplateData"] for name, template in templates if name.startswith(group)]
    return data


def test_machines_keep_their_role_seal_their_disks_and_carry_the_budgets_tags(each_variant: Any) -> None:
    # Pods reach it on the nodes of a self-managed cluster alone, whose data job has no other (NetworkPolicy keeps the rest away).
    nodes = 2 if each_variant.spec.cluster.self_managed else 1
    for stack, hops in (("cluster", 1), ("nodes", nodes)):
        for template in each_variant.resources("AWS::EC2::LaunchTemplate", stack):
            options = template["LaunchTemplateData"]["MetadataOptions"]
            assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", hops)
    for template in each_variant.resources("AWS::EC2::LaunchTemplate"):
        (disk,) = template["LaunchTemplateData"]["BlockDeviceMappings"]
        assert (disk["Ebs"]["Encrypted"], disk["Ebs"]["DeleteOnTermination"]) == (True, True)
        for specification in template["LaunchTemplateData"]["TagSpecifications"]:
            tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
            assert tags["cluster"] == each_variant.spec.name, specification["ResourceType"]


def test_ssh_is_opened_to_the_named_ranges_alone(variant: Any) -> None:
    own = variant("self-managed")
    assert _data(own, "workers")["KeyName"] == "ops"
    (group,) = [g for g in own.resources("AWS::EC2::SecurityGroup", "nodes") if g["GroupDescription"] == "SSH to the nodes"]
    assert [(r["CidrIp"], r["FromPort"], r["ToPort"]) for r in group["SecurityGroupIngress"]] == [("10.0.0.0/16", 22, 22)]
    assert "KeyName" not in _data(own, "pservers")


def test_gpu_nodes_are_labelled_tainted_and_have_the_nvidia_image(variant: Any) -> None:
    (group,) = [g for g in variant("gpu").resources("AWS::EKS::Nodegroup") if g["AmiType"] == "AL2023_x86_64_NVIDIA"]
    assert (group["CapacityType"], group["Labels"]) == ("SPOT", {"paddle-aws/gpu": "true", "paddle-aws/efa": "true"})
    assert group["Taints"] == [{"Key": "nvidia.com/gpu", "Value": "true", "Effect": "NO_SCHEDULE"}]
    assert group["NodeRepairConfig"] == {"Enabled": False}


def test_efa_and_placement_are_for_the_group_that_asks_and_its_fabric_talks_to_itself_alone(variant: Any) -> None:
    gpu = variant("gpu")
    data = _data(gpu, "trainers")
    (interface,) = data["NetworkInterfaces"]
    assert (interface["InterfaceType"], len(interface["Groups"])) == ("efa", 3)
    assert "SecurityGroupIds" not in data and "Placement" in data
    assert gpu.resources("AWS::EC2::PlacementGroup")[0]["Strategy"] == "cluster"
    assert not {"NetworkInterfaces", "Placement"} & set(_data(gpu, "pservers"))
    groups = gpu.whole("AWS::EC2::SecurityGroup").items()
    (name,) = [name for name, group in groups if group["Properties"]["GroupDescription"].startswith("Fabric")]
    itself = {"Fn::GetAtt": [name, "GroupId"]}
    for direction, peer in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
        (rule,) = [r for r in gpu.resources(f"AWS::EC2::SecurityGroup{direction}", "nodes") if r["GroupId"] == itself]
        assert (rule["IpProtocol"], rule[peer]) == ("-1", itself)


def test_self_managed_nodes_join_by_nodeadm_and_one_access_entry(variant: Any) -> None:
    own = variant("self-managed")
    (entry,) = own.resources("AWS::EKS::AccessEntry", "nodes")
    assert entry["Type"] == "EC2_LINUX"
    data = _data(own, "workers")
    assert (
        data["ImageId"]
        == "resolve:ssm:/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"
    )
    parts = data["UserData"]["Fn::Base64"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "TOKEN" for part in parts)
    head, _, body = text.partition("Content-Type: application/node.eks.aws\n\n")
    assert head.startswith("MIME-Version: 1.0\nContent-Type: multipart/mixed; ")
    assert json.loads(body.partition("\n\n--")[0]) == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {"name": "TOKEN", "apiServerEndpoint": "TOKEN", "certificateAuthority": "TOKEN", "cidr": "172.20.0.0/16"},
            "kubelet": {"flags": ["--node-labels=team=speech", "--register-with-taints=batch=only:NoSchedule"]},
        },
    }


def test_the_same_settings_give_both_kinds_the_same_sizes(variant: Any) -> None:
    groups = variant("self-managed").whole("AWS::AutoScaling::AutoScalingGroup")
    (workers,) = [g for n, g in groups.items() if n.startswith("workers")]
    properties = workers["Properties"]
    assert [properties[key] for key in ("MinSize", "DesiredCapacity", "MaxSize")] == ["1", "3", "6"]
    policy = properties["MixedInstancesPolicy"]
    assert [o["InstanceType"] for o in policy["LaunchTemplate"]["Overrides"]] == ["m5.large", "m5a.large"]
    assert policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 100
    assert workers["UpdatePolicy"]["AutoScalingRollingUpdate"]["MaxBatchSize"] == 1
    assert any("kubernetes.io/cluster/" in json.dumps(tag["Key"]) and tag["Value"] == "owned" for tag in properties["Tags"])
    (pservers,) = [g["Properties"] for n, g in groups.items() if n.startswith("pservers")]
    assert pservers["MixedInstancesPolicy"]["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0
    assert pservers["CapacityRebalance"] is True


def test_managed_nodes_follow_the_clusters_version_and_the_lock(shipped: Any, otherwise: Any, variant: Any, built: Any) -> None:
    """Without a version of theirs EKS leaves them behind; of somebody else's cluster nobody knows it unless it is said."""

    def versions(of: Any) -> list[tuple[str | None, str | None]]:
        return [(group.get("Version"), group.get("ReleaseVersion")) for group in of.resources("AWS::EKS::Nodegroup")]

    assert versions(shipped) == [("1.35", None)]
    assert versions(otherwise) == [("1.35", "1.35.0-locked")]
    lodger = variant("borrowed-cluster")
    assert versions(lodger) == [(None, None)]
    theirs = lodger.spec.model_dump(exclude_unset=True)
    theirs["cluster"]["version"] = "1.34"
    assert versions(built(**theirs)) == [("1.34", None)]


def test_addons_with_deployments_wait_for_a_node(shipped: Any) -> None:
    groups = set(shipped.whole("AWS::EKS::Nodegroup"))
    addons = shipped.whole("AWS::EKS::Addon", "nodes")
    names = {a["Properties"]["AddonName"] for a in addons.values()}
    assert names == {"coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent"}
    for addon in addons.values():
        assert groups <= set(addon["DependsOn"])


def test_container_logs_are_one_setting(variant: Any, shipped: Any) -> None:
    own = variant("self-managed")
    groups = {g["LogGroupName"]: g for g in own.resources("AWS::Logs::LogGroup", "nodes")}
    prefix = "/aws/containerinsights/self/"
    assert set(groups) == {prefix + kind for kind in ("application", "dataplane", "host", "performance")}
    assert {g["RetentionInDays"] for g in groups.values()} == {30}
    assert shipped.resources("AWS::Logs::LogGroup", "nodes") == []


def test_a_node_starts_when_its_volume_can_be_mounted(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs")
    data = SharedFileSystem(stack, "Data", vpc=vpc)
    mount = {"security_groups": [data.client_security_group], "depends_on": [data.mount_targets]}
    ManagedNodes(stack, "Managed", cluster=cluster, vpc=vpc, **mount)
    SelfManagedNodes(stack, "Own", cluster=cluster, vpc=vpc, kubernetes_version="1.35", **mount)
    template = Template.from_stack(stack)
    targets = set(template.find_resources("AWS::EFS::MountTarget"))
    for kind in ("AWS::EKS::Nodegroup", "AWS::AutoScaling::AutoScalingGroup"):
        (group,) = template.find_resources(kind).values()
        assert targets <= set(group["DependsOn"])


def test_ssh_for_everybody_is_refused(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    cluster = TrainingCluster(stack, "Cluster", vpc=vpc, cluster_name="theirs")
    with pytest.raises(ValueError, match="SSH is never opened to everybody"):
        ManagedNodes(stack, "M", cluster=cluster, vpc=vpc, shape=NodeShape(key_pair="k", ssh_from=["0.0.0.0/1", "128.0.0.0/1"]))
    with pytest.raises(ValueError, match="the endpoint is never opened to everybody"):
        TrainingCluster(stack, "Open", vpc=vpc, cluster_name="open", public_access_from=["0.0.0.0/1", "128.0.0.0/1"])
    with pytest.raises(ValueError, match="name who may connect"):
        ManagedNodes(stack, "N", cluster=cluster, vpc=vpc, shape=NodeShape(key_pair="k"))
