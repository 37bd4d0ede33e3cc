"""A storm through the user's door: a folder with a job file and a program, and the command."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from paddle_node.volume.job_folder import JobFolder

COMMAND = Path(sys.executable).with_name("paddle-aws")


@dataclass(frozen=True)
class Storm:
    """What `paddle-aws storm` left."""

    place: Path
    code: int
    output: str

    @property
    def receipt(self) -> dict[str, Any]:
        return json.loads((self.place / ".storm/receipt.json").read_text())

    @property
    def page(self) -> str:
        return (self.place / ".storm/receipt.html").read_text()

    @property
    def text(self) -> str:
        """Run 1 with all that its pods printed, as one line."""
        return " ".join((self.place / ".storm/run-1.txt").read_text().split())

    @property
    def folder(self) -> JobFolder:
        """The job's folder on the volume of the last run."""
        return JobFolder(self.place / ".storm/run/volume/job")

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The attempts of the last run, as its agents recorded them."""
        return json.loads((self.folder.run_state / "attempts.json").read_text())["attempts"]


def storm_in(place: Path, *words: str, job: str = "job.yaml") -> Storm:
    """Runs the command on a job file in its folder."""
    command = [COMMAND, "storm", job, *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    return Storm(place, done.returncode, done.stdout + done.stderr)


@pytest.fixture
def storm(tmp_path: Path) -> Callable[..., Storm]:
    """`storm(*words, program=…, data=…, **settings)` runs the command on a job of two pods;
    without a program, on the one that is there already. `reading`: more settings of `data`.
    """

    def run(
        *words: str,
        program: str = "",
        data: str = "one\ntwo\n",
        reading: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Storm:
        if program:
            (tmp_path / "train.py").write_text(program)
            (tmp_path / "sample").write_text(data)
            job = {
                "name": "job",
                "trainers": 2,
                "paddle": "2.6",
                "program": {"folder": "."},
                "data": {"source": "sample", **(reading or {})},
                "resources": {"cpu": "1", "memory": "2Gi"},
                **settings,
            }
            (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        return storm_in(tmp_path, *words)

    return run
