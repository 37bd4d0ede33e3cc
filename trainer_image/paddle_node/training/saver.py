"""Saves passes, checkpoints inside a pass, and the model: trainer 0 writes, and all trainers read
what was written before it counts.
"""

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddle_node.coordination import Session
from paddle_node.environment import PodEnvironment
from paddle_node.failure import Failure
from paddle_node.retry import name_path
from paddle_node.staging.program_copy import copy_files
from paddle_node.training.backends.backend import Backend
from paddle_node.volume import durable, passes
from paddle_node.volume.passes import Position


class Saver:
    """One trainer's part in saving, in one attempt."""

    def __init__(
        self,
        pod: PodEnvironment,
        session: Session,
        backend: Backend,
        agreed: Mapping[str, str],
        newest: Path | None,
    ) -> None:
        """`agreed`: the values that are kept with each pass, as JSON. `newest`: the newest pass."""
        self._pod, self._folder, self._session, self._backend = pod, pod.folder, session, backend
        self._agreed = agreed
        self._newest = newest
        self._program = Path(sys.argv[0]).resolve()
        self._place = pod.folder.attempt(pod.run_id, session.attempt)
        """The folder where this attempt saves, and no other attempt does."""
        self._checkpoints = 0
        self._good: set[Path] = set()
        """Folders whose bytes this process wrote or checked against their records."""

    def save_pass(self, number: int, positions: Sequence[Position]) -> None:
        """In trainer 0, as the others wait: saves the pass in place of its checkpoints."""
        self._newest = self._place / f"pass-{number:05d}"
        facts = {"pass": number, "trainers": [asdict(position) for position in positions]}
        self._seal(self._newest, facts, self._backend.save)
        self._remove_checkpoints(number)
        passes.keep_newest(self._folder, self._pod.identity, self._pod.keep_passes, self._good)

    def save_checkpoint(
        self, number: int, positions: Sequence[Position], batch: int, *, needed: bool
    ) -> bool:
        """In trainer 0, as the others wait: saves the pass so far in place of the last checkpoint.
        Returns whether it is kept. `needed`: the training stops here, so a failure ends it.
        """
        began = time.monotonic()
        facts = {
            "pass": number,
            "behind": passes.SealedFolder(self._newest, {}).name if self._newest else "",
            "order": passes.order_digest(
                self._pod.identity.data, self._pod.seed, self._session.trainers
            ),
            "trainers": [asdict(position) for position in positions],
        }
        self._checkpoints += 1
        directory = self._place / f"interrupted-{self._checkpoints:05d}"
        at = f"in pass {number} at step {max(1, positions[0].read // batch)}"
        try:
            self._seal(directory, facts, self._backend.save, program=False)
        except (OSError, Failure) as error:
            if needed:
                raise
            print(f"no checkpoint {at}, training continues: {error}", flush=True)
            return False
        self._remove_checkpoints(number, but=directory)
        size = sum(file["bytes"] for file in passes.read_record(directory)["files"])
        print(f"checkpoint {at}: {time.monotonic() - began:.2f} s, {size / 1e6:.1f} MB", flush=True)
        return True

    def export(self) -> None:
        """In trainer 0, as the others wait: exports the newest pass as a model for inference,
        with the program and the agreed values.
        """
        assert self._newest is not None  # There is no job without a pass.
        newest, identity = self._newest, self._pod.identity
        facts = {
            "pass": passes.read_record(newest)["pass"],
            "saved": f"{newest.parent.name}/{newest.name}",
        }
        for model in passes.read_newest_first(self._folder, passes.INFERENCE):
            if (model.identity, model.record["saved"]) == (
                identity,
                facts["saved"],
            ) and passes.find_fault(model.folder) is None:
                return
        self._seal(
            self._place / passes.INFERENCE,
            facts,
            lambda directory: self._backend.export(newest, directory),
        )
        passes.keep_newest(self._folder, identity, 1, self._good, passes.INFERENCE)

    def wait(self, sealed: bool = True) -> bool:
        """In every trainer: reads its share of what trainer 0 saves until the save is over. Returns
        whether the save is kept.
        """
        while asked := self._session.gather("what trainer 0 saves", None if sealed else False)[0]:
            self._describe(*asked)
        return asked is None

    def _describe_by_all(self, directory: Path, names: list[str]) -> list[dict[str, Any]]:
        """In trainer 0: `passes.describe_files`, by all trainers together. Raises `Failure` if a
        trainer found its share damaged.
        """
        self._session.gather("what trainer 0 saves", [directory.name, names])
        files: list[dict[str, Any]] = []
        for share in self._describe(directory.name, names):
            if "failure" in share:
                raise Failure(*share["failure"])
            files += share["files"]
        return sorted(files, key=lambda file: file["name"])

    def _describe(self, folder: str, names: list[str]) -> list[Any]:
        """Returns each trainer's share of the files, or the code and sentence of what is wrong with
        them.
        """
        directory, rank = self._place / folder, self._session.trainer_id
        share = names[rank :: self._session.trainers]
        try:
            durable.refresh(directory)
            self._backend.check(directory, share)
            description: dict[str, Any] = {"files": passes.describe_files(directory, share)}
        except (OSError, Failure) as error:
            failure = error if isinstance(error, Failure) else Failure(1, str(error))
            description = {"failure": [failure.code, f"trainer {rank}: {failure.sentence}"]}
        return self._session.gather("what all have read", description)

    def _seal(
        self,
        directory: Path,
        facts: Mapping[str, Any],
        fill: Callable[[Path], None],
        *,
        program: bool = True,
    ) -> None:
        """Creates `directory`, a folder of this attempt, fills and seals it, and links to it for
        people.
        """
        try:
            with name_path(directory):
                directory.mkdir(parents=True)
                fill(directory)
                if program:
                    # Everything needed to understand a pass later.
                    copy_files(self._program.parent, directory / "program")
                    (directory / "path.txt").write_text(f"program/{self._program.name}\n")
                agreed = {}
                for name, text in self._agreed.items():
                    (directory / f"{name}.json").write_text(text)
                    agreed[name] = passes.checksum(directory / f"{name}.json")
                run = {"attempt": self._session.attempt, "run": self._pod.run_id}
                whose = {**run, **asdict(self._pod.identity), "agreed": agreed}
                passes.seal(directory, {**facts, **whose}, self._describe_by_all)
        except (OSError, Failure):
            # On a full volume, recording the attempt's end needs the space.
            if not (directory / passes.DONE).exists():
                shutil.rmtree(directory, ignore_errors=True)
            raise
        self._good.add(directory)
        passes.link_newest(self._folder, directory.name)

    def _remove_checkpoints(self, number: int, but: Path | None = None) -> None:
        """Removes checkpoints of this data and program that a complete pass, or the checkpoint
        `but`, has replaced.
        """
        for checkpoint in passes.read_newest_first(self._folder, passes.INTERRUPTED):
            if (
                checkpoint.identity == self._pod.identity
                and checkpoint.number <= number
                and checkpoint.folder != but
            ):
                passes.remove(self._folder, checkpoint)
