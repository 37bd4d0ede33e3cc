"""examples/stranger_stack: three of our constructs in another team's app, one of them subclassed."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def template(project: Path) -> dict[str, Any]:
    theirs = runpy.run_path(str(project / "examples" / "stranger_stack" / "app.py"))
    found: dict[str, Any] = theirs["app"]().synth().get_stack_by_name("sequencing").template
    return found


def _of(template: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: resource for name, resource in template["Resources"].items() if resource["Type"] == kind}


def test_their_rules_stand_on_ours(template: dict[str, Any]) -> None:
    (store,) = _of(template, "AWS::EFS::FileSystem").values()
    properties = store["Properties"]
    assert properties["BackupPolicy"] == {"Status": "ENABLED"}
    assert "LifecyclePolicies" not in properties
    assert properties["ThroughputMode"] == "bursting"
    # Ours, though they said nothing of it.
    assert properties["Encrypted"] is True
    assert [s["Sid"] for s in properties["FileSystemPolicy"]["Statement"]] == ["MountTargetsOnly", "TlsOnly"]
    assert store["DeletionPolicy"] == "Retain"
    (point,) = _of(template, "AWS::EFS::AccessPoint").values()
    assert point["Properties"]["PosixUser"] == {"Uid": "2000", "Gid": "2000"}


def test_port_2049_is_open_to_the_client_group_alone(template: dict[str, Any]) -> None:
    rules = [r["Properties"] for r in _of(template, "AWS::EC2::SecurityGroupIngress").values()]
    ((source, port),) = [(json.dumps(r["SourceSecurityGroupId"]), r["FromPort"]) for r in rules]
    assert port == 2049
    assert "GenomesClients" in source
    for name, group in _of(template, "AWS::EC2::SecurityGroup").items():
        assert "SecurityGroupIngress" not in group["Properties"], name


def test_the_machine_waits_for_the_mount_targets_and_carries_the_group(template: dict[str, Any]) -> None:
    (machine,) = _of(template, "AWS::EC2::Instance").values()
    assert set(_of(template, "AWS::EFS::MountTarget")) <= set(machine["DependsOn"])
    assert "GenomesClients" in json.dumps(machine["Properties"]["SecurityGroupIds"])


def test_nothing_of_ours_brings_a_function(template: dict[str, Any]) -> None:
    ours = [name for name in _of(template, "AWS::Lambda::Function") if not name.startswith("CustomVpcRestrict")]
    assert ours == []
