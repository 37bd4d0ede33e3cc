"""The network: what is reachable, and from where."""

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template

from constructs_lib.network.network import SERVICES, ServiceEndpoints, TrainingNetwork


def test_subnets_lie_in_the_named_zones_and_give_nobody_a_public_address(shipped: Any) -> None:
    subnets = shipped.resources("AWS::EC2::Subnet")
    assert sorted((s["AvailabilityZone"], s.get("MapPublicIpOnLaunch", False)) for s in subnets) == [
        ("us-west-2a", False),
        ("us-west-2a", False),
        ("us-west-2b", False),
        ("us-west-2b", False),
    ]


def test_the_vpc_resolves_names_which_eks_and_efs_need(shipped: Any) -> None:
    (vpc,) = shipped.resources("AWS::EC2::VPC")
    assert (vpc["CidrBlock"], vpc["EnableDnsHostnames"], vpc["EnableDnsSupport"]) == ("10.0.0.0/16", True, True)


def test_nat_gateways_are_as_many_as_asked_for(shipped: Any, otherwise: Any) -> None:
    assert [len(cluster.resources("AWS::EC2::NatGateway")) for cluster in (shipped, otherwise)] == [1, 2]


def test_without_nat_nothing_leads_to_the_internet(variant: Any) -> None:
    private = variant("private")
    kinds = ("NatGateway", "InternetGateway", "EIP", "VPCGatewayAttachment", "Route")
    assert {kind: len(private.resources(f"AWS::EC2::{kind}")) for kind in kinds} == dict.fromkeys(kinds, 0)


def test_a_private_cluster_reaches_every_service_it_calls(variant: Any) -> None:
    private = variant("private")
    endpoints = private.resources("AWS::EC2::VPCEndpoint")
    interfaces = [e for e in endpoints if e["VpcEndpointType"] == "Interface"]
    names = {
        e["ServiceName"].removeprefix("com.amazonaws.us-west-2.")
        for e in interfaces
        if e["PrivateDnsEnabled"] and len(e["SubnetIds"]) == 3
    }
    assert names == {
        *("ec2", "eks", "eks-auth", "ecr.api", "ecr.dkr", "elasticfilesystem", "sts", "logs", "monitoring", "ssm", "ssmmessages")
    }
    assert len(interfaces) == len(SERVICES)
    assert [e for e in endpoints if e["VpcEndpointType"] == "Gateway"] != []


def test_endpoints_take_https_from_the_vpc_alone(variant: Any) -> None:
    groups = [
        g for g in variant("private").resources("AWS::EC2::SecurityGroup", "network") if "Endpoints" in g["GroupDescription"]
    ]
    (group,) = groups
    (rule,) = group["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"]) == (443, 443)
    assert rule["CidrIp"] == "10.30.0.0/20"


def test_s3_costs_no_nat_traffic(shipped: Any) -> None:
    (endpoint,) = shipped.resources("AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert len(endpoint["RouteTableIds"]) == 4


def test_flow_logs_are_encrypted_and_end(shipped: Any, otherwise: Any) -> None:
    (flow_log,) = shipped.resources("AWS::EC2::FlowLog")
    assert flow_log["TrafficType"] == "ALL"
    (group,) = shipped.resources("AWS::Logs::LogGroup", "network")
    assert (group["RetentionInDays"], "KmsKeyId" in group) == (30, True)
    assert otherwise.resources("AWS::EC2::FlowLog") == []


def test_an_existing_vpc_gets_flow_logs_and_a_zone_and_no_more(variant: Any) -> None:
    types = {resource["Type"] for resource in variant("existing").templates["network"]["Resources"].values()}
    assert types == {
        *("AWS::EC2::FlowLog", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role", "AWS::Logs::LogGroup", "AWS::Route53::HostedZone")
    }


def test_the_private_zone_answers_in_the_vpc_alone(shipped: Any) -> None:
    (zone,) = shipped.resources("AWS::Route53::HostedZone")
    assert (zone["Name"], len(zone["VPCs"])) == ("paddle.", 1)


def test_in_a_strangers_stack(stranger: tuple[Stack, ec2.Vpc]) -> None:
    stack, vpc = stranger
    network = TrainingNetwork(stack, "Ours", availability_zones=["eu-central-1a", "eu-central-1b"], nat_gateways=0)
    ServiceEndpoints(stack, "Endpoints", vpc=vpc)
    assert len(network.vpc.isolated_subnets) == 2
    template = Template.from_stack(stack)
    # No function of any kind, though the stranger's app has none of our feature flags.
    template.resource_count_is("AWS::Lambda::Function", 0)
