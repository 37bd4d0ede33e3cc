"""A node's boots, run for real: joining, and the control planes that it does not join."""

import pytest
from machine import CA, K3S_SETTINGS, NODE_TOKEN, VERSION, Account, Machine, sha256

pytestmark = pytest.mark.slow

HASH = sha256(CA.encode())


def test_joins_the_control_plane_that_the_cluster_names(account: Account, node: Machine) -> None:
    boot = node.first_boot()
    assert boot.code == 0, boot.console
    assert boot.sentence == f"{node.instance} is a node of paddle ({VERSION})"
    assert [signal[1:] for signal in account.state["signals"]] == [[node.instance, "SUCCESS"]]
    assert (account.folder / "joined").read_text() == f"K10{HASH}::node:{NODE_TOKEN}"
    assert node.k3s_settings() == K3S_SETTINGS["node"]
    assert NODE_TOKEN not in account.written_down() + boot.console
    assert account.called("systemctl", "restart", "systemd-modules-load.service") == 1, (
        "what the pod network needs of the kernel"
    )
    downloads = account.called("cp")
    assert node.reboot().code == 0
    assert account.called("cp") == downloads


def test_wrong_ca(account: Account, node: Machine) -> None:
    node.shown_ca = "the CA of somebody between"
    boot = node.first_boot()
    assert boot.code == 1
    assert f"but paddle/ca-hash holds {HASH}: not joined" in boot.sentence
    assert account.called("paddle/node-token") == 0, "the token was not even read"
    assert account.state["signals"][-1][2] == "FAILURE"


def test_control_plane_that_has_not_come_up_or_does_not_answer(
    account: Account, node: Machine
) -> None:
    secrets, node.shown_ca, node.settings["DEADLINE_SECONDS"] = account.state["secrets"], "", "0"
    account.set(secrets=secrets | {"paddle/ca-hash": None})
    assert (
        "paddle/ca-hash holds no CA hash after 0 s: the control plane has not come up"
        in node.first_boot().sentence
    )
    account.set(secrets=secrets)
    boot = node.reboot()
    assert boot.code == 1
    assert "the control plane at https://172.20.0.9:6443 did not answer within 0 s" in boot.sentence
    node.shown_ca = CA
    boot = node.reboot()
    assert boot.code == 0, boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"], (
        "the deploy has ended with it"
    )


def test_a_node_that_cannot_mount_the_file_system_does_not_join(
    account: Account, node: Machine
) -> None:
    unit = node.file("/etc/systemd/system/paddle-file-system.service")
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/false\n")
    node.settings["DEADLINE_SECONDS"] = "0"
    boot = node.first_boot()
    assert (boot.code, boot.sentence) == (
        1,
        "the file system could not be mounted within 0 s: the last line of the log",
    )
    assert not (account.folder / "joined").exists()
    assert account.state["signals"][-1][2] == "FAILURE"
    unit.write_text("[Service]\nExecStart=/usr/bin/touch /run/file-system-is-mounted\n")
    boot = node.reboot()
    assert boot.code == 0, boot.console
    assert (account.folder / "joined").exists()


def test_settings_that_are_not_there_whole(node: Machine) -> None:
    """As after a power cut while cloud-init wrote the settings."""
    assert node.first_boot().code == 0
    settings = node.file("/etc/paddle-cluster/environment")
    whole = settings.read_text()
    for left in (
        "",
        whole.partition("AWS_REGION=")[0],
        whole.partition("FILES=")[0],
        whole[:-2],
        None,
    ):
        settings.unlink() if left is None else settings.write_text(left)
        boot = node.reboot()
        assert boot.code == 1 and " stopped at line " in boot.sentence, boot.console
