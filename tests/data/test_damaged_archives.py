"""Archives as they come: damaged anywhere, concatenated, in old formats. Each is read exactly or
refused in one sentence.
"""

import bz2
import contextlib
import gzip
import os
import random
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from job_folder import Members, tar, zipped
from paddle_node.data.sources import open_source, unpack
from paddle_node.failure import Failure

SOME = random.Random(11)
FILES: Members = [
    (f"deep/{number:03}.txt", SOME.randbytes(SOME.randrange(900)).hex().encode() + b"\n")
    for number in range(12)
]
LONG_NAMED: Members = [
    (f"{'new/' * 30}no-{number}/{'n' * 40}.txt", content)
    for number, (_, content) in enumerate(FILES)
]
DAMAGED = r"^in.* is damaged or cut short: "


def read(place: Path, format: str = "files") -> Members:
    """Returns what the data job reads at `place`; raises the failure that would end it."""
    source = open_source(str(place), {})
    return [
        (name, stream.read())
        for thing in source.objects()
        for name, stream in unpack.members(source, thing, format)
    ]


def damage(content: bytes, chance: random.Random, place: int) -> bytes:
    what = chance.choice(("flip", "cut", "garbage", "more", "zeros"))
    if what == "zeros":  # As a disk leaves a page that it never wrote.
        begin = chance.choice((place, place // 512 * 512, place // 4096 * 4096))
        return content[:begin] + bytes(len(content[begin : begin + 4096])) + content[begin + 4096 :]
    if what == "cut":
        return content[: chance.randrange(len(content))]
    if what == "more":
        return content + chance.randbytes(chance.randrange(1, 2000))
    put = (
        bytes([content[place] ^ 1 << chance.randrange(8)])
        if what == "flip"
        else chance.randbytes(chance.randrange(1, 2000))
    )
    return (content[:place] + put + content[place + len(put) :])[: len(content)]


def reaches_the_end(content: bytes, damaged: bytes) -> bool:
    """Whether a tar's last bytes became zeros: it does not say how many members it has, so it may
    be a shorter whole one now.
    """
    last = len(content.rstrip(b"\0"))
    return len(content) == len(damaged) and not damaged[last - 1]


@pytest.mark.parametrize(
    ("name", "content", "damages"),
    [
        ("in.tar", tar(FILES), 300),
        ("long-gnu.tar", tar(LONG_NAMED), 300),
        ("long-pax.tar", tar(LONG_NAMED, tarfile.PAX_FORMAT), 300),
        ("in.tar.gz", gzip.compress(tar(FILES), mtime=0), 200),
        ("in.zip", zipped(FILES), 200),
        ("stored.zip", zipped(FILES, zipfile.ZIP_STORED), 200),
        ("long.zip", zipped(LONG_NAMED), 200),
        ("bzip2.zip", zipped(FILES, zipfile.ZIP_BZIP2), 50),
        ("in.gz", gzip.compress(b"".join(content for _, content in FILES), mtime=0), 200),
        ("members.gz", b"".join(gzip.compress(content, mtime=0) for _, content in FILES), 200),
    ],
)
def test_random_damage_is_refused_or_read_exactly(
    tmp_path: Path, name: str, content: bytes, damages: int
) -> None:
    place = tmp_path / name
    place.write_bytes(content)
    whole = read(place, "reader")
    assert b"".join(body for _, body in whole) == b"".join(body for _, body in FILES)
    chance = random.Random(name)
    headers = range(len(content))
    if name.endswith(".tar"):  # Members' bodies have no checksum: a flipped bit goes unnoticed.
        with tarfile.open(place) as archive:
            headers = [at for entry in archive for at in range(entry.offset, entry.offset_data)]
    refused = 0
    for _ in range(damages):
        damaged = damage(content, chance, chance.choice(headers))
        place.write_bytes(damaged)
        try:
            files = read(place, "reader")
        except Failure as failure:
            assert failure.code == 65 and name in failure.sentence, failure.sentence
            assert failure.sentence.isprintable()
            refused += 1
        else:
            count = len(whole)
            if name.endswith(".tar") and reaches_the_end(content, damaged):
                count = len(files) - 1
            assert [body for _, body in files[:count]] == [body for _, body in whole[:count]]
            # Behind its first 100 bytes a long name has no checksum.
            names = [[path[:100] for path, _ in members[:count]] for members in (files, whole)]
            assert names[0] == names[1]
    assert refused > damages / 2


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("v7", "a"),
        *(
            (format, "/".join(["中" * 80, "x" * 200, "y" * 255]))
            for format in ("gnu", "pax", "oldgnu")
        ),
    ],
)
def test_tars_of_all_kinds_and_long_names(tmp_path: Path, format: str, name: str) -> None:
    """A Unix v7 tar has no magic number: the checksum of its first header identifies it."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"1\n")
    subprocess.run(
        ["tar", f"--format={format}", "-cf", "in", name.partition("/")[0]], cwd=tmp_path, check=True
    )
    assert read(tmp_path / "in") == [(name, b"1\n")]


KINDS = {
    "symbolic link": lambda b: b.symlink_to("a"),
    "hard link": lambda b: b.hardlink_to(b.with_name("a")),
    "fifo": os.mkfifo,
    "sparse file": lambda b: (b.touch(), os.truncate(b, 1 << 20)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tar_holds_beside_files_is_refused_and_links_are_packed_as_the_sentence_says(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a").write_bytes(b"1\n")
    KINDS[kind](tmp_path / "b")
    subprocess.run(["tar", "--sparse", "-cf", "in", "a", "b"], cwd=tmp_path, check=True)
    with pytest.raises(
        Failure,
        match=r"^in holds b, (a link: pack it with tar --dereference|a device, a sparse file)",
    ):
        read(tmp_path / "in")
    if kind.endswith("link"):
        subprocess.run(
            ["tar", "--dereference", "--hard-dereference", "-cf", "in", "a", "b"],
            cwd=tmp_path,
            check=True,
        )
        assert read(tmp_path / "in") == [("a", b"1\n"), ("b", b"1\n")]


def extended(record: bytes, content: bytes) -> bytes:
    """A tar of a file with this record in its extended header."""
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    file = tarfile.TarInfo("a")
    file.size = len(content)
    parts = header.tobuf(), record.ljust(512, b"\0"), file.tobuf(), content.ljust(512, b"\0")
    return b"".join(parts) + bytes(1024)


ENDS = len(tar(FILES).rstrip(b"\0"))
UNPADDED = tar(FILES)[: ENDS + -ENDS % 512 + 1024]
LINK = zipfile.ZipInfo("b")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
DEVICE = tarfile.TarInfo("b")
DEVICE.type = tarfile.CHRTYPE
BZIP2 = zipped([("a", random.Random(1).randbytes(5000))], zipfile.ZIP_BZIP2)
# Exactly two blocks of zeros must follow.
TAR = tar([("a", b"x" * 512)])[:1024]
NAMED_WRONGLY = "does not begin as its name says: it is damaged, or named wrongly"
PACKED_TWICE = r"a is compressed: one layer of \.gz, \.zip, \.tar or \.tar\.gz is unpacked"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        *(
            ("in.tar", TAR + end, DAMAGED)
            for end in (
                b"",
                bytes(512),
                bytes(1024) + b"x",
                bytes(1536) + b"behind it" * 57,
                bytes(512 * 21),  # No record of a tar is that long.
            )
        ),
        # `cat a.tar b.tar` looks as one archive of which a part was zeroed.
        (
            "in.tar",
            tar(FILES[:4]) + tar(FILES[4:]),
            DAMAGED + "zeros at byte 5632 end it, and more",
        ),
        ("in.tgz", gzip.compress(tar(FILES[:4])) + gzip.compress(tar(FILES[4:])), DAMAGED),
        ("in.gz", gzip.compress(b"1\n") + bytes(4096), DAMAGED),
        (
            "in.tar",
            tar([(f"{'a/' * 60}.hidden", b"1\n")]),
            DAMAGED + "a name longer than 100 bytes has no checksum.*pack without hidden files",
        ),
        *(
            (
                "in.tar",
                tar([(f"{'a/' * 60}x", b"1\n")], tarfile.PAX_FORMAT).replace(*change),
                DAMAGED,
            )
            for change in (
                (b"path=a/a", b"path=a/."),
                (b" path=", b" qath="),
                (b"131 path", b"130 path"),
            )
        ),
        # Where both sizes fit, a header's own has a checksum.
        (
            "in.tar",
            extended(b"9 size=2\n", b"1234"),
            DAMAGED + "an extended header's size is not that of its",
        ),
        ("in.tar", extended(b"12 size=1_0\n", b"1" * 20), DAMAGED),
        ("in", zipped([(LINK, b"a")]), "in holds b, a link: pack what it leads to instead"),
        ("in", zipped([("folder/", b"1\n")]), DAMAGED + "a folder has content"),
        # A zip's directory is at its end, so the directory of the first zip would be ignored.
        (
            "in",
            zipped(FILES[:3]) + zipped(FILES[3:6]),
            DAMAGED + "its directory does not list what it holds",
        ),
        # bz2's own error is an OSError, like a disk's.
        (
            "in",
            BZIP2[:40] + bytes([BZIP2[40] ^ 0xFF]) + BZIP2[41:],
            DAMAGED + "Invalid data stream",
        ),
        (
            "in",
            zipped([("../../etc/x", b"1\n")]),
            "has a member named '../../etc/x', which leads out of it",
        ),
        ("in", DEVICE.tobuf() + bytes(1024), "^in holds b, a device"),
        *(
            (name, b"text\n", NAMED_WRONGLY)
            for name in ("in.gz", "in.tgz", "in.tar", "in.tar.gz", "in.zip")
        ),
        *(
            ("in", zipped([("a", inner)]), PACKED_TWICE)
            for inner in (bz2.compress(b"1\n"), gzip.compress(b"1\n"), tar(FILES))
        ),
    ],
)
def test_an_archive_that_cannot_be_read_exactly_is_refused(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Failure, match=sentence) as caught:
        read(tmp_path / name, "lines")
    assert caught.value.code == 65


@pytest.mark.parametrize(
    ("name", "content", "holds"),
    [
        # Two writers of one tar, and of one name: with and without padding, with and without ASCII.
        ("in", UNPADDED, FILES),
        *(
            ("in", tar([(name, b"1\n")], format), [(name, b"1\n")])
            for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
            for name in ("é.txt", f"{'中/' * 60}é", f"{'a/' * 49}b/{'c' * 120}")
        ),
        ("packed-twice", zipped([("a", tar(FILES))]), [("a", tar(FILES))]),
        ("empty", zipped([]), []),
        ("empty.tar", tar([]), []),
        ("empty.tar.gz", gzip.compress(tar([])), []),
    ],
)
def test_whole_files_are_read_as_packed(
    tmp_path: Path, name: str, content: bytes, holds: Members
) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == holds


def test_damage_that_a_reader_swallows_is_told(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(os.urandom(1 << 20))[:-10000])
    source = open_source(str(tmp_path / "in.gz"), {})
    with pytest.raises(Failure, match=DAMAGED):
        for _, stream in unpack.members(source, source.objects()[0], "module:function"):
            with contextlib.suppress(Exception):
                stream.read()
