"""What a job's program wrote to output/, besides passes."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self

from paddle_node.volume.passes import PASS

OUTPUT = "output"
"""The folder in the job's where its program writes."""
MOST_ALIKE = 6
"""So many names that differ only in their numbers are listed line by line."""


@dataclass(frozen=True)
class ProgramOutput:
    """A file or folder in output/, or several of them together."""

    name: str
    """A folder's ends with a slash."""
    files: int
    bytes: int
    time: float
    """When the newest file was written, in seconds since 1970."""

    @classmethod
    def combine(cls, name: str, outputs: Iterable[Self]) -> Self:
        """Returns several outputs as one."""
        outputs = list(outputs)
        files = sum(output.files for output in outputs)
        size = sum(output.bytes for output in outputs)
        return cls(name, files, size, max(output.time for output in outputs))

    def as_json(self) -> dict[str, Any]:
        """Returns what `results --json` says of it, whose keys are a promise."""
        return asdict(self)


def program_files(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the files below output/ that the program wrote: neither the agent's nor passes."""
    others = re.compile(rf"(node_\d+|run|attempts|set-aside|agreed|{PASS})/|\.")
    return [entry for entry in files if not others.match(entry["name"])]


def list_outputs(files: list[dict[str, Any]]) -> list[ProgramOutput]:
    """Returns what the program wrote, by name."""
    entries: dict[str, list[ProgramOutput]] = {}
    for file in program_files(files):
        name, slash, _ = file["name"].partition("/")
        output = ProgramOutput(file["name"], 1, file["bytes"], file["time"])
        entries.setdefault(name + slash, []).append(output)
    names = sorted(entries, key=number_order)
    return [ProgramOutput.combine(name, entries[name]) for name in names]


def number_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """Returns a name's key to sort by: `epoch-9` comes before `epoch-10`."""
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def fold(outputs: Iterable[ProgramOutput]) -> list[ProgramOutput]:
    """Returns more than `MOST_ALIKE` outputs whose names differ in their numbers alone as one, with
    their first and last name.
    """
    series: dict[str, list[ProgramOutput]] = {}
    for output in outputs:
        series.setdefault(re.sub(r"\d+", "0", output.name), []).append(output)
    folded = list[ProgramOutput]()
    for alike in series.values():
        name = f"{alike[0].name} ... {alike[-1].name}"
        many = len(alike) > MOST_ALIKE
        folded += [ProgramOutput.combine(name, alike)] if many else alike
    return folded
