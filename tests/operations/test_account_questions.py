"""`doctor`'s questions that no emulator answers: quotas, instance types, simulated policies, a region's services.

The answers have the shapes of AWS's own models (aws_api.py); the numbers in them are the tests' own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_api import AwsApi, Parameters, Refused
from commands import Run

from operations.account import account_checks
from operations.account.account_checks import EIP_QUOTA, VCPU_QUOTAS, VPC_QUOTA, AccountChecks, Finding
from operations.account.deployed_checks import DeployedChecks
from stacks.cluster_spec import ClusterSpec

pytestmark = pytest.mark.slow

OWN = Path(__file__).parents[1] / "aws" / "variants" / "self-managed-cluster.yaml"
USER = "arn:aws:iam::000000000000:user/me"


def spec(**settings: Any) -> ClusterSpec:
    return ClusterSpec.model_validate({"retain": False, "region": "us-west-2", **settings})


def checked(name: str, settings: ClusterSpec) -> list[tuple[str, str]]:
    """What one check finds."""
    checks = [check for check in AccountChecks(settings).all() if check[0] == name]
    found: list[Finding] = account_checks.run(checks)
    return [(one.state, one.text) for one in found]


def offered(api: AwsApi, *kinds: tuple[str, str]) -> None:
    """Instance types by zone, a page each."""

    def answer(asked: Parameters) -> dict[str, Any]:
        wanted = {value for name, value in asked.items() if name.startswith("Filter.1.Value")}
        found = [kind for kind in kinds if kind[0] in wanted]
        page = int(asked.get("NextToken", 0))
        offerings = [{"InstanceType": kind, "LocationType": "availability-zone", "Location": zone} for kind, zone in found]
        more = {"NextToken": str(page + 1)} if page + 1 < len(found) else {}
        return {"InstanceTypeOfferings": offerings[page : page + 1], **more}

    api.answer("ec2", "DescribeInstanceTypeOfferings", answer)


def test_instance_types_are_asked_for_zone_by_zone(aws_api: AwsApi) -> None:
    offered(aws_api, ("m5.large", "us-west-2a"), ("m5.large", "us-west-2b"), ("g5.xlarge", "us-west-2b"))
    nodes = {"workers": {"instance_types": ["m5.large"]}, "gpus": {"instance_types": ["g5.xlarge"], "gpu": True}}
    zones = {"availability_zones": ["us-west-2a", "us-west-2b"]}
    assert checked("instance types", spec(nodes=nodes, network=zones)) == [
        ("ok", "m5.large (nodes.workers) is offered in us-west-2a, us-west-2b"),
        ("problem", "g5.xlarge (nodes.gpus) is not offered in us-west-2a: take another type or zone"),
    ]


def test_a_self_managed_control_plane_is_a_machine_too(aws_api: AwsApi) -> None:
    offered(aws_api, ("m5.large", "us-west-2a"), ("m5a.large", "us-west-2a"))
    found = checked("instance types", ClusterSpec.load(OWN))
    assert ("problem", "t3.medium (cluster) is not offered in us-west-2a: take another type or zone") in found


def test_each_part_that_the_settings_name_is_looked_up_whatever_becomes_of_the_others(aws_api: AwsApi) -> None:
    arn = "arn:aws:kms:us-west-2:000000000000:key/0123"
    nodes = {"workers": {"ssh": {"key_pair": "nobody", "allowed_from": ["10.0.0.0/16"]}}}
    settings = spec(key={"existing_arn": arn}, nodes=nodes, bucket={"existing_name": "ours"})
    aws_api.refuse("kms", "DescribeKey", "NotFoundException", "Key does not exist")
    aws_api.answer("ec2", "DescribeKeyPairs", {"KeyPairs": [{"KeyName": "nobody"}]})
    checks = dict.fromkeys(checked("existing parts", settings))
    assert list(checks)[:2] == [
        (
            "problem",
            f"{arn} (key.existing_arn) does not exist (NotFoundException): make or import it, or correct key.existing_arn",
        ),
        ("ok", "nobody (nodes.workers.ssh.key_pair) exists"),
    ]
    # Nobody answers for S3 here: that is no proof that the bucket is not there.
    assert [state for state, _ in checks][2:] == ["warning"]
    aws_api.answer(
        "kms", "DescribeKey", {"KeyMetadata": {"KeyId": "0123", "KeyState": "Disabled", "KeyUsage": "ENCRYPT_DECRYPT"}}
    )
    aws_api.refuse("ec2", "DescribeKeyPairs", "InvalidKeyPair.NotFound")
    (key, pair, _) = checked("existing parts", settings)
    assert key == ("problem", f"{arn} (key.existing_arn) is Disabled, for ENCRYPT_DECRYPT")
    assert pair[0] == "problem" and "does not exist (InvalidKeyPair.NotFound)" in pair[1]


NOBODY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.mark.parametrize(
    ("code", "destroy", "words"),
    [
        ("", (), "no AWS credentials were found: log in"),
        ("ExpiredToken", ("--destroy",), "AWS does not accept these credentials (ExpiredToken): log in again"),
    ],
    ids=["nobody", "expired"],
)
def test_without_an_account_nothing_is_well(
    run: Run, aws_api: AwsApi, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, destroy: tuple[str, ...], words: str
) -> None:
    """`doctor && cdk deploy` must not go on, and every check is there all the same."""
    config = str(Path(__file__).parents[2] / "cluster.yaml")
    if code:
        aws_api.refuse("sts", "GetCallerIdentity", code, "The security token included in the request is expired")
    else:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in NOBODY:
            monkeypatch.delenv(name, raising=False)
    done = run("doctor", config, *destroy)
    credentials = next(line for line in done.out.splitlines() if line.startswith("credentials"))
    assert done.code == 3 and credentials.split(maxsplit=2)[1] == "problem" and words in credentials
    assert "the account cannot be asked" in done.err
    same = [line for line in done.out.splitlines() if "not checked: " + words in line]
    names = "protection, load balancers, network interfaces" if destroy else "region, zones, instance types, quotas: vCPUs"
    assert len(same) == (0 if code else 1) and f"({names}" in done.out
    if not code:
        left = run("leftovers", config)
        assert left.code == 3 and left.err.startswith(words) and len(left.err.splitlines()) == 1


def test_another_cluster_whose_name_begins_alike_is_not_ours(aws_api: AwsApi) -> None:
    created = "2026-11-21T00:00:00Z"
    others = [
        {
            "StackName": f"paddle-two-{part}",
            "CreationTime": created,
            "StackStatus": "CREATE_COMPLETE",
            "Outputs": [{"OutputKey": "VpcId", "OutputValue": "vpc-of-another"}],
        }
        for part in ("network", "storage")
    ]
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": others})
    deployed = DeployedChecks(spec(), AccountChecks(spec()))
    assert deployed.deployed is False
    ((_, check),) = deployed.destroy()
    assert list(check()) == [("ok", "no stack of cluster paddle is deployed: nothing to destroy")]


def test_what_no_stack_knows_is_in_the_way_of_a_destroy(aws_api: AwsApi) -> None:
    outputs = [{"OutputKey": "VpcId", "OutputValue": "vpc-1"}]
    stack = {"StackName": "paddle-network", "StackStatus": "CREATE_COMPLETE", "CreationTime": "2026-11-21T00:00:00Z"}
    aws_api.answer("cloudformation", "DescribeStacks", {"Stacks": [stack | {"Outputs": outputs}]})
    ours = [{"Key": "aws:cloudformation:stack-name", "Value": "paddle-network"}]
    free: dict[str, Any] = {"Status": "available"}
    interfaces = [{"NetworkInterfaceId": "eni-1", **free}, {"NetworkInterfaceId": "eni-2", "TagSet": ours, **free}]
    interfaces += [{"NetworkInterfaceId": "eni-3", "RequesterManaged": True, **free}, {"NetworkInterfaceId": "eni-4"}]
    machines: list[dict[str, Any]] = [{"InstanceId": name, "State": {"Name": "running"}} for name in ("i-1", "i-2")]
    machines[1]["Tags"] = [{"Key": "eks:nodegroup-name", "Value": "workers"}]
    aws_api.answer("ec2", "DescribeNetworkInterfaces", {"NetworkInterfaces": interfaces})
    aws_api.answer("ec2", "DescribeInstances", {"Reservations": [{"Instances": machines}]})
    aws_api.answer("ec2", "DescribeVpcEndpoints", {"VpcEndpoints": [{"VpcEndpointId": "vpce-1", "Tags": ours}]})
    found = account_checks.run(DeployedChecks(spec(), AccountChecks(spec())).destroy())
    assert {one.check: (one.state, one.text) for one in found if not one.text.startswith("not checked")}.items() >= {
        ("network interfaces", ("problem", HANGS_FREE)),
        ("instances", ("problem", "i-1 is of no stack: aws ec2 terminate-instances --instance-ids i-1")),
        ("endpoints", ("ok", "all are the stacks' own")),
    }
    assert [one.check for one in found].count("network interfaces") == 1


HANGS_FREE = "eni-1 hangs free (no description): aws ec2 delete-network-interface --network-interface-id eni-1"


def quotas(api: AwsApi, **values: float) -> None:
    codes = {"standard": VCPU_QUOTAS[("standard", False)], "vpcs": VPC_QUOTA, "addresses": EIP_QUOTA}
    known = {codes[name]: value for name, value in values.items()}

    def answer(asked: Parameters) -> dict[str, Any]:
        code = asked["QuotaCode"]
        if code not in known:
            raise Refused("NoSuchResourceException", "The request failed because the specified quota does not exist.")
        return {"Quota": {"ServiceCode": asked["ServiceCode"], "QuotaCode": code, "Value": known[code], "Unit": "None"}}

    api.answer("service-quotas", "GetServiceQuota", answer)
    sizes = {"m5.large": 2, "t3.medium": 2, "trn1.2xlarge": 8}

    def types(asked: Parameters) -> dict[str, Any]:
        wanted = [value for name, value in asked.items() if name.startswith("InstanceType.")]
        return {"InstanceTypes": [{"InstanceType": kind, "VCpuInfo": {"DefaultVCpus": sizes[kind]}} for kind in wanted]}

    api.answer("ec2", "DescribeInstanceTypes", types)


@pytest.mark.parametrize(
    ("quota", "state", "words"),
    [
        (4, "problem", "6 vCPUs are needed, the quota is 4: ask for more in Service Quotas"),
        (6, "warning", "10 vCPUs at the most, the quota is 6: the groups cannot grow so far"),
        (32, "ok", "10 vCPUs at the most, the quota is 32 (other instances count too)"),
    ],
)
def test_vcpus(aws_api: AwsApi, quota: float, state: str, words: str) -> None:
    quotas(aws_api, standard=quota)
    nodes = {"workers": {"instance_types": ["m5.large"], "min": 1, "desired": 3, "max": 5}}
    assert checked("quotas: vCPUs", spec(nodes=nodes)) == [(state, f"standard on-demand instances: {words}")]


def test_an_answer_that_nobody_foresaw_hides_no_other_check() -> None:
    def odd() -> list[Any]:
        raise KeyError("VCpuInfo")

    found = account_checks.run([("odd", odd), ("next", lambda: [("ok", "well")])])
    assert [(one.state, one.text) for one in found] == [("warning", "not checked: KeyError: 'VCpuInfo'"), ("ok", "well")]


def test_a_type_with_a_quota_of_its_own_hides_no_other(aws_api: AwsApi) -> None:
    quotas(aws_api, standard=1)
    nodes = {"chips": {"instance_types": ["trn1.2xlarge"]}, "workers": {"instance_types": ["m5.large"]}}
    found = checked("quotas: vCPUs", spec(nodes=nodes))
    assert [state for state, _ in found] == ["warning", "problem"] and "trn1.2xlarge has a quota of its own" in found[0][1]


def test_a_quota_that_cannot_be_read_is_unchecked(aws_api: AwsApi) -> None:
    quotas(aws_api)
    (found,) = checked("quotas: vCPUs", spec())
    assert found[0] == "warning" and found[1].startswith("not checked: AWS refused GetServiceQuota: NoSuchResourceException")


def test_addresses_and_vpcs(aws_api: AwsApi) -> None:
    quotas(aws_api, vpcs=5, addresses=2)
    mine: list[dict[str, Any]] = []
    aws_api.answer("ec2", "DescribeVpcs", lambda asked: {"Vpcs": mine if "Filter.1.Name" in asked else [{"VpcId": "vpc-1"}]})
    aws_api.answer("ec2", "DescribeAddresses", {"Addresses": [{"AllocationId": "a"}, {"AllocationId": "b"}]})
    settings = ClusterSpec.load(OWN)
    needed = settings.network.nat_gateways + 1
    assert checked("quotas: network", settings) == [
        ("ok", "1 VPCs of 5 are taken, 1 more are needed"),
        ("problem", f"2 Elastic IPs of 2 are taken, {needed} more are needed: ask for more in Service Quotas"),
    ]
    # Once it is deployed, what it needs is among what is taken.
    mine.append({"VpcId": "vpc-2"})
    assert {state for state, _ in checked("quotas: network", settings)} == {"ok"}


def simulated(api: AwsApi, *refused: str) -> None:
    """IAM's simulation, in which some actions are denied; asked as a user."""
    api.answer("sts", "GetCallerIdentity", {"UserId": "AIDA", "Account": "000000000000", "Arn": USER})

    def answer(asked: Parameters) -> dict[str, Any]:
        assert asked["PolicySourceArn"] == USER
        actions = [value for name, value in asked.items() if name.startswith("ActionNames.member")]
        resources = [value for name, value in asked.items() if name.startswith("ResourceArns.member")]
        results = [
            {
                "EvalActionName": action,
                "EvalResourceName": resource,
                "EvalDecision": "implicitDeny" if action in refused else "allowed",
            }
            for action in actions
            for resource in resources
        ]
        return {"EvaluationResults": results, "IsTruncated": False}

    api.answer("iam", "SimulatePrincipalPolicy", answer)


def test_what_the_caller_may_not_is_named(aws_api: AwsApi) -> None:
    simulated(aws_api)
    assert checked("permissions", spec()) == [("ok", f"{USER} may take cdk's roles and deploy, and reach the cluster afterwards")]
    simulated(aws_api, "sts:AssumeRole", "secretsmanager:GetSecretValue")
    found = checked("permissions", ClusterSpec.load(OWN))
    assert [state for state, _ in found] == ["problem", "warning"]
    role = "arn:aws:iam::000000000000:role/cdk-tutorial-deploy-role-000000000000-us-west-2"
    assert f"may not sts:AssumeRole on {role}" in found[0][1]
    assert "kubeconfig/operator-*, needed to run `paddle-aws kubeconfig`" in found[1][1]
    assert all(text.endswith("take the operator's role, or join its group (docs/people.md)") for _, text in found)


def test_one_of_several_resources_may_be_refused(aws_api: AwsApi) -> None:
    simulated(aws_api)

    def answer(asked: Parameters) -> dict[str, Any]:
        each = [
            {"EvalResourceName": arn, "EvalResourceDecision": "implicitDeny" if "file-publishing" in arn else "allowed"}
            for name, arn in asked.items()
            if name.startswith("ResourceArns.member")
        ]
        result = {"EvalActionName": asked["ActionNames.member.1"], "EvalResourceName": each[0]["EvalResourceName"]}
        return {"EvaluationResults": [result | {"EvalDecision": "allowed", "ResourceSpecificResults": each}]}

    aws_api.answer("iam", "SimulatePrincipalPolicy", answer)
    ((state, text),) = checked("permissions", spec())
    assert state == "problem" and "role/cdk-paddle-file-publishing-role-" in text and "deploy-role" not in text


def test_a_restricted_deployer_that_is_still_an_administrator(aws_api: AwsApi) -> None:
    aws_api.answer("sts", "GetCallerIdentity", {"UserId": "AIDA", "Account": "000000000000", "Arn": USER})
    aws_api.answer("ssm", "GetParameter", {"Parameter": {"Value": "30"}})
    attached = {"PolicyName": "AdministratorAccess", "PolicyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}
    aws_api.answer("iam", "ListAttachedRolePolicies", {"AttachedPolicies": [attached]})
    assert checked("bootstrap", spec()) == [("ok", "bootstrap version 30")]
    (_, (state, text)) = checked("bootstrap", spec(deployer="restricted"))
    assert state == "problem" and "cfn-exec-role-000000000000-us-west-2 has AdministratorAccess" in text
    attached["PolicyName"] = "paddle-deploy-1"
    assert checked("bootstrap", spec(deployer="restricted"))[1] == ("ok", "CloudFormation deploys by paddle-deploy-1")


def listed(api: AwsApi, offered: set[str], known: set[str]) -> None:
    """AWS's public list of services."""

    def answer(asked: Parameters) -> dict[str, Any]:
        names = [
            name for name in asked["Names"] if name.rpartition("/")[2] in (offered if "/regions/us-west-2/" in name else known)
        ]
        parameters = [{"Name": name, "Type": "String", "Value": name.rpartition("/")[2]} for name in names]
        invalid = sorted(set(asked["Names"]) - set(names))
        return {"Parameters": parameters} | ({"InvalidParameters": invalid} if invalid else {})

    api.answer("ssm", "GetParameters", answer)


ALL = {"cloudformation", "ec2", "ecr", "efs", "eks", "iam", "kms", "logs", "route53", "s3", "ssm", "sts"}


def test_a_regions_services_by_awss_own_list(aws_api: AwsApi) -> None:
    listed(aws_api, ALL, ALL)
    assert checked("region", spec()) == [("ok", "us-west-2 offers every service that is used (by AWS's list of today)")]
    listed(aws_api, ALL - {"efs"}, ALL)
    assert checked("region", spec()) == [
        ("problem", "us-west-2 does not offer efs (by AWS's list of today): take another region")
    ]


def test_a_list_that_cannot_be_read_is_said(aws_api: AwsApi) -> None:
    aws_api.refuse("ssm", "GetParameters", "AccessDeniedException")
    ((state, text),) = checked("region", spec())
    assert state == "warning" and text.startswith("not checked: AWS refused GetParameters: AccessDeniedException")
    # A service that AWS's list spells otherwise is no missing one.
    listed(aws_api, ALL - {"logs"}, ALL - {"logs"})
    assert checked("region", spec()) == [
        ("ok", "us-west-2 offers every service that is used (by AWS's list of today, which has no logs)")
    ]
    listed(aws_api, set(), set())
    assert checked("region", spec()) == [("warning", "not checked: AWS's list of each region's services is empty here")]
