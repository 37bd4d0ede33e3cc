"""`lock distribution` against a real HTTP server with real faults: it checks what arrives, and a
failure changes nothing.

The server imitates k3s's channels and releases and a Helm repository; it does not prove that they
still have these forms.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from http_server import FileServer

from paddle_aws.stacks.distribution_lock import FILES, DistributionLock
from paddle_settings.errors import SettingError

VERSION = "v1.36.2+k3s1"
CONTENT = {"k3s": b"a binary" * 4000, "k3s-airgap-images-amd64.tar.zst": b"images" * 9000}
SUMS = {name: hashlib.sha256(text).hexdigest() for name, text in CONTENT.items()}
DATA = yaml.safe_load(Path(__file__).with_name("lock_distribution.yaml").read_text())


def chart(values: object) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        text = yaml.safe_dump(values).encode()
        entry = tarfile.TarInfo("aws-efs-csi-driver/values.yaml")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


RELEASES = f"/releases/{VERSION}"


class Publisher(FileServer):
    """What k3s and the EFS driver publish, with a test release and an older one; `faults` override
    this.
    """

    def __init__(self, values: object, faults: dict[str, dict[str, Any]]) -> None:
        super().__init__()
        packed = chart(values)
        entries = [
            {"version": "9.9.9", "urls": ["old.tgz"], "digest": "0" * 64},
            {
                "version": "10.0.0",
                "urls": ["chart.tgz"],
                "digest": hashlib.sha256(packed).hexdigest(),
            },
            {"version": "10.0.0", "urls": ["again.tgz"], "digest": "0" * 64},
            {"version": "11.0.0-rc1", "urls": ["test.tgz"], "digest": "0" * 64},
        ]
        sums = "".join(f"{digest}  {name}\n" for name, digest in SUMS.items())
        self.files = {f"{RELEASES}/{name}": text for name, text in CONTENT.items()}
        self.files |= {
            f"{RELEASES}/sha256sum-amd64.txt": sums.encode(),
            "/charts/chart.tgz": packed,
        }
        self.files["/charts/index.yaml"] = yaml.safe_dump(
            {"entries": {"aws-efs-csi-driver": entries}}
        ).encode()
        self.redirects = {"/channels/v1.36": f"/tag/{VERSION.replace('+', '%2B')}"}
        self.files |= {path: text.encode() for path, text in faults.get("files", {}).items()}
        self.redirects |= faults.get("redirects", {})
        self.statuses, self.cuts = faults.get("statuses", {}), faults.get("cuts", {})

    @property
    def mirrors(self) -> list[str]:
        """The command's options that point to this server."""
        return [f"--{name}={self.url}/{name}" for name in ("channels", "releases", "charts")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_aws.operations.account.download.PAUSE", 0.001)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    distribution = {
        "lock": str(tmp_path / "locks/distribution.json"),
        "files": str(tmp_path / "cache"),
    }
    cluster = {"kind": "self-managed", "version": "1.36", "distribution": distribution}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"retain": False, "cluster": cluster}))
    return tmp_path / "cluster.yaml"


def lock_of(config: Path) -> Path:
    return config.parent / "locks/distribution.json"


def kept(config: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in config.parent.glob("cache/*/*")
        if path.suffix != ".part"
    }


@pytest.mark.slow
def test_newest_release_of_the_cluster_s_version(config: Path, run: Run) -> None:
    with Publisher(DATA["values"], {}) as published:
        done = run("lock", "distribution", str(config), *published.mirrors)
        assert done.code == 0, done.err
        lock = DistributionLock.load(lock_of(config))
        assert (
            lock.version == VERSION and lock.kubernetes == "1.36" and lock.images == DATA["images"]
        )
        assert {name: file.sha256 for name, file in lock.files.items()} == SUMS
        assert [name for name, _, _ in lock.verified_files(config.parent / "cache")] == list(FILES)
        assert all(
            part in lock.source for part in ("/channels/v1.36", "sha256sum-amd64.txt", "chart.tgz")
        )
        assert kept(config) == CONTENT

        # A second run downloads neither file again.
        published.asked.clear()
        assert run("lock", "distribution", str(config), *published.mirrors).code == 0
        assert not [path for path in published.asked if path.rpartition("/")[2] in FILES]

        # Another machine, which has only the lock.
        for path in config.parent.glob("cache/*/*"):
            path.unlink()
        before = lock_of(config).read_text()
        assert run("lock", "distribution", str(config), "--fetch-only").code == 0
        assert kept(config) == CONTENT and lock_of(config).read_text() == before


@pytest.mark.slow
def test_cut_and_passing_faults_are_overcome(config: Path, run: Run) -> None:
    statuses = {
        f"{RELEASES}/sha256sum-amd64.txt": [503],
        "/channels/v1.36": [500],
        f"{RELEASES}/k3s": [502],
    }
    with Publisher(
        DATA["values"], {"statuses": statuses, "cuts": {f"{RELEASES}/k3s": [10_000, 5_000]}}
    ) as published:
        done = run("lock", "distribution", str(config), *published.mirrors)
        assert done.code == 0, done.err
        assert kept(config) == CONTENT
        assert published.asked.count(f"{RELEASES}/k3s") == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA["faults"])
def test_what_fails_changes_nothing(config: Path, run: Run, name: str) -> None:
    fault = DATA["faults"][name]
    lock_of(config).parent.mkdir()
    lock_of(config).write_text("the lock until now")
    if name == "full disk":
        # The kernel itself reports /dev/full as a full disk.
        (config.parent / "cache" / VERSION).mkdir(parents=True)
        (config.parent / "cache" / VERSION / "k3s.part").symlink_to("/dev/full")
    with Publisher({"image": 1} if name == "new values" else DATA["values"], fault) as published:
        done = run("lock", "distribution", str(config), *published.mirrors)
    assert done.code == fault["code"], done.err
    assert (
        fault["says"] in done.err
        and len(done.err.strip().splitlines()[-1]) < 400
        and "Traceback" not in done.err
    )
    assert lock_of(config).read_text() == "the lock until now"
    assert kept(config).get("k3s", CONTENT["k3s"]) == CONTENT["k3s"]


@pytest.mark.parametrize("arguments", DATA["arguments"], ids=str)
def test_arguments_that_cannot_be(config: Path, run: Run, arguments: list[str]) -> None:
    done = run("lock", "distribution", str(config), *arguments[:-1])
    assert done.code == 2 and arguments[-1] in done.err and "SECRET" not in done.err + done.out


@pytest.mark.parametrize("case", DATA["locks"], ids=lambda case: case["says"])
def test_lock_that_is_not_what_the_command_writes(tmp_path: Path, case: dict[str, Any]) -> None:
    path = tmp_path / "distribution.json"
    path.write_text(json.dumps(case["lock"]))
    with pytest.raises(SettingError, match=case["says"]):
        DistributionLock.load(path)


def test_files_that_are_not_what_the_lock_names(tmp_path: Path) -> None:
    lock = DistributionLock.model_validate(DATA["lock"])
    with pytest.raises(
        SettingError,
        match=r"k3s is not on this machine: run `paddle-aws lock distribution --fetch-only`",
    ):
        lock.verified_files(tmp_path)
    lock.folder(tmp_path).mkdir()
    (lock.folder(tmp_path) / "k3s").write_text("short")
    with pytest.raises(SettingError, match="has 5 bytes instead of 8"):
        lock.verified_files(tmp_path)
