"""job.yaml as a typed value: every check of the job alone happens here, before anything is
synthesized.

`TrainingJob.load(path)` either returns a job that can become manifests or raises SettingError with
a sentence for each fault.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from paddle_node import command_line, contract
from paddle_node.contract import Variable
from pydantic import AliasChoices, ConfigDict, Field, PrivateAttr, WithJsonSchema

from k8s_charts.spec import groups, recipe, rules
from k8s_charts.spec import pod_security as standards
from k8s_charts.spec.pod import Pod
from k8s_charts.spec.program import INLINE_LIMIT, json_size
from k8s_charts.spec.recipe import Applied
from k8s_charts.spec.value_types import (
    LABEL_LENGTH,
    NUMBER_AS_TEXT,
    CommandLine,
    DnsLabel,
    ImageName,
    ObjectName,
    ServiceName,
    Several,
    Text,
    VariableName,
    amount,
    bounded,
)
from paddle_aws.settings import file as settings_file
from paddle_aws.settings import model
from paddle_aws.settings.errors import SettingError
from paddle_aws.settings.model import Fault, Settings
from paddle_aws.settings.shared_names import NAMESPACE

HASH_LENGTH = 8
"""Characters of the hash that a Job's name ends with."""
MOST_TRAINERS = 6_500
DATA_ENDING = "-data"
"""What the data job's name adds to the job's."""
TRAIN_PY = ("fleet-ps", "collective")
"""Runtimes that run the program's train.py if there is no command."""
_SHELL = ("|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1")
_OUTPUT = re.compile(r"(?!.*/\.\.(/|$))(output|\{output\})/+[^/].*", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


_PLACEHOLDERS = (
    "".join(f"{{{name}}}: {meaning}; " for name, meaning in command_line.PLACEHOLDERS.items())
    + "{{: a brace."
)


class TrainingJob(Settings):
    """One training job: all that job.yaml says."""

    model_config = ConfigDict(json_schema_extra={"$id": "urn:paddle-aws:schema:job"})

    name: ServiceName
    """The job's name, and its folder on the volume."""
    namespace: DnsLabel = NAMESPACE
    """Made with the job, with restricted pod security. The data job's AWS rights are bound to
    it.
    """
    image: ImageName | None = None
    """Default: the image that was pushed last (image.json)."""
    mode: Literal["parameter-server", "collective", "single"] = "parameter-server"
    """parameter-server: sparse models; collective: dense ones, gradients exchanged; single: one
    pod.
    """
    controller: Literal["job", "paddlejob"] = Field(
        default="job", validation_alias=AliasChoices("controller", "engine")
    )
    """Who runs the pods. job: Kubernetes' own Job; paddlejob: the PaddleJob operator. (Until 0.1
    called `engine`.)
    """
    discovery: Literal["index", "pod-list"] = "index"
    """index: by name, without rights; pod-list: the tutorials' way, asking the API server."""
    paddle: Annotated[
        Literal["2.6", "3.3"] | None,
        NUMBER_AS_TEXT,
        WithJsonSchema({"enum": ["2.6", "3.3", 2.6, 3.3], "type": ["string", "number"]}),
    ] = None
    """Which Paddle the image of `make image` and the rehearsal have. Default: 3.3; 2.6 with
    parameter servers, which upstream has ended.
    """
    runtime: Literal["fleet-ps", "collective", "paddle-0.x", "launch"] | None = None
    """What trains. Default: launch with a command, else the mode's."""
    # Fewer than the agents can manage: one variable has no room for more peers (docs/scale.md).
    trainers: int = bounded(Variable.TRAINERS, most=MOST_TRAINERS)
    """How many pods train. In mode parameter-server of controller job each runs a parameter server
    and a trainer.
    """
    parameter_servers: int | None = Field(default=None, ge=0, le=MOST_TRAINERS)
    """controller paddlejob: pods that serve parameters. controller job: one in each trainer pod."""
    passes: Annotated[int, Variable.PASSES] = bounded(Variable.PASSES)
    """Passes over the data."""
    keep_passes: Annotated[int, Variable.KEEP_PASSES] = bounded(Variable.KEEP_PASSES)
    """How many of the newest passes stay on the volume; 0 keeps all."""
    checkpoint_minutes: float = Field(default=10, ge=0, le=525_600)
    """Minutes between checkpoints inside a pass; 0: none."""
    resume_from: Literal["same", "any"] = "same"
    """same: resume only from passes of this very data and program; any: from the newest pass,
    whatever made it.
    """
    threads: int = bounded(Variable.THREADS)
    """Threads in one trainer."""
    seed: Annotated[int, Variable.SEED] = bounded(Variable.SEED)
    """Seed of initial parameters and of the order of batches."""
    network_device: Text = Field(default="eth0", min_length=1, max_length=15)
    """The pod's network device (0.x: --nics)."""
    program: groups.Program = Field(default_factory=groups.Program)
    command: CommandLine | None = Field(
        default=None,
        description=(
            "The line that trains on one machine, run in the program's folder instead of "
            f"train.py; words, or one string. {_PLACEHOLDERS} Controller paddlejob: the "
            "container's command as it is."
        ),
    )
    processes: int | None = bounded(Variable.PROCESSES, optional=True)
    """With command: its processes in each pod. Default: one for each GPU, else 1."""
    recipe: Text | None = Field(default=None, min_length=1, examples=["none", "./mine.yaml"])
    """With command: what is known of its training stack, and fills in resume, progress, success and
    metrics where these are not given: a recipe's name, or a file of yours (docs/recipes.md). none:
    no recipe. Default: the one that knows the command.
    """
    resume: CommandLine = ()
    """With command: words that follow it where something matches their {newest:<glob>} (or
    {newest_stem:<glob>}, the same without its suffix), such as --resume {newest:output/*.pdparams}.
    """
    progress: Annotated[Text | None, Variable.PROGRESS] = Field(default=None, min_length=1)
    """With command: the files that show its progress, such as output/*.pdparams: a higher number in
    the name than before, or, of a fixed name, new content. Default: those of resume.
    """
    success: Annotated[Text | None, Variable.SUCCESS] = Field(default=None, min_length=1)
    """With command: a file below output/ that each attempt writes when it is done. Default: that it
    ends with 0 is enough.
    """
    metrics: dict[VariableName, Text] = Field(default_factory=dict)
    """With command: what its lines tell of its steps: a pattern (RE2's) with a group around the
    number, by the metric's name, such as loss: 'loss: ([0-9.]+)'. The pattern of step says which
    step it is.
    """
    network: Literal["open", "closed"] | None = None
    """open: trainers reach any address but link-local ones; closed: each other alone. Default: open
    with command.
    """
    environment_from: ObjectName | None = None
    """A Secret in the job's namespace whose keys are variables of the trainers."""
    arguments: Several[Text] = ()
    """Handed on to the training program untouched."""
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    """More variables for the training program."""
    data: groups.Data | None = None
    """What to train on. A command that makes or fetches its own data needs none; with controller
    paddlejob the image may bring it.
    """
    inputs: dict[groups.InputName, groups.Input] = Field(default_factory=dict)
    """With command: what it reads beside its data, at the path that {<name>} stands for: a local
    file, s3://..., https://..., or {from_job: <an earlier job>}. A tar or zip is unpacked.
    """
    volume: groups.Volume = Field(default_factory=groups.Volume)
    ports: groups.Ports = Field(default_factory=groups.Ports)
    scrape: groups.Scrape | None = None
    """Serve the trainers' numbers to a Prometheus or a CloudWatch agent (docs/monitoring.md).
    Default: nobody reads them, and none are served.
    """
    resources: groups.TrainerResources = Field(default_factory=groups.TrainerResources)
    """Of each trainer pod."""
    data_resources: groups.Resources = Field(default_factory=groups.Resources)
    """Of each pod of the data job."""
    gpus: groups.Gpus = Field(default_factory=groups.Gpus)
    scheduling: groups.Scheduling = Field(default_factory=groups.Scheduling)
    pod: Pod = Field(default_factory=Pod)
    """More of each pod, under Kubernetes' own names: labels, sidecars, volumes, pull secrets."""
    data_pod: Pod | None = None
    """Of the data job's pods instead. Default: as `pod`; {}: nothing."""
    pod_security: standards.Level = "restricted"
    """Pod Security Standard of the namespace, and of what is added to the pods. Weaker ones need a
    namespace of its own.
    """
    gang: groups.Gang = Field(default_factory=groups.Gang)
    limits: groups.Limits = Field(default_factory=groups.Limits)
    pin_names: bool = False
    """Job names without a hash: a changed job then has to be deleted before it can be applied
    again.
    """
    namespace_limits: groups.NamespaceLimits | None = None
    """A ceiling for all jobs of the namespace together."""
    paddlejob: groups.PaddleJobSettings | None = None
    """controller paddlejob: what only its operator knows."""

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
        if faults := [str(fault) for fault in job._command_faults(job.command or ())]:
            raise SettingError("\n".join(faults))
        job._recipe = applied
        return job

    @property
    def operator(self) -> groups.PaddleJobSettings:
        """The operator's settings, with defaults if none are given."""
        return self.paddlejob or groups.PaddleJobSettings()

    @property
    def chosen_runtime(self) -> str:
        """PADDLE_NODE_RUNTIME: as asked for, else launch with a command, else the mode's. One pod
        is a collective of one.
        """
        default = "fleet-ps" if self.mode == "parameter-server" else "collective"
        return self.runtime or ("launch" if self.command is not None else default)

    @property
    def chosen_paddle(self) -> str:
        """The image's Paddle: as asked for, else the newest release that has what trains."""
        of_servers = (
            self.mode == "parameter-server"
            if self.controller == "paddlejob"
            else self.chosen_runtime in ("fleet-ps", "paddle-0.x")
        )
        return self.paddle or ("2.6" if of_servers else "3.3")

    @property
    def reports_passes(self) -> bool:
        """Whether the program trains in passes that our API counts."""
        return self.controller == "job" and self.command is None and self.chosen_runtime in TRAIN_PY

    @property
    def chosen_processes(self) -> int:
        """Processes of the command in each pod."""
        return self.processes or max(self.gpus.count, 1)

    @property
    def open_network(self) -> bool:
        """Whether trainers reach more than each other."""
        return self.network == "open" or (
            self.network is None and self.command is not None and self.controller == "job"
        )

    @property
    def takes_the_node(self) -> bool:
        """Whether the pods use their node's address, which every level of pod security but
        privileged forbids.
        """
        return bool(self.ports.host_ports) or (
            self.controller == "paddlejob" and self.operator.intranet == "Host"
        )

    @property
    def pod_security_level(self) -> standards.Level:
        """The Pod Security Standard that the job's namespace enforces."""
        return "privileged" if self.takes_the_node else self.pod_security

    @property
    def derived(self) -> bool:
        """Whether the job's image is another image plus a layer with the program's requirements."""
        return bool(self.program.requirements or self.program.packages)

    @property
    def image_variant(self) -> str:
        """Which of the pushed images the job runs; empty for the plain one of `make image`."""
        if self.derived:
            wanted = [
                self.image or "",
                sorted(self.program.requirements),
                sorted(self.program.packages),
            ]
            digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()
            return f"{self.chosen_paddle}-{digest[:12]}"
        return "" if self.chosen_paddle == "2.6" else self.chosen_paddle

    @property
    def input_files(self) -> dict[str, Path]:
        """The local files to upload among the inputs, by name, as `local_file`."""
        return {
            name: Path(given).expanduser()
            for name, given in self.inputs.items()
            if isinstance(given, str)
            and "://" not in given
            and not PurePosixPath(given).is_relative_to(self.volume.mount_path)
        }

    @property
    def uploads_to_bucket(self) -> bool:
        """Whether local files are uploaded to the deployed bucket, else to the job's volume."""
        chosen = self.data.upload_to if self.data is not None else None
        return (chosen or ("bucket" if self.volume.is_deployed else "volume")) == "bucket"

    def place_of_input(self, name: str) -> PurePosixPath:
        """Returns where an input's local file is uploaded to on the volume, below its mount path;
        in the bucket, below `sources/`, it is the same without the volume's own folder.
        """
        file = self.input_files[name]
        return PurePosixPath(self.name, contract.SOURCES, "inputs", name, file.name)

    @property
    def source_on_volume(self) -> bool:
        """Whether the data's source is a path on the volume."""
        source = self.data.source if self.data is not None else None
        return source is not None and PurePosixPath(source).is_relative_to(self.volume.mount_path)

    @property
    def local_file(self) -> Path | None:
        """The local file to upload, absolute or relative to the job file; None if the data job
        reads the source itself.
        """
        source = self.data.source if self.data is not None else None
        return (
            None
            if source is None or "://" in source or self.source_on_volume
            else Path(source).expanduser()
        )

    @property
    def uploaded(self) -> PurePosixPath | None:
        """Where the local file is uploaded to on the job's volume, below its mount path; None if
        there is none, or if it goes to the deployed bucket, as it does with the deployed file
        system unless `upload_to` says otherwise.
        """
        local = self.local_file
        if local is None or self.data is None:
            return None
        if self.uploads_to_bucket:
            return None
        return PurePosixPath(self.name, contract.SOURCES, local.name)

    @property
    def reads_bucket(self) -> bool:
        """Whether the data job reads its source, or an input, from a bucket."""
        if any(str(given).startswith("s3://") for given in self.inputs.values()) or (
            self.input_files and self.uploads_to_bucket
        ):
            return True
        source = self.data.source if self.data is not None else None
        if self.local_file is not None:
            return self.uploaded is None
        return source is not None and source.startswith("s3://")

    @property
    def splits(self) -> bool:
        """Whether there is a data job: it brings the program and the inputs, too."""
        if self.data is None:
            return self.controller == "job"
        return not self.data.prepared

    def _faults(self) -> Iterator[Fault]:
        yield from rules.faults(self)
        yield from self._name_faults()
        if self.command is not None and not "".join(self.command[:1]).strip():
            yield "command is empty: leave it out, or name the program to run"
        elif self.command is not None and self.controller == "job":
            yield from self._command_faults(self.command)
        yield from self._environment_faults()
        yield from self._pod_faults()
        if self.scrape is not None:
            port, trainers = self.ports.metrics, contract.TRAINER_PORTS_FROM
            taken = (self.ports.control, *self.ports.pserver, *range(trainers, trainers + 100))
            if port in taken:
                yield (
                    f"ports.metrics is {port}: the job's pods listen there already, choose another"
                )
        for name, given in self.inputs.items():
            if isinstance(given, groups.FromJob):
                if given.from_job == self.name:
                    yield (
                        f"inputs.{name}.from_job is {given.from_job}: that is this job itself, "
                        "which `resume` continues; another job's name is allowed"
                    )
            elif fault := groups.address_fault(given):
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

    def _pod_faults(self) -> Iterator[str]:
        context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for setting, pod in (("pod", self.pod), ("data_pod", self.data_pod)):
            if pod is None:
                continue
            added = {
                "initContainers": pod.containers(),
                "volumes": pod.volumes,
                "securityContext": context,
            }
            for fault in standards.faults(added, self.pod_security_level):
                yield (
                    f"{setting}.{fault} by {self.pod_security_level} pod security; a weaker "
                    "pod_security allows more, in a namespace of the job's own"
                )

    def _name_faults(self) -> Iterator[str]:
        ending = "" if self.pin_names else "-" + "h" * HASH_LENGTH
        splitters = self.data.splitters if self.data is not None else 1
        # The PaddleJob kind's definition cannot know the number of pods, and leaves room for four
        # digits.
        trainers = f"{ending}-{self.trainers - 1}" if self.controller == "job" else "-worker-9999"
        longest = max(trainers, f"{DATA_ENDING}{ending}-{splitters - 1}", key=len)
        if len(self.name) + len(longest) > LABEL_LENGTH:
            yield (
                f"name is {self.name}: at most {LABEL_LENGTH - len(longest)} characters are "
                f"allowed here, so that the host name {self.name}{longest} fits {LABEL_LENGTH}"
            )

    def _command_faults(self, command: tuple[str, ...]) -> Iterator[str]:
        if self.gpus.count and self.chosen_processes > self.gpus.count:
            yield (
                f"processes is {self.processes}: gpus.count is {self.gpus.count}, at most one "
                "for each GPU is allowed"
            )
        try:
            line = command_line.read(command)
        except ValueError as error:
            yield f"command is {error}"
            return
        if _ASSIGNMENT.match(command[0]):
            yield (
                f"command begins with {command[0]}: no shell reads it, so variables belong into "
                "environment"
            )
        if shell := next((word for word in command if word in _SHELL), None):
            yield (
                f"command has the word {shell}: no shell reads it; a script is allowed, or bash "
                "-c '...'"
            )
        if wrong := command_line.contradiction(line.flags, self.trainers):
            yield (
                f"command has {wrong} and trainers is {self.trainers}: leave the flag out, or "
                "make them equal"
            )
        texts = [
            *(("command", word) for word in command),
            *(("resume", word) for word in self.resume),
        ]
        texts += [(f"environment.{name}", text) for name, text in self.environment.items()]
        texts += [("progress", self.progress or ""), ("success", self.success or "")]
        known = dict.fromkeys([*command_line.PLACEHOLDERS, *self.inputs], "")
        if self.data is None:
            del known["data"]
        for setting, text in texts:
            try:
                command_line.fill(text, known, "newest" if setting == "resume" else None)
            except ValueError as error:
                if self.data is None and str(error).startswith("{data}"):
                    yield f"{setting} has {{data}} and data is missing: give its source"
                else:
                    yield f"{setting} has {error}"
        for name, pattern in self.metrics.items():
            if fault := command_line.pattern_fault(pattern):
                yield f"metrics.{name} is {pattern}: {fault}"
        found = command_line.globs(self.resume)
        if self.resume and len(found) != 1:
            yield (
                f"resume names {len(found)} patterns: one {{newest:<glob>}} or "
                "{newest_stem:<glob>} is needed"
            )
        for setting, path in [
            *(("resume", glob) for glob in found),
            ("progress", self.progress),
            ("success", self.success),
        ]:
            if path is not None and not _OUTPUT.fullmatch(path):
                yield f"{setting} is {path}: a path below output/ is allowed, without .."

    def _environment_faults(self) -> Iterator[str]:
        own = {str(variable) for variable in contract.Variable}
        for variable in self.environment:
            if variable in own:
                yield (
                    f"environment has {variable}: the job sets it itself, from the setting of "
                    "that meaning"
                )
        strings = {
            f"environment.{name}": f"{name}={value}" for name, value in self.environment.items()
        }
        strings |= {
            f"arguments.{number}": argument for number, argument in enumerate(self.arguments)
        }
        for setting, text in strings.items():
            if (length := len(text.encode())) > contract.LONGEST_STRING:
                yield (
                    f"{setting} has {length} bytes: Linux starts no program with more than "
                    f"{contract.LONGEST_STRING}"
                )
        if (size := json_size(self.environment)) > INLINE_LIMIT:
            yield f"environment has {size} bytes as JSON: {INLINE_LIMIT} are allowed"
