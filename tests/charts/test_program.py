"""A program of the user's own: from a folder or a commit to the variable that names its archive, or to one sentence."""

import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from paddle_node import contract
from paddle_node.contract import JobFolder
from paddle_node.failure import Failure
from paddle_node.staging import program_archive

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.spec import TrainingJob
from settings.errors import SettingError

C = "a" * 40
GIT = {"from": "git", "repository": "https://example.org/x.git", "commit": C}


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *settings, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A checkout with a subfolder, a link, a script, an ignored file and one that git does not know yet."""
    folder = tmp_path / "mine"
    (folder / "tools" / "__pycache__").mkdir(parents=True)
    (folder / "tools" / "__pycache__" / "x.pyc").write_text("left behind")
    (folder / "tools" / "train.py").write_text("print('one')\n")
    (folder / "train.py").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "latest").symlink_to("tools/train.py")
    (folder / ".gitignore").write_text("*.data\n")
    (folder / "large.data").write_text("left behind")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    (folder / "new.py").write_text("two\n")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def parsed(folder: Path, program: dict[str, Any], **more: Any) -> TrainingJob:
    settings = {"name": "words", "trainers": 2, "mode": "collective", "data": {"source": "s3://corpus/words"}}
    return TrainingJob.parse(settings | {"program": program} | more, folder)


def variables(job: TrainingJob, outputs: ClusterOutputs, image: str) -> list[dict[str, str]]:
    """What the data job's and the trainers' containers are told."""
    jobs = [document for document in documents(job, outputs, image) if document["kind"] == "Job"]
    env = [job["spec"]["template"]["spec"]["containers"][0]["env"] for job in jobs]
    return [{entry["name"]: entry.get("value", "") for entry in entries} for entries in env]


def brought(job: TrainingJob, volume: Path) -> JobFolder:
    """The job's folder, with the archive where `submit` puts it."""
    folder = JobFolder(volume)
    folder.programs.mkdir(parents=True)
    assert job.program.archive is not None
    job.program.archive.write(folder.archive(job.program.archive.digest))
    return folder


def test_a_folder_reaches_the_pod_as_its_checkout_is(program: Path, tmp_path: Path, outputs: ClusterOutputs, image: str) -> None:
    job = parsed(tmp_path, {"folder": "./mine"})
    assert job == parsed(tmp_path, {"from": "folder", "path": "./mine"})
    archive = job.program.archive
    assert archive is not None
    data, trainer = variables(job, outputs, image)
    assert trainer[contract.Variable.PROGRAM_ARCHIVE] == archive.digest
    assert contract.Variable.PROGRAM_ARCHIVE not in data, "no reader of the program's: the split has nothing to do with it"

    place = program_archive.unpack(brought(job, tmp_path / "volume"), archive.digest, tmp_path / "home" / "program")
    files = {path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()}
    assert files == {".gitignore", "latest", "new.py", "run.sh", "tools/train.py", "train.py"}
    assert str((place / "latest").readlink()) == "tools/train.py" and (place / "latest").read_text() == "print('one')\n"
    assert (place / "run.sh").stat().st_mode & 0o777 == 0o755
    (place / "tools" / "train.py").write_text("the pod's own copy can be written")

    (place / "leftover").write_text("of a container that was killed")
    program_archive.unpack(JobFolder(tmp_path / "volume"), archive.digest, place)
    assert not (place / "leftover").exists() and (place / "tools" / "train.py").read_text() == "print('one')\n"

    # Elsewhere, at another time, by another user: the same name.
    os.utime(program / "new.py", (1, 1))
    assert parsed(tmp_path, {"from": "folder", "path": "mine"}).program.archive.digest == archive.digest  # type: ignore[union-attr]
    (program / "new.py").write_text("three\n")
    assert parsed(tmp_path, {"from": "folder", "path": "mine"}).program.archive.digest != archive.digest  # type: ignore[union-attr]


def test_a_record_reader_of_the_programs_is_given_to_the_data_job(
    program: Path, tmp_path: Path, outputs: ClusterOutputs, image: str
) -> None:
    job = parsed(
        tmp_path, {"from": "folder", "path": "mine"}, data={"source": "s3://corpus/words", "format": "tools.train:records"}
    )
    assert job.program.archive is not None
    assert {told[contract.Variable.PROGRAM_ARCHIVE] for told in variables(job, outputs, image)} == {job.program.archive.digest}


def test_a_commit_is_fetched_once_and_then_read_without_network(program: Path, tmp_path: Path) -> None:
    commit = git(program, "rev-parse", "HEAD")
    settings = {"from": "git", "repository": f"file://{program}", "commit": commit}
    with pytest.raises(SettingError, match="not on this machine yet, `paddle-aws submit --dry-run` fetches it"):
        parsed(tmp_path, settings)
    file = tmp_path / "job.yaml"
    text = "name: words\ntrainers: 2\nmode: collective\ndata: {source: s3://corpus/words}\nprogram:\n"
    file.write_text(text + "".join(f"  {name}: {value}\n" for name, value in settings.items()))
    git(program, "config", "uploadpack.allowAnySHA1InWant", "true")
    job = TrainingJob.load(file, fetch=True)
    assert job.program.archive is not None
    assert job.program.archive.names == (".gitignore", "latest", "run.sh", "tools/train.py", "train.py"), (
        "what is committed, and no more"
    )

    (program / ".git").rename(tmp_path / "gone")
    assert TrainingJob.load(file).program.archive == job.program.archive
    below = parsed(tmp_path, settings | {"folder": "tools"}).program.archive
    assert below is not None and below.names == ("train.py",)
    with pytest.raises(SettingError, match=f"program.folder is none: commit {commit} has no such folder"):
        parsed(tmp_path, settings | {"folder": "none"})

    # Somebody worked in the cache: that is no longer the commit.
    (job.program.archive.root / "run.sh").write_text("changed")
    with pytest.raises(SettingError, match=r"program.commit cannot be read: git says fatal: "):
        TrainingJob.load(file, fetch=True)


@pytest.mark.parametrize("damage", ["a byte", "cut", "another archive", "missing"])
def test_an_archive_that_is_not_the_one_named_is_refused(program: Path, tmp_path: Path, damage: str) -> None:
    job = parsed(tmp_path, {"from": "folder", "path": "mine"})
    assert job.program.archive is not None
    folder, digest = brought(job, tmp_path / "volume"), job.program.archive.digest
    archive = folder.archive(digest)
    content = bytearray(archive.read_bytes())
    if damage == "a byte":
        content[content.index(b"print")] ^= 1
    if damage == "another archive":
        content = bytearray()
    archive.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    if damage == "missing":
        archive.unlink()
    with pytest.raises(Failure, match=r"is not what the job names|does not exist: `paddle-aws upload --program`") as caught:
        program_archive.unpack(folder, digest, tmp_path / "program")
    assert caught.value.code == 2 and not (tmp_path / "program").exists()


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(found, field, value)
    return found


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("/etc/out")],
        [member("device", type=tarfile.CHRTYPE)],
        [member("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("out", type=tarfile.SYMTYPE, linkname="../../out")],
        [member("here", type=tarfile.SYMTYPE, linkname="."), member("out", type=tarfile.SYMTYPE, linkname="here/../../volume")],
        [
            member("a/up", type=tarfile.SYMTYPE, linkname=".."),
            # By its name inside; where it would come to lie, outside.
            member("a/up/b", type=tarfile.SYMTYPE, linkname="../.."),
            member("b/evil", type=tarfile.SYMTYPE, linkname="x"),
        ],
    ],
    ids=lambda members: members[-1].name,
)
def test_a_member_that_leads_out_of_the_folder_is_refused_though_the_digest_is_right(
    tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    import hashlib

    folder = JobFolder(tmp_path / "volume")
    folder.programs.mkdir(parents=True)
    made = tmp_path / "made.tar"
    with tarfile.open(made, "w") as tar:
        for one in members:
            tar.addfile(one)
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    made.rename(folder.archive(digest))
    with pytest.raises(Failure) as caught:
        program_archive.unpack(folder, digest, tmp_path / "home" / "program")
    assert caught.value.code == 2 and not (tmp_path / "home" / "program").exists() and not (tmp_path / "out").exists()


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_programs.yaml").read_text())


@pytest.mark.parametrize(("settings", "sentence"), [tuple(row.values()) for row in REFUSED], ids=lambda value: str(value)[:40])
def test_refused(program: Path, tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    if "no train.py" in sentence:
        (program / "train.py").unlink()
    with pytest.raises(SettingError) as caught:
        parsed(tmp_path, settings)
    assert str(caught.value) == sentence.format(tmp_path)


def test_what_the_folder_holds_is_refused(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"from": "folder", "path": "mine"}
    with pytest.raises(
        SettingError, match=r"resources.scratch is 1Mi: the program has 1,048,\d+ bytes, which each pod unpacks there"
    ):
        (program / "new.py").write_text("x" * (1 << 20))
        parsed(tmp_path, settings, resources={"scratch": "1Mi"})
    (tmp_path / "other").write_text("of another's")
    (program / "out").symlink_to("../other")
    with pytest.raises(SettingError, match=r"program.path has the link .*/mine/out, which leads out of the folder"):
        parsed(tmp_path, settings)
    (program / "out").unlink()
    with pytest.raises(SettingError, match=r"command names tools/none.py: .*/mine has no such file"):
        parsed(tmp_path, settings, command="python -m paddle.distributed.launch --nnodes 1 tools/none.py -c x.py")
    monkeypatch.setattr(contract, "PROGRAM_LIMIT", 1000)
    with pytest.raises(SettingError, match=r"its files have 1,048,\d+ bytes, 1 to 1,000 are allowed; let .gitignore leave out"):
        parsed(tmp_path, settings)
