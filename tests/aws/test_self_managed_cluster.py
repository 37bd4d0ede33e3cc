"""A self-managed cluster: what rows of templates.yaml do not say of it."""

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

from .built import PROJECT
from .conftest import TABLE


@pytest.fixture(scope="module")
def own(variant: Any) -> Any:
    return variant("self-managed-cluster")


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
    assert release(fitting).version == "v1.35.0+k3s0"


def test_more_labels_than_a_machines_user_data_holds(own: Any) -> None:
    cluster = own.spec.cluster.model_dump(include={"kind", "distribution"}) | {"elastic_ip": True, "administrators": []}
    labels = {f"label-{number}": "x" * 60 for number in range(200)}
    spec = ClusterSpec.model_validate({"retain": False, "cluster": cluster, "nodes": {"w": {"labels": labels}}})
    with pytest.raises(SettingError, match=r"^nodes\.w: the machine's user data has [\d,]{6} characters, at most 15,500 are"):
        build(App(), spec)


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


def test_what_the_docs_name_for_a_step_exists() -> None:
    """docs/self-managed.md: each step of the documents has a resource and a test, or a row of templates.yaml."""
    files = [file for room in ("bootstrap", "emulator") for file in (PROJECT / "tests" / room).glob("test_*.py")]
    known = {name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE)}
    known |= {row["says"] for row in TABLE["rows"] if "self-managed-cluster" in row}
    text = (PROJECT / "docs" / "self-managed.md").read_text().partition("## The documents' steps")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in text.splitlines() if "|" in line]
    assert len(rows) > 10
    for _, step, _, tests, _ in rows[2:]:
        names = re.findall(r"`([^`]+)`", tests)
        assert names and all(any(name in one for one in known) for name in names), step
