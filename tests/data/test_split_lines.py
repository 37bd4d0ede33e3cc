"""Lines into shards: every record exactly once, counts within one for each pod, the same bytes each
time.
"""

import codecs
import gzip
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_folder import Job, lines_file, table, tar
from paddle_node.failure import Failure
from paddle_node.volume import data_manifest

# Any bytes except the magic numbers of archives: a file that begins with one is taken for an
# archive.
LINE = st.binary(max_size=40).map(
    lambda line: (
        line.replace(b"\n", b" ")
        .replace(b"PK", b"")
        .replace(b"\x1f\x8b", b"")
        .removeprefix(codecs.BOM_UTF8)
    )
)

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
        newline_at_end = True  # Without its newline, an empty last line is no line at all.
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.txt.gz" if packed else "in.txt")
        content = b"\n".join(lines) + (b"\n" if newline_at_end else b"")
        source.write_bytes(gzip.compress(content) if packed else content)
        job = Job(Path(folder, "job"))
        shared = {
            "SPLIT_PODS": pods,
            "PADDLE_NODE_RUN_ID": "run",
            "HOLD_OUT": hold_out,
            "SHUFFLE_SEED": seed,
        }
        try:
            for index in range(pods):
                whole = job.split(
                    source, shards, JOB_COMPLETION_INDEX=index, POD_UID=f"pod-{index}", **shared
                )
                assert (whole is not None) == (index == pods - 1)
        except Failure as failure:
            # A pod that has only a few records may leave a shard empty.
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
            for index in range(shards):
                round_by_round = b"".join(line + b"\n" for line in lines[index::shards])
                assert job.shard(index) == round_by_round, (
                    "without a seed records go round in the source's order"
                )


test_every_record_goes_to_exactly_one_place = settings(max_examples=10, **RELAXED)(
    given(**CASES)(check)
)
test_every_record_goes_to_exactly_one_place_many_times = pytest.mark.long(
    settings(max_examples=150, **RELAXED)(given(**CASES)(check))
)


@pytest.mark.parametrize(
    "labels", ["".join(label * 40 for label in "abcdef"), "abcdef" * 40], ids=["sorted", "periodic"]
)
def test_a_seed_spreads_a_sorted_and_a_periodic_source_evenly_and_in_the_same_way_again(
    tmp_path: Path, small_pieces: None, labels: str
) -> None:
    """A fair deal of 240 lines, a tenth held out, puts about 12 of each of six labels into each
    shard, whatever their order.
    """
    (tmp_path / "in").write_text(
        "".join(f"{label}\t{number}\n" for number, label in enumerate(labels))
    )
    jobs = [Job(tmp_path / name) for name in ("one", "equal", "other")]
    for job, seed in zip(jobs, (3, 3, 4), strict=True):
        job.split(tmp_path / "in", SHUFFLE_SEED=seed, HOLD_OUT=0.1)
        for index in range(3):
            counts = Counter(line[:1] for line in job.shard(index).splitlines())
            assert len(counts) == 6 and all(4 <= count <= 25 for count in counts.values()), counts
    first, equal, other = (job.data() for job in jobs)
    assert first == equal and sorted(first.values()) != sorted(other.values())
    first, equal, other = (data_manifest.digest(job.folder.data_manifest) for job in jobs)
    assert first == equal != other, "equal data has an equal name, wherever its split lies"


def test_running_again_reads_the_files_and_makes_anew_what_is_damaged(
    job: Job, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, content = job.split(source, PADDLE_NODE_RUN_ID="run"), job.data()
    before = stamps(job)
    job.split(source)
    assert stamps(job) == before
    assert (
        "complete already: nothing to do (3 files, 63 bytes, verified in "
        in capsys.readouterr().out
    )
    for damage in (lambda path: path.write_text("line 5\n"), Path.unlink):
        damage(job.folder.root / first.shards[1].files[0].name)
        second = job.split(source, PADDLE_NODE_RUN_ID="run")
        assert second.split != first.split and job.data() == content
        assert "split the data again: splitting again" in capsys.readouterr().out
        first = second
    assert len(list(job.folder.splits.iterdir())) == 2, "the damaged one is gone"


def stamps(job: Job) -> dict[Path, int]:
    return {
        path: path.lstat().st_mtime_ns
        for path in job.folder.root.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def test_a_changed_source_or_another_number_of_shards_leaves_nothing_stale(
    job: Job, source: Path
) -> None:
    old = job.split(source, 5, HOLD_OUT=0.2)
    lines_file(source, 12)
    assert job.split(source, 2).records == 12
    assert not (job.folder.splits / old.split).exists()
    assert sorted(path.name for path in job.folder.root.iterdir()) == [
        "0",
        "1",
        "data-manifest.json",
        "splits",
    ]


@pytest.mark.parametrize("kind", ["files", "files after a split", "file", "link"])
@pytest.mark.parametrize("name", ["0", "held-out"])
def test_where_a_shard_belongs_a_persons_files_and_links_are_refused_and_stay(
    job: Job, source: Path, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "other").mkdir()
    if kind == "files after a split":
        job.split(source, HOLD_OUT=0.2)
        (job.folder.root / name / "data").unlink()
    place = job.folder.root / name
    if kind.startswith("files"):
        place /= "data"
        place.mkdir(parents=True, exist_ok=True)
        (place / "mine").write_text("precious")
    else:
        place.parent.mkdir(parents=True)
        place.symlink_to(tmp_path / "other") if kind == "link" else place.write_text("mine")
    before = stamps(job)
    lines_file(source, 11)
    job.refused(
        f"{place} was not made by a data job: move it away or delete it",
        65,
        source,
        HOLD_OUT=0.1,
        PROGRAM_FROM=tmp_path,
    )
    assert stamps(job) == before and not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    "inside", ["output", "splits", "0/data", "held-out", "[0-9]/data/*", "linked", "", ".."]
)
def test_a_source_in_what_the_job_writes_or_around_it_is_refused(
    job: Job, source: Path, inside: str
) -> None:
    """Such a source would halve with each run."""
    job.split(source)
    (job.folder.root / "corpus").mkdir()
    lines_file(job.folder.root / "corpus" / "in.txt", 12)
    (job.folder.root / "linked").symlink_to("0/data")
    (job.folder.root / "held-out").mkdir()
    job.refused(
        "which lies in what this job itself writes, or holds it", 2, job.folder.root / inside
    )
    assert job.split(job.folder.root / "corpus").records == 12, (
        "a folder of a person's own is a source like others"
    )


def test_too_few_records_end_with_a_sentence_and_hold_out_is_read_to_its_last_digit(
    job: Job, source: Path
) -> None:
    assert (
        job.run(source, 10, ends=65).splitlines()[-1]
        == f"split: {source} has 9 records: too few for 10 shards"
    )
    assert job.split(source, 1, HOLD_OUT="0.12345678").hold_out == 0.12345678
    assert job.split(source, 1, HOLD_OUT="0.9").records == 1
    assert job.split(source, 1, HOLD_OUT="5e-324", DATA_FORMAT="files").records == 1
    job.refused(
        "has 0 records beside 9 held out: too few for 1 shards", 65, source, 1, HOLD_OUT="0.9999999"
    )


def test_a_page_that_was_never_written_is_no_record(job: Job, tmp_path: Path) -> None:
    """A plain text and a tar's bodies have no checksum, but no line is a page of zeros."""
    text = b"a line with a \0 in it\n" * 900
    (tmp_path / "in.txt").write_bytes(text)
    job.split(tmp_path / "in.txt")
    assert len(job.records()) == 900
    text = text[:8192] + bytes(4096) + text[12288:]
    for name, content in (("in.txt", text), ("in.tar", tar([("a", text)]))):
        (tmp_path / name).write_bytes(content)
        job.refused(
            "has a line of zeros: a part of it was zeroed, or is not text", 65, tmp_path / name
        )
    whole = tar([(f"{number}.txt", b"a line\n") for number in range(64)])
    (tmp_path / "in.tar").write_bytes(whole)
    job.split(tmp_path / "in.tar")
    assert len(job.records()) == 64
    for page in range(0, len(whole) - 10240, 4096):
        (tmp_path / "in.tar").write_bytes(whole[:page] + bytes(4096) + whole[page + 4096 :])
        job.refused("^in.tar ", 65, tmp_path / "in.tar")


@pytest.mark.parametrize("refused", table("refused.yaml"), ids=lambda refused: refused["sentence"])
def test_bad_settings_end_with_one_sentence_without_a_secret(
    job: Job, source: Path, refused: dict
) -> None:
    with pytest.raises(Failure) as caught:
        job.split(source, **refused["set"])
    assert caught.value.code == 2 and caught.value.sentence.startswith(refused["sentence"])
    assert "CRET" not in caught.value.sentence
    assert not job.folder.root.exists()


LABELLED = [f"{'sport' if number % 3 else 'arts'}\tword{number} and more" for number in range(60)]
NUMBERS = [f"{number},{number * 7 % 50},{1 + number % 5}.5" for number in range(60)]
HEADED = ["user,movie,rating", *NUMBERS]


@pytest.mark.parametrize("pods", [1, 3])
def test_a_header_is_no_record_of_any_file(job: Job, tmp_path: Path, pods: int) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_text("".join(f"{line}\n" for line in HEADED))
    shared = {"SPLIT_PODS": pods, "PADDLE_NODE_RUN_ID": "run", "DATA_HEADER": 1}
    for index in range(pods):
        job.split(source, JOB_COMPLETION_INDEX=index, POD_UID=f"pod-{index}", **shared)
    assert sorted(job.records()) == sorted(line.encode() for line in NUMBERS * 2)
    if pods == 1:  # With the header it is another split.
        job.split(source)
        assert len(job.records()) == 2 * len(HEADED)


HEADER = "line 1 of source looks like a header, which a program reads as a record: "


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (LABELLED, ""),
        ([f"{number} {number}" for number in range(60)], ""),
        (["label\ttext", *LABELLED], f"{HEADER}'label\\ttext'"),
        (["user,movie,rating", *NUMBERS], f"{HEADER}'user,"),
        (
            [*LABELLED[:9], "arts\tcafé", *LABELLED],
            "line 10 of source is not UTF-8 (byte 0xe9): 'arts\\tcaf\ufffd'",
        ),
    ],
)
def test_a_doubtful_line_is_said(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str], sentence: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode("latin-1")))
    job.split(source)
    warnings = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("split: warning: ")
    ]
    assert len(warnings) == bool(sentence) and all(sentence in line for line in warnings)
    assert len(job.records()) == len(lines)


@pytest.mark.parametrize("packed", [False, True])
def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path, packed):
    """With it, the first record had a label of its own."""
    source, content = tmp_path / "in.tsv", codecs.BOM_UTF8 + b"sports\tball\r\nsports\tgoal\r\n"
    source.write_bytes(gzip.compress(content) if packed else content)
    job = Job(tmp_path / "job")
    job.split(source, 1)
    assert Counter(job.records()) == Counter([b"sports\tball\r", b"sports\tgoal\r"])
