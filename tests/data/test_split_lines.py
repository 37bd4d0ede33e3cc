"""Lines into shards: every record exactly once, counts within one, the same bytes each time."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_folder import Job
from paddle_node.failure import Failure

# Any bytes but the marks by which archives are known: a file that begins like one is taken for one.
LINE = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ").replace(b"PK", b"").replace(b"\x1f\x8b", b""))


CASES = {
    "lines": st.lists(LINE, min_size=6, max_size=60),
    "newline_at_end": st.booleans(),
    "packed": st.booleans(),
    "shards": st.integers(1, 4),
    "hold_out": st.sampled_from([0.0, 0.1, 0.3]),
    "seed": st.sampled_from(["", "7"]),
}
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=10, **RELAXED)
@given(**CASES)
def test_every_record_goes_to_exactly_one_place(small_pieces: None, **case: Any) -> None:
    check(**case)


@pytest.mark.slow
@settings(max_examples=150, **RELAXED)
@given(**CASES)
def test_every_record_goes_to_exactly_one_place_many_times(small_pieces: None, **case: Any) -> None:
    check(**case)


def check(lines: list[bytes], newline_at_end: bool, packed: bool, shards: int, hold_out: float, seed: str) -> None:
    if not newline_at_end and lines[-1] == b"":
        newline_at_end = True  # A missing last newline of an empty line is no line at all.
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.txt")
        content = b"\n".join(lines) + (b"\n" if newline_at_end else b"")
        source.write_bytes(gzip.compress(content) if packed else content)
        job = Job(Path(folder, "job"))
        manifest = job.split(source, shards, HOLD_OUT=hold_out, SHUFFLE_SEED=seed)

        pieces = [job.shard(index) for index in range(shards)]
        held = job.held_out() if hold_out else b""
        found = [line for piece in [held, *pieces] for line in piece.split(b"\n")[:-1]]
        assert Counter(found) == Counter(lines)
        counts = [piece.count(b"\n") for piece in pieces]
        assert max(counts) - min(counts) <= 1
        assert counts == [shard.records for shard in manifest.shards]
        assert held.count(b"\n") == (max(1, round(len(lines) * hold_out)) if hold_out else 0)
        if not seed and not hold_out:
            assert b"".join(pieces) == b"\n".join(lines) + b"\n", "without a seed the source's order is kept"
        for shard in manifest.shards:
            for file in shard.files:
                data = (job.folder.shard(shard.index) / file.name).read_bytes()
                assert (file.bytes, file.records) == (len(data), data.count(b"\n"))
                assert file.checksum == "xxh3_128:" + xxhash.xxh3_128(data).hexdigest()
        assert not (job.folder.root / ".split").exists(), "the folder of work is gone"


def lines_file(path: Path, count: int, prefix: str = "record") -> Path:
    path.write_text("".join(f"{prefix} {number}\n" for number in range(count)))
    return path


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path, small_pieces: None) -> None:
    source = lines_file(tmp_path / "in.txt", 60)
    outputs = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        job = Job(tmp_path / name)
        job.split(source, SHUFFLE_SEED=seed, HOLD_OUT=0.1)
        outputs.append(job.everything())
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


def test_a_file_system_that_hands_out_less_than_asked_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    source = lines_file(tmp_path / "in.txt", 60)
    outputs = []
    pread = os.pread
    for name, most in (("all", 1 << 20), ("little", 3)):
        monkeypatch.setattr(os, "pread", lambda file, length, offset, most=most: pread(file, min(length, most), offset))
        job = Job(tmp_path / name)
        job.split(source, SHUFFLE_SEED=1)
        outputs.append(job.everything())
    assert outputs[0] == outputs[1]


def test_a_shuffle_spreads_a_sorted_source_evenly(tmp_path: Path, small_pieces: None) -> None:
    """Each label must reach each shard: of 240 sorted lines, a fair shuffle puts 13 of each label into each, give or take."""
    source = tmp_path / "sorted.txt"
    source.write_text("".join(f"{label}\t{number}\n" for label in "abcdef" for number in range(40)))
    job = Job(tmp_path / "job")
    job.split(source, SHUFFLE_SEED=3)
    for index in range(3):
        labels = Counter(line[:1] for line in job.shard(index).splitlines())
        assert len(labels) == 6
        assert all(5 <= count <= 25 for count in labels.values()), labels


def test_running_again_changes_nothing(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    job.split(source)
    before = {path: path.stat().st_mtime_ns for path in job.folder.root.rglob("*")}
    job.split(source)
    assert {path: path.stat().st_mtime_ns for path in job.folder.root.rglob("*")} == before
    assert "complete already: nothing to do" in capsys.readouterr().out


def test_a_changed_source_is_split_again(job: Job, tmp_path: Path) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    job.split(source)
    lines_file(source, 12)
    assert job.split(source).records == 12


def test_a_shard_that_was_removed_is_written_again(job: Job, tmp_path: Path) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    job.split(source)
    before = job.everything()
    (job.folder.shard(1) / "part-00000").unlink()
    job.split(source)
    assert job.everything() == before


def test_fewer_shards_leave_no_stale_one(job: Job, tmp_path: Path) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    job.split(source, 5, HOLD_OUT=0.2)
    job.split(source, 2)
    assert sorted(path.name for path in job.folder.root.iterdir()) == ["0", "1", "data-manifest.json"]


def test_the_work_of_other_settings_is_removed(job: Job, tmp_path: Path) -> None:
    abandoned = job.folder.root / ".split" / "0123" / "units"
    abandoned.mkdir(parents=True)
    job.split(lines_file(tmp_path / "in.txt", 10))
    assert not abandoned.exists()


def test_shards_that_a_person_put_there_are_not_overwritten(job: Job, tmp_path: Path) -> None:
    job.folder.shard(0).mkdir(parents=True)
    (job.folder.shard(0) / "mine").write_text("precious")
    with pytest.raises(Failure, match=r"0/data holds files that no data-manifest.json lists: move them away") as caught:
        job.split(lines_file(tmp_path / "in.txt", 10))
    assert caught.value.code == 65
    assert (job.folder.shard(0) / "mine").read_text() == "precious"


@pytest.mark.parametrize("content", ["", "one\n", "one\ntwo\n"])
def test_too_few_records_end_with_a_sentence(job: Job, tmp_path: Path, content: str) -> None:
    source = tmp_path / "in.txt"
    source.write_text(content)
    result = job.run(source)
    assert result.returncode == 65
    assert result.stderr == f"split: {source} has {content.count(chr(10))} records: too few for 3 shards\n"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SPLIT_COUNT", "0", "SPLIT_COUNT is '0': the number of shards is a whole number from 1"),
        ("SPLIT_COUNT", "three", "SPLIT_COUNT is 'three': the number of shards is a whole number from 1"),
        ("HOLD_OUT", "1", "HOLD_OUT is '1': the share kept for evaluation is a number from 0 to below 1"),
        ("HOLD_OUT", "nan", "HOLD_OUT is 'nan': the share kept for evaluation is a number from 0 to below 1"),
        ("DATA_SOURCE", "", "DATA_SOURCE is missing: a path in the container, s3://bucket/key or an https:// address"),
        ("DATA_SOURCE", "in.txt", "DATA_SOURCE is 'in.txt': an absolute path in the container is needed"),
        (
            "DATA_SOURCE",
            "ftp://host/x",
            "DATA_SOURCE is 'ftp://host/x': paths, s3://, https:// and http:// can be read, ftp:// cannot",
        ),
        (
            "DATA_SOURCE",
            "https://host/a b",
            "DATA_SOURCE is 'https://host/a b': blanks and letters beyond ASCII are written as %20 and the like in an address",
        ),
        ("DATA_SOURCE", "https://host:no/x", "DATA_SOURCE is 'https://host:no/x': its host or port cannot be read"),
        ("DATA_SOURCE", "https://[::1/x", "DATA_SOURCE is 'https://[::1/x': its host or port cannot be read"),
        (
            "DATA_SOURCE",
            "https://me:secret@host/x",
            "DATA_SOURCE is 'https://host/x', with a user or password, which would not be sent: a signed address is allowed",
        ),
        ("DATA_SOURCE", "s3:///key", "DATA_SOURCE is 's3:///key': the bucket is missing"),
        ("DATA_FORMAT", "csv", "DATA_FORMAT is 'csv': lines, files or module:function is allowed"),
        ("OUT_DIR", "", "OUT_DIR is missing: it names the job's folder on the volume, /home/jobpath/<job name>"),
        ("SPLIT_PODS", "x", "SPLIT_PODS is 'x': the number of pods that share the split is a whole number from 1"),
        ("JOB_COMPLETION_INDEX", "1", "JOB_COMPLETION_INDEX is '1': with SPLIT_PODS=1 it is a number below 1"),
    ],
)
def test_bad_settings_end_with_one_sentence(job: Job, tmp_path: Path, variable: str, value: str, sentence: str) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    with pytest.raises(Failure) as caught:
        job.split(source, **{variable: value}) if variable != "DATA_SOURCE" else job.split(value)
    assert (caught.value.code, caught.value.sentence) == (2, sentence)
    assert not job.folder.root.exists()


def test_progress_has_rate_and_time_left() -> None:
    from paddle_node.splitting import progress

    said: list[str] = []
    meter = progress.Progress(said.append, interval=0.01)
    meter.phase("counting", 1_000_000_000)
    meter.add(450_000_000)
    import time

    time.sleep(0.02)
    meter.tick()
    meter.tick()
    assert len(said) == 1
    assert said[0].startswith("counting: 450 MB of 1.0 GB, 45 %, ")
    assert "/s, about 0 s left" in said[0]
