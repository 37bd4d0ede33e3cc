"""job.yaml as a typed value: every check of the job alone happens here, before anything is
synthesized.

`TrainingJob.load(path)` either returns a job that can become manifests or raises SettingError with
a sentence for each fault.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from paddle_node import command_line
from pydantic import ConfigDict, PrivateAttr

from k8s_charts.spec import recipe, rules
from k8s_charts.spec.command_rules import command_faults, script_fault, shell_faults
from k8s_charts.spec.conditions import RESUMES
from k8s_charts.spec.job_settings import JobSettings
from k8s_charts.spec.program import Program
from k8s_charts.spec.recipe import AppliedRecipe
from k8s_charts.spec.value_types import amount
from paddle_settings import layers, model
from paddle_settings.errors import SettingError
from paddle_settings.model import Fault


class TrainingJob(JobSettings):
    """One training job: all that job.yaml says."""

    model_config = ConfigDict(json_schema_extra={"$id": "urn:paddle-aws:schema:job"})

    _recipe: AppliedRecipe | None = PrivateAttr(default=None)

    @classmethod
    def load(cls, path: Path, *, fetch: bool = False) -> Self:
        """Reads and checks a job file. Raises SettingError with a sentence for each fault, one per
        line.

        Uses the network only if allowed (`fetch`), for a program's commit that is not on this
        machine yet.
        """
        return cls._parse_layers(layers.load(path), path.parent, fetch, path)

    @classmethod
    def parse(
        cls,
        settings: Mapping[str, Any],
        folder: Path = Path(),
        *,
        fetch: bool = False,
        job_file: Path | None = None,
        handed_down: Collection[str] = (),
    ) -> Self:
        """Checks settings from a mapping as `load` does; local paths are relative to `folder`.
        `job_file`, which the settings came from, is no part of a program in whose folder it lies.
        `handed_down` are settings of files that it extends: one that does not count is ignored.
        """
        if settings.keys() & {"extends", "locked"}:
            layered = layers.load(job_file or folder / "the job", settings)
            return cls._parse_layers(layered, folder, fetch, job_file)
        job = model.parse(cls, settings, handed_down)
        if job.has_agent and (faults := list(shell_faults(settings))):
            raise SettingError("\n".join(faults))
        program = job.program.read(folder, fetch=fetch, job_file=job_file)
        job._check(program)
        job = job.model_copy(update={"program": program})._with_recipe(folder)
        return job._with_resumption(handed_down)

    @classmethod
    def _parse_layers(
        cls, layered: layers.Layers, folder: Path, fetch: bool, job_file: Path | None
    ) -> Self:
        layered.check_locks(cls, "job.yaml")
        settings, inherited = layered.merged, layered.handed_down
        with layered.naming_files():
            return cls.parse(
                settings, folder, fetch=fetch, job_file=job_file, handed_down=inherited
            )

    def _check(self, program: Program) -> None:
        """Checks the job against the files of its program. Raises SettingError."""
        if program.archive is not None:
            root, script = program.archive.root, command_line.script(self.command or ())
            if not (root / script).exists():
                raise SettingError(f"command names {script}: {root} has no such file")
            if fault := script_fault(self.command or (), root):
                raise SettingError(fault)
            if self.way.ships and not (root / "train.py").exists():
                raise SettingError(
                    f"program is {root}: it has no train.py; add it, or name the line that "
                    "trains as `command`"
                )
            if program.archive.size > amount(self.resources.scratch):
                raise SettingError(
                    f"resources.scratch is {self.resources.scratch}: the program has "
                    f"{program.archive.size:,} bytes, which each pod unpacks there; raise it"
                )
        module = (
            self.data.format.rpartition(":")[0].replace(".", "/") if self.data is not None else ""
        )
        files = program.archive.names if program.archive is not None else program.files
        if module and files and not {f"{module}.py", f"{module}/__init__.py"} & set(files):
            raise SettingError(
                f"data.format names the module {module}: the program's folder has no {module}.py"
            )

    @property
    def applied_recipe(self) -> AppliedRecipe | None:
        """What the job has from a recipe, read with the job file; None: it has none."""
        return self._recipe

    def _with_recipe(self, folder: Path) -> Self:
        """Returns the job with what its recipe fills in. Raises SettingError."""
        if not self.way.launches:
            return self
        archive = self.program.archive
        applied = recipe.apply(
            self.recipe,
            self.command or (),
            {name: getattr(self, name) for name in self.model_fields_set},
            folder,
            archive.root if archive is not None else None,
            archive.names if archive is not None else tuple(self.program.files),
        )
        if applied is None:
            return self
        job = self.model_copy(update=dict(applied.settings))
        if faults := [str(fault) for fault in command_faults(job, job.command or ())]:
            raise SettingError("\n".join(faults))
        job._recipe = applied
        return job

    def _with_resumption(self, handed_down: Collection[str]) -> Self:
        """Returns the job if the settings that need a resumption have one. Raises SettingError."""
        recipe_resumes = self._recipe is not None and self._recipe.resume_line
        if self.checkpoints == "volume" or self.resume or recipe_resumes:
            return self
        if "checkpoints" in handed_down:
            return self.model_copy(update={"checkpoints": "volume"})
        raise SettingError(f"checkpoints is local: it counts only {RESUMES.only}; leave it out")

    def _faults(self) -> Iterator[Fault]:
        yield from self._without_effect()
        yield from rules.faults(self)
