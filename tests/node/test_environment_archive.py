"""What may lie in an environment's folder on the volume: nothing there stops a builder or a pod,
and what is no archive of this platform is passed over.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from paddle_node.failure import Failure, SettingError
from paddle_node.requirements import archive, refusals


class Builder:
    """Adds an environment of one file to a folder of the volume."""

    def __init__(self, place: Path) -> None:
        self.folder, self.environment = place / "volume", place / "environment"
        for path in (self.folder, self.environment):
            path.mkdir()
        (self.environment / "tiny.py").write_text("x = 1\n")

    def add(self, *packages: str) -> archive.Record:
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
        if not record:
            rewrite(size=packed.lstat().st_size)(record_file, packed)

    return replace_file


@pytest.mark.parametrize(
    "spoil",
    [
        rewrite(platform="cpython-399 linux-aarch64"),
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
    assert results == [None]
    second = builder.add()
    assert archive.find(builder.folder) == second
    assert archive.unpack(builder.folder, tmp_path / "unpacked")
    assert (tmp_path / "unpacked/tiny.py").exists()


def test_an_archive_of_another_platform_is_kept_and_an_abandoned_one_is_not(
    builder: Builder,
) -> None:
    other = builder.add()
    rewrite(platform="cpython-399 linux-aarch64")(builder.folder / "record-1.json", Path())
    left = builder.folder / f"archive-{'0' * 16}.tar.gz"
    left.write_bytes(b"half")
    for file in (left, builder.folder / other.archive):
        os.utime(file, (0, 0))
    # As if another builder had removed its own archive after this one listed it.
    (builder.folder / f"archive-{'1' * 16}.tar.gz").symlink_to("nowhere")
    builder.add()
    assert not left.exists() and (builder.folder / other.archive).exists()


def test_builders_side_by_side_leave_one_record_and_one_archive(builder: Builder) -> None:
    added: list[archive.Record] = []
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
    with pytest.raises(SettingError, match=r"bring tiny\.py, a "):
        builder.add()
    assert not list(builder.folder.iterdir())


@pytest.mark.parametrize("content", ["{", "[]", '{"job": "b/a"}', '{"job": "n/words"}'])
def test_what_an_earlier_run_said_counts_once_its_next_one_would_have_removed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(archive, "REMOVED", 0.2)
    monkeypatch.setattr(archive, "POLL", 0.01)
    environ = {"PADDLE_NODE_ROOT": str(tmp_path), "PADDLE_NODE_ENVIRONMENT": "ab" * 32}
    environ |= {"JOB_NAMESPACE": "n", "JOB_NAME": "words", "PADDLE_NODE_RUN_ID": "1"}
    folder = archive.folder(environ)
    folder.mkdir(parents=True)
    (folder / "refusal-0.json").write_text(content)
    os.mkfifo(folder / "refusal-2.json")
    refusals.add(folder, {**environ, "JOB_NAME": "a", "PADDLE_NODE_RUN_ID": "3"}, "not theirs")
    with pytest.raises(Failure, match=r"did not come within 0 s"):
        archive.bring(environ, lambda text: None, 0.3)
    refusals.add(folder, environ, "no such package")
    began = time.monotonic()
    with pytest.raises(Failure, match=r"cannot be built: no such package$"):
        archive.bring(environ, lambda text: None, 60)
    assert time.monotonic() - began >= 0.2
