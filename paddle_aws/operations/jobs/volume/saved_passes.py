"""The passes that a job has saved on its volume, as a listing of its output/ shows them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from paddle_node.volume import passes
from paddle_node.volume.passes import PASS

from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.jobs.volume.access import Volume


@dataclass(frozen=True)
class SavedPass:
    """A folder in which an attempt saved a pass, or a model, or began to."""

    number: int
    """The pass, from 0; a model's is its last one."""
    complete: bool
    """Whether all files are there, by name and size."""
    files: int
    bytes: int
    folder: str
    """Its place below output/."""
    attempt: int
    """The attempt that saved it; 0: that is not recorded."""

    def as_json(self) -> dict[str, Any]:
        """Returns what `results --json` says of it, whose keys are a promise."""
        facts = asdict(self)
        return {"pass": facts.pop("number"), **facts}


def saved_passes(volume: Volume, files: list[dict[str, Any]], kind: str = PASS) -> list[SavedPass]:
    """Returns the saved folders of a kind that `files`, the listing of output/, names.

    Sorted by number; if several attempts saved the same pass, complete folders come last, the
    newest of them last of all.
    """
    sizes = {entry["name"]: entry["bytes"] for entry in files}
    saved = []
    for listed in passes.read_listing(sizes, lambda name: volume.read(f"output/{name}"), kind):
        record = listed.record or {}
        saved.append(
            SavedPass(
                number=int(listed.name[-5:]) if kind == PASS else int(record.get("pass", 0)),
                complete=listed.complete,
                files=len(listed.sizes),
                bytes=sum(listed.sizes.values()),
                folder=listed.folder,
                attempt=int(record.get("attempt", 0)),
            )
        )
    return sorted(saved, key=lambda pass_: (pass_.number, pass_.complete, pass_.attempt))


def choose_pass(saved: Iterable[SavedPass], which: str) -> SavedPass:
    """Returns the complete pass that `which` names: a number, or `last` for the one that was saved
    last. Raises BadInput.
    """
    complete = [pass_ for pass_ in saved if pass_.complete]
    if which == "last":
        if not complete:
            raise BadInput("no pass is complete yet: there is nothing to take")
        return max(complete, key=lambda pass_: (pass_.attempt, pass_.number))
    chosen = [pass_ for pass_ in complete if which.isdigit() and pass_.number == int(which)]
    if not chosen:
        numbers = ", ".join(map(str, sorted({pass_.number for pass_ in complete}))) or "none"
        raise BadInput(f"pass {which} is not complete on the volume: complete are {numbers}")
    return chosen[-1]
