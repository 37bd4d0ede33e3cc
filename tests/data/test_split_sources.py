"""Folders, patterns and archives; whole files as records; a reader of the user's own."""

import errno
import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from job_folder import Job
from paddle_node.data.data_manifest import DataFile
from paddle_node.failure import Failure


def lines_of(job: Job, shards: int = 2) -> list[bytes]:
    return b"".join(job.shard(index) for index in range(shards)).splitlines()


def short_names(files: tuple[DataFile, ...]) -> set[str]:
    """Below the shard's folder."""
    return {file.name.split("/", 4)[4] for file in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two plain files (the first without a last newline), one compressed, one that hides."""
    root = tmp_path / "source"
    (root / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"a1\na2")
    (root / "b.txt.gz").write_bytes(gzip.compress(b"b1\nb2\n"))
    (root / "deep" / "c.txt").write_bytes(b"c1\n")
    (root / ".DS_Store").write_bytes(b"no data\n")
    return root


def test_a_folder_and_a_pattern_are_read_whole_and_a_new_file_is_noticed(job: Job, folder: Path) -> None:
    assert job.split(folder, 2).source.etag.startswith("sha256:")
    assert sorted(lines_of(job)) == [b"a1", b"a2", b"b1", b"b2", b"c1"]
    (folder / "z.txt").write_text("z1\n")
    job.split(folder, 2)
    assert lines_of(job)[-1] == b"z1"
    job.split(f"{folder}/[ab].txt*", 2)
    assert sorted(lines_of(job)) == [b"a1", b"a2", b"b1", b"b2"]
    job.split(f"{folder}/**/c.txt", 1)
    assert job.shard(0) == b"c1\n"


def test_names_are_any_bytes(job: Job, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (b"a\nb", b"\xff\xfe", b"c d'$(e)"):
        Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_bytes(name.hex().encode() + b"\n")
    job.split(source, 2)
    assert len(lines_of(job)) == 3
    job.split(source, 1, DATA_FORMAT="files")
    assert {os.fsencode(path.name) for path in job.folder.shard(0).iterdir()} == {b"a\nb", b"\xff\xfe", b"c d'$(e)"}
    assert job.split(source, 1, DATA_FORMAT="files").records == 3


def test_links_are_followed_and_none_is_passed_over(job: Job, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "d.txt").write_text("d1\n")
    (folder / "folder").symlink_to(tmp_path / "elsewhere")
    (folder / "link.txt").symlink_to(folder / "a.txt")
    job.split(folder, 1)
    assert sorted(lines_of(job, 1)) == sorted([b"a1", b"a2", b"b1", b"b2", b"c1", b"d1", b"a1", b"a2"])
    (tmp_path / "elsewhere" / "d.txt").unlink()
    (folder / "deep" / "lost").symlink_to(tmp_path / "elsewhere" / "d.txt")
    with pytest.raises(Failure, match=r"DATA_SOURCE holds .*/deep/lost, a link that leads nowhere"):
        job.split(folder, 1)
    (folder / "deep" / "lost").unlink()
    (tmp_path / "elsewhere" / "circle").symlink_to(folder)
    with pytest.raises(Failure, match=r"DATA_SOURCE holds .*/folder/circle, a link to a folder in which it lies"):
        job.split(folder, 1)


def test_a_folder_that_may_not_be_looked_into_is_not_passed_over(job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.scandir

    def scandir(path):
        if Path(path).name == "deep":  # Root may look into everything.
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(Failure, match=rf"but uid {os.getuid()} may not look into {folder}/deep") as caught:
        job.split(folder, 1)
    assert caught.value.code == 2


def test_the_jobs_own_folder_is_no_source(job: Job) -> None:
    for source in (job.folder.root, job.folder.root.parent):
        with pytest.raises(
            Failure, match=f"DATA_SOURCE is '{source}', which lies in what this job itself writes, or holds it: "
        ) as caught:
            job.split(source, 1)
        assert caught.value.code == 2


@pytest.mark.parametrize("name", ["0", "held-out"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_where_a_shards_folder_belongs_a_persons_file_or_link_is_refused_first(
    job: Job, folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    job.folder.root.mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    place = job.folder.root / name
    place.symlink_to(other) if kind == "link" else place.write_text("mine")
    with pytest.raises(Failure, match=f"{place} was not made by a data job: move it away"):
        job.split(folder, 1, HOLD_OUT="0.1")
    assert not job.folder.data_manifest.exists()
    assert not list(other.iterdir())


def test_a_link_in_splits_leads_no_sweep_into_another_job(job: Job, folder: Path) -> None:
    job.split(folder, 1)
    other = Job(job.folder.root.with_name("other"))
    other.split(folder, 1, PADDLE_NODE_RUN_ID="run")
    (other.folder.splits / "run" / "0.asleep").mkdir()
    (job.folder.splits / "planted").symlink_to(other.folder.splits / "run")
    job.split(folder, 2)
    assert (other.folder.splits / "run" / "0.asleep").is_dir()


def make_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("inside")
        archive.writestr("inside/one.txt", "1\n2")
        archive.writestr("two.txt", "3\n")


def make_tar(path: Path, mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in (("inside/one.txt", b"1\n2"), ("two.txt", b"3\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


# Names on the web often say nothing: what a file is, its content tells.
@pytest.mark.parametrize(
    ("name", "make"),
    [("data.zip", make_zip), ("download", make_zip), ("data.tar.gz", make_tar), ("download", make_tar)],
)
def test_members_of_archives_are_lines_or_files(job: Job, tmp_path: Path, name: str, make) -> None:
    make(tmp_path / name)
    job.split(tmp_path / name, 2)
    assert sorted(lines_of(job)) == [b"1", b"2", b"3"]
    first, second = (short_names(shard.files) for shard in job.split(tmp_path / name, 2, DATA_FORMAT="files").shards)
    assert first | second == {"inside/one.txt", "two.txt"}


@pytest.mark.parametrize("packed", ["zip", "tar"])
def test_hidden_members_are_no_data(job: Job, tmp_path: Path, packed: str) -> None:
    """What a Mac adds to every archive."""
    names = ("__MACOSX/._one.txt", "./one.txt", ".DS_Store", ".git/config")
    if packed == "zip":
        with zipfile.ZipFile(tmp_path / "in", "w") as archive:
            for name in names:
                archive.writestr(name, "1\n")
    else:
        with tarfile.open(tmp_path / "in", "w:gz") as tar:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = 2
                tar.addfile(entry, io.BytesIO(b"1\n"))
    assert job.split(tmp_path / "in", 1).records == 1
    manifest = job.split(tmp_path / "in", 1, DATA_FORMAT="files")
    assert short_names(manifest.shards[0].files) == {"one.txt"}


def test_two_members_that_no_folder_can_hold_both(job: Job, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("a/b", "1")
        archive.writestr("a", "2")
    with pytest.raises(Failure, match="the source has a file and a folder named a: rename one"):
        job.split(tmp_path / "in.zip", 2, DATA_FORMAT="files")


@pytest.mark.parametrize("name", ["missing.txt", "*.nothing"])
def test_nothing_there(job: Job, tmp_path: Path, name: str) -> None:
    with pytest.raises(Failure, match="is no file, no folder, and no pattern that matches one in this container") as caught:
        job.split(tmp_path / name)
    assert caught.value.code == 2


@pytest.mark.parametrize("packed", [False, True])
def test_a_source_that_changes_while_it_is_read(job: Job, tmp_path: Path, packed: bool) -> None:
    """A reader of the user's writes to the file that it reads."""
    source = tmp_path / "in.txt"
    source.write_bytes(gzip.compress(b"1\n") if packed else b"1\n2\n3\n")
    program = tmp_path / "program"
    program.mkdir()
    (program / "changing.py").write_text(
        f"def lines(stream, name):\n    yield stream.readline()\n    open({str(source)!r}, 'ab').write(b'more')\n"
    )
    result = job.run(source, 1, DATA_FORMAT="changing:lines", PROGRAM_FROM=program)
    assert (result.returncode, result.stderr) == (
        65,
        "split: in.txt changed while it was being read: run the split again\n",
    )
    assert not job.folder.data_manifest.exists()


class TestWholeFiles:
    """DATA_FORMAT=files."""

    def test_each_file_is_a_record_and_keeps_its_name_and_bytes(self, job: Job, folder: Path) -> None:
        manifest = job.split(folder, 2, DATA_FORMAT="files")
        first, second = (short_names(shard.files) for shard in manifest.shards)
        assert first | second == {"a.txt", "b.txt.gz", "deep/c.txt"}
        assert {len(first), len(second)} == {1, 2}
        place = job.folder.shard(0 if "b.txt.gz" in first else 1)
        assert (place / "b.txt.gz").read_bytes() == (folder / "b.txt.gz").read_bytes()

    def test_members_of_several_archives_keep_apart(self, job: Job, tmp_path: Path) -> None:
        (tmp_path / "source").mkdir()
        make_zip(tmp_path / "source" / "a.zip")
        make_tar(tmp_path / "source" / "b.tgz")
        manifest = job.split(tmp_path / "source", 1, DATA_FORMAT="files")
        members = {"inside/one.txt", "two.txt"}
        assert short_names(manifest.shards[0].files) == {f"{name}/{each}" for name in ("a.zip", "b.tgz") for each in members}

    def test_shuffled_and_held_out(self, job: Job, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        for number in range(50):
            (source / f"{number:02d}").write_text(str(number))
        manifest = job.split(source, 3, DATA_FORMAT="files", HOLD_OUT=0.1, SHUFFLE_SEED=1)
        found = [short_names(files) for files in (manifest.held_out, *(shard.files for shard in manifest.shards))]
        assert sorted(name for each in found for name in each) == [f"{number:02d}" for number in range(50)]
        assert len(found[0]) == 5
        assert {path.name for path in job.folder.held_out.iterdir()} == found[0]


READER = """
def blocks(stream, name):
    for block in stream.read().split(b"--"):
        yield block.strip() + b"--"

def text(stream, name):
    yield "no bytes"

def breaks(stream, name):
    yield b"1"
    raise KeyError("column 7")

def exits(stream, name):
    yield b"1"
    __import__("sys").exit()

def is_no_generator(stream, name):
    __import__("sys").exit(0)

def raises_stop(stream, name):
    raise GeneratorExit

def is_in_the_library(stream, name):
    __import__("json").loads("{")

def swallows(stream, name):
    try:
        yield stream.read()
    except Exception:
        pass
"""


class TestUserReader:
    """DATA_FORMAT=module:function."""

    @pytest.fixture
    def program(self, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
        """Each test its own module: Python keeps what it has imported."""
        module = f"reader_{abs(hash(request.node.name))}"
        folder = tmp_path / "programs" / "mine"
        folder.mkdir(parents=True)
        (folder / f"{module}.py").write_text(READER)
        (folder / "leaves.py").write_text("import sys\nsys.exit(0)\n")
        return folder, module

    @pytest.mark.parametrize("seed", ["", "5"])
    def test_records_of_several_lines_stay_whole(self, job: Job, tmp_path: Path, program: tuple[Path, str], seed: str) -> None:
        records = [f"record {number}\nof two lines" for number in range(40)]
        (tmp_path / "in.gz").write_bytes(gzip.compress("--".join(records).encode()))
        job.split(
            tmp_path / "in.gz", 3, DATA_FORMAT=f"{program[1]}:blocks", PROGRAM_FROM=program[0], SHUFFLE_SEED=seed, HOLD_OUT=0.1
        )
        found = [job.held_out(), *(job.shard(index) for index in range(3))]
        pieces = [piece.decode().split("--")[:-1] for piece in found]
        assert sorted(record for piece in pieces for record in piece) == sorted(records)
        assert [len(piece) for piece in pieces] == [4, 12, 12, 12]
        if not seed:
            assert all(piece == [record for record in records if record in piece] for piece in pieces)

    @pytest.mark.slow
    def test_other_code_is_another_split(self, job: Job, tmp_path: Path, program: tuple[Path, str]) -> None:
        """The same in a process of its own, which imports what is there."""
        (tmp_path / "in.txt").write_text("1--2--3--4")
        settings = {"DATA_FORMAT": f"{program[1]}:blocks", "PROGRAM_FROM": program[0], "shards": 1}
        assert job.run(tmp_path / "in.txt", **settings).returncode == 0
        assert "nothing to do" in job.run(tmp_path / "in.txt", **settings).stdout
        module = program[0] / f"{program[1]}.py"
        changed = module.read_text().replace('yield block.strip() + b"--"', "yield block.strip() + ends.END")
        module.write_text(f"import ends\n{changed}")
        (program[0] / "ends.py").write_text("END = b':'\n")
        assert job.run(tmp_path / "in.txt", **settings).returncode == 0
        (program[0] / "ends.py").write_text("END = b';'\n")  # What the reader imports is its code as well.
        assert job.run(tmp_path / "in.txt", **settings).returncode == 0
        assert job.shard(0) == b"1;2;3;4;"

    @pytest.mark.parametrize(
        ("function", "code", "sentence"),
        [
            ("nothing", 2, "has no function nothing"),
            ("leaves:any", 2, r"importing leaves fails: SystemExit: 0 \(.*/leaves.py:2\)$"),
            ("absent:x", 2, r"DATA_FORMAT is 'absent:x', but .*/mine has no module absent"),
            ("text", 65, "the record reader failed on in.txt: TypeError: it yielded a str, records are bytes"),
            ("breaks", 65, r"the record reader failed on in.txt: KeyError: 'column 7' \(.*reader_\d+.py:11\)"),
            ("exits", 65, r"the record reader failed on in.txt: SystemExit: .*\(.*reader_\d+.py:15\)"),
            ("is_no_generator", 65, r"the record reader failed on in.txt: SystemExit: 0 \(.*reader_\d+.py:18\)"),
            ("raises_stop", 65, r"the record reader failed on in.txt: GeneratorExit: .*\(.*reader_\d+.py:21\)"),
            ("is_in_the_library", 65, r"JSONDecodeError: .* \(.*reader_\d+.py:24\)"),
        ],
    )
    def test_its_faults_are_told(
        self, job: Job, tmp_path: Path, program: tuple[Path, str], function: str, code: int, sentence: str
    ) -> None:
        (tmp_path / "in.txt").write_text("1--2--3")
        name = function if ":" in function else f"{program[1]}:{function}"
        with pytest.raises(Failure, match=sentence) as caught:
            job.split(tmp_path / "in.txt", DATA_FORMAT=name, PROGRAM_FROM=program[0])
        assert caught.value.code == code
