"""A node's boots, run for real: joining, and the control planes that it does not join."""

from __future__ import annotations

import hashlib

import pytest
import yaml
from machine import NODE_TOKEN, VERSION, Account, Machine

pytestmark = pytest.mark.slow

CA = hashlib.sha256(b"the cluster's CA").hexdigest()


def test_joins_the_control_plane_that_the_cluster_names(account: Account, node: Machine) -> None:
    account.set(secrets={"node-token": NODE_TOKEN, "ca-hash": CA})
    boot = node.first_boot()
    assert boot.code == 0, boot.console
    assert boot.sentence == f"{node.instance} is a node of paddle ({VERSION})"
    assert account.state["signals"] == [["Group", node.instance, "SUCCESS"]]
    assert (account.folder / "joined").read_text() == f"K10{CA}::node:{NODE_TOKEN}"
    assert yaml.safe_load(node.file("/etc/rancher/k3s/config.yaml").read_text()) == {
        "server": "https://172.20.0.9:6443",
        "token-file": "/run/paddle-cluster/join-token",
        "node-name": node.instance,
        "protect-kernel-defaults": True,
        "node-label": [
            "pool=workers",
            "eks.amazonaws.com/capacityType=SPOT",
            "topology.kubernetes.io/region=us-west-2",
            "topology.kubernetes.io/zone=us-west-2a",
            "node.kubernetes.io/instance-type=m5.large",
        ],
        "node-taint": ["dedicated=training:NoSchedule"],
    }
    assert NODE_TOKEN not in account.written_down() + boot.console
    assert (account.folder / "quiet").read_text().splitlines()[:2] == ["modprobe overlay", "modprobe br_netfilter"]

    downloads = account.called("cp")
    assert node.reboot().code == 0
    assert account.called("cp") == downloads


def test_wrong_ca(account: Account, node: Machine) -> None:
    account.set(secrets={"node-token": NODE_TOKEN, "ca-hash": CA})
    node.shown_ca = "the CA of somebody between"
    boot = node.first_boot()
    assert boot.code == 1
    assert f"but ca-hash holds {CA}: not joined" in boot.sentence
    assert account.called("node-token") == 0, "the token was not even read"
    assert account.state["signals"][-1][2] == "FAILURE"


def test_control_plane_that_has_not_come_up(account: Account, node: Machine) -> None:
    node.environment["DEADLINE_SECONDS"] = "1"
    boot = node.first_boot()
    assert boot.code == 1
    assert "ca-hash holds no CA hash after 1 s: the control plane has not come up" in boot.sentence

    account.set(secrets={"node-token": NODE_TOKEN, "ca-hash": CA})
    boot = node.retry()
    assert boot.code == 0, boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"], "the deploy has ended with it"


def test_control_plane_that_does_not_answer(account: Account, node: Machine) -> None:
    node.environment["DEADLINE_SECONDS"] = "1"
    node.shown_ca = ""
    account.set(secrets={"node-token": NODE_TOKEN, "ca-hash": CA})
    boot = node.first_boot()
    assert boot.code == 1
    assert "the control plane at https://172.20.0.9:6443 did not answer within 1 s" in boot.sentence
