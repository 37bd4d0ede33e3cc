"""What lies on a volume survives a kill, and an error of the volume, at each system call of who
writes it: a later process always ends with the same bytes. Calls are seen and cut in this process,
by Python's audit events and os.write: nothing of a killed one runs, cleaning up included. Lost
power, which also loses what was not flushed, is not tried.
"""

import errno
import itertools
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from paddle_node.agent.local.output import LocalOutput
from paddle_node.data import inputs
from paddle_node.failure import Failure
from paddle_node.rendezvous import messages
from paddle_node.requirements import archive
from paddle_node.runtimes import Scratch
from paddle_node.volume import durable, lease, passes, publication
from paddle_node.volume.job_folder import JobFolder
from test_file_progress import Job
from test_passes import save

CHANGES = {
    "os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.chmod",
    "os.utime", "os.truncate",
}  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Killed(BaseException):
    """The process is gone."""


class Cut:
    """Cuts the n-th call: kills the process there, or lets that call alone fail."""

    def __init__(self) -> None:
        self.left = 0
        self.error = 0
        self.met = self.armed = False
        self._lock = threading.Lock()
        self._write = os.write
        sys.addaudithook(self._hear)

    @contextmanager
    def at(self, point: int, error: int) -> Iterator[None]:
        self.left, self.error, self.met, self.armed = point, error, False, True
        os.write = self._torn
        try:
            yield
        except Killed:
            pass
        except (OSError, Failure):
            if not error:
                raise
        finally:
            self.armed, os.write = False, self._write

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.armed and (
            event in CHANGES or (event == "open" and isinstance(arguments[2], int)
                                 and arguments[2] & WRITES)
        ):  # fmt: skip
            self._count()

    def _torn(self, file: int, content: bytes) -> int:
        if file <= 2:
            return self._write(file, content)
        try:
            self._count()
        except (Killed, OSError):
            self._write(file, bytes(content)[: len(content) // 2])
            raise
        return self._write(file, content)

    def _count(self) -> None:
        with self._lock:
            if self.met and not self.error:
                raise Killed  # Nothing of it runs any more.
            self.left -= 1
            if self.left == 0:
                self.met = True
                if self.error:
                    raise OSError(self.error, os.strerror(self.error))
                raise Killed


CUT = Cut()


def lease_of_three(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """A lease is taken over, renewed and released; then a third run takes it."""
    lease.acquire(place, "first", "a", 9.0).release()

    def work() -> None:
        held = lease.acquire(place, "second", "b", 9.0)
        held.beat()
        held.release()

    def check() -> None:
        before = len(list(place.glob("lease-*")))
        third = lease.acquire(place, "third", "c", 9.0, sleep=lambda seconds: None)
        assert third.path.name == f"lease-{before + 1:05d}.json"
        assert lease.holder(place).run == "third"

    return work, check


def passes_of_a_job(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """A second pass is saved, and the first one removed."""
    job, identity = JobFolder(place), passes.Identity()
    first = save(job, 1, 0)

    def work() -> None:
        good = {first, save(job, 2, 1)}
        passes.keep_newest(job, identity, 1, good)

    def check() -> None:
        passes.discard_incomplete(job)
        valid = list(passes.read_newest_first(job))
        assert valid
        for pass_ in valid:
            passes.verify(pass_.folder)
        third = save(job, 3, 2)
        passes.keep_newest(job, identity, 1, {third})
        assert [pass_.folder for pass_ in passes.read_newest_first(job)] == [third]
        passes.remove_broken_links(job)
        links = [path for path in job.output.iterdir() if path.is_symlink()]
        assert all(link.exists() for link in links) and job.pass_dir(2).resolve() == third

    return work, check


def output_of_attempts(gone: bool) -> Callable[[Path], Any]:
    def make(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
        """The files of an attempt go over to the next one, and then to where people look."""
        job = Job(place)
        job.begin(job.progress())
        for name in ("a/model-1", "a/model-2", "log.txt", "deep/er/words"):
            job.save(name, name)
        (job.output / "latest").symlink_to((job.output / "a/model-2").resolve())
        # The later process is another one: it numbers the attempts by what lies there.
        names = ["a/model-1", "a/model-2", "deep/er/words", "latest", "log.txt"]

        def work() -> None:
            progress = job.progress()
            job.begin(progress, gone=gone)
            progress.publish()

        def check() -> None:
            job.number = max(job.number, passes.last_attempt(job.folder))
            progress = job.progress()
            begun = job.begin(progress, gone=False)
            assert begun.resumed["newest"] == "output/a/model-2"
            progress.publish()
            found = {
                path.relative_to(job.folder.output).as_posix(): path.read_text()
                for path in job.folder.output.rglob("*")
                if path.is_file() and not {"attempts", "run"} & {*path.relative_to(place).parts}
            }
            assert found == {name: name for name in names} | {"latest": "a/model-2"}

        return work, check

    return make


def inputs_of_a_job(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """A copy of an input comes to the volume."""
    source = place / "weights.pdparams"
    source.parent.mkdir(exist_ok=True)
    source.write_bytes(b"weights" * 1000)
    os.utime(source, (1, 1))
    volume = place / "volume"

    def bring(pod: str) -> Any:
        return inputs.bring({"base": str(source)}, volume, pod, {}, lambda text: None)

    def check() -> None:
        (again,) = bring("later")
        folder = volume / "shared/inputs"
        kept = [entry for entry in folder.iterdir() if entry.name[0] != "."]
        assert sorted(path.name for path in kept) == sorted([again.digest, "sources"])
        copied = list((folder / again.digest).rglob("weights.pdparams"))
        assert [copy.read_bytes() for copy in copied] == [source.read_bytes()]

    return lambda: bring("pod"), check


def environment_of_a_program(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """An environment is packed, and unpacked in a pod."""
    folder, made = place / "volume", place / "environment"
    for path in (folder, made):
        path.mkdir(parents=True)
    (made / "tiny.py").write_text("x = 1\n")

    def work() -> None:
        archive.add(folder, made, ["tiny.py"], ["tiny==1.0"])
        archive.unpack(folder, place / "pod")

    def check() -> None:
        record = archive.add(folder, made, ["tiny.py"], ["tiny==1.0"])
        assert archive.find(folder)[1] == record
        assert (place / "pod").is_dir() or archive.unpack(folder, place / "pod")
        assert (place / "pod/tiny.py").read_text() == "x = 1\n"

    return work, check


STEPS = {f"output/step-{number}/part-{rank}": f"{number} {rank}" * 99
         for number in (1, 2) for rank in (0, 1)}  # fmt: skip


def _pod(place: Path, rank: int = 0) -> Any:
    """The progress of a job of two pods with `checkpoints: local`, and a pod of it."""
    job = Job(place)
    job.number = passes.last_attempt(job.folder)
    progress = job.progress(
        PADDLE_NODE_CHECKPOINTS="local",
        CONF_PADDLE_GRADIENT_NUM="2",
        JOB_COMPLETION_INDEX=str(rank),
        PADDLE_NODE_RESUME='["{newest:output/step-*}"]',
        PADDLE_NODE_CHECKPOINT_FILES='["part-{rank}"]',
    )
    progress.scratch = Scratch(used=True)
    return job, progress, progress._pod


def _publish(place: Path, number: int, gone: tuple[str, ...] = ()) -> None:
    """Both pods copy their parts of a checkpoint; then it is published."""
    job, _, pod = _pod(place)
    root = pod.folder.attempt("run", job.number)
    name, parts = f"output/step-{number}", []
    for rank in (0, 1):
        of = f"{name}/part-{rank}"
        source = place / f"scratch-{rank}" / of
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(STEPS[of])
        checksum = publication.new_checksum()
        checksum.update(source.read_bytes())
        parts.append({of: [len(STEPS[of]), checksum.hexdigest()]})
        target = root / publication.COPIES / f"key-{number}" / str(rank) / of
        publication.copy(source, target, parts[rank][of], lambda: None)
        log = "output/log.txt" if rank == 0 else f"output/log-{number}.txt"
        source = place / f"scratch-{rank}" / log
        source.write_text("line\n" * number)
        others = {log: publication.copy(source, target.parents[2] / log, None, lambda: None)}
        publication.list_part(root, f"key-{number}", rank, parts[rank], others)
    publication.publish(root, f"key-{number}", name, parts, 2, number * 10**9)
    publication.install(root)
    publication.discard(root, gone)


def _check_steps(folder: Path, numbers: list[int]) -> None:
    expected = {name: text for name, text in STEPS.items() if int(name[12]) in numbers}
    found = {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in (folder / "output").rglob("part-*")
    }
    assert found == expected


def checkpoint_of_two_pods(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """A second checkpoint comes to the volume, and the program has deleted the first one."""
    job, progress, _ = _pod(place)
    job.begin(progress)
    _publish(place, 1)

    def check() -> None:
        job, progress, pod = _pod(place)
        resumed = job.begin(progress, gone=False).resumed
        root = pod.folder.attempt("run", job.number)
        assert resumed["newest"] in ("output/step-1", "output/step-2")
        number = int(resumed["newest"][-1])
        assert resumed["content"] == f"key-{number}"
        left = sorted(int(path.name[-1]) for path in (root / "output").glob("step-*"))
        assert left in ([1], [1, 2], [2]) and number == left[-1]
        _check_steps(root, left)
        # A log ends no earlier than the checkpoint.
        lines = (root / "output/log.txt").read_text().count("line")
        assert number <= lines <= 2
        assert (root / f"output/log-{lines}.txt").read_text().count("line") == lines
        # A later checkpoint is published all the same, and a pod finds all of it.
        _publish(place, 2, ("output/step-1",))
        _check_steps(root, [2])
        assert {path.name for path in (root / "output").glob("log*")} == {"log.txt", "log-2.txt"}
        _fill(place, job.number, "key-2", 0)
        _check_steps(pod.scratch(job.number), [2])

    return lambda: _publish(place, 2, ("output/step-1",)), check


def _fill(place: Path, number: int, content: str, earlier: int) -> LocalOutput:
    _, _, pod = _pod(place, 1)
    local = LocalOutput(pod, lambda text: None)
    local.recover(pod)
    resumed = {"newest": f"output/step-{content[-1]}", "content": content}
    start = messages.Start(number, resumed, "", True, True, earlier, [resumed["newest"]])
    local.begin(pod, start, local.interrupt())
    return local


def scratch_of_a_pod(place: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """A pod's scratch takes what the last attempt left there, and the rest from the volume."""
    job, progress, pod = _pod(place)
    job.begin(progress)
    _publish(place, 2)
    (_fill(place, 1, "key-2", 0)._scratch.root / "output/log.txt").write_text("the log")
    (pod.scratch(1) / "output/step-2/part-0").unlink()
    job.begin(_pod(place)[1])

    def check() -> None:
        local = _fill(place, 2, "key-2", 1)
        _check_steps(pod.scratch(2), [2])
        local.look(final=True, clean=True)
        assert local.saves.parts["output/step-2"].files.keys() == {
            "output/step-2/part-0", "output/step-2/part-1"
        }  # fmt: skip

    return lambda: _fill(place, 2, "key-2", 1), check


SCENES = {
    "a checkpoint of two pods": checkpoint_of_two_pods,
    "the scratch of a pod": scratch_of_a_pod,
    "lease": lease_of_three,
    "passes": passes_of_a_job,
    "output": output_of_attempts(True),
    "output of a lost pod": output_of_attempts(False),
    "inputs": inputs_of_a_job,
    "environment": environment_of_a_program,
}


def cut_everywhere(make: Callable[[Path], Any], place: Path, error: int, every: int) -> int:
    """Cuts every so many-th call of the scene. Returns how many calls it makes."""
    for point in itertools.count(1, every):
        folder = place / str(point)
        folder.mkdir()
        work, check = make(folder)
        with CUT.at(point, error):
            work()
        if not CUT.met:
            return point - 1
        try:
            check()
        except BaseException as fault:
            fault.add_note(f"after a cut at call {point}, error {error}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
    return 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing loses its power here, and a real environment has the image's many scripts."""
    monkeypatch.setattr(durable, "sync", lambda path: None)
    monkeypatch.setattr(durable.Writer, "sync", lambda self: None)

    def make(place: Path) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(place)
        (place / "bin").mkdir(parents=True)

    monkeypatch.setattr(archive, "make", make)
    monkeypatch.setattr(archive, "_lay_scripts", lambda part, place: None)


@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_leaves_what_a_later_process_completes(scene, tmp_path):
    assert cut_everywhere(SCENES[scene], tmp_path, 0, 2) > 5


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("error", [0, errno.EIO, errno.ENOSPC, errno.ESTALE])
@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_and_errors_at_every_call(scene, error, tmp_path):
    assert cut_everywhere(SCENES[scene], tmp_path, error, 1) > 5
