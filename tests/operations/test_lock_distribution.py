"""`lock distribution` against a real HTTP server with real faults: what arrives is checked, what fails changes nothing.

The server plays k3s's channels and releases and a Helm repository in their own forms; it is no proof that they still have them.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from http_server import FileServer

from settings.errors import SettingError
from stacks.distribution_lock import FILES, DistributionLock

VERSION = "v1.35.2+k3s1"
CONTENT = {"k3s": b"a binary" * 4000, "k3s-airgap-images-amd64.tar.zst": b"images" * 9000}
VALUES = {
    "image": {"repository": "public.ecr.aws/efs/driver", "tag": "v3.0.0"},
    "sidecars": {
        "livenessProbe": {"image": {"repository": "public.ecr.aws/csi/liveness", "tag": "v2.1.0-eksbuild.3"}},
        "nodeDriverRegistrar": {"image": {"repository": "public.ecr.aws/csi/registrar", "tag": "v2.2.0-eksbuild.3"}},
    },
}


def chart(values: object) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        text = yaml.safe_dump(values).encode()
        entry = tarfile.TarInfo("aws-efs-csi-driver/values.yaml")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


class Publisher(FileServer):
    """What k3s and the EFS driver publish."""

    def __init__(self) -> None:
        super().__init__()
        self.files = {f"/releases/{VERSION}/{name}": text for name, text in CONTENT.items()}
        self.list()
        self.redirects = {"/channels/v1.35": f"/tag/{VERSION.replace('+', '%2B')}"}
        self.offer(VALUES)

    def list(self) -> None:
        """The release's list of hashes."""
        self.files[f"/releases/{VERSION}/sha256sum-amd64.txt"] = "".join(
            f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in CONTENT.items()
        ).encode()

    def offer(self, values: object) -> None:
        """A Helm repository with an older, a newer and a test release."""
        packed = chart(values)
        entries = [
            {"version": "9.9.9", "urls": ["old.tgz"], "digest": "0" * 64},
            {"version": "10.0.0", "urls": ["chart.tgz"], "digest": hashlib.sha256(packed).hexdigest()},
            {"version": "11.0.0-rc1", "urls": ["test.tgz"], "digest": "0" * 64},
        ]
        self.files |= {
            "/charts/chart.tgz": packed,
            "/charts/index.yaml": yaml.safe_dump({"entries": {"aws-efs-csi-driver": entries}}).encode(),
        }


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Publisher, list[str]]]:
    monkeypatch.setattr("operations.account.download.PAUSE", 0.001)
    with Publisher() as published:
        yield published, [f"--{name}={published.url}/{name}" for name in ("channels", "releases", "charts")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    distribution = {"lock": str(tmp_path / "locks/distribution.json"), "files": str(tmp_path / "cache")}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"retain": False, "cluster": {"kind": "self-managed", "distribution": distribution}}))
    return path


def lock_of(config: Path) -> Path:
    return config.parent / "locks/distribution.json"


def kept(config: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in config.parent.glob("cache/*/*") if path.suffix != ".part"}


@pytest.mark.slow
def test_newest_release_of_the_cluster_s_version(publisher: tuple[Publisher, list[str]], config: Path, run: Run) -> None:
    published, mirrors = publisher
    done = run("lock", "distribution", str(config), *mirrors)
    assert done.code == 0, done.err
    lock = DistributionLock.load(lock_of(config))
    assert lock.version == VERSION and lock.kubernetes == "1.35"
    assert {name: file.sha256 for name, file in lock.files.items()} == {
        name: hashlib.sha256(text).hexdigest() for name, text in CONTENT.items()
    }
    assert lock.images == {
        "efs-csi-driver": "public.ecr.aws/efs/driver:v3.0.0",
        "node-driver-registrar": "public.ecr.aws/csi/registrar:v2.2.0-eksbuild.3",
        "liveness-probe": "public.ecr.aws/csi/liveness:v2.1.0-eksbuild.3",
    }
    assert [name for name, _, _ in lock.cached(config.parent / "cache")] == list(FILES)
    assert "/channels/v1.35" in lock.source and "sha256sum-amd64.txt" in lock.source and "chart.tgz" in lock.source
    assert kept(config) == CONTENT

    # A second run downloads neither file again.
    published.asked.clear()
    assert run("lock", "distribution", str(config), *mirrors).code == 0
    assert not [path for path, _ in published.asked if path.rpartition("/")[2] in FILES]

    # Another machine, with the lock alone.
    for path in config.parent.glob("cache/*/*"):
        path.unlink()
    before = lock_of(config).read_text()
    assert run("lock", "distribution", str(config), "--fetch-only").code == 0
    assert kept(config) == CONTENT and lock_of(config).read_text() == before


@pytest.mark.slow
def test_cut_and_passing_faults_are_overcome(publisher: tuple[Publisher, list[str]], config: Path, run: Run) -> None:
    published, mirrors = publisher
    path = f"/releases/{VERSION}/k3s"
    published.cuts[path] = [10_000, 5_000]
    published.statuses = {f"/releases/{VERSION}/sha256sum-amd64.txt": [503], "/channels/v1.35": [500], path: [502]}
    done = run("lock", "distribution", str(config), *mirrors)
    assert done.code == 0, done.err
    assert kept(config) == CONTENT
    assert [begin for asked, begin in published.asked if asked == path] == ["", "", "bytes=10000-", "bytes=15000-"]


RELEASE = f"/releases/{VERSION}"
IMAGES = "k3s-airgap-images-amd64.tar.zst"
FAULTS: dict[str, tuple[int, str, dict[str, dict[str, Any]]]] = {
    "no channel": (1, "/channels/v1.35 is not there (HTTP 404)", {"redirects": {"/channels/v1.35": None}}),
    "no release": (1, "leads to /tag/latest, which is no k3s release", {"redirects": {"/channels/v1.35": "/tag/latest"}}),
    "no file": (1, f"{IMAGES} is not there", {"files": {f"{RELEASE}/{IMAGES}": None}}),
    "not in the list": (
        1,
        "sha256sum-amd64.txt lists no k3s, k3s-airgap",
        {"files": {f"{RELEASE}/sha256sum-amd64.txt": b"0" * 64 + b"  k3s-arm64\n"}},
    ),
    "wrong sum": (1, "/k3s has not the SHA-256 that its publisher lists", {"files": {f"{RELEASE}/k3s": b"something else"}}),
    "always 500": (3, "/k3s is not to be had: HTTP 500", {"statuses": {f"{RELEASE}/k3s": [500] * 5}}),
    "always cut": (3, "/k3s was cut off or does not answer, 5 times", {"cuts": {f"{RELEASE}/k3s": [10] * 5}}),
    "full disk": (1, "no room for", {}),
    "wrong chart": (1, "chart.tgz has not the SHA-256", {"files": {"/charts/chart.tgz": b" "}}),
    "no index": (1, "index.yaml offers no release of aws-efs-csi-driver", {"files": {"/charts/index.yaml": b"<html>"}}),
    "new values": (1, "index.yaml offers no release of aws-efs-csi-driver whose images can be read", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_fails_changes_nothing(publisher: tuple[Publisher, list[str]], config: Path, run: Run, fault: str) -> None:
    published, mirrors = publisher
    code, words, changes = FAULTS[fault]
    lock_of(config).parent.mkdir()
    lock_of(config).write_text("the lock until now")
    for kind, change in changes.items():
        known = {**getattr(published, kind), **change}
        setattr(published, kind, {path: one for path, one in known.items() if one is not None})
    if fault == "full disk":
        # The kernel's own full disk.
        (config.parent / "cache" / VERSION).mkdir(parents=True)
        (config.parent / "cache" / VERSION / "k3s.part").symlink_to("/dev/full")
    if fault == "new values":
        registrar = {"nodeDriverRegistrar": VALUES["sidecars"]["nodeDriverRegistrar"]}
        published.offer({"image": VALUES["image"], "sidecars": registrar})
    done = run("lock", "distribution", str(config), *mirrors)
    assert done.code == code, done.err
    assert words in done.err and len(done.err.strip().splitlines()[-1]) < 400 and "Traceback" not in done.err
    assert lock_of(config).read_text() == "the lock until now"
    assert "k3s" not in kept(config) or kept(config)["k3s"] == CONTENT["k3s"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--version", "1.35"], "--version is 1.35: wanted is a k3s release such as v1.35.2+k3s1"),
        (["--version", "v1.34.1+k3s1"], "--version v1.34.1+k3s1 is not Kubernetes 1.35"),
        (["--releases", "http://mirror.example/k3s", "--version", VERSION], "is not an https address"),
        (["--fetch-only"], "is missing: the versions and hashes of a self-managed cluster"),
        *(
            ([option, f"https://{address}"], f"{option} is https://")
            for option in ("--channels", "--releases", "--charts")
            for address in ("me:SECRET@mirror/k3s", "mirror/k3s?token=SECRET")
        ),
    ],
)
def test_arguments_that_cannot_be(config: Path, run: Run, arguments: list[str], words: str) -> None:
    settings = yaml.safe_load(config.read_text())
    settings["cluster"]["version"] = "1.35"
    config.write_text(yaml.safe_dump(settings))
    done = run("lock", "distribution", str(config), *arguments)
    assert done.code == 2 and words in done.err and "SECRET" not in done.err + done.out


FILE = {"url": "https://x/k3s", "sha256": "0" * 64, "size": 8}
GOOD = {
    "read": "2026-11-21",
    "source": "there",
    "distribution": "k3s",
    "version": VERSION,
    "files": dict.fromkeys(FILES, FILE),
    "images": dict.fromkeys(("efs-csi-driver", "node-driver-registrar", "liveness-probe"), "public.ecr.aws/x/y:v1"),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "latest"}, "version must be"),
        ({"files": {"k3s": FILE}}, "has no file k3s-airgap-images-amd64.tar.zst"),
        ({"images": {}}, "has no image efs-csi-driver"),
        ({"files": {**dict.fromkeys(FILES, FILE), "k3s": FILE | {"sha256": "?"}}}, "files.k3s.sha256"),
    ],
)
def test_lock_that_is_not_what_the_command_writes(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "distribution.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(SettingError, match=words):
        DistributionLock.load(path)


def test_files_that_are_not_what_the_lock_names(tmp_path: Path) -> None:
    lock = DistributionLock.model_validate(GOOD)
    with pytest.raises(SettingError, match=r"k3s is not on this machine: run `paddle-aws lock distribution --fetch-only`"):
        lock.cached(tmp_path)
    lock.folder(tmp_path).mkdir()
    (lock.folder(tmp_path) / "k3s").write_text("short")
    with pytest.raises(SettingError, match="has 5 bytes instead of 8"):
        lock.cached(tmp_path)
    with pytest.raises(SettingError, match=r'cluster.version is "1.34", but .* holds v1.35.2'):
        lock.check_version("1.34", tmp_path)
