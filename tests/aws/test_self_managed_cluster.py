"""A self-managed cluster: one test for each step of the documents, which docs/self-managed.md lists."""

import json
import re
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack

from constructs_lib.network.network import TrainingNetwork
from settings.errors import SettingError
from stacks.build import build
from stacks.cluster_spec import ClusterSpec
from stacks.k3s_cluster import release

from .conftest import PROJECT

VERSION, IMAGES = "v1.35.0+k3s0", "k3s-airgap-images-amd64.tar.zst"


@pytest.fixture(scope="module")
def own(variant: Any) -> Any:
    return variant("self-managed-cluster")


def one(found: dict[str, Any] | list[Any]) -> Any:
    (only,) = found.values() if isinstance(found, dict) else found
    return only


def named(found: dict[str, Any], word: str) -> Any:
    return one({name: resource for name, resource in found.items() if word in name})


def boot_text(resource: dict[str, Any]) -> str:
    """User data as a machine gets it, with the bucket of files and the Elastic IP."""
    parts = resource["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]["Fn::Join"][1]
    known = {"Fn::Sub": "files", "Fn::GetAtt": "203.0.113.200"}
    return "".join(part if isinstance(part, str) else known.get(next(iter(part)), "token") for part in parts)


def variables(resource: dict[str, Any]) -> dict[str, str]:
    return dict(re.findall(r"^([A-Z_]+)='([^']*)'$", boot_text(resource), re.MULTILINE))


def control_plane(own: Any) -> Any:
    return one(own.whole("AWS::EC2::LaunchTemplate", "cluster"))


def statements(own: Any, stack: str, word: str) -> dict[str, Any]:
    policy = named(own.whole("AWS::IAM::ManagedPolicy", stack), word)
    return {statement["Sid"]: statement for statement in policy["Properties"]["PolicyDocument"]["Statement"]}


def test_machines_fetch_their_files_from_the_bucket_and_know_each_checksum(own: Any) -> None:
    locked = json.loads((PROJECT / "tests/aws/variants/distribution/lock.json").read_text())["files"]
    for template in own.whole("AWS::EC2::LaunchTemplate").values():
        files = {line.split()[0]: line.split()[1:] for line in variables(template)["FILES"].splitlines()}
        for name, folder in (("k3s", "/usr/local/bin"), (IMAGES, "/var/lib/rancher/k3s/agent/images")):
            uri, checksum = files[f"{folder}/{name}"]
            assert checksum == locked[name]["sha256"]
            assert uri.startswith(f"s3://files/{checksum}")
        assert f"/opt/paddle-cluster/{variables(template)['ROLE']}.sh" in files
        assert variables(template)["DISTRIBUTION_VERSION"] == VERSION


def test_files_of_any_size_are_neither_hashed_nor_copied_at_synth(own: Any) -> None:
    folder = Path(own.assembly.directory)
    assert [path.name for path in folder.iterdir() if path.name.startswith("asset.")] == []
    manifest = json.loads((folder / "tutorial-cluster.assets.json").read_text())
    paths = [Path(file["source"]["path"]) for file in manifest["files"].values()]
    assert {path.name for path in paths if path.is_absolute()} > {"k3s", "control-plane.sh", "efs-csi-driver.yaml"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"distribution": {"lock": "none.json"}}, r"none\.json is missing: .* run `paddle-aws lock distribution`"),
        ({"version": "1.34"}, r'version is "1\.34", but'),
    ],
)
def test_without_its_lock_one_sentence_names_the_command(own: Any, settings: dict[str, Any], sentence: str) -> None:
    cluster = own.spec.cluster.model_dump(include={"kind", "distribution"})
    with pytest.raises(SettingError, match=sentence):
        release(ClusterSpec.model_validate({"retain": False, "cluster": {**cluster, **settings}}))
    fitting = ClusterSpec.model_validate({"retain": False, "cluster": {**cluster, "version": "1.35"}})
    assert release(fitting).version == VERSION


def test_more_labels_than_a_machines_user_data_holds(own: Any) -> None:
    cluster = own.spec.cluster.model_dump(include={"kind", "distribution"}) | {"elastic_ip": True, "administrators": []}
    labels = {f"label-{number}": "x" * 60 for number in range(200)}
    spec = ClusterSpec.model_validate({"retain": False, "cluster": cluster, "nodes": {"w": {"labels": labels}}})
    with pytest.raises(SettingError, match=r"^nodes\.w: the machine's user data has [\d,]{6} characters, at most 15,500 are"):
        build(App(), spec)


def test_two_roles_in_two_profiles_each_with_what_it_needs_only(own: Any) -> None:
    roles = {**own.whole("AWS::IAM::Role", "cluster"), **own.whole("AWS::IAM::Role", "nodes")}
    assert len(roles) == 2
    for role in roles.values():
        assert json.dumps(role["Properties"]["ManagedPolicyArns"]).count("iam::aws:policy/") == 1
    assert len(own.resources("AWS::IAM::InstanceProfile")) == 3


def test_a_key_pair_is_made_and_its_private_key_found_in_parameter_store(own: Any) -> None:
    (pair,) = own.resources("AWS::EC2::KeyPair")
    assert pair == {"KeyName": "tutorial", "KeyType": "ed25519"}, "no tags: a change of them would replace the pair"
    command = json.dumps(own.templates["cluster"]["Outputs"]["SshKeyCommand"]["Value"])
    assert "aws ssm get-parameter --region us-west-2 --name /ec2/keypair/" in command
    for template in own.resources("AWS::EC2::LaunchTemplate"):
        assert template["LaunchTemplateData"]["KeyName"] in ({"Ref": next(iter(own.whole("AWS::EC2::KeyPair")))}, "tutorial")


def test_ssh_is_open_to_the_named_range_alone_and_session_manager_to_all_who_may(own: Any) -> None:
    rules = [rule for group in own.resources("AWS::EC2::SecurityGroup") for rule in group.get("SecurityGroupIngress", [])]
    assert {rule["CidrIp"] for rule in rules if rule.get("FromPort") == 22} == {"203.0.113.7/32"}
    for stack, word in (("cluster", "ControlPlane"), ("nodes", "Joining")):
        assert "ssmmessages:OpenDataChannel" in statements(own, stack, word)["SessionManager"]["Action"]


def test_the_vpc_of_the_documents(own: Any) -> None:
    (vpc,) = own.resources("AWS::EC2::VPC")
    assert (vpc["CidrBlock"], vpc["EnableDnsSupport"], vpc["EnableDnsHostnames"]) == ("172.20.0.0/16", True, True)
    assert len(own.resources("AWS::EC2::InternetGateway")) == len(own.resources("AWS::EC2::VPCGatewayAttachment")) == 1
    assert "172.20.0.0/24" in {subnet["CidrBlock"] for subnet in own.resources("AWS::EC2::Subnet")}
    assert len(own.resources("AWS::EC2::SubnetRouteTableAssociation")) == len(own.resources("AWS::EC2::Subnet")) == 2
    (options,) = own.resources("AWS::EC2::DHCPOptions")
    assert (options["DomainName"], options["DomainNameServers"]) == ("us-west-2.compute.internal", ["AmazonProvidedDNS"])
    assert len(own.resources("AWS::EC2::VPCDHCPOptionsAssociation")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cidr", ["172.20.0.0/16", "10.1.0.0/18", "10.1.2.0/24"])
@pytest.mark.parametrize("zones", [1, 2, 3])
@pytest.mark.parametrize("nat_gateways", [0, 1])
def test_subnets_are_where_the_settings_expect_them(cidr: str, zones: int, nat_gateways: int) -> None:
    """The fixed address is checked against the subnet before there is a CDK: this compares the two."""
    names = [f"us-west-2{letter}" for letter in "abc"[:zones]]
    network = TrainingNetwork(
        Stack(App(analytics_reporting=False), "S"), "N", availability_zones=names, cidr=cidr, nat_gateways=nat_gateways
    )
    cluster = {"kind": "self-managed", "pod_cidr": "10.64.0.0/16", "service_cidr": "10.96.0.0/16"}
    settings = {"cidr": cidr, "availability_zones": names, "nat_gateways": nat_gateways, "interface_endpoints": not nat_gateways}
    spec = ClusterSpec.model_validate({"retain": False, "network": settings, "cluster": cluster}).network
    private = [*network.vpc.private_subnets, *network.vpc.isolated_subnets]
    for public, found in ((True, network.vpc.public_subnets), (False, private)):
        made = [IPv4Network(subnet.ipv4_cidr_block) for subnet in found] or [None] * zones
        assert made == [spec.subnet(name, public=public) for name in names]


def _rules(own: Any, direction: str, other: str) -> list[tuple[str, str, str, int | None]]:
    """(group, peer, protocol, port) of every rule of the two groups."""

    def called(value: Any) -> str:
        kinds = {"FirewallControlPlane": "ControlPlane", "FirewallNodes": "Nodes", "Clients": "Clients"}
        return next((kind for word, kind in kinds.items() if word in json.dumps(value)), str(value))

    groups = own.whole("AWS::EC2::SecurityGroup", "cluster").items()
    rules = [(name, rule) for name, group in groups for rule in group["Properties"].get(f"SecurityGroup{direction}", [])]
    rules += [(rule["GroupId"], rule) for rule in own.resources(f"AWS::EC2::SecurityGroup{direction}", "cluster")]
    assert all(rule.get("FromPort") == rule.get("ToPort") for _, rule in rules)
    peer = f"{other}SecurityGroupId"
    return sorted(
        (called(to), called(rule.get("CidrIp") or rule[peer]), rule["IpProtocol"], rule.get("FromPort")) for to, rule in rules
    )


def test_the_exact_ports_in(own: Any) -> None:
    assert _rules(own, "Ingress", "Source") == [
        ("ControlPlane", "203.0.113.7/32", "tcp", 22),
        ("ControlPlane", "203.0.113.7/32", "tcp", 6443),
        ("ControlPlane", "Nodes", "tcp", 6443),
        ("ControlPlane", "Nodes", "tcp", 10250),
        ("ControlPlane", "Nodes", "udp", 8472),
        ("Nodes", "ControlPlane", "tcp", 10250),
        ("Nodes", "ControlPlane", "udp", 8472),
        ("Nodes", "Nodes", "tcp", 10250),
        ("Nodes", "Nodes", "udp", 8472),
    ]


def test_the_exact_ports_out(own: Any) -> None:
    assert _rules(own, "Egress", "Destination") == [
        ("ControlPlane", "0.0.0.0/0", "tcp", 443),
        ("ControlPlane", "Nodes", "tcp", 10250),
        ("ControlPlane", "Nodes", "udp", 8472),
        ("Nodes", "0.0.0.0/0", "tcp", 80),
        ("Nodes", "0.0.0.0/0", "tcp", 443),
        ("Nodes", "ControlPlane", "tcp", 6443),
        ("Nodes", "ControlPlane", "tcp", 10250),
        ("Nodes", "ControlPlane", "udp", 8472),
        ("Nodes", "Nodes", "tcp", 10250),
        ("Nodes", "Nodes", "udp", 8472),
    ]


def test_the_state_is_on_a_sealed_volume_in_the_machines_zone(own: Any) -> None:
    volume = one(own.resources("AWS::EC2::Volume"))
    group = one(own.resources("AWS::AutoScaling::AutoScalingGroup", "cluster"))
    assert volume["Encrypted"] and "KmsKeyId" in volume
    assert group["AvailabilityZones"] == [volume["AvailabilityZone"]]
    assert variables(control_plane(own))["STATE_VOLUME"] != ""


def test_the_control_plane_is_at_172_20_0_9_whatever_machine_it_is(own: Any) -> None:
    [(name, interface)] = own.whole("AWS::EC2::NetworkInterface").items()
    assert interface["Properties"]["PrivateIpAddress"] == "172.20.0.9"
    data = control_plane(own)["Properties"]["LaunchTemplateData"]
    assert data["NetworkInterfaces"] == [{"DeviceIndex": 0, "NetworkInterfaceId": {"Ref": name}}]
    # Made first, in the same subnet, it would take any free address of 251.
    (gateway,) = own.resources("AWS::EC2::NatGateway")
    assert gateway["PrivateIpAddress"] == "172.20.0.254"


def test_an_elastic_ip_is_on_the_interface_before_the_first_machine(own: Any) -> None:
    (association,) = own.whole("AWS::EC2::EIPAssociation")
    group = one(own.whole("AWS::AutoScaling::AutoScalingGroup", "cluster"))
    assert association in group["DependsOn"]
    assert own.templates["cluster"]["Outputs"]["ControlPlaneAddress"]["Value"] == "172.20.0.9"


def test_the_certificate_has_every_name(own: Any) -> None:
    assert '"tls-san":["172.20.0.9","paddle","api.paddle","203.0.113.200"]' in boot_text(control_plane(own))
    assert variables(control_plane(own))["ENDPOINT"] == "https://203.0.113.200:6443"
    records = {record["Name"]: record["ResourceRecords"] for record in own.resources("AWS::Route53::RecordSet")}
    assert records == {"paddle.": ["172.20.0.9"], "api.paddle.": ["172.20.0.9"]}


def test_an_address_open_to_nobody_is_no_endpoint_and_a_missing_machine_an_alarm(built: Any, own: Any, tmp_path: Path) -> None:
    """And a broken lock of EKS's add-ons is nothing to a cluster that has none."""
    (tmp_path / "add-ons.json").write_text("{")
    cluster = own.spec.cluster.model_dump(include={"kind", "distribution"})
    closed = built(
        tmp_path,
        network={"cidr": "172.20.0.0/16"},
        cluster={**cluster, "elastic_ip": True, "tunnel": False},
        budget={"monthly_usd": 10, "emails": ["a@b.de"]},
    )
    assert variables(control_plane(closed))["ENDPOINT"] == "https://172.20.0.9:6443"
    assert closed.templates["cluster"]["Outputs"]["ClusterEndpoint"]["Value"] == "https://172.20.0.9:6443"
    alarms = [alarm for alarm in closed.resources("AWS::CloudWatch::Alarm") if alarm["Namespace"] == "AWS/AutoScaling"]
    missing = {(alarm["Dimensions"][0]["Value"], alarm["ComparisonOperator"], alarm["Threshold"]) for alarm in alarms}
    assert missing == {
        ("paddle-cluster-control-plane", "LessThanThreshold", 1),
        ("paddle-nodes-workers", "LessThanThreshold", 3),
    }
    for group in closed.resources("AWS::AutoScaling::AutoScalingGroup"):
        assert group["AutoScalingGroupName"] in {name for name, *_ in missing}
        assert "GroupInServiceInstances" in group["MetricsCollection"][0]["Metrics"]
    assert "paddle-nodes-workers: machines, wanted" in json.dumps(closed.resources("AWS::CloudWatch::Dashboard"))


def test_there_is_one_control_plane_and_never_two(own: Any) -> None:
    group = one(own.whole("AWS::AutoScaling::AutoScalingGroup", "cluster"))
    assert group["Properties"]["MaxSize"] == "1"
    rolling = group["UpdatePolicy"]["AutoScalingRollingUpdate"]
    assert (rolling["MinInstancesInService"], rolling["WaitOnResourceSignals"]) == (0, True)


def test_tokens_are_made_by_aws_and_in_no_template(own: Any) -> None:
    secrets = {secret["Name"]: secret for secret in own.resources("AWS::SecretsManager::Secret")}
    generated = {name for name, secret in secrets.items() if "GenerateSecretString" in secret}
    assert generated == {"tutorial/server-token", "tutorial/node-token"}
    assert all("SecretString" not in secret and "KmsKeyId" in secret for secret in secrets.values())
    # A machine is told a secret's ARN, and asks for it as itself: nothing resolves one into a template.
    assert "resolve:secretsmanager" not in json.dumps(own.templates)


def test_groups_of_nodes_with_their_sizes_and_their_signal_come_after_the_control_plane(own: Any) -> None:
    (stack,) = [stack for stack in own.assembly.stacks if stack.stack_name == "tutorial-nodes"]
    assert "tutorial-cluster" in {dependency.id for dependency in stack.dependencies}, "and so do their upgrades"
    groups = own.whole("AWS::AutoScaling::AutoScalingGroup", "nodes")
    workers, spare = named(groups, "workers"), named(groups, "spare")
    sizes = [[group["Properties"][key] for key in ("MinSize", "DesiredCapacity", "MaxSize")] for group in (workers, spare)]
    assert sizes == [["1", "3", "6"], ["0", "1", "2"]]
    assert workers["CreationPolicy"]["ResourceSignal"]["Count"] == 3
    assert workers["UpdatePolicy"]["AutoScalingRollingUpdate"]["MinInstancesInService"] == 1
    templates = own.whole("AWS::EC2::LaunchTemplate")
    for name in own.whole("AWS::AutoScaling::AutoScalingGroup"):
        word = next(word for word in ("workers", "spare", "ControlPlane") if word in name)
        assert variables(named(templates, word))["SIGNAL_RESOURCE"] == name
    assert spare["Properties"]["MixedInstancesPolicy"]["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0


def test_nothing_is_made_that_only_the_cluster_itself_could_delete(own: Any) -> None:
    """No load balancer, no volume, no address is asked of AWS from inside: what is there is what the stacks made."""
    for stack, word in (("cluster", "ControlPlane"), ("nodes", "Joining")):
        told = json.dumps(statements(own, stack, word))
        assert not re.search(r'"(ec2|elasticloadbalancing|autoscaling):(Create|Run|Allocate)', told)


def test_every_test_that_the_docs_name_for_a_step_exists() -> None:
    """docs/self-managed.md: each step of the documents has a resource and a test."""
    rooms = ("aws", "bootstrap", "emulator", "rehearsal")
    files = [file for room in rooms for file in (PROJECT / "tests" / room).glob("test_*.py")]
    known = {name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE)}
    text = (PROJECT / "docs" / "self-managed.md").read_text().partition("## The documents' steps")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    assert len(rows) > 10
    for _, step, _, tests, _ in rows[2:]:
        for name in re.findall(r"`(\w+)\.*`", tests):
            assert any(name.removeprefix("test_") in one for one in known), (step, name)
