"""What a trainer's attempt begins with, as its `Resumption` says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from paddle_node.volume.job_folder import JobFolder


@dataclass(frozen=True)
class Start:
    """All None: new parameters, and the first pass."""

    pass_number: int | None = None
    """The newest complete pass."""
    folder: Path | None = None
    """Its folder."""
    interrupted: Path | None = None
    """The newest checkpoint inside the pass behind it."""

    @classmethod
    def read(cls, job: JobFolder, resumed: Mapping[str, str]) -> Self:
        """Reads what the agent handed on (`Variable.RESUMED`)."""

        def folder(name: str) -> Path | None:
            return job.output / resumed[name] if name in resumed else None

        number = int(resumed["pass"]) if "pass" in resumed else None
        return cls(number, folder("folder"), folder("interrupted"))

    @property
    def parameters(self) -> Path | None:
        """The folder with the parameters to load."""
        return self.interrupted or self.folder

    @property
    def first_pass(self) -> int:
        """The first pass that is not complete."""
        return 0 if self.pass_number is None else self.pass_number + 1
