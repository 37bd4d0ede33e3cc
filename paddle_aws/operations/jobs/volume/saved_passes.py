"""The passes that a job has saved on its volume."""

import re
from typing import Any

from paddle_node.volume import passes
from paddle_node.volume.passes import PASS

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.volume.access import Volume


def saved_passes(
    volume: Volume, files: list[dict[str, Any]], kind: str = PASS
) -> list[dict[str, Any]]:
    """Returns for each saved folder of a kind: its pass, whether it is complete, its files and
    bytes, its place below output/.

    Sorted by number; if several attempts saved the same pass, complete folders come last, the
    newest of them last of all.
    """
    found: dict[str, dict[str, int]] = {}
    for entry in files:
        if match := re.fullmatch(rf"((?:attempts/[^/]+/)?{kind})/(.+)", entry["name"]):
            found.setdefault(match[1], {})[match[2]] = entry["bytes"]
    rows = []
    for folder, sizes in found.items():
        try:
            # Paddle 0.x writes an empty record.
            record = (
                passes.parsed(volume.read(f"output/{folder}/{passes.DONE}"))
                if passes.DONE in sizes
                else None
            )
        except ValueError:
            record = None
        name = folder.rpartition("/")[2]
        if record == {} and folder != name:
            continue  # Half saved, and cleaned up since.
        listed = record.get("files", ()) if record is not None else ()
        complete = record is not None and all(
            sizes.get(file["name"]) == file["bytes"] for file in listed
        )
        attempt = int(record.get("attempt", 0)) if record is not None else 0
        facts = {
            "files": len(sizes),
            "bytes": sum(sizes.values()),
            "folder": folder,
            "attempt": attempt,
        }
        number = int(name[-5:]) if kind == PASS else int((record or {}).get("pass", 0))
        rows.append({"pass": number, "complete": complete, **facts})
    return sorted(rows, key=lambda row: (row["pass"], row["complete"], row["attempt"]))


def chosen_pass(rows: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """Returns the complete pass that `which` names: a number, or `last` for the one that was saved
    last. Raises BadInput.
    """
    complete = [row for row in rows if row["complete"]]
    shown = ", ".join(map(str, sorted({row["pass"] for row in complete}))) or "none"
    if which == "last":
        if not complete:
            raise BadInput("no pass is complete yet: there is nothing to take")
        return max(complete, key=lambda row: (row["attempt"], row["pass"]))
    named = [row for row in complete if which.isdigit() and row["pass"] == int(which)]
    if not named:
        raise BadInput(f"pass {which} is not complete on the volume: complete are {shown}")
    return named[-1]
