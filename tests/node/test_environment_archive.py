"""What may lie in an environment's folder on the volume: nothing there stops a builder or a pod,
and what is no archive of this platform is passed over.
"""

import errno
import hashlib
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paddle_node.failure import BadSetting, Failure
from paddle_node.requirements import archive, refusals


class Builder:
    """Adds an environment of one file to a folder of the volume."""

    def __init__(self, place: Path) -> None:
        self.folder, self.environment = place / "volume", place / "environment"
        for path in (self.folder, self.environment):
            path.mkdir()
        (self.environment / "tiny.py").write_text("x = 1\n")

    def add(self, *packages: str) -> archive.ArchiveRecord:
        return archive.add(self.folder, self.environment, ["tiny.py"], packages or ["tiny==1.0"])


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def rewrite(**changes: object) -> Callable[[Path, Path], object]:
    def change(record: Path, packed: Path) -> None:
        record.write_text(json.dumps({**json.loads(record.read_text()), **changes}))

    return change


def put(make: Callable[[Path], object], *, record: bool) -> Callable[[Path, Path], object]:
    def replace_file(record_file: Path, packed: Path) -> None:
        place = record_file if record else packed
        place.unlink()
        make(place)

    return replace_file


@pytest.mark.parametrize(
    "spoil",
    [
        rewrite(archive=f"archive-cpython-399-linux-aarch64-{'0' * 16}.tar.gz"),
        rewrite(packages=["\ud800"]),
        put(os.mkfifo, record=True),
        put(Path.mkdir, record=True),
        put(lambda path: path.symlink_to("nowhere"), record=True),
        put(os.mkfifo, record=False),
        put(Path.mkdir, record=False),
    ],
    ids=["platform", "surrogate", "pipe", "folder", "link", "archive-pipe", "archive-folder"],
)
def test_what_is_no_environment_of_this_platform_is_passed_over(
    builder: Builder, tmp_path: Path, spoil: Callable[[Path, Path], object]
) -> None:
    first = builder.add()
    spoil(builder.folder / "record-1.json", builder.folder / first.archive)
    results: list[object] = []
    # A pipe would hold this thread for ever.
    reader = threading.Thread(
        target=lambda: results.append(archive.find(builder.folder)), daemon=True
    )
    reader.start()
    reader.join(10)
    assert results == [(builder.folder / "record-2.json", None)]
    second = builder.add()
    assert archive.find(builder.folder)[1] == second
    assert archive.unpack(builder.folder, tmp_path / "unpacked")
    assert (tmp_path / "unpacked/tiny.py").exists()


def test_an_archive_of_another_platform_is_kept_and_an_abandoned_one_is_not(
    builder: Builder,
) -> None:
    other = builder.folder / f"archive-cpython-399-linux-aarch64-{'0' * 16}.tar.gz"
    left = builder.folder / f"archive-{archive.PLATFORM}-{'0' * 16}.tar.gz"
    first = builder.folder / builder.add().archive
    for file in (left, other, first):
        file.touch()
        os.utime(file, (0, 0))
    # As if another builder had removed its own archive after this one listed it.
    gone = builder.folder / f"archive-{archive.PLATFORM}-{'1' * 16}.tar.gz"
    gone.symlink_to("nowhere")
    builder.add()
    assert other.exists() and first.exists() and not left.exists()


def test_builders_side_by_side_leave_one_record_and_one_archive(builder: Builder) -> None:
    added: list[archive.ArchiveRecord] = []
    threads = [threading.Thread(target=lambda: added.append(builder.add())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(added) == 6 and len(set(added)) == 1
    assert sorted(path.name for path in builder.folder.iterdir()) == [
        added[0].archive,
        "record-1.json",
    ]


def test_an_archive_that_does_not_count_once_it_is_written_is_an_error(builder: Builder) -> None:
    with pytest.raises(OSError, match="not as it was written") as failed:
        builder.add("\ud800")
    assert failed.value.errno == errno.EIO
    assert [path.name for path in builder.folder.iterdir()] == ["record-1.json"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/usr/share/data")])
def test_what_no_pod_could_unpack_is_refused_by_its_name(
    builder: Builder, make: Callable[[Path], object]
) -> None:
    (builder.environment / "tiny.py").unlink()
    make(builder.environment / "tiny.py")
    with pytest.raises(BadSetting, match=r"bring tiny\.py, a "):
        builder.add()
    assert not list(builder.folder.iterdir())


@pytest.mark.parametrize(
    "spoil",
    [
        {"pax_headers": {"mtime": "inf"}},
        {"name": "d/" * 3_000 + "tiny.py"},
        {"name": "n" * 300},
        {"pax_headers": {"path": "a\0b"}},
        {"type": tarfile.DIRTYPE},
        None,
    ],
    ids=["time", "deep", "long", "null", "folder", "empty"],
)
def test_a_recorded_archive_that_no_pod_can_unpack_is_one_sentence(
    builder: Builder, tmp_path: Path, spoil: dict[str, object] | None
) -> None:
    packed = builder.folder / builder.add().archive
    packed.write_bytes(b"")
    if spoil is not None:
        with tarfile.open(packed, "w:gz") as tar:
            member = tarfile.TarInfo("tiny.py")
            for name, value in spoil.items():
                setattr(member, name, value)
            tar.addfile(member)
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    rewrite(sha256=digest)(builder.folder / "record-1.json", packed)
    with pytest.raises(BadSetting, match=r"cannot be unpacked .*: remove its folder, and submit"):
        archive.unpack(builder.folder, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists() and not (tmp_path / ".unpacked.part").exists()


class Pods:
    """Pods of a run of job words, and what environment Jobs say to them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for constant, seconds in (("BELIEVED_AFTER", 0.2), ("MET_BELIEVED_AFTER", 0.6)):
            monkeypatch.setattr(refusals, constant, seconds)
        monkeypatch.setattr(archive, "POLL", 0.01)
        self._environ = {"PADDLE_NODE_ROOT": str(root), "PADDLE_NODE_ENVIRONMENT": "ab" * 32}
        self._environ |= {"JOB_NAMESPACE": "n", "JOB_NAME": "words"}
        self.folder = archive.folder(self._environ)
        self.folder.mkdir(parents=True)

    def refuse(self, run: str, sentence: str, *, lasting: bool, **more: str) -> None:
        environ = {**self._environ, "PADDLE_NODE_RUN_ID": run, **more}
        refusals.remove(self.folder, environ)
        refusals.add(self.folder, environ, sentence, lasting=lasting)

    def wait(
        self, run: str, seconds: float, report: Callable[[str], None] = lambda text: None
    ) -> tuple[str, float]:
        """Returns why they end, and after how many seconds; `report` hears when they wait."""
        began = time.monotonic()
        with pytest.raises(Failure) as failed:
            archive.bring({**self._environ, "PADDLE_NODE_RUN_ID": run}, report, seconds)
        return failed.value.sentence, time.monotonic() - began


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pods:
    return Pods(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"job": "b/a"}',
        '{"job": "n/words", "last": true}',
        '{"sentence": 1, "last": true}',
    ],
)
def test_what_is_no_refusal_of_this_job_ends_no_pod(pods: Pods, content: str) -> None:
    (pods.folder / "refusal-0-1.json").write_text(content)
    os.mkfifo(pods.folder / "refusal-2-1.json")
    pods.refuse("a", "not theirs", lasting=True, JOB_NAME="a")
    assert "did not come within 0 s" in pods.wait("1", 0.3)[0]


def test_a_refusal_is_for_the_run_that_meets_it_first(pods: Pods) -> None:
    """A run that begins later waits longer: the Job that removes the refusal may be on its way."""
    pods.refuse("a", "no such package", lasting=True)
    for run, least, most in (("1", 0.2, 0.5), ("1", 0, 0.1), ("2", 0.6, 2)):
        sentence, seconds = pods.wait(run, 60)
        assert sentence.endswith("cannot be built: no such package") and least <= seconds < most
    pods.refuse("b", "another one", lasting=True)
    assert [file.name for file in pods.folder.iterdir()] == ["refusal-b-1.json"]


def test_the_last_of_the_tries_ends_the_pods_that_wait_for_it(pods: Pods) -> None:
    for _ in range(3):
        assert pods.wait("1", 0.3)[0].endswith("says how far its Job is")
        pods.refuse("a", "the index is down", lasting=False, PADDLE_NODE_RETRIES="2")
    # It lies there when they begin, and the next Job may well find the index.
    assert pods.wait("2", 1)[0].endswith("; an earlier one said: the index is down")

    def fail_again(_: str) -> None:
        pods.refuse("b", "it is down still", lasting=False, PADDLE_NODE_RETRIES="0")

    sentence, _ = pods.wait("2", 60, fail_again)
    assert sentence.endswith("cannot be built: it is down still")
