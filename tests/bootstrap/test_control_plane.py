"""The control plane's boots, run for real: first, again, on another machine; and everything that has to stop one."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from machine import ADDRESS, NODE_TOKEN, SERVER_TOKEN, VERSION, Account, Boot, Machine, missing

pytestmark = pytest.mark.slow

STATE = "/var/lib/rancher/k3s/server"
Running = tuple[Account, Machine]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A control plane that came up once, for the tests of what comes after."""
    if reason := missing():
        pytest.skip(reason)
    account = Account(tmp_path_factory.mktemp("running") / "account")
    machine = Machine(account, tmp_path_factory.mktemp("machine"), "i-1", "control-plane")
    assert machine.first_boot().code == 0
    yield account, machine
    account.close()


def on_the_volume(account: Account, path: str) -> str:
    """A file of the state volume, read from outside."""
    return subprocess.run(
        ["debugfs", "-R", f"cat {path}", account.folder / "volume.img"], capture_output=True, text=True, check=True
    ).stdout


def refused(boot: Boot, account: Account, *words: str) -> None:
    """One sentence with these words, and a deploy that ends now."""
    assert boot.code == 1
    assert all(word in boot.sentence for word in words), boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"]
    assert SERVER_TOKEN not in boot.console and NODE_TOKEN not in boot.console


def test_first_boot(account: Account, control_plane: Machine) -> None:
    boot = control_plane.first_boot()

    assert boot.code == 0, boot.console
    assert boot.sentence == f"paddle's control plane is ready at https://203.0.113.7:6443 ({VERSION})"
    assert account.state["signals"] == [["Group", "i-0000000000000000a", "SUCCESS"]]

    config = yaml.safe_load(control_plane.file("/etc/rancher/k3s/config.yaml").read_text())
    assert config == {
        "cluster-init": True,
        "node-name": "control-plane",
        "node-ip": ADDRESS,
        "advertise-address": ADDRESS,
        "flannel-backend": "vxlan",
        "cluster-cidr": "10.42.0.0/16",
        "service-cidr": "10.43.0.0/16",
        "token-file": "/run/paddle-cluster/server-token",
        "agent-token-file": "/run/paddle-cluster/node-token",
        "write-kubeconfig-mode": "600",
        "secrets-encryption": True,
        "protect-kernel-defaults": True,
        "disable-helm-controller": True,
        "etcd-snapshot-schedule-cron": "0 */6 * * *",
        "etcd-snapshot-retention": 28,
        "etcd-snapshot-compress": True,
        "etcd-s3": True,
        "etcd-s3-endpoint": "s3.us-west-2.amazonaws.com",
        "etcd-s3-region": "us-west-2",
        "etcd-s3-bucket": "data",
        "etcd-s3-folder": "cluster/snapshots",
        "etcd-s3-retention": 28,
        # A certificate for every alternate name.
        "tls-san": [ADDRESS, "paddle", "api.paddle", "203.0.113.7"],
        "disable": ["traefik", "servicelb", "local-storage"],
        "node-taint": ["node-role.kubernetes.io/control-plane=true:NoSchedule"],
        "node-label": [
            "topology.kubernetes.io/region=us-west-2",
            "topology.kubernetes.io/zone=us-west-2a",
            "node.kubernetes.io/instance-type=m5.large",
        ],
    }

    # What others need of it.
    ca = on_the_volume(account, "/tls/server-ca.crt")
    assert account.state["secrets"]["ca-hash"] == hashlib.sha256(ca.encode()).hexdigest()
    admin = yaml.safe_load(account.state["secrets"]["kubeconfig"])
    assert admin["clusters"][0]["cluster"]["server"] == "https://203.0.113.7:6443"
    assert admin["users"][0]["user"] == {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}
    for team in ("trainer", "reader"):
        config = yaml.safe_load(account.state["secrets"][f"kubeconfig-{team}"])
        assert config["clusters"] == admin["clusters"] and config["contexts"] == admin["contexts"]
        assert config["users"] == [{"name": "default", "user": {"token": f"token-of-paddle-{team}"}}]

    manifests = on_the_volume(account, "/manifests/paddle-efs-csi-driver.yaml")
    assert "public.ecr.aws/efs/driver:v1" in manifests and "{{" not in manifests

    # The mount comes back by itself, and a machine without its volume still boots.
    (line,) = [line for line in control_plane.file("/etc/fstab").read_text().splitlines() if STATE in line]
    assert re.fullmatch(r"UUID=[0-9a-f-]{36} \S+ ext4 noatime,nofail,x-systemd.device-timeout=30 0 2", line)
    enabled = [line for line in (account.folder / "systemctl").read_text().splitlines() if line.startswith("enable")]
    assert enabled == ["enable paddle-cluster.service paddle-cluster.timer", "enable paddle-forget-nodes.timer"]
    unit = control_plane.file("/etc/systemd/system/k3s.service").read_text()
    assert f"AssertPathIsMountPoint={STATE}" in unit

    # Only root looks into it, whatever was written there since it was made.
    told = subprocess.run(
        ["debugfs", "-R", "stat /", account.folder / "volume.img"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"Mode: +0700", told), told

    # No secret in any argument, any environment, any log.
    assert SERVER_TOKEN not in account.written_down() + boot.console
    assert NODE_TOKEN not in account.written_down() + boot.console
    assert "a-session-of-the-metadata-service" not in account.written_down() + boot.console


def test_second_boot_and_successor_keep_the_state(account: Account, control_plane: Machine, successor: Machine) -> None:
    assert control_plane.first_boot().code == 0
    ca, uuid = account.state["secrets"]["ca-hash"], on_the_volume(account, "/node/password")
    downloads, puts = account.called("cp"), account.called("put-secret-value")

    again = control_plane.reboot()
    assert again.code == 0, again.console
    assert account.called("cp") == downloads, "what is there already, and right, is not fetched again"
    assert account.called("put-secret-value") == puts, "nothing new, nothing written"
    assert account.called("attach-volume") == 1
    assert len(account.state["signals"]) == 1, "a later boot is not waited for"
    assert control_plane.file("/etc/fstab").read_text().count(STATE) == 1

    # Run again by hand, or by `cloud-init clean` and a reboot.
    by_cloud_init = control_plane.first_boot()
    assert by_cloud_init.code == 0, by_cloud_init.console
    assert account.called("put-secret-value") == puts
    assert len(account.state["signals"]) == 1

    # Terminated: EC2 lets the volume go while its successor already boots.
    account.volume_is("in-use", control_plane.instance, then=[("in-use", control_plane.instance), ("available", "None")])
    boot = successor.first_boot()
    assert boot.code == 0, boot.console
    assert "making its file system" not in boot.console
    assert account.state["secrets"]["ca-hash"] == ca, "the same cluster"
    assert on_the_volume(account, "/node/password") == uuid
    assert account.state["signals"][-1] == ["Group", successor.instance, "SUCCESS"]


def test_volume_that_stays_with_another_machine(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "1"
    account.volume_is("in-use", "i-0ther")
    refused(
        control_plane.first_boot(),
        account,
        f"the state volume {account.volume} is still attached to i-0ther",
        "terminate that machine",
    )
    assert account.called("attach-volume") == 0


@pytest.mark.parametrize("deploy", [True, False])
def test_a_first_boot_that_failed_is_tried_again(account: Account, successor: Machine, deploy: bool) -> None:
    """As after a terminated machine that let its volume go late, and the tokens' service was away after that."""
    successor.environment["DEADLINE_SECONDS"] = "3"
    account.set(no_deploy=not deploy, secrets={})
    account.volume_is("in-use", "i-0ther")
    assert "is still attached to i-0ther" in successor.first_boot().console
    account.volume_is("available")
    # A deploy that begins now waits for other machines.
    account.set(no_deploy=False)
    assert "the token server-token could not be read" in successor.retry().sentence
    account.set(secrets={"server-token": SERVER_TOKEN, "node-token": NODE_TOKEN})
    boot = successor.retry()
    assert boot.code == 0, boot.console
    assert boot.sentence.startswith("paddle's control plane is ready")
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"] * deploy
    assert account.called("signal-resource") == 1


def test_volume_that_is_not_there_yet(account: Account, control_plane: Machine) -> None:
    account.volume_is("creating", then=[("creating", "None"), ("available", "None")])
    assert control_plane.first_boot().code == 0


def test_device_that_never_appears(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "1"
    account.set(device_hidden=True)
    refused(control_plane.first_boot(), account, "is attached, but /dev/disk/by-id/nvme-", "did not appear")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0" * 4096 + b"somebody's raw data", "holds data that is no file system: not formatted"),
        ("mkfs.ext4 -q -L holidays", 'holds ext4 labelled "holidays"'),
        # A partition table: one Linux partition from sector 2048 on.
        (bytes(446) + b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x20\0\0" + bytes(48) + b"\x55\xaa", "holds something unknown"),
    ],
)
def test_volume_with_data_is_never_formatted(account: Account, control_plane: Machine, content: bytes | str, words: str) -> None:
    image = account.folder / "volume.img"
    if isinstance(content, bytes):
        with image.open("r+b") as file:
            file.write(content)
    else:
        subprocess.run([*content.split(), image], check=True)
    before = image.read_bytes()
    refused(control_plane.first_boot(), account, words)
    assert image.read_bytes() == before


def test_file_that_is_not_what_the_template_names(account: Account, control_plane: Machine) -> None:
    (account.folder / "bucket/assets/k3s").write_text("#!/bin/sh\necho something else\n")
    refused(control_plane.first_boot(), account, "s3://assets/k3s is not the file that the template names", "not used")
    assert not (control_plane.local / "bin/k3s").exists()
    assert not list((control_plane.local / "bin").glob("*.part"))


def test_script_that_is_not_what_the_template_names(account: Account, control_plane: Machine) -> None:
    with (account.folder / "bucket/assets/control-plane.sh").open("a") as script:
        script.write("echo something else\n")
    boot = control_plane.first_boot()
    refused(boot, account, "s3://assets/control-plane.sh is not the file that the template names", "not run")
    assert "something else" not in boot.console


def test_bucket_that_answers_late(account: Account, control_plane: Machine) -> None:
    account.set(absent_downloads=3)
    assert control_plane.first_boot().code == 0


def test_bucket_that_answers_after_the_deadline(account: Account, control_plane: Machine) -> None:
    control_plane.environment |= {"DEADLINE_SECONDS": "1", "POLL_SECONDS": "0.6"}
    account.set(absent_downloads=4)
    boot = control_plane.first_boot()
    assert boot.code == 0 or control_plane.retry().code == 0, boot.console
    assert "s3://assets/shared.sh could not be downloaded yet" in boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"]
    assert account.called("signal-resource") == 1


def test_waiting_for_the_scripts_is_part_of_the_deadline(account: Account, control_plane: Machine) -> None:
    control_plane.environment |= {"DEADLINE_SECONDS": "1", "POLL_SECONDS": "1.1"}
    account.set(absent_downloads=1)
    account.volume_is("creating", then=[("available", "None")])
    refused(control_plane.first_boot(), account, f"the state volume {account.volume} is creating, not available")


def test_secrets_that_can_be_written_later(account: Account, control_plane: Machine) -> None:
    account.set(refused_writes=2)
    boot = control_plane.first_boot()
    assert boot.code == 0, boot.console
    assert len(account.state["secrets"]["ca-hash"]) == 64


def test_secrets_that_cannot_be_written(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "3"
    account.set(refused_writes=1000)
    refused(control_plane.first_boot(), account, "the secret ca-hash could not be written within 3 s", "InternalServiceError")


def test_missing_token(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "2"
    account.set(secrets={"node-token": NODE_TOKEN})
    refused(
        control_plane.first_boot(), account, "the token server-token could not be read within 2 s", "ResourceNotFoundException"
    )


def test_token_that_is_none(account: Account, control_plane: Machine) -> None:
    account.set(secrets={"server-token": "short", "node-token": NODE_TOKEN})
    refused(control_plane.first_boot(), account, "the token server-token is no token", "32 letters and digits")


def test_k3s_that_never_gets_ready(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "2"
    account.set(k3s_never_ready=True)
    boot = control_plane.first_boot()
    refused(boot, account, "the control plane was not ready within 2 s")
    assert "the last line of the log" in boot.console


def test_metadata_that_do_not_answer(account: Account, control_plane: Machine) -> None:
    control_plane.environment["DEADLINE_SECONDS"] = "1"
    control_plane.metadata.clear()
    refused(control_plane.first_boot(), account, "the instance metadata did not answer within 1 s")
    assert account.state["signals"] == [["Group", control_plane.instance, "FAILURE"]]


def test_other_address(account: Account, control_plane: Machine) -> None:
    control_plane.metadata["local-ipv4"] = "172.20.0.44"
    refused(
        control_plane.first_boot(), account, "this machine has the address 172.20.0.44, but the control plane's is 172.20.0.9"
    )


def test_state_of_another_kind_is_not_opened(running: Running, tmp_path: Path) -> None:
    account, _ = running
    for number, (setting, value, words) in enumerate(
        (
            ("CLUSTER_NAME", "other", "belongs to the cluster paddle, not to other"),
            ("PRIVATE_ADDRESS", "172.20.0.10", "the state was made at 172.20.0.9"),
            ("DISTRIBUTION_VERSION", "v1.34.9+k3s1", f"was written by {VERSION}, which v1.34.9+k3s1 cannot read"),
            ("DISTRIBUTION_VERSION", "v1.37.0+k3s1", "skips a Kubernetes version"),
        )
    ):
        account.volume_is("available")
        account.set(signals=[])
        other = Machine(account, tmp_path / str(number), f"i-{number}", "control-plane")
        other.environment[setting] = value
        refused(other.first_boot(), account, words)


def test_a_boot_that_failed_is_tried_again_each_minute(running: Running) -> None:
    unit = running[1].file("/etc/systemd/system/paddle-cluster.service").read_text()
    assert "\nRestart=on-failure\nRestartSec=60\n" in unit


def test_a_tool_that_the_image_lacks_is_named(running: Running) -> None:
    _, control_plane = running
    needs = "/bin/bash -c '. /opt/paddle-cluster/shared.sh; only_one; need_tools cmp aws'"
    without = f"mv /usr/local/bin/aws /opt/aws; {needs}; code=$?; mv /opt/aws /usr/local/bin/aws; exit $code"
    boot = control_plane.run("/bin/bash", "-c", without)
    assert (boot.code, boot.sentence) == (
        1,
        "aws is not on this machine's image: these scripts are for Amazon Linux 2023",
    )
    assert control_plane.run("/bin/bash", "-c", needs).code == 0


def test_units_are_what_systemd_reads(running: Running, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    _, control_plane = running
    for unit in control_plane.file("/etc/systemd/system").iterdir():
        # It looks for the programs, too: those are the machine's.
        (tmp_path / unit.name).write_text(
            re.sub(r"^ExecStart=\S+", "ExecStart=/usr/bin/true", unit.read_text(), flags=re.MULTILINE)
        )
    units = sorted(path.name for path in tmp_path.iterdir())
    assert len(units) == 5
    done = subprocess.run(
        ["systemd-analyze", "verify", *units],
        cwd=tmp_path,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("mounted", [False, True])
def test_grown_volume(running: Running, mounted: bool) -> None:
    """Mounted: fstab was faster, as it is after a reboot."""
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    with (account.folder / "volume.img").open("r+b") as file:
        file.truncate(32 << 20)
    subprocess.run(["losetup", "-c", account.device], check=True)
    mount = f"mkdir -p {STATE}; mount $(readlink /dev/disk/by-id/*) {STATE}; /opt/paddle-cluster/control-plane.sh"
    again = control_plane.run("/bin/bash", "-c", mount) if mounted else control_plane.reboot()
    assert again.code == 0, again.console
    told = subprocess.run(["dumpe2fs", "-h", account.folder / "volume.img"], capture_output=True, text=True, check=True).stdout
    blocks, size = (int(re.search(rf"^{name}: *(\d+)", told, re.MULTILINE)[1]) for name in ("Block count", "Block size"))
    assert blocks * size == 32 << 20


def test_nodes_whose_machine_is_gone_are_forgotten(running: Running) -> None:
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    account.set(instances=["i-0silent"])
    (account.folder / "nodes").write_text("control-plane True\ni-0well True\ni-0silent Unknown\ni-0gone Unknown\ni-1gone False\n")
    looked = control_plane.run("/bin/sh", "-c", "touch /run/k3s-runs; /opt/paddle-cluster/forget-nodes.sh")
    assert looked.code == 0, looked.console
    assert (account.folder / "deleted").read_text().split() == ["i-0gone", "i-1gone"]


def snapshot(account: Account, name: str) -> None:
    path = account.folder / "bucket/data/cluster/snapshots" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a snapshot")


def restore(machine: Machine, *arguments: str) -> Boot:
    """By hand, on a machine that has its volume mounted."""
    mount = f"mkdir -p {STATE}; mount $(readlink /dev/disk/by-id/*) {STATE}; touch /run/k3s-runs; "
    return machine.run("/bin/bash", "-c", mount + f"/opt/paddle-cluster/restore.sh {' '.join(arguments)}")


def test_restore(running: Running) -> None:
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    assert "made by" in on_the_volume(account, "/db/etcd/content")
    none = restore(control_plane)
    assert none.sentence == "there is no snapshot in s3://data/cluster/snapshots/ yet"

    snapshot(account, "etcd-snapshot-control-plane-1.zip")
    listed = restore(control_plane)
    assert listed.code == 2 and "etcd-snapshot-control-plane-1.zip" in listed.console

    for _ in range(2):  # Twice: the mark that k3s leaves does not stop the second.
        done = restore(control_plane, "etcd-snapshot-control-plane-1.zip")
        assert done.code == 0, done.console
        assert done.sentence.startswith("paddle's control plane is ready")
        assert on_the_volume(account, "/db/etcd/content") == "restored from etcd-snapshot-control-plane-1.zip"
    assert SERVER_TOKEN not in account.written_down() + done.console
    assert control_plane.file("/opt/paddle-cluster/signalled").exists()


def test_restore_that_cannot_be(running: Running) -> None:
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    stopped = (account.folder / "systemctl").read_text().count("stop paddle-forget-nodes.timer")
    absent = restore(control_plane, "never-made")
    assert absent.code == 1 and "s3://data/cluster/snapshots/never-made cannot be read" in absent.sentence
    assert (account.folder / "systemctl").read_text().count("stop paddle-forget-nodes.timer") == stopped, (
        "nothing was stopped for it"
    )

    snapshot(account, "broken")
    broken = restore(control_plane, "broken")
    assert broken.code == 1 and "k3s could not restore broken" in broken.sentence
    assert "no valid checksum" in broken.console

    unmounted = control_plane.run("/opt/paddle-cluster/restore.sh", "broken")
    assert "the state volume is not mounted" in unmounted.sentence
    assert not control_plane.file("/var/boot-to-retry").exists(), "whoever restores decides what comes next"


def test_a_restore_that_ended_halfway_begins_no_empty_cluster(running: Running, tmp_path: Path) -> None:
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    snapshot(account, "torn")
    torn = restore(control_plane, "torn")
    assert torn.code == 1 and "k3s could not restore torn" in torn.sentence

    # Whoever reboots the machine then, or its monthly timer.
    again = control_plane.reboot()
    assert again.code == 1
    assert "has served before, but holds no etcd database" in again.sentence
    assert on_the_volume(account, "/db/etcd/content") == ""

    # Or the machine that takes its place: it refuses likewise, and has by then all that the restore needs.
    account.volume_is("available", "None")
    successor = Machine(account, tmp_path, "i-2", "control-plane")
    assert "has served before, but holds no etcd database" in successor.first_boot().sentence
    snapshot(account, "whole")
    assert restore(successor, "whole").code == 0
    assert on_the_volume(account, "/db/etcd/content") == "restored from whole"


def test_marks_that_a_machine_did_not_live_to_write(running: Running) -> None:
    """A file that was made and not yet written is empty on the disk that the next machine gets."""
    account, control_plane = running
    account.volume_is("in-use", control_plane.instance)
    marks = " ".join(f"{STATE}/{name}" for name in ("cluster-name", "private-address", "distribution-version"))
    emptied = f"mkdir -p {STATE}; mount $(readlink /dev/disk/by-id/*) {STATE}; truncate -s 0 {marks}; umount {STATE}"
    assert control_plane.run("/bin/bash", "-c", emptied).code == 0
    again = control_plane.reboot()
    assert again.code == 0, again.console
    assert on_the_volume(account, "/cluster-name") == "paddle\n"
    assert on_the_volume(account, "/distribution-version") == f"{VERSION}\n"


def test_ecr_password_reaches_kubelet_only(running: Running) -> None:
    _, control_plane = running
    provider = "/var/lib/rancher/credentialprovider/bin/ecr-credentials"
    (control_plane.local / "bin/python3").symlink_to(Path(f"{sys.base_prefix}/bin/python3"))
    request = {"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderRequest"}
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
    for image, code in ((f"{registry}/paddle:1", 0), ("docker.io/library/busybox", 1)):
        asked = json.dumps(request | {"image": image})
        answer = control_plane.run("/bin/sh", "-c", f"echo '{asked}' | {provider}")
        assert answer.code == code, answer.console
        if code == 0:
            assert json.loads(answer.console) == {
                "apiVersion": request["apiVersion"],
                "kind": "CredentialProviderResponse",
                "cacheKeyType": "Registry",
                "cacheDuration": "6h",
                "auth": {registry: {"username": "AWS", "password": "a-password-of-ecr"}},
            }
        else:
            assert "'docker.io/library/busybox' is no image of a private ECR repository" in answer.console


def test_volume_that_outlived_its_deployment(running: Running, tmp_path: Path) -> None:
    account, _ = running
    account.volume_is("available")
    secrets = account.state["secrets"]
    account.set(secrets=secrets | {"server-token": "AnotherDeployment" * 3})
    later = Machine(account, tmp_path, "i-3", "control-plane")
    boot = later.first_boot()
    assert boot.code == 0, boot.console
    assert "began under another server token than server-token holds: its own is used" in boot.console
    assert on_the_volume(account, "/token").strip().endswith(f"::server:{SERVER_TOKEN}")

    # A snapshot that was made under the secret's token.
    snapshot(account, "of-another-deployment")
    done = restore(later, "of-another-deployment", "--token-of-secret")
    assert done.code == 0, done.console
    assert on_the_volume(account, "/token").strip().endswith("::server:" + "AnotherDeployment" * 3)
    account.set(secrets=secrets)


def test_upgrade_by_one_version(running: Running, tmp_path: Path) -> None:
    account, _ = running
    account.volume_is("available")
    account.set(signals=[])
    upgraded = Machine(account, tmp_path, "i-2", "control-plane", DISTRIBUTION_VERSION="v1.36.0+k3s1")
    assert upgraded.first_boot().code == 0
    assert on_the_volume(account, "/distribution-version").strip() == "v1.36.0+k3s1"
