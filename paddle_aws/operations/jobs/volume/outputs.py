"""What a job's program wrote to output/, besides passes."""

import re
from typing import Any

from paddle_node.volume.passes import PASS

OUTPUT = "output"
"""The folder in the job's where its program writes."""
ALIKE = 6
"""Names that differ in their numbers alone, up to which each has its line."""


def program_files(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the files below output/ that the program wrote: neither the agent's nor passes."""
    others = re.compile(rf"(node_\d+|run|attempts|set-aside|agreed|{PASS})/|\.")
    return [entry for entry in files if not others.match(entry["name"])]


def list_outputs(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the program wrote: for each file or folder in output/ its name, the number of
    its files, their bytes, and when the newest was written.
    """
    entries: dict[str, list[dict[str, Any]]] = {}
    for file in program_files(files):
        name, slash, _ = file["name"].partition("/")
        entries.setdefault(name + slash, []).append(file)
    return [
        {
            "name": name,
            "files": len(group),
            "bytes": sum(file["bytes"] for file in group),
            "time": max(file["time"] for file in group),
        }
        for name, group in sorted(entries.items(), key=lambda entry: numbered(entry[0]))
    ]


def numbered(name: str) -> tuple[tuple[str | int, ...], str]:
    """Returns a name's key to sort by: `epoch-9` comes before `epoch-10`."""
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def fold(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what the program wrote with more than `ALIKE` names that differ in their numbers
    alone as one line: their first and last name, and what they are together.
    """
    series: dict[str, list[dict[str, Any]]] = {}
    for entry in written:
        series.setdefault(re.sub(r"\d+", "0", entry["name"]), []).append(entry)
    lines = []
    for entries in series.values():
        if len(entries) <= ALIKE:
            lines += entries
        else:
            lines.append(
                {
                    "name": f"{entries[0]['name']} ... {entries[-1]['name']}",
                    "files": sum(entry["files"] for entry in entries),
                    "bytes": sum(entry["bytes"] for entry in entries),
                    "time": max(entry["time"] for entry in entries),
                }
            )
    return lines
