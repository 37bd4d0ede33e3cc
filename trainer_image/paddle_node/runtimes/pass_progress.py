"""Chooses what an attempt starts from: the newest pass whose every byte matches its record, and a
checkpoint in the next pass.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from paddle_node.contract import Variable
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting
from paddle_node.runtimes import NO_SCRATCH, History, Resumption
from paddle_node.volume import durable, passes
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity, SealedFolder


class PassProgress:
    """Passes stored in their attempts' folders (paddle_node.volume.passes).

    An attempt resumes from {pass: its number, folder: its path below output/, interrupted: the path
    of the newest checkpoint inside the next pass}; an entry that does not apply is left out.
    """

    scratch = NO_SCRATCH

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        self._pod = pod
        self._folder = pod.folder
        self._say = say

    def begin(self, identity: Identity, history: History) -> Resumption:
        # Also removes what ended attempts left half saved. A run's first attempt reports what was
        # found.
        unloadable = {pass_.get("interrupted") or pass_["folder"] for pass_ in history.unloadable}
        for half in passes.discard_incomplete(self._folder):
            what = f"pass {int(half.name[-5:])}" if half.name.startswith("pass-") else half.name
            self._say(f"{what} was not complete and is removed ({half.parent.name})")
        passes.remove_broken_links(self._folder)
        passed_over: list[str] = []
        # Only the first attempt counts all saved passes: a recovery reads no more than it needs.
        saved: Iterable[SealedFolder] = passes.read_newest_first(self._folder, report=self._say)
        saved = list(saved) if history.first else saved
        foreign = self._pod.resume_from == "any"
        chosen = self._newest_good(
            (pass_ for pass_ in saved if foreign or pass_.identity == identity),
            unloadable,
            passed_over,
        )
        if chosen is None and unloadable.intersection(passed_over):
            # If training started over, keep_passes would remove what can be loaded once the fault
            # is fixed.
            self._say("no other pass is there: the newest one is tried again")
            return self.begin(identity, History(history.first))
        if isinstance(saved, list):
            self._tell(saved, identity, chosen)
        begin = 0 if chosen is None else chosen.number + 1
        if chosen is not None and chosen.identity != identity and begin >= self._pod.passes:
            raise BadSetting(
                f"{chosen.name} is of other data or another program, and with "
                f"{Variable.PASSES}={self._pod.passes} no pass is left to train after it: ask "
                f"for at least {begin + 1}, or set {Variable.RESUME_FROM}=same"
            )
        behind = chosen.name if chosen else ""
        order = passes.order_digest(identity.data, self._pod.seed, self._pod.trainers)
        halves = (
            pass_
            for pass_ in passes.read_newest_first(self._folder, passes.INTERRUPTED)
            if (pass_.identity, pass_.number, pass_.record.get("behind"), pass_.record.get("order"))
            == (identity, begin, behind, order)
        )
        interrupted = self._newest_good(halves, unloadable, passed_over)
        resumed = {"pass": str(chosen.number), "folder": chosen.name} if chosen else {}
        if interrupted:
            resumed["interrupted"] = interrupted.name
        return make_resumption(resumed, passed_over)

    def name_progress(self, attempt: int, resumption: Resumption) -> str:
        attempt_folder = self._folder.attempt(self._pod.run_id, attempt)
        # A pass that is trained again because the one before could not be loaded takes no program
        # further: it may end as before.
        reached = max(
            int(resumption.resumed.get("pass", -1)), *map(_number, resumption.passed_over), -1
        )
        for kind, words in ((passes.PASS, "pass"), (passes.INTERRUPTED, "a checkpoint in pass")):
            # Those of the newest attempt come first.
            saved = takewhile(
                lambda pass_: pass_.folder.parent == attempt_folder,
                passes.read_newest_first(self._folder, kind),
            )
            for pass_ in saved:
                if pass_.number > reached and passes.find_fault(pass_.folder) is None:
                    return f"{words} {pass_.number}"
        return ""

    def find_missing(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        good = (
            pass_.number
            for pass_ in passes.read_newest_first(self._folder)
            if pass_.identity == identity
            and pass_.name not in resumption.passed_over
            and passes.find_fault(pass_.folder) is None
        )
        return missing_pass(next(good, None), self._pod.passes - 1)

    def save_time(self) -> float:
        kinds = (passes.PASS, passes.INTERRUPTED)
        newest = (next(iter(passes.read_newest_first(self._folder, kind)), None) for kind in kinds)
        return max(
            ((pass_.folder / passes.DONE).stat().st_mtime for pass_ in newest if pass_), default=0.0
        )

    def has_progressed(self) -> bool:
        return False  # The trainers report their steps themselves.

    def publish(self) -> None:
        """What is saved lies where it stays."""

    def _newest_good(
        self, saved: Iterable[SealedFolder], unloadable: Collection[str], passed_over: list[str]
    ) -> SealedFolder | None:
        for pass_ in saved:
            if pass_.name in unloadable:
                self._say(
                    f"{pass_.name} is skipped: two attempts that began with it ended before their "
                    "first step"
                )
            else:
                try:
                    passes.verify(pass_.folder)
                except passes.DamagedPass as damaged:
                    self._say(f"{damaged.sentence}: it is skipped")
                else:
                    return pass_
            passed_over.append(pass_.name)
        return None

    def _tell(
        self, saved: list[SealedFolder], identity: Identity, chosen: SealedFolder | None
    ) -> None:
        same = [pass_ for pass_ in saved if pass_.identity == identity]
        others = [pass_ for pass_ in saved if pass_ not in same]
        parts = [f"{len(same)} of this data and program"] if same else []
        parts += [f"{len(others)} of other data or another program"] if others else []
        if chosen is not None:
            self._say(f"passes found: {', '.join(parts)}; training resumes after {chosen.name}")
        elif same:
            self._say(
                f"passes found: {', '.join(parts)}; none of this data and program can be loaded"
            )
        elif others:
            number = others[0].number
            self._say(
                f"passes found: {parts[0]}, not used; set resume_from: any to continue from pass "
                f"{number}"
            )
        if old := unrecorded_folders(self._folder):
            names = ", ".join(folder.name for folder in old[:3]) + (
                " and more" if len(old) > 3 else ""
            )
            self._say(
                f"{names} in {self._folder.output}: folders without a record of this version, "
                "they are left alone"
            )


def make_resumption(resumed: dict[str, str], passed_over: Sequence[str]) -> Resumption:
    """Returns the resumption from a pass and a checkpoint inside the next one, with its words."""
    description = f"after pass {resumed['pass']}" if "pass" in resumed else "from the beginning"
    if "interrupted" in resumed:
        description = (
            f"inside pass {int(resumed.get('pass', -1)) + 1}, after its checkpoint "
            f"{resumed['interrupted']}"
        )
    return Resumption(resumed, description, tuple(passed_over))


def _number(name: str) -> int:
    """Returns the number of a pass by its path below output/; -1 for a checkpoint inside one."""
    folder = name.rpartition("/")[2]
    return int(folder[-5:]) if re.fullmatch(passes.PASS, folder) else -1


def missing_pass(newest: int | None, last: int) -> str | None:
    """Returns which pass should be complete; None: the last one is."""
    if newest is not None and newest >= last:
        return None
    state = "no pass is complete" if newest is None else f"pass {newest} is the newest complete one"
    return f"pass {last} should be complete and {state}"


def unrecorded_folders(folder: JobFolder) -> list[Path]:
    """Returns the folders of passes that lie in output/ itself."""
    return [
        folder.output / entry.name
        for entry in durable.entries(folder.output)
        if re.fullmatch(passes.PASS, entry.name) and entry.is_dir(follow_symlinks=False)
    ]
