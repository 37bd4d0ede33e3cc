"""Archives as they come: damaged anywhere, one behind the other, of old kinds. Each is read exactly, or refused in a sentence."""

import bz2
import contextlib
import gzip
import io
import os
import random
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from job_folder import Members, tar, zipped
from paddle_node.data.sources import registry, unpack
from paddle_node.failure import Failure

SOME = random.Random(11)
FILES: Members = [(f"deep/{number:03}.txt", SOME.randbytes(SOME.randrange(900)).hex().encode() + b"\n") for number in range(12)]
DAMAGED = r"^in.* is damaged or cut short: "


def refused(place: Path, sentence: str, content: bytes | None = None, format: str = "files") -> None:
    """The data job refuses `place`, which holds `content` now, with a sentence of that pattern."""
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(Failure, match=sentence) as caught:
        read(place, format)
    assert caught.value.code == 65


def read(place: Path, format: str = "files") -> Members:
    """What the data job reads there; raises what it would end with."""
    source = registry.open_source(str(place), {})
    return [(name, stream.read()) for thing in source.objects() for name, stream in unpack.members(source, thing, format)]


def headers(packed: bytes) -> list[int]:
    """Where a tar's headers begin: its members' bodies have no checksum, so a flipped bit in one cannot be seen."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return [entry.offset for entry in archive]


def damage(content: bytes, chance: random.Random, at: Callable[[], int]) -> bytes:
    what = chance.choice(("flip", "cut", "garbage", "more"))
    if what == "cut":
        return content[: chance.randrange(len(content))]
    if what == "more":
        return content + chance.randbytes(chance.randrange(1, 2000))
    place = at()
    put = bytes([content[place] ^ 1 << chance.randrange(8)]) if what == "flip" else chance.randbytes(chance.randrange(1, 2000))
    return (content[:place] + put + content[place + len(put) :])[: len(content)]


@pytest.mark.parametrize(
    ("name", "content", "damages"),
    [
        ("in.tar", tar(FILES), 200),
        ("in.tar.gz", gzip.compress(tar(FILES), mtime=0), 200),
        ("in.zip", zipped(FILES), 200),
        ("stored.zip", zipped(FILES, zipfile.ZIP_STORED), 50),
        ("bzip2.zip", zipped(FILES, zipfile.ZIP_BZIP2), 50),
        ("in.gz", gzip.compress(b"".join(content for _, content in FILES), mtime=0), 200),
    ],
)
def test_random_damage_is_refused_or_read_exactly(tmp_path: Path, name: str, content: bytes, damages: int) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    whole = read(place, "reader")
    assert b"".join(each for _, each in whole) == b"".join(each for _, each in FILES)
    chance = random.Random(name)
    starts = headers(content) if name.endswith(".tar") else []
    at = (lambda: chance.choice(starts) + chance.randrange(512)) if starts else (lambda: chance.randrange(len(content)))
    refused = 0
    for _ in range(damages):
        place.write_bytes(damage(content, chance, at))
        try:
            assert read(place, "reader") == whole, "damage was read as data"
        except Failure as failure:
            assert failure.code == 65 and failure.sentence.isprintable() and name in failure.sentence
            refused += 1
    assert refused > damages / 2


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_tars_one_behind_the_other_are_all_read(tmp_path: Path, pack) -> None:
    """As `cat a.tar b.tar` makes them."""
    (tmp_path / "in").write_bytes(pack(tar(FILES[:4]) + tar(FILES[4:8])) + pack(tar(FILES[8:])))
    assert read(tmp_path / "in") == FILES


@pytest.mark.parametrize("end", [b"", bytes(512), bytes(1024) + b"x", bytes(1536) + b"behind it" * 57])
def test_a_tar_ends_with_two_blocks_of_zeros_and_nothing_else(tmp_path: Path, end: bytes) -> None:
    content = tar(FILES[:1])
    refused(tmp_path / "in.tar", DAMAGED, content.rstrip(b"\0") + bytes(-len(content.rstrip(b"\0")) % 512) + end)


@pytest.mark.parametrize(
    ("format", "name"),
    [("v7", "a"), *((format, "/".join(["中" * 80, "x" * 200, "y" * 255])) for format in ("gnu", "pax", "oldgnu"))],
)
def test_tars_of_all_kinds_and_long_names(tmp_path: Path, format: str, name: str) -> None:
    """Unix v7's has no mark: its first header's checksum tells it."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"1\n")
    subprocess.run(["tar", f"--format={format}", "-cf", "in", name.partition("/")[0]], cwd=tmp_path, check=True)
    assert read(tmp_path / "in") == [(name, b"1\n")]


KINDS = {
    "symbolic link": lambda b: b.symlink_to("a"),
    "hard link": lambda b: b.hardlink_to(b.with_name("a")),
    "fifo": os.mkfifo,
    "sparse file": lambda b: (b.touch(), os.truncate(b, 1 << 20)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tar_holds_beside_files_is_refused_and_links_are_packed_as_the_sentence_says(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    KINDS[kind](tmp_path / "b")
    subprocess.run(["tar", "--sparse", "-cf", "in", "a", "b"], cwd=tmp_path, check=True)
    refused(tmp_path / "in", r"^in holds b, (a link: pack it with tar --dereference|a device, a sparse file)")
    if kind.endswith("link"):
        subprocess.run(["tar", "--dereference", "--hard-dereference", "-cf", "in", "a", "b"], cwd=tmp_path, check=True)
        assert read(tmp_path / "in") == [("a", b"1\n"), ("b", b"1\n")]


EMPTY = {"empty": zipped([]), "empty.tar": tar([]), "empty.tar.gz": gzip.compress(tar([]), mtime=0)}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_archive_holds_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(EMPTY[name])
    assert read(tmp_path / name, "lines") == []


@pytest.mark.parametrize("name", ["in.gz", "in.tgz", "in.tar", "in.tar.gz", "in.zip"])
def test_a_file_that_begins_otherwise_than_its_name_says(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, "does not begin as its name says: it is damaged, or named wrongly", b"text\n", "lines")


def zip_of(name: str, content: str, mode: int = stat.S_IFREG) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (mode | 0o777) << 16
        archive.writestr(entry, content)
    return packed.getvalue()


DEVICE = tarfile.TarInfo("b")
DEVICE.type = tarfile.CHRTYPE
BZIP2 = zipped([("a", random.Random(1).randbytes(5000))], zipfile.ZIP_BZIP2)
REFUSED = {
    "in holds b, a link: pack what it leads to instead": zip_of("b", "a", stat.S_IFLNK),
    DAMAGED + "a folder has content": zip_of("folder/", "1\n"),
    # A zip's directory is at its end: the first one's would not be looked at.
    DAMAGED + "its directory does not list what it holds": zipped(FILES[:3]) + zipped(FILES[3:6]),
    # bz2's own error is an OSError, like a disk's.
    DAMAGED + "Invalid data stream": BZIP2[:40] + bytes([BZIP2[40] ^ 0xFF]) + BZIP2[41:],
    "has a member named '../../etc/cron.d/x', which leads out of it": zip_of("../../etc/cron.d/x", "1\n"),
    "^in holds b, a device": DEVICE.tobuf() + bytes(1024),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_an_archive_that_cannot_be_read_exactly_is_refused(tmp_path: Path, sentence: str) -> None:
    refused(tmp_path / "in", sentence, REFUSED[sentence])


def test_damage_that_a_reader_swallows_is_told(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(os.urandom(1 << 20))[:-10000])
    source = registry.open_source(str(tmp_path / "in.gz"), {})
    with pytest.raises(Failure, match=DAMAGED):
        for _, stream in unpack.members(source, source.objects()[0], "module:function"):
            with contextlib.suppress(Exception):
                stream.read()


@pytest.mark.parametrize(
    "inner", [bz2.compress(b"1\n" * 99), gzip.compress(b"1\n", mtime=0), tar(FILES)], ids=["bz2", "gz", "tar"]
)
def test_lines_that_are_packed_twice_are_refused(tmp_path: Path, inner: bytes) -> None:
    sentence = r"a is compressed: of \.gz, \.zip, \.tar and \.tar\.gz one layer is unpacked"
    refused(tmp_path / "in.zip", sentence, zipped([("a", inner)]), "lines")
    assert read(tmp_path / "in.zip") == [("a", inner)]
