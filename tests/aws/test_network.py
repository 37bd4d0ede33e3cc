"""The network: what is reachable, and from where."""

from typing import Any


def test_nat_gateways_are_as_many_as_asked_for(shipped: Any, otherwise: Any) -> None:
    assert [len(cluster.resources("AWS::EC2::NatGateway")) for cluster in (shipped, otherwise)] == [1, 2]


def test_endpoints_take_https_from_the_vpc_alone(variant: Any) -> None:
    groups = [
        g for g in variant("private").resources("AWS::EC2::SecurityGroup", "network") if "Endpoints" in g["GroupDescription"]
    ]
    (group,) = groups
    (rule,) = group["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"]) == (443, 443)
    assert rule["CidrIp"] == "10.30.0.0/20"


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
