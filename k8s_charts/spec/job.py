"""job.yaml as a typed value: every check of the job alone happens here, before anything is
synthesized.

`TrainingJob.load(path)` either returns a job that can become manifests or raises SettingError with
a sentence for each fault.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Self

from paddle_node import command_line, contract
from pydantic import ConfigDict, PrivateAttr

from k8s_charts.spec import pod_security as standards
from k8s_charts.spec import recipe, rules
from k8s_charts.spec.command_rules import command_faults, environment_faults
from k8s_charts.spec.data import FromJob, address_fault
from k8s_charts.spec.job_settings import DATA_ENDING, HASH_LENGTH, TRAIN_PY, JobSettings
from k8s_charts.spec.recipe import Applied
from k8s_charts.spec.value_types import LABEL_LENGTH, amount
from paddle_aws.settings import file as settings_file
from paddle_aws.settings import model
from paddle_aws.settings.errors import SettingError
from paddle_aws.settings.model import Fault


class TrainingJob(JobSettings):
    """One training job: all that job.yaml says."""

    model_config = ConfigDict(json_schema_extra={"$id": "urn:paddle-aws:schema:job"})

    _recipe: Applied | None = PrivateAttr(default=None)

    @classmethod
    def load(cls, path: Path, *, fetch: bool = False) -> Self:
        """Reads and checks a job file. Raises SettingError with a sentence for each fault, one per
        line.

        Uses the network only if allowed (`fetch`), for a program's commit that is not on this
        machine yet.
        """
        return cls.parse(settings_file.mapping(path), path.parent, fetch=fetch, job_file=path)

    @classmethod
    def parse(
        cls,
        settings: Mapping[str, Any],
        folder: Path = Path(),
        *,
        fetch: bool = False,
        job_file: Path | None = None,
    ) -> Self:
        """Checks settings from a mapping as `load` does; local paths are relative to `folder`.
        `job_file`, which the settings came from, is no part of a program in whose folder it lies.
        """
        job = model.parse(cls, settings)
        program = job.program.read(folder, fetch=fetch, job_file=job_file)
        if program.archive is not None:
            root, script = program.archive.root, command_line.script(job.command or ())
            if not (root / script).exists():
                raise SettingError(f"command names {script}: {root} has no such file")
            if (
                job.command is None
                and job.chosen_runtime in TRAIN_PY
                and not (root / "train.py").exists()
            ):
                raise SettingError(
                    f"program is {root}: it has no train.py; add it, or name the line that "
                    "trains as `command`"
                )
            if program.archive.size > amount(job.resources.scratch):
                raise SettingError(
                    f"resources.scratch is {job.resources.scratch}: the program has "
                    f"{program.archive.size:,} bytes, which each pod unpacks there; raise it"
                )
        module = (
            job.data.format.rpartition(":")[0].replace(".", "/") if job.data is not None else ""
        )
        files = program.archive.names if program.archive is not None else program.files
        if module and files and not {f"{module}.py", f"{module}/__init__.py"} & set(files):
            raise SettingError(
                f"data.format names the module {module}: the program's folder has no {module}.py"
            )
        return job.model_copy(update={"program": program})._with_recipe(folder)

    @property
    def applied_recipe(self) -> Applied | None:
        """What the job has from a recipe, read with the job file; None: it has none."""
        return self._recipe

    def _with_recipe(self, folder: Path) -> Self:
        """Returns the job with what its recipe fills in. Raises SettingError."""
        if self.command is None or self.controller != "job" or self.chosen_runtime != "launch":
            return self
        archive = self.program.archive
        applied = recipe.apply(
            self.recipe,
            self.command,
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

    def _faults(self) -> Iterator[Fault]:
        yield from rules.faults(self)
        yield from _name_faults(self)
        if self.command is not None and not "".join(self.command[:1]).strip():
            yield "command is empty: leave it out, or name the program to run"
        elif self.command is not None and self.controller == "job":
            yield from command_faults(self, self.command)
        yield from environment_faults(self)
        yield from _pod_faults(self)
        if self.scrape is not None:
            port, trainers = self.ports.metrics, contract.TRAINER_PORTS_FROM
            taken = (self.ports.control, *self.ports.pserver, *range(trainers, trainers + 100))
            if port in taken:
                yield (
                    f"ports.metrics is {port}: the job's pods listen there already, choose another"
                )
        for name, given in self.inputs.items():
            if isinstance(given, FromJob):
                if given.from_job == self.name:
                    yield (
                        f"inputs.{name}.from_job is {given.from_job}: that is this job itself, "
                        "which `resume` continues; another job's name is allowed"
                    )
            elif fault := address_fault(given):
                yield f"inputs.{name} {fault}"
            elif ".." in PurePosixPath(given).parts and name not in self.input_files:
                yield f"inputs.{name} is {given}: a path on the volume without .. is allowed"
        zone = self.scheduling.node_selector.get(
            "topology.kubernetes.io/zone", self.scheduling.zone
        )
        if self.scheduling.zone not in (None, zone):
            yield (
                f"scheduling.zone is {self.scheduling.zone}: node_selector names another zone, "
                "leave one of them out"
            )


def _pod_faults(job: JobSettings) -> Iterator[str]:
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for setting, pod in (("pod", job.pod), ("data_pod", job.data_pod)):
        if pod is None:
            continue
        added = {
            "initContainers": pod.containers(),
            "volumes": pod.volumes,
            "securityContext": context,
        }
        for fault in standards.faults(added, job.pod_security_level):
            yield (
                f"{setting}.{fault} by {job.pod_security_level} pod security; a weaker "
                "pod_security allows more, in a namespace of the job's own"
            )


def _name_faults(job: JobSettings) -> Iterator[str]:
    ending = "" if job.pin_names else "-" + "h" * HASH_LENGTH
    splitters = job.data.splitters if job.data is not None else 1
    # The PaddleJob kind's definition cannot know the number of pods, and leaves room for four
    # digits.
    trainers = f"{ending}-{job.trainers - 1}" if job.controller == "job" else "-worker-9999"
    longest = max(trainers, f"{DATA_ENDING}{ending}-{splitters - 1}", key=len)
    if len(job.name) + len(longest) > LABEL_LENGTH:
        yield (
            f"name is {job.name}: at most {LABEL_LENGTH - len(longest)} characters are "
            f"allowed here, so that the host name {job.name}{longest} fits {LABEL_LENGTH}"
        )
