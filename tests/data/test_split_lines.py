"""Lines into shards: every record exactly once, counts within one, the same bytes each time."""

import gzip
import itertools
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_folder import Job
from paddle_node.data import data_manifest
from paddle_node.data.job import split
from paddle_node.data.settings import SplitSettings
from paddle_node.failure import Failure

# Any bytes but the marks by which archives are known: a file that begins like one is taken for one.
LINE = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ").replace(b"PK", b"").replace(b"\x1f\x8b", b""))
RUNS = itertools.count()


CASES = {
    "lines": st.lists(LINE, min_size=6, max_size=60),
    "newline_at_end": st.booleans(),
    "packed": st.booleans(),
    "shards": st.integers(1, 4),
    "hold_out": st.sampled_from([0.0, 0.1, 0.3]),
    "seed": st.sampled_from(["", "7"]),
    "pods": st.integers(1, 3),
}
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def check(small_pieces, lines, newline_at_end, packed, shards, hold_out, seed, pods) -> None:
    if not newline_at_end and lines[-1] == b"":
        newline_at_end = True  # A missing last newline of an empty line is no line at all.
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.txt.gz" if packed else "in.txt")
        content = b"\n".join(lines) + (b"\n" if newline_at_end else b"")
        source.write_bytes(gzip.compress(content) if packed else content)
        job = Job(Path(folder, "job"))
        try:
            whole = split_by(job, pods, source, shards, HOLD_OUT=hold_out, SHUFFLE_SEED=seed)
        except Failure as failure:
            # A pod with a few records alone may leave a shard without any.
            assert pods > 1 and "too few for" in failure.sentence
            return
        assert Counter(job.records()) == Counter(lines)
        counts = [job.shard(index).count(b"\n") for index in range(shards)]
        assert counts == [shard.records for shard in whole.shards]
        assert max(counts) - min(counts) <= pods
        held = sum(file.records for file in whole.held_out)
        if pods == 1 or packed:
            assert held == (max(1, round(len(lines) * hold_out)) if hold_out else 0)
            assert max(counts) - min(counts) <= 1
        if not seed and not hold_out and pods == 1 and len(content) < 100:
            assert [job.shard(index) for index in range(shards)] == [
                b"".join(line + b"\n" for line in lines[index::shards]) for index in range(shards)
            ], "without a seed records go round in the source's order"


test_every_record_goes_to_exactly_one_place = settings(max_examples=10, **RELAXED)(given(**CASES)(check))
test_every_record_goes_to_exactly_one_place_many_times = pytest.mark.slow(
    settings(max_examples=150, **RELAXED)(given(**CASES)(check))
)


def split_by(job: Job, pods: int, source: Path, shards: int = 3, **more: object) -> data_manifest.DataManifest:
    """By several indexes one after the other."""
    run = f"run-{next(RUNS)}"
    for index in range(pods):
        environ = job.environment(
            source, shards, SPLIT_PODS=pods, JOB_COMPLETION_INDEX=index, PADDLE_NODE_RUN_ID=run, POD_UID=f"pod-{index}", **more
        )
        manifest = split(SplitSettings.from_environment(environ), environ)
        assert (manifest is not None) == (index == pods - 1)
    assert manifest is not None
    return manifest


def lines_file(path: Path, count: int) -> Path:
    path.write_text("".join(f"record {number}\n" for number in range(count)))
    return path


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path, small_pieces: None) -> None:
    source = lines_file(tmp_path / "in.txt", 60)
    outputs, digests = [], []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        job = Job(tmp_path / name)
        job.split(source, SHUFFLE_SEED=seed, HOLD_OUT=0.1)
        outputs.append(job.data())
        digests.append(data_manifest.digest(job.folder.data_manifest))
    assert outputs[0] == outputs[1]
    assert sorted(outputs[0].values()) != sorted(outputs[2].values())
    assert digests[0] == digests[1] != digests[2], "equal data has an equal name, wherever its split lies"


def test_a_seed_spreads_a_sorted_and_a_periodic_source_evenly(tmp_path: Path, small_pieces: None) -> None:
    """Of 240 lines a fair deal puts 13 of each of six labels into each shard, give or take, whatever their order."""
    for name, labels in (("sorted", "".join(label * 40 for label in "abcdef")), ("periodic", "abcdef" * 40)):
        source = tmp_path / name
        source.write_text("".join(f"{label}\t{number}\n" for number, label in enumerate(labels)))
        job = Job(tmp_path / f"job-{name}")
        job.split(source, SHUFFLE_SEED=3)
        for index in range(3):
            found = Counter(line[:1] for line in job.shard(index).splitlines())
            assert len(found) == 6
            assert all(4 <= count <= 25 for count in found.values()), found


def test_running_again_reads_the_files_and_makes_anew_what_is_damaged(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    first, content = job.split(source, PADDLE_NODE_RUN_ID="run"), job.data()
    before = {path: path.lstat().st_mtime_ns for path in job.folder.root.rglob("*") if not path.is_dir()}
    job.split(source)
    assert {path: path.lstat().st_mtime_ns for path in job.folder.root.rglob("*") if not path.is_dir()} == before
    assert re.search(r"complete already: nothing to do \(3 files, 90 bytes, verified in [\d.]+ s\)", capsys.readouterr().out)
    for damage in (lambda path: path.write_bytes(path.read_bytes().replace(b"4", b"5")), lambda path: path.unlink()):
        damage(job.folder.root / first.shards[1].files[0].name)
        second = job.split(source, PADDLE_NODE_RUN_ID="run")
        assert second.split != first.split
        assert job.data() == content
        assert "split the data again: splitting anew" in capsys.readouterr().out
        first = second
    assert len(list(job.folder.splits.iterdir())) == 2, "the damaged one is gone"


def test_a_changed_source_or_another_number_of_shards_leaves_nothing_stale(job: Job, tmp_path: Path) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    old = job.split(source, 5, HOLD_OUT=0.2)
    lines_file(source, 12)
    assert job.split(source, 2).records == 12
    assert not (job.folder.splits / old.split).exists()
    assert sorted(path.name for path in job.folder.root.iterdir()) == ["0", "1", "data-manifest.json", "splits"]


@pytest.mark.parametrize("place", ["0/data", "held-out/data"])
@pytest.mark.parametrize("split_before", [False, True])
def test_a_persons_files_are_not_overwritten(job: Job, tmp_path: Path, place: str, split_before: bool) -> None:
    source = lines_file(tmp_path / "in.txt", 10)
    if split_before:
        job.split(source)
    mine = job.folder.root / place
    if mine.is_symlink():
        mine.unlink()
    mine.mkdir(parents=True)
    (mine / "mine").write_text("precious")
    before = {path: path.lstat().st_mtime_ns for path in job.folder.root.rglob("*")}
    lines_file(source, 11)
    with pytest.raises(Failure, match=rf"{place} was not made by a data job: move it away or delete it") as caught:
        job.split(source, PROGRAM_FROM=tmp_path)
    assert caught.value.code == 65
    assert {path: path.lstat().st_mtime_ns for path in job.folder.root.rglob("*")} == before


@pytest.mark.parametrize("inside", ["output", "splits", "0/data", "held-out", "[0-9]/data/*", "linked"])
def test_a_source_in_what_the_job_writes_is_refused(job: Job, tmp_path: Path, inside: str) -> None:
    """It would halve itself with each run."""
    job.split(lines_file(tmp_path / "in.txt", 10))
    (job.folder.root / "corpus").mkdir()
    lines_file(job.folder.root / "corpus" / "in.txt", 12)
    (job.folder.root / "linked").symlink_to("0/data")
    (job.folder.root / "held-out").mkdir()
    with pytest.raises(Failure, match="which lies in what this job itself writes") as caught:
        job.split(f"{job.folder.root}/{inside}")
    assert caught.value.code == 2
    assert job.split(f"{job.folder.root}/corpus").records == 12, "a folder of a person's own is a source like others"


def test_too_few_records_end_with_a_sentence_and_hold_out_is_read_to_its_last_digit(job: Job, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    result = job.run(source)
    assert (result.returncode, result.stderr) == (65, f"split: {source} has 2 records: too few for 3 shards\n")
    assert job.split(lines_file(source, 10), 1, HOLD_OUT="0.12345678").hold_out == 0.12345678
    assert job.split(source, 1, HOLD_OUT="0.9").records == 1
    assert job.split(source, 1, HOLD_OUT="5e-324", DATA_FORMAT="files").records == 1
    with pytest.raises(Failure, match="has 0 records beside 10 held out: too few for 1 shards"):
        job.split(source, 1, HOLD_OUT="0.9999999")


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SPLIT_COUNT", "0", "SPLIT_COUNT is '0': a whole number from 1 to 10000 is needed"),
        ("SPLIT_COUNT", "9" * 5000, "SPLIT_COUNT is '99999999999999999999': a whole number from 1 to 10000 is needed"),
        ("PROGRAM_FROM", "/any/splits", "PROGRAM_FROM is '/any/splits': the data job itself writes splits in the job's folder"),
        ("HOLD_OUT", "nan", "HOLD_OUT is 'nan': the share kept for evaluation is a number from 0 to below 1"),
        (
            "DATA_SOURCE",
            "",
            "DATA_SOURCE is '': an absolute path in the container, s3://bucket/key or an https:// address is needed",
        ),
        ("DATA_FORMAT", "csv", "DATA_FORMAT is 'csv': lines, files or module:function is allowed"),
        ("OUT_DIR", "", "OUT_DIR is missing: it names the job's folder on the volume, /home/jobpath/<job name>"),
        ("SPLIT_PODS", "2", "PADDLE_NODE_RUN_ID is missing: the 2 pods that share a split recognize each other by it"),
        ("POD_UID", "../x", "POD_UID is '../x': letters, digits and hyphens are allowed"),
        ("JOB_COMPLETION_INDEX", "1", "JOB_COMPLETION_INDEX is '1': a whole number from 0 to 0 is needed"),
        (
            "PADDLE_NODE_SHARED",
            "shared/../words",
            "PADDLE_NODE_SHARED is 'shared/../words': shared/ and 16 hexadecimal digits are needed",
        ),
    ],
)
def test_bad_settings_end_with_one_sentence(job: Job, tmp_path: Path, variable: str, value: str, sentence: str) -> None:
    environ = job.environment(lines_file(tmp_path / "in.txt", 10)) | {variable: value}
    with pytest.raises(Failure) as caught:
        split(SplitSettings.from_environment(environ), environ)
    assert (caught.value.code, caught.value.sentence) == (2, sentence)
    assert not job.folder.root.exists()
