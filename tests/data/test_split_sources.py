"""Folders, patterns and archives; whole files as records; a reader of the user's own."""

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from job_folder import Job, table, tar, zipped


def words(job: Job) -> str:
    """All records, sorted."""
    return b" ".join(job.records()).decode()


def lay(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


PLAIN = {"a.txt": b"a1\na2", "b.txt.gz": gzip.compress(b"b1\nb2\n"), "deep/c.txt": b"c1\n"}
"""The first file has no newline at its end."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return lay(tmp_path / "source", PLAIN)


def test_a_folder_and_a_pattern_are_read_whole_and_a_new_file_is_noticed(
    job: Job, folder: Path
) -> None:
    assert job.split(folder, 2).source.etag.startswith("sha256:")
    assert words(job) == "a1 a2 b1 b2 c1"
    (folder / "z.txt").write_text("z1\n")
    for pattern, expected in (
        ("", "a1 a2 b1 b2 c1 z1"),
        ("/[ab].txt*", "a1 a2 b1 b2"),
        ("/**/c.txt", "c1"),
    ):
        job.split(f"{folder}{pattern}", 1)
        assert words(job) == expected


def test_links_are_followed_and_none_is_passed_over(job: Job, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "d.txt").write_text("d1\n")
    (folder / "folder").symlink_to(tmp_path / "elsewhere")
    (folder / "link.txt").symlink_to(folder / "a.txt")
    job.split(folder, 1)
    assert words(job) == "a1 a1 a2 a2 b1 b2 c1 d1"
    (tmp_path / "elsewhere" / "d.txt").unlink()
    (folder / "deep" / "lost").symlink_to(tmp_path / "elsewhere" / "d.txt")
    job.refused("DATA_SOURCE holds .*/deep/lost, a link that leads nowhere", 2, folder)
    (folder / "deep" / "lost").unlink()
    (tmp_path / "elsewhere" / "circle").symlink_to(folder)
    job.refused(
        "DATA_SOURCE holds .*/folder/circle, a link to a folder in which it lies", 2, folder
    )


def test_a_folder_that_may_not_be_looked_into_is_not_passed_over(
    job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.scandir

    def scandir(path):
        if Path(path).name == "deep":  # Root may look into any folder, so the refusal is simulated.
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    job.refused(rf"but uid {os.getuid()} may not look into {folder}/deep", 2, folder)


def test_a_link_in_splits_leads_no_sweep_into_another_job(job: Job, folder: Path) -> None:
    job.split(folder, 1)
    other = Job(job.folder.root.with_name("other"))
    other.split(folder, 1, PADDLE_NODE_RUN_ID="run")
    (other.folder.splits / "run" / "0.asleep").mkdir()
    (job.folder.splits / "planted").symlink_to(other.folder.splits / "run")
    job.split(folder, 2)
    assert (other.folder.splits / "run" / "0.asleep").is_dir()


MEMBERS = [("inside/one.txt", b"1\n2"), ("two.txt", b"3\n")]
ODD = {"\udcff\udcfe": b"1\n", "a\nb": b"2\n", "c d'$(e)": b"3\n"}
# Hidden files, such as a Mac adds to every archive, and one that is not hidden.
HIDDEN = [
    ("__MACOSX/._two.txt", b"x\n"),
    (".DS_Store", b"x\n"),
    (".git/config", b"x\n"),
    ("./two.txt", b"3\n"),
]
TWO = {"a.zip": zipped([("inside/", b""), *MEMBERS]), "b.tgz": gzip.compress(tar(MEMBERS))}


# Names on the web often say nothing: the content decides what a file is.
@pytest.mark.parametrize(
    ("given", "lines", "whole"),
    [
        (PLAIN | {".DS_Store": b"x\n"}, "a1 a2 b1 b2 c1", PLAIN),
        (ODD, "1 2 3", ODD),
        ({"data.zip": zipped(MEMBERS)}, "1 2 3", dict(MEMBERS)),
        ({"download of a zip": zipped(HIDDEN)}, "3", {"two.txt": b"3\n"}),
        ({"data.tar.gz": gzip.compress(tar(MEMBERS))}, "1 2 3", dict(MEMBERS)),
        ({"download of a tar": tar(HIDDEN)}, "3", {"two.txt": b"3\n"}),
        (
            TWO,
            "1 1 2 2 3 3",
            {f"{packed}/{name}": content for packed in TWO for name, content in MEMBERS},
        ),
    ],
    ids=[
        "plain",
        "names of any bytes",
        "zip",
        "hidden in a zip",
        "tar.gz",
        "hidden in a tar",
        "two archives",
    ],
)
def test_folders_and_archives_are_lines_or_whole_files_under_their_names(
    job: Job, tmp_path: Path, given: dict[str, bytes], lines: str, whole: dict[str, bytes]
) -> None:
    source = lay(tmp_path / "source", given)
    job.split(source, 1)
    assert words(job) == lines
    job.split(source, 1, DATA_FORMAT="files")
    assert job.data() == {f"0/data/{name}": content for name, content in whole.items()}


@pytest.mark.parametrize(("encoding", "said"), [("utf-8", 0), ("gbk", 1)])
def test_a_zip_that_does_not_say_how_its_names_are_written(
    job: Job,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    encoding: str,
    said: int,
) -> None:
    """macOS writes UTF-8 without the flag for it, Windows the country's own letters."""
    name = "照片".encode(encoding)
    packed = zipped([("A" * len(name), b"1\n"), ("B" * len(name), b"2\n")])
    packed = packed.replace(b"A" * len(name), name)
    job.split(lay(tmp_path / "source", {"data.zip": packed}), 1, DATA_FORMAT="files")
    assert f"0/data/{os.fsdecode(name)}" in job.data()
    assert capsys.readouterr().out.count("is not UTF-8, so the program meets bytes") == said


def test_two_members_that_no_folder_can_hold_both(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in.zip").write_bytes(zipped([("a/b", b"1"), ("a", b"2")]))
    job.refused(
        "the source has a file and a folder named a: rename one",
        65,
        tmp_path / "in.zip",
        DATA_FORMAT="files",
    )


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing"])
def test_nothing_there(job: Job, tmp_path: Path, name: str) -> None:
    job.refused(
        "is not a file, a folder, or a pattern that matches one in this container",
        2,
        tmp_path / name,
    )


def test_whole_files_are_shuffled_and_held_out(job: Job, tmp_path: Path) -> None:
    names = [f"{number:02d}" for number in range(50)]
    source = lay(tmp_path / "source", {name: name.encode() for name in names})
    job.split(source, 3, DATA_FORMAT="files", HOLD_OUT=0.1, SHUFFLE_SEED=1)
    assert sorted(content.decode() for content in job.data().values()) == names
    places = (job.folder.held_out, *map(job.folder.shard, range(3)))
    names_by_place = [sorted(path.name for path in place.iterdir()) for place in places]
    assert list(map(len, names_by_place)) == [5, 15, 15, 15] and names_by_place[1] != names[::3]


Reader = Callable[[str], dict[str, str]]
BLOCKS = """
def read(stream, name):
    for block in stream.read().split(b"--"):
        yield block.strip() + b"--"
"""


@pytest.fixture
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> Reader:
    """`reader(code)` returns settings with the code's `read`. Each test has its own module, because
    Python caches imports.
    """
    module = f"reader_{abs(hash(request.node.name))}"

    def write(code: str) -> dict[str, str]:
        program = lay(tmp_path / "mine", {f"{module}.py": code.encode()})
        return {"DATA_FORMAT": f"{module}:read", "PROGRAM_FROM": str(program)}

    return write


@pytest.mark.parametrize("content", [gzip.compress(b"1\n"), b"1\n2\n3\n"], ids=["packed", "plain"])
def test_a_source_that_changes_while_it_is_read(
    job: Job, tmp_path: Path, reader: Reader, content: bytes
) -> None:
    source = lay(tmp_path, {"in.txt": content}) / "in.txt"
    changing = (
        f"def read(stream, name):\n    yield stream.readline()\n    open({str(source)!r}, "
        "'ab').write(b'more')\n"
    )
    job.refused(
        "^in.txt changed while it was being read: run the split again$",
        65,
        source,
        1,
        **reader(changing),
    )
    assert not job.folder.data_manifest.exists()


@pytest.mark.parametrize("seed", ["", "5"])
def test_records_of_several_lines_stay_whole(
    job: Job, tmp_path: Path, reader: Reader, seed: str
) -> None:
    records = [f"record {number}\nof two lines" for number in range(40)]
    (tmp_path / "in.gz").write_bytes(gzip.compress("--".join(records).encode()))
    job.split(tmp_path / "in.gz", 3, SHUFFLE_SEED=seed, HOLD_OUT=0.1, **reader(BLOCKS))
    files_by_place = (
        [*job.folder.held_out.iterdir()],
        *([*job.folder.shard(index).iterdir()] for index in range(3)),
    )
    pieces = [
        [piece for path in sorted(paths) for piece in path.read_text().split("--")[:-1]]
        for paths in files_by_place
    ]
    assert sorted(record for piece in pieces for record in piece) == sorted(records)
    assert [len(piece) for piece in pieces] == [4, 12, 12, 12]
    if not seed:
        assert all(piece == [record for record in records if record in piece] for piece in pieces)


@pytest.mark.slow
def test_other_code_is_another_split(job: Job, tmp_path: Path, reader: Reader) -> None:
    """Separate processes import the current files: the modules that the reader imports belong to
    its code.
    """
    (tmp_path / "in.txt").write_text("1--2--3--4")
    job.run(tmp_path / "in.txt", 1, **reader(BLOCKS))
    assert "nothing to do" in job.run(tmp_path / "in.txt", 1, **reader(BLOCKS))
    for end in (":", ";"):
        lay(tmp_path / "mine", {"ends.py": f"END = b'{end}'\n".encode()})
        job.run(
            tmp_path / "in.txt",
            1,
            **reader("import ends\n" + BLOCKS.replace('b"--"\n', "ends.END\n")),
        )
    assert job.shard(0) == b"1;2;3;4;"


@pytest.mark.parametrize("case", table("readers.yaml"), ids=lambda case: case["sentence"])
def test_a_readers_faults_are_told_with_its_own_line(
    job: Job, source: Path, reader: Reader, case: dict
) -> None:
    job.refused(
        case["sentence"], case["ends"], source, **reader(case["code"]) | case.get("set", {})
    )
