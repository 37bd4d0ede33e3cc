"""The control plane's boots, run for real: the first, a later one, one on another machine, and
everything that must stop one.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine import K3S_SETTINGS, NODE_TOKEN, SERVER_TOKEN, VERSION, Account, Boot, Machine, sha256

pytestmark = pytest.mark.slow

STATE = "/var/lib/rancher/k3s/server"
NEVER, FOREIGN = yaml.safe_load_all((Path(__file__).parent / "refused_boots.yaml").read_text())
"""What never comes or is wrong, and another machine's settings for a volume that has been used."""
Running = tuple[Account, Machine]


@pytest.fixture(scope="module")
def first(rendered: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A control plane that has come up once, for the tests of what follows."""
    with Account(tmp_path_factory.mktemp("running") / "account", rendered) as account:
        machine = Machine(account, tmp_path_factory.mktemp("machine"), "i-1", "control-plane")
        assert machine.first_boot().code == 0
        yield account, machine


@pytest.fixture
def running(first: Running) -> Running:
    """`first` with its volume attached, and with no signal sent to a deploy yet."""
    account, machine = first
    account.volume_is("in-use", machine.instance)
    account.set(signals=[])
    return first


def refused(boot: Boot, account: Account, *words: str) -> None:
    """Asserts that the boot failed with one sentence that has these words, and that the deploy
    fails at once.
    """
    assert boot.code == 1
    assert all(word in boot.sentence for word in words), boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"]
    assert SERVER_TOKEN not in boot.console and NODE_TOKEN not in boot.console


def test_first_boot(account: Account, control_plane: Machine, rendered: Any) -> None:
    boot = control_plane.first_boot()
    assert boot.code == 0, boot.console
    assert (
        boot.sentence == f"paddle's control plane is ready at https://203.0.113.7:6443 ({VERSION})"
    )
    [[group, *signal]] = account.state["signals"]
    assert signal == ["i-0000000000000000a", "SUCCESS"]
    assert group in rendered.whole("AWS::AutoScaling::AutoScalingGroup", "cluster")
    assert control_plane.k3s_settings() == K3S_SETTINGS["control-plane"]

    # What others need from the control plane.
    secrets = account.state["secrets"]
    assert secrets["paddle/ca-hash"] == sha256(
        account.on_the_volume("cat /tls/server-ca.crt").encode()
    )
    admin = yaml.safe_load(secrets["paddle/kubeconfig/operator"])
    assert admin["clusters"][0]["cluster"]["server"] == "https://203.0.113.7:6443"
    assert admin["users"][0]["user"] == {
        "client-certificate-data": "Q0VSVA==",
        "client-key-data": "S0VZ",
    }
    for team in ("trainer", "reader"):
        config = yaml.safe_load(secrets[f"paddle/kubeconfig/{team}"])
        assert config["clusters"] == admin["clusters"] and config["contexts"] == admin["contexts"]
        assert config["users"] == [
            {"name": "default", "user": {"token": f"token-of-paddle-{team}"}}
        ]
    for name, fill in (
        ("efs-csi-driver", "public.ecr.aws/x/efs-csi-driver:v1"),
        ("people", 'name: "paddle"'),
    ):
        manifest = account.on_the_volume(f"cat /manifests/paddle-{name}.yaml")
        assert fill in manifest and "{{" not in manifest

    # Every boot mounts the volume again, and a machine without its volume still boots. Only root
    # can read the volume.
    (line,) = [
        line for line in control_plane.file("/etc/fstab").read_text().splitlines() if STATE in line
    ]
    assert re.fullmatch(
        r"UUID=[0-9a-f-]{36} \S+ ext4 noatime,nofail,x-systemd.device-timeout=30 0 2", line
    )
    assert re.search(r"Mode: +0700", account.on_the_volume("stat /"))

    # No secret is in any argument, environment or log.
    for secret in (SERVER_TOKEN, NODE_TOKEN, "a-session-of-the-metadata-service"):
        assert secret not in account.written_down() + boot.console


def test_units_are_what_systemd_reads_and_what_is_promised(
    running: Running, tmp_path: Path
) -> None:
    account, control_plane = running
    units = {
        path.name: path.read_text() for path in control_plane.file("/etc/systemd/system").iterdir()
    }
    assert "\nExecStart=/opt/paddle-cluster/boot.sh\n" in units["paddle-cluster.service"]
    assert "\nRestart=on-failure\nRestartSec=60\n" in units["paddle-cluster.service"], (
        "a boot that failed is tried again"
    )
    assert f"\nAssertPathIsMountPoint={STATE}\n" in units["k3s.service"]
    enabled = re.findall(r'"enable", "--now", (.*)\]', account.written_down())
    assert enabled[:2] == [
        '"--no-block", "paddle-cluster.service", "paddle-cluster.timer"',
        '"paddle-forget-nodes.timer"',
    ]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    for name, unit in units.items():
        # systemd-analyze also looks for the programs, which only the machine has.
        (tmp_path / name).write_text(
            re.sub(r"^ExecStart=\S+", "ExecStart=/usr/bin/true", unit, flags=re.MULTILINE)
        )
    environ = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system", "PATH": "/usr/bin:/bin"}
    verify = ["systemd-analyze", "verify", *sorted(units)]
    done = subprocess.run(
        verify, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert len(units) == 5 and done.returncode == 0 and not done.stderr, done.stderr


def test_second_boot_and_successor_keep_the_state(
    account: Account, control_plane: Machine, successor: Machine
) -> None:
    assert control_plane.first_boot().code == 0
    ca, password = (
        account.state["secrets"]["paddle/ca-hash"],
        account.on_the_volume("cat /node/password"),
    )
    downloads, puts = account.called("cp"), account.called("put-secret-value")
    for again in (
        control_plane.reboot,
        control_plane.first_boot,
    ):  # The latter after `cloud-init clean`.
        boot = again()
        assert boot.code == 0, boot.console
    assert account.called("cp") == downloads, (
        "what is there already, and right, is not fetched again"
    )
    assert account.called("put-secret-value") == puts, "nothing new, nothing written"
    assert account.called("attach-volume") == 1
    assert len(account.state["signals"]) == 1, "a later boot is not waited for"
    assert control_plane.file("/etc/fstab").read_text().count(STATE) == 1

    # The machine is terminated: EC2 releases the volume while the successor already boots.
    account.volume_is(
        "in-use",
        control_plane.instance,
        then=[("in-use", control_plane.instance), ("available", "None")],
    )
    boot = successor.first_boot()
    assert boot.code == 0, boot.console
    assert "making its file system" not in boot.console
    assert account.state["secrets"]["paddle/ca-hash"] == ca, "the same cluster"
    assert account.on_the_volume("cat /node/password") == password
    assert account.state["signals"][-1][1:] == [successor.instance, "SUCCESS"]


@pytest.mark.parametrize("deploy", [True, False])
def test_a_first_boot_that_failed_is_tried_again(
    account: Account, successor: Machine, deploy: bool
) -> None:
    """For example: a terminated machine releases its volume late, and after that the tokens'
    service is unavailable.
    """
    successor.settings["DEADLINE_SECONDS"] = "0"
    account.set(no_deploy=not deploy, secrets={})
    account.volume_is("in-use", "i-0ther")
    assert "is still attached to i-0ther" in successor.first_boot().console
    account.volume_is("available")
    # A deploy that begins now waits for other machines.
    account.set(no_deploy=False)
    assert "the token paddle/server-token could not be read" in successor.reboot().sentence
    account.set(secrets={"paddle/server-token": SERVER_TOKEN, "paddle/node-token": NODE_TOKEN})
    boot = successor.reboot()
    assert boot.code == 0, boot.console
    assert [signal[2] for signal in account.state["signals"]] == ["FAILURE"] * deploy


def test_what_comes_late_is_waited_for(account: Account, control_plane: Machine) -> None:
    """One boot waits for the volume, files of the bucket, and the service that keeps secrets."""
    account.set(absent_downloads=3, refused_writes=2)
    account.volume_is("creating", then=[("creating", "None"), ("available", "None")])
    boot = control_plane.first_boot()
    assert boot.code == 0, boot.console
    assert len(account.state["secrets"]["paddle/ca-hash"]) == 64


@pytest.mark.parametrize("case", NEVER)
def test_what_never_comes_is_one_sentence(
    account: Account, control_plane: Machine, case: str
) -> None:
    like, sentence = NEVER[case]
    control_plane.metadata |= like.pop("metadata", {})
    account.set(**like | {"volume": account.state["volume"] | like.get("volume", {})})
    control_plane.settings["DEADLINE_SECONDS"] = "0"
    boot = control_plane.first_boot()
    refused(boot, account, sentence)
    assert ("the last line of the log" in boot.console) == (case == "no k3s")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0" * 4096 + b"somebody's raw data", "holds data that is no file system: not formatted"),
        ("mkfs.ext4 -q -L holidays", 'holds ext4 labelled "holidays"'),
        # A partition table: one Linux partition from sector 2048 on.
        (
            bytes(446) + b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x20\0\0" + bytes(48) + b"\x55\xaa",
            "holds something unknown",
        ),
    ],
)
def test_volume_with_data_is_never_formatted(
    account: Account, control_plane: Machine, content: bytes | str, words: str
) -> None:
    if isinstance(content, bytes):
        with account.image.open("r+b") as file:
            file.write(content)
    else:
        subprocess.run([*content.split(), account.image], check=True)
    before = account.image.read_bytes()
    refused(control_plane.first_boot(), account, words)
    assert account.image.read_bytes() == before


@pytest.mark.parametrize("path", ["/usr/local/bin/k3s", "/opt/paddle-cluster/control-plane.sh"])
def test_file_that_is_not_what_the_template_names(
    account: Account, control_plane: Machine, path: str
) -> None:
    with account.asset(path).open("a") as file:
        file.write("echo something else\n")
    boot = control_plane.first_boot()
    refused(
        boot,
        account,
        f"{account.asset(path).name} is not the file that the template names",
        "not used",
    )
    assert "something else" not in boot.console
    assert not control_plane.file(path).exists() and not control_plane.file(f"{path}.part").exists()


@pytest.mark.parametrize(("settings", "sentence"), FOREIGN.values(), ids=FOREIGN)
def test_state_of_another_kind_is_not_opened(
    running: Running, tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    account, _ = running
    account.volume_is("available")
    refused(
        Machine(account, tmp_path, "i-2", "control-plane", **settings).first_boot(),
        account,
        sentence,
    )


def test_grown_volume(running: Running) -> None:
    account, control_plane = running
    with account.image.open("r+b") as file:
        file.truncate(32 << 20)
    subprocess.run(["losetup", "-c", account.device], check=True)
    again = control_plane.reboot()
    assert again.code == 0, again.console
    stats = account.on_the_volume("show_super_stats -h")
    blocks, size = (
        int(re.search(rf"^{name}: *(\d+)", stats, re.MULTILINE)[1])
        for name in ("Block count", "Block size")
    )
    assert blocks * size == 32 << 20


def test_nodes_whose_machine_is_gone_are_forgotten(running: Running) -> None:
    account, control_plane = running
    account.set(instances=["i-0silent"])
    (account.folder / "nodes").write_text(
        "control-plane True\ni-0well True\ni-0silent Unknown\ni-0gone Unknown\ni-1gone False\n"
    )
    looked = control_plane.by_hand("/opt/paddle-cluster/forget-nodes.sh")
    assert looked.code == 0, looked.console
    assert (account.folder / "deleted").read_text().split() == ["i-0gone", "i-1gone"]


def restore(account: Account, machine: Machine, name: str = "", *options: str) -> Boot:
    """Puts a snapshot into the bucket, if `name` is given, and runs restore.sh."""
    folder = account.folder / "bucket/data/cluster/snapshots"
    folder.mkdir(parents=True, exist_ok=True)
    if name:
        (folder / name).write_text("a snapshot")
    return machine.by_hand(f"/opt/paddle-cluster/restore.sh {' '.join([name, *options])}")


def test_restore(running: Running) -> None:
    account, control_plane = running
    assert "made by" in account.on_the_volume("cat /db/etcd/content")
    assert (
        restore(account, control_plane).sentence
        == "there is no snapshot in s3://data/cluster/snapshots/ yet"
    )
    for _ in range(2):  # Twice: the mark that k3s leaves does not stop the second restore.
        done = restore(account, control_plane, "snapshot-1.zip")
        assert done.code == 0, done.console
        assert done.sentence.startswith("paddle's control plane is ready")
        assert account.on_the_volume("cat /db/etcd/content") == "restored from snapshot-1.zip"
    listed = restore(account, control_plane)
    assert listed.code == 2 and "snapshot-1.zip" in listed.console
    assert SERVER_TOKEN not in account.written_down() + done.console


def test_restore_that_cannot_be(running: Running) -> None:
    account, control_plane = running
    stopped = account.written_down().count("paddle-forget-nodes.timer")
    absent = control_plane.by_hand("/opt/paddle-cluster/restore.sh never-made")
    assert (
        absent.code == 1
        and "s3://data/cluster/snapshots/never-made cannot be read" in absent.sentence
    )
    assert account.written_down().count("paddle-forget-nodes.timer") == stopped, (
        "nothing was stopped for it"
    )

    broken = restore(account, control_plane, "broken")
    assert broken.code == 1 and "k3s could not restore broken" in broken.sentence
    assert "no valid checksum" in broken.console
    assert (
        "the state volume is not mounted"
        in control_plane.run("/opt/paddle-cluster/restore.sh", "broken").sentence
    )
    assert account.state["signals"] == [], "a deploy waits for something else"


def test_a_restore_that_ended_halfway_begins_no_empty_cluster(
    running: Running, tmp_path: Path
) -> None:
    account, control_plane = running
    torn = restore(account, control_plane, "torn")
    assert torn.code == 1 and "k3s could not restore torn" in torn.sentence

    # Somebody then reboots the machine, or its monthly timer runs the boot script.
    again = control_plane.reboot()
    assert again.code == 1
    assert "has served before, but holds no etcd database" in again.sentence
    assert account.on_the_volume("cat /db/etcd/content") == ""

    # Or another machine takes its place: it refuses likewise, and by then has all that the restore
    # needs.
    account.volume_is("available")
    successor = Machine(account, tmp_path, "i-2", "control-plane")
    assert "has served before, but holds no etcd database" in successor.first_boot().sentence
    assert restore(account, successor, "whole").code == 0
    assert account.on_the_volume("cat /db/etcd/content") == "restored from whole"


def test_marks_that_a_machine_did_not_live_to_write(running: Running) -> None:
    """A file that was created but not yet written is empty on the disk that the next machine
    gets.
    """
    account, control_plane = running
    marks = " ".join(
        f"{STATE}/{name}" for name in ("cluster-name", "private-address", "distribution-version")
    )
    assert control_plane.by_hand(f"truncate -s 0 {marks}").code == 0
    again = control_plane.reboot()
    assert again.code == 0, again.console
    assert account.on_the_volume("cat /cluster-name") == "paddle\n"
    assert account.on_the_volume("cat /distribution-version") == f"{VERSION}\n"


def test_ecr_password_reaches_kubelet_only(running: Running) -> None:
    request = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderRequest",
    }
    registry = "123456789012.dkr.ecr.us-west-2.amazonaws.com"

    def asked(image: str) -> Boot:
        text = json.dumps(request | {"image": image})
        return running[1].run(
            "/bin/sh",
            "-c",
            f"echo '{text}' | /var/lib/rancher/credentialprovider/bin/ecr-credentials",
        )

    assert json.loads(asked(f"{registry}/paddle:1").console) == {
        "apiVersion": request["apiVersion"],
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "cacheDuration": "6h",
        "auth": {registry: {"username": "AWS", "password": "a-password-of-ecr"}},
    }
    other = asked("docker.io/library/busybox")
    assert (
        other.code == 1
        and "'docker.io/library/busybox' is no image of a private ECR repository" in other.console
    )


def test_volume_that_outlived_its_deployment(running: Running, tmp_path: Path) -> None:
    account, _ = running
    account.volume_is("available")
    secrets = account.state["secrets"]
    account.set(secrets=secrets | {"paddle/server-token": "AnotherDeployment" * 3})
    later = Machine(account, tmp_path, "i-3", "control-plane")
    boot = later.first_boot()
    assert boot.code == 0, boot.console
    assert (
        "began under another server token than paddle/server-token holds: its own is used"
        in boot.console
    )
    assert account.on_the_volume("cat /token").strip().endswith(f"::server:{SERVER_TOKEN}")

    # A snapshot that was made under the secret's token.
    done = restore(account, later, "of-another-deployment", "--token-of-secret")
    assert done.code == 0, done.console
    assert (
        account.on_the_volume("cat /token").strip().endswith("::server:" + "AnotherDeployment" * 3)
    )
    account.set(secrets=secrets)


def test_upgrade_by_one_version(running: Running, tmp_path: Path) -> None:
    account, _ = running
    account.volume_is("available")
    upgraded = Machine(
        account, tmp_path, "i-2", "control-plane", DISTRIBUTION_VERSION="v1.36.0+k3s1"
    )
    assert upgraded.first_boot().code == 0
    assert account.on_the_volume("cat /distribution-version").strip() == "v1.36.0+k3s1"
