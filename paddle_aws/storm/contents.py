"""What a run left in output/, in a form that runs can be compared by: names, sizes, digests, the
arrays in a file and the lines of a text. It reads files, and runs nothing of what they hold.
"""

import array
import ast
import io
import json
import math
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import xxhash
from paddle_node.volume.job_folder import JobFolder

from paddle_aws.rehearsal.summary import count
from paddle_aws.storm.ranges import describe, fits, range_of, same

_LARGEST = 1 << 28
"""Bytes of a file that is read; of a larger one, only the size is compared."""
_MOST_FILES, _MOST_LINES, _MOST_ARRAYS, _MOST_NUMBERS = 2000, 5000, 500, 1 << 20
_OURS = re.compile(r"(node_\d+|attempts|run|set-aside|log)(/|$)|(metrics|steps)\S*\.jsonl$")
"""What agents and launchers write below output/: their records name times and processes."""
_FEW_BYTES = 64.0
"""Bytes by which a file may be smaller than in any calm run, and still be the same."""
_ATTEMPT = re.compile(r"(?<![\w.])\d{1,2}(?![\w.])")
_CODES = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u1": "B", "i2": "h", "i1": "b"}
_CODES |= {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U8": "B", "I16": "h", "I8": "b"}
"""Types of numbers, as numpy and safetensors call them, by the name that `array` has for them."""


@dataclass(frozen=True)
class OutputFile:
    """One file below output/."""

    size: int
    digest: str = ""
    """Of its values if its format is known, else of its bytes; empty: too large to be read."""
    arrays: Mapping[str, float] = field(default_factory=dict)
    """The root mean square of the numbers in each array."""
    lines: tuple[tuple[str, ...], ...] | None = None
    """Of a text: for each line the digests that it may have, because it may name the attempt that
    wrote it; None: it is no text.
    """


def read_output(folder: JobFolder, attempts: int) -> dict[str, OutputFile]:
    """Returns the files that the program left in output/, by their paths below it; links to folders
    are followed within the job's folder. `attempts`: how many the run had.
    """
    files: dict[str, OutputFile] = {}
    root = folder.root.resolve()
    for path in _walk(folder.output, "", root):
        if len(files) == _MOST_FILES:
            break
        name = str(path.relative_to(folder.output))
        # A file may go while it is read, and hold anything.
        with suppress(OSError):
            if path.is_file() and path.resolve().is_relative_to(root):
                files[name] = _read_file(path, attempts)
    return files


def describe_difference(file: OutputFile, calm: Sequence[OutputFile]) -> str:
    """Says how a file differs from the same file of the calm runs; empty: it does not."""
    if file.digest and any(file.digest == other.digest for other in calm):
        return ""
    if file.lines is not None and all(other.lines is not None for other in calm):
        # An attempt may add lines, and do again what it lost; what calm runs agree on is there.
        common = set.intersection(*({line[0] for line in other.lines or ()} for other in calm))
        lost = len(common.difference(*({*line} for line in file.lines)))
        return f"lacks {count(lost, 'line')} that undisturbed runs have" if lost else ""
    if len({other.digest for other in calm}) == 1 and len(calm) > 1:
        values = (
            (name, value, calm[0].arrays[name])
            for name, value in file.arrays.items()
            if name in calm[0].arrays and not same(value, calm[0].arrays[name])
        )
        for name, value, other in values:
            return (
                f"has other values than in undisturbed runs, such as {name}: {value:g}, not "
                f"{other:g} (root mean square)"
            )
        return (
            f"is not as in undisturbed runs, where it is always the same ({file.size} bytes; there "
            f"{calm[0].size})"
        )
    for name in calm[0].arrays:
        ranges = [other.arrays[name] for other in calm if name in other.arrays]
        if name not in file.arrays:
            return f"lacks {name}, which it has in undisturbed runs"
        least, most = range_of(ranges)
        if not fits(file.arrays[name], (least, most), most - least):
            return (
                f"has {name} of {file.arrays[name]:g} (root mean square); undisturbed runs have "
                f"{describe(least, most)}"
            )
    least, most = range_of([float(other.size) for other in calm])
    if file.size < least and not fits(file.size, (least, most), max(most - least, _FEW_BYTES)):
        return f"has {file.size} bytes; undisturbed runs have {describe(least, most)}"
    return ""


def _walk(folder: Path, below: str, root: Path, depth: int = 0) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = f"{below}{entry.name}"
        if _OURS.match(name) or depth > 20:
            continue
        path = Path(entry.path)
        if entry.is_dir() and path.resolve().is_relative_to(root):
            yield from _walk(path, f"{name}/", root, depth + 1)
        else:
            yield path


def _read_file(path: Path, attempts: int) -> OutputFile:
    size = path.stat().st_size
    if size > _LARGEST:
        return OutputFile(size)
    content = path.read_bytes()
    if (lines := _list_lines(content, attempts)) is not None:
        return OutputFile(size, _digest(content), lines=lines)
    reader = _Reader()
    # Whatever is no sound file of its format is compared by its bytes.
    try:
        reader.read(content, "")
    except Exception:
        return OutputFile(size, _digest(content))
    return OutputFile(size, reader.digest.hexdigest(), reader.arrays)


def _digest(content: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(content)


def _list_lines(content: bytes, attempts: int) -> tuple[tuple[str, ...], ...] | None:
    """Returns the digests of a text's lines; None: it is no text. Each number that may be that of
    an attempt counts as itself and as "the attempt".
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    lines = []
    for line in text.splitlines()[:_MOST_LINES]:
        places = [match.span() for match in _ATTEMPT.finditer(line)]
        certain = [span for span in places if int(line[slice(*span)]) == 1]
        unsure = [span for span in places if 1 < int(line[slice(*span)]) <= attempts][:4]
        forms = []
        for chosen in chain.from_iterable(
            combinations(unsure, size) for size in range(len(unsure) + 1)
        ):
            form = line
            for begin, end in sorted([*certain, *chosen], reverse=True):
                form = f"{form[:begin]}\0{form[end:]}"
            forms.append(_digest(form.encode())[:16])
        lines.append(tuple(forms))
    return tuple(lines)


class _Reader:
    """Reads the values of one file, of which `digest` is the sum; `arrays` has their sizes."""

    def __init__(self) -> None:
        self.digest = xxhash.xxh3_128()
        self.arrays: dict[str, float] = {}

    def read(self, content: bytes, name: str) -> None:
        if content[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for member in sorted(archive.namelist()):
                    if sum(info.file_size for info in archive.infolist()) > _LARGEST:
                        raise ValueError("too large")
                    self._add(member.encode())
                    self.read(archive.read(member), f"{name}{member.removesuffix('.npy')}")
        elif content[:6] == b"\x93NUMPY":
            self._read_npy(content, name)
        elif content[:1] == b"\x80" and content[1] <= pickle.HIGHEST_PROTOCOL:
            self._add_value(_Pickle(io.BytesIO(content)).load(), name, 0)
        elif content[8:9] == b"{" and name == "":
            self._read_safetensors(content)
        else:
            self._add(content)

    def _read_npy(self, content: bytes, name: str) -> None:
        wide = content[6] > 1
        length = int.from_bytes(content[8 : 12 if wide else 10], "little")
        begin = (12 if wide else 10) + length
        header = ast.literal_eval(content[begin - length : begin].decode("latin-1").strip())
        self._add_array(content[begin:], str(header["descr"])[1:], name, str(header["shape"]))

    def _read_safetensors(self, content: bytes) -> None:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        for name, about in sorted(header.items()):
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in about["data_offsets"])
                self._add_array(content[begin:end], about["dtype"], name, str(about["shape"]))

    def _add(self, content: bytes) -> None:
        self.digest.update(len(content).to_bytes(8, "little") + content)

    def _add_array(self, content: bytes, kind: str, name: str, shape: str) -> None:
        self._add(f"{name} {kind} {shape}".encode())
        self._add(content)
        code = _CODES.get(kind)
        if code and content and len(self.arrays) < _MOST_ARRAYS and sys.byteorder == "little":
            numbers = array.array(code, content)
            numbers = numbers[:: len(numbers) // _MOST_NUMBERS + 1]
            self.arrays[name] = math.sqrt(
                math.fsum(number * number for number in numbers) / len(numbers)
            )

    def _add_value(self, value: Any, name: str, depth: int) -> None:
        if depth > 50:
            raise RecursionError
        if isinstance(value, _Made):
            if (held := value.array()) is not None:
                self._add_array(*held[:2], name, held[2])
                return
            self._add(value.name.encode())
            parts: Any = {"arguments": value.arguments, "state": value.state, **value.items}
            self._add_value([*value.list, parts], name, depth + 1)
        elif isinstance(value, dict):
            for key, part in sorted(value.items(), key=lambda item: repr(item[0])):
                self._add(repr(key).encode())
                self._add_value(part, f"{name}.{key}" if name else str(key), depth + 1)
        elif isinstance(value, list | tuple):
            self._add(f"{type(value).__name__} {len(value)}".encode())
            for place, part in enumerate(value):
                # Paddle keeps a parameter as (its name, its values).
                self._add_value(part, f"{name}[{place}]", depth + 1)
        else:
            self._add(value if isinstance(value, bytes) else repr(value).encode())


class _Made:
    """What a pickle would make of a class or a function: its name and what it was given."""

    name = ""

    def __new__(cls, *arguments: Any, **options: Any) -> "_Made":
        made = super().__new__(cls)
        made.arguments = (*arguments, *options.items())
        made.state, made.list, made.items = None, [], {}
        return made

    arguments: tuple[Any, ...]
    state: Any
    list: list[Any]
    items: dict[Any, Any]

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, value: Any) -> None:
        self.list.append(value)

    def extend(self, values: Any) -> None:
        self.list.extend(values)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items[repr(key)] = value

    def array(self) -> tuple[bytes, str, str] | None:
        """Returns the bytes, type and shape if it is an array of numpy's; else None."""
        match self.name, self.state:
            case str(name), (_, shape, _Made() as kind, _, bytes() | str() | _Made() as held) if (
                name.endswith("_reconstruct")
            ):
                if isinstance(held, _Made):  # Protocol 2 writes bytes as a text to be encoded.
                    held = held.arguments[0]
                content = held.encode("latin-1") if isinstance(held, str) else held
                return content, str(kind.arguments[0]), str(shape)
        return None


class _Pickle(pickle.Unpickler):
    """Reads a pickle's structure: every class and function in it is only named."""

    def find_class(self, module: str, name: str) -> Any:
        return type("_Made", (_Made,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        return ("persistent", pid)
