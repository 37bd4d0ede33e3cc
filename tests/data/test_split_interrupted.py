"""A split that is killed, that several pods share, that meets a full volume: nothing is lost, nothing is done twice."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node import data_manifest, split
from paddle_node.failure import Failure
from paddle_node.splitting import commit, one_pass, steps
from paddle_node.splitting.framing import LINES
from paddle_node.splitting.part_file import PartFile
from paddle_node.splitting.progress import Progress

# The data job with pieces so small that a few kilobytes take many steps, and so slow that it can be killed in each.
SLOWED = """
import itertools, os, sys, time
from paddle_node import split
from paddle_node.splitting import counting, one_pass, shares, shuffle, steps, units
counting.MARK = units.MARK = 256
counting.SEGMENT = 1024
shares.PART = one_pass.PART = 1024
one_pass.LEAST = 64
shuffle.LEAF = 4000
shuffle.MOST_BUCKETS = 4
units.TOGETHER = 1024
split.WORKERS = int(os.environ.get("WORKERS", "2"))
steps.EXPIRY = float(os.environ["EXPIRY"])
perform = steps.Steps._perform
begun = itertools.count(1)
met = os.environ.get("MET")
def slow(self, step):
    if met:  # Each pod's first step waits for that of the others.
        open(f"{met}/{os.environ['JOB_COMPLETION_INDEX']}", "w").close()
        while len(os.listdir(met)) < 3:
            time.sleep(0.01)
    os.write(1, f"\\nstep {step.name}\\n".encode())  # Whole, whatever other threads print.
    # However late it is killed, it gets no further than this.
    time.sleep(0.005 if next(begun) <= int(os.environ.get("MOST", "1000")) else 60)
    return perform(self, step)
steps.Steps._perform = slow
sys.exit(split.main())
"""
IMAGE = Path(__file__).parents[2] / "trainer_image"


def start(job: Job, source: Path, expiry: float = 60, **more: object) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": str(IMAGE), "EXPIRY": str(expiry)} | job.environment(source, **more)
    return subprocess.Popen(
        [sys.executable, "-c", SLOWED], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text("".join(f"{name} line {number}\n" for number in range(300)))
    return folder


@pytest.fixture
def expected(tmp_path: Path, source: Path) -> dict[str, bytes]:
    """What an undisturbed run writes."""
    job = Job(tmp_path / "undisturbed")
    with start(job, source, SHUFFLE_SEED=1, HOLD_OUT=0.1) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    return job.everything()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"SHUFFLE_SEED": 1, "HOLD_OUT": 0.1}, {}], ids=["shuffled", "in one pass"])
def test_killed_at_any_step_it_goes_on_and_ends_with_the_same_bytes(
    job: Job, tmp_path: Path, source: Path, more: dict[str, object]
) -> None:
    undisturbed = Job(tmp_path / "undisturbed")
    with start(undisturbed, source, **more) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    kills, done = 0, []
    for _ in range(200):
        with start(job, source, MOST=6, **more) as process:
            assert process.stdout
            fresh = []
            for line in process.stdout:
                if line.startswith("step "):
                    fresh.append(line.split()[1])
                if len(fresh) == 4:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
        done += fresh
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills > 2, "the test must have interrupted it often"
    assert job.everything() == undisturbed.everything()
    # A kill may hit steps in hand (there are up to four threads): only those run again.
    assert len(done) - len(set(done)) <= 4 * kills
    assert more or any(step.startswith("share-") for step in done), "there must have been pieces to deal out"


@pytest.mark.slow
def test_three_pods_share_a_split_and_the_last_completes_the_manifest(job: Job, source: Path, expected: dict[str, bytes]) -> None:
    met = source.parent / "met"
    met.mkdir()
    # One thread a pod and three files in the source: no pod can take the step that another one waits for.
    of_each = {"MET": met, "WORKERS": 1, "SHUFFLE_SEED": 1, "HOLD_OUT": 0.1, "SPLIT_PODS": 3}
    pods = [start(job, source, JOB_COMPLETION_INDEX=index, **of_each) for index in range(3)]
    outputs = [pod.communicate()[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0, 0], outputs
    assert job.everything() == expected
    steps_of = [[line for line in output.splitlines() if line.startswith("step ")] for output in outputs]
    assert all(steps_of), "each pod must have had a part in it"
    done = [step for each in steps_of for step in each]
    assert len(done) == len(set(done)), "no step was done twice"
    assert sum("step commit" in output for output in outputs) == 1


@pytest.mark.slow
def test_a_pod_that_dies_for_good_is_done_without(job: Job, source: Path, expected: dict[str, bytes]) -> None:
    dying = start(job, source, SHUFFLE_SEED=1, HOLD_OUT=0.1, SPLIT_PODS=2, JOB_COMPLETION_INDEX=1)
    assert dying.stdout
    assert any(line.startswith("step ") for line in dying.stdout)
    dying.kill()
    dying.wait()
    dying.stdout.close()
    assert list((next((job.folder.root / ".split").iterdir()) / "claims").iterdir()), "it must have died with a step in hand"
    started = time.monotonic()
    with start(job, source, expiry=1.5, SHUFFLE_SEED=1, HOLD_OUT=0.1, SPLIT_PODS=2, JOB_COMPLETION_INDEX=0) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert time.monotonic() - started > 1, "a claim is honoured until its pod has been silent long enough"
    assert job.everything() == expected


@pytest.mark.slow
def test_sigterm_ends_it_at_once_and_the_next_run_goes_on(job: Job, source: Path, expected: dict[str, bytes]) -> None:
    with start(job, source, SHUFFLE_SEED=1, HOLD_OUT=0.1) as process:
        assert process.stdout
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert "told to stop; the next run goes on from here" in process.stdout.read()
    with start(job, source, SHUFFLE_SEED=1, HOLD_OUT=0.1) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert job.everything() == expected


@pytest.mark.slow
def test_killed_in_the_exchange_of_old_and_new_there_is_never_a_manifest_that_lies(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is a row of renames: stopped before each of them, the next run finishes what was begun."""
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("".join(f"old {number}\n" for number in range(12)))
    new.write_text("".join(f"new {number}\n" for number in range(12)))
    undisturbed = Job(tmp_path / "undisturbed")
    undisturbed.split(new, 2, HOLD_OUT=0.2)

    class Killed(BaseException):
        pass

    rename, replace = Path.rename, Path.replace
    for victim in range(100):
        monkeypatch.undo()
        job.split(old, 4, HOLD_OUT=0.1)
        renames = 0

        def counted(move, victim=victim):
            def wrapper(path: Path, to: Path) -> Path:
                nonlocal renames
                in_commit = "old" in to.parts or to.parent.parent == job.folder.root or to.parent == job.folder.root
                if in_commit and (renames := renames + 1) > victim:
                    raise Killed
                return move(path, to)

            return wrapper

        monkeypatch.setattr(Path, "rename", counted(rename))
        monkeypatch.setattr(Path, "replace", counted(replace))
        try:
            job.split(new, 2, HOLD_OUT=0.2)
        except Killed:
            monkeypatch.undo()
            manifest = data_manifest.read(job.folder.data_manifest)
            assert manifest is None, "in the middle of the exchange nothing may look complete"
            job.split(new, 2, HOLD_OUT=0.2)
            assert job.everything() == undisturbed.everything()
        else:
            break
    assert victim >= 7, "old shards, new shards, held-out rows and the manifest all are renames"


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 2 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["", "1"])
def test_a_full_volume_leaves_the_previous_split_intact(small_volume: Path, tmp_path: Path, seed: str) -> None:
    job = Job(small_volume / "job")
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("small line\n" * 20_000)
    large.write_text("large line\n" * 300_000)
    assert job.run(small, SHUFFLE_SEED=seed).returncode == 0
    before, manifest = job.everything(), job.folder.data_manifest.read_bytes()

    result = job.run(large, SHUFFLE_SEED=seed)
    assert result.returncode == 74
    assert result.stderr == (
        f"split: the volume of {job.folder.root} is full: nothing that was complete before has changed; make room and run again\n"
    )
    kept = {name: content for name, content in job.everything().items() if not name.startswith(".split/")}
    assert kept == before
    assert job.folder.data_manifest.read_bytes() == manifest

    # With room it goes on.
    subprocess.run(["mount", "-o", "remount,size=30m", str(small_volume)], check=True)
    result = job.run(large, SHUFFLE_SEED=seed)
    assert result.returncode == 0, result.stderr
    assert sum(job.shard(index).count(b"\n") for index in range(3)) == 300_000
    assert not commit.work_root(job.folder).exists()


@pytest.mark.slow
def test_a_full_volume_leaves_the_previous_split_intact_also_in_one_pass(
    small_volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, with pieces so small that 3 MB are read in one pass."""
    monkeypatch.setattr(one_pass, "LEAST", 1 << 16)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    job = Job(small_volume / "job")
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("small line\n" * 20_000)
    large.write_text("large line\n" * 300_000)
    job.split(small)
    before, manifest = job.everything(), job.folder.data_manifest.read_bytes()
    assert split.main(job.environment(large)) == 74
    assert f"the volume of {job.folder.root} is full: nothing that was complete before" in capsys.readouterr().err
    kept = {name: content for name, content in job.everything().items() if not name.startswith(".split/")}
    assert kept == before
    assert job.folder.data_manifest.read_bytes() == manifest
    assert any(job.folder.root.glob(".split/*/results/piece-*")), "it must have been in one pass"

    subprocess.run(["mount", "-o", "remount,size=30m", str(small_volume)], check=True)
    assert split.main(job.environment(large)) == 0
    assert b"".join(job.shard(index) for index in range(3)) == large.read_bytes()
    assert not commit.work_root(job.folder).exists()


class Stopped(BaseException):
    """This process ends here."""


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("".join(f"old {number}\n" for number in range(60)))
    new.write_text("".join(f"new {number}\n" for number in range(60)))
    return old, new


def test_a_pod_that_wakes_in_the_commit_cannot_spoil_it(
    job: Job, texts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    """Shard 0 is in place and shard 1 is not, when a late pod writes a part of the first; and the committing pod dies too."""
    old, new = texts
    job.split(old, 2)
    rename = Path.rename

    def stop_at_shard_1(path: Path, to: Path) -> Path:
        if to == job.folder.shard(1) and path.parent.name == commit.WHOLE:
            raise Stopped
        return rename(path, to)

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(Path, "rename", stop_at_shard_1)
        job.split(new, 2)
    (work,) = commit.work_root(job.folder).iterdir()
    here = steps.Steps(work, "pod-1", Progress(print), lambda: False)
    here.close()
    part = work / "parts" / "0" / "part-00000"
    with PartFile(part, here.temporary(part), LINES, lambda count: None) as file:
        file.lines(b"half a shard\n", 1)
    job.split(new, 2)
    assert job.shard(0) + job.shard(1) == new.read_bytes()


def test_what_a_dead_pod_left_half_written_is_in_no_shard(job: Job, texts: tuple[Path, Path], small_pieces: None) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(PartFile, "done", lambda part, name: (_ for _ in ()).throw(Stopped()))
        # A killed process does not tidy up.
        patched.setattr(PartFile, "__exit__", lambda part, *error: None)
        job.split(texts[1], 2, SPLIT_PODS=2, JOB_COMPLETION_INDEX=1, HOLD_OUT=0.2)
    assert list(job.folder.root.rglob("*.pod-1.*.tmp"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "EXPIRY", -1.0)
        manifest = job.split(texts[1], 2, SPLIT_PODS=2, JOB_COMPLETION_INDEX=0, HOLD_OUT=0.2)
    for shard in manifest.shards:
        assert {path.name for path in job.folder.shard(shard.index).iterdir()} == {file.name for file in shard.files}


@pytest.mark.parametrize("damage", ["gone", "shorter"])
def test_a_result_that_outlived_its_piece_is_made_again(
    job: Job, texts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, small_pieces: None, damage: str
) -> None:
    """A power cut may keep the one and not the other."""
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(one_pass, "deal", lambda *more: (_ for _ in ()).throw(Stopped()))
        job.split(texts[1], 2)
    pieces = sorted(job.folder.root.glob(".split/*/pieces/*"))
    assert len(pieces) > 4
    for piece in pieces[:4]:
        piece.unlink() if damage == "gone" else os.truncate(piece, 3)
    job.split(texts[1], 2)
    assert job.shard(0) + job.shard(1) == texts[1].read_bytes()


@pytest.mark.parametrize("more", [{"SHUFFLE_SEED": 1}, {"DATA_FORMAT": "files"}], ids=["shuffled", "files"])
def test_what_a_resumed_split_trusts_was_on_the_disk_before_its_result(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None, more: dict[str, object]
) -> None:
    """Unpacked files, and the shuffle's: a power cut may not leave holes in them that nothing would notice."""
    with tarfile.open(tmp_path / "in", "w:gz") as archive:
        for name in "abc":
            content = "".join(f"{name} {number}\n" for number in range(60)).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    synced: set[int] = set()
    fsync = os.fsync
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(os, "fsync", lambda file: (fsync(file), synced.add(os.fstat(file).st_ino))[0])
        patched.setattr(commit, "stage", lambda *more: (_ for _ in ()).throw(Stopped()))
        job.split(tmp_path / "in", 2, **more)
    found = [
        path for name in ("units", "runs", "parts") for path in job.folder.root.glob(f".split/*/{name}/**/*") if path.is_file()
    ]
    assert len(found) >= 6
    assert [path for path in found if path.stat().st_ino not in synced] == []


def test_shards_that_a_power_cut_took_are_never_exchanged_for_good_ones(
    job: Job, texts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = texts
    job.split(old, 2)
    before = job.everything()
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(commit, "stage", lambda *more: (_ for _ in ()).throw(Stopped()))
        job.split(new, 2)
    (part,) = job.folder.root.glob(".split/*/parts/1/*")
    part.unlink()
    with pytest.raises(Failure, match="is not what was written there: run the split again, it begins anew") as caught:
        job.split(new, 2)
    assert caught.value.code == 1
    assert job.everything() == before
    job.split(new, 2)
    assert job.shard(0) + job.shard(1) == new.read_bytes()


@pytest.mark.slow
def test_another_split_with_other_settings_at_work_is_left_alone(job: Job, tmp_path: Path, source: Path) -> None:
    """As long as it gives a sign of life; once it was killed, it is waited for and then swept away."""
    other = start(job, source, SHUFFLE_SEED=1)
    assert other.stdout
    assert any(line.startswith("step ") for line in other.stdout)
    other.send_signal(signal.SIGSTOP)  # With a step in hand for as long as this test wants.
    (work,) = (job.folder.root / ".split").iterdir()
    with start(job, source, expiry=3, SHUFFLE_SEED=2) as process:
        assert process.stdout
        assert any("waiting 3 s for a sign of life" in line for line in process.stdout)
        os.utime(work / "pods" / "pod-0")
        assert process.wait(60) == 73
        assert "another split with other settings works in" in process.stdout.read()
    assert (work / "results").is_dir()
    other.kill()
    other.wait()
    other.stdout.close()
    with start(job, source, expiry=3, SHUFFLE_SEED=2) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert not work.exists()


def test_one_that_another_pod_sweeps_away_in_this_moment(job: Job) -> None:
    job.folder.root.mkdir(parents=True, exist_ok=True)
    assert not steps.at_work(job.folder.root / ".split" / "0123456789abcdef", print)


def test_one_that_failed_is_not_waited_for(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1\n2\n3\n")
    with pytest.raises(Failure, match="too few for 4 shards"):
        job.split(tmp_path / "in.txt", 4)
    started = time.monotonic()
    job.split(tmp_path / "in.txt", 3)
    assert time.monotonic() - started < steps.EXPIRY / 3
