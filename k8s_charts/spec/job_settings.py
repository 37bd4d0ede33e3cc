"""The settings of job.yaml, and what follows from them."""

import copy
import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from paddle_node import command_line, contract
from paddle_node.contract import Variable, Way
from pydantic import AliasChoices, Field, WithJsonSchema, model_validator

from k8s_charts.spec import conditions, groups
from k8s_charts.spec import pod_security as standards
from k8s_charts.spec.data import Data, Input, InputName
from k8s_charts.spec.pod import PodAdditions
from k8s_charts.spec.program import Program
from k8s_charts.spec.value_types import (
    NUMBER_AS_TEXT,
    CommandLine,
    DnsLabel,
    ImageName,
    ObjectName,
    ServiceName,
    Several,
    Text,
    VariableName,
    bounded_field,
)
from paddle_settings.model import Settings
from paddle_settings.shared_names import NAMESPACE

HASH_LENGTH = 8
"""Characters of the hash that a Job's name ends with."""
MOST_TRAINERS = 6_500
DATA_ENDING, ENVIRONMENT_ENDING = "-data", "-environment"
"""What the names of the data job and of the environment Job add to the job's."""
_PLACES = {"from", "folder", "path", "repository", "commit"}
"""Settings of a program that say where it is."""
SHARED_NAMESPACES = ("paddle", "default")
"""Namespaces of more than one job, whose pod security no job changes."""
_PLACEHOLDERS = (
    "".join(f"{{{name}}}: {meaning}; " for name, meaning in command_line.PLACEHOLDERS.items())
    + "{{: a brace."
)


class JobSettings(Settings):
    """All settings of a job, each valid on its own."""

    name: ServiceName
    """The job's name, and its folder on the volume."""
    extends: str | None = Field(default=None, examples=["org.yaml"])
    """A job file that this one extends, by its path from here: groups are merged, any other value
    is replaced (docs/library.md).
    """
    locked: list[str] = Field(default=[], examples=[["priority", "pod.tolerations"]])
    """Settings that a file may not change when it extends this one, nor may --set."""
    namespace: DnsLabel = NAMESPACE
    """The job's namespace, which its manifests create with restricted pod security. Data jobs may
    read buckets only in `jobs.namespace` of cluster.yaml.
    """
    image: ImageName | None = None
    """Default: the image that was pushed last (image.json)."""
    mode: Annotated[Literal["parameter-server", "collective", "single"], conditions.MODE] = (
        "parameter-server"
    )
    """parameter-server: for sparse models. collective: for dense models; the trainers exchange
    gradients. single: one pod.
    """
    controller: Literal["job", "paddlejob"] = Field(
        default="job", validation_alias=AliasChoices("controller", "engine")
    )
    """Who runs the pods. job: Kubernetes' own Job; paddlejob: the PaddleJob operator. (Until 0.1
    called `engine`.)
    """
    discovery: Annotated[Literal["index", "pod-list"], conditions.AGENT] = "index"
    """How pods find each other. index: by name, without rights. pod-list: they ask the API server,
    as in the tutorials.
    """
    paddle: Annotated[
        Literal["2.6", "3.3"] | None,
        NUMBER_AS_TEXT,
        WithJsonSchema({"enum": ["2.6", "3.3", 2.6, 3.3], "type": ["string", "number"]}),
    ] = None
    """Which Paddle the image of `make image` and the rehearsal have. Default: 3.3; 2.6 with
    parameter servers, which upstream has discontinued.
    """
    runtime: Annotated[
        Literal["fleet-ps", "collective", "paddle-0.x", "launch"] | None, conditions.AGENT
    ] = None
    """What trains. Default: launch with a command, else the mode's."""
    # Fewer than the agents can manage: one variable has no room for more peers (docs/scale.md).
    trainers: int = bounded_field(Variable.TRAINERS, most=MOST_TRAINERS)
    """How many pods train. In mode parameter-server of controller job each runs a parameter server
    and a trainer.
    """
    parameter_servers: Annotated[int | None, conditions.SERVERS] = Field(
        default=None, ge=0, le=MOST_TRAINERS
    )
    """With controller paddlejob, how many pods serve parameters. With controller job, each trainer
    pod has one.
    """
    passes: Annotated[int, Variable.PASSES, conditions.PASSES] = bounded_field(Variable.PASSES)
    """Passes (epochs) over the data."""
    keep_passes: Annotated[int, Variable.KEEP_PASSES, conditions.SAVES] = bounded_field(
        Variable.KEEP_PASSES
    )
    """How many of the newest passes stay on the volume; 0 keeps all."""
    checkpoint_minutes: Annotated[float, conditions.SAVES] = Field(default=10, ge=0, le=525_600)
    """Minutes between checkpoints inside a pass; 0: none."""
    checkpoints: Annotated[Literal["volume", "local"], conditions.RESUMES] = "volume"
    """Where a command writes its output. local: to its pod's scratch; complete checkpoints are
    copied to the volume in the background, with the other files.
    """
    resume_from: Annotated[Literal["same", "any"], conditions.AGENT] = "same"
    """same: resume only from passes of this very data and program; any: from the newest pass,
    whatever made it.
    """
    threads: int = bounded_field(Variable.THREADS)
    """Threads in one trainer."""
    seed: Annotated[int, Variable.SEED, conditions.PASSES] = bounded_field(Variable.SEED)
    """Seed of initial parameters and of the order of batches."""
    network_device: Annotated[Text, conditions.PADDLE_0X] = Field(
        default="eth0", min_length=1, max_length=15
    )
    """The pod's network device (0.x: --nics)."""
    program: Program = Field(default_factory=Program)
    command: CommandLine | None = Field(
        default=None,
        description=(
            "The line that trains on one machine, run in the program's folder instead of "
            f"train.py; words, or one string. {_PLACEHOLDERS} Controller paddlejob: the "
            "container's command as it is."
        ),
    )
    processes: Annotated[int | None, conditions.LAUNCH] = bounded_field(
        Variable.PROCESSES, optional=True
    )
    """Its processes in each pod. Default: one for each GPU, else 1."""
    recipe: Annotated[Text | None, conditions.RECIPE] = Field(
        default=None, min_length=1, examples=["none", "./mine.yaml"]
    )
    """The recipe of its training stack, by its name or your own file
    (docs/recipes.md). It sets resume, progress, success and metrics where you do not. none: no
    recipe. Default: the one that knows the command.
    """
    resume: Annotated[CommandLine, conditions.COMMAND] = ()
    """Words that follow it where something matches their {newest:<glob>} (or
    {newest_stem:<glob>}, the same without its suffix; {newest_number:<glob>}, the number that its
    first * stands for), such as --resume {newest:output/*.pdparams}.
    """
    progress: Annotated[Text | None, Variable.PROGRESS, conditions.COMMAND] = Field(
        default=None, min_length=1
    )
    """The files that show its progress, such as output/*.pdparams: a higher number in
    the name than before, or, of a fixed name, new content. Default: those of resume.
    """
    success: Annotated[Text | None, Variable.SUCCESS, conditions.COMMAND] = Field(
        default=None, min_length=1
    )
    """A file below output/ that each attempt writes when it is done. Default: that each process
    that trained ended with 0. exit-code: the command's exit code alone.
    """
    apart: Annotated[bool, conditions.COMMAND] = False
    """Its pods work apart on purpose, each a world of its own."""
    metrics: Annotated[dict[VariableName, Text], conditions.COMMAND] = Field(default_factory=dict)
    """How to read its steps from its output: a pattern (RE2's) with a group around
    the number, by the metric's name, such as loss: 'loss: ([0-9.]+)'. The pattern of step reads the
    step's number.
    """
    network: Annotated[Literal["open", "closed"] | None, conditions.POD_NETWORK] = None
    """open: trainers reach any address but link-local ones; closed: only each other. Default: open
    with command, else closed.
    """
    environment_from: ObjectName | None = None
    """A Secret in the job's namespace whose keys are variables of the trainers."""
    arguments: Several[Text] = ()
    """Arguments for the training program, passed on unchanged."""
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    """More variables for the training program."""
    data: Data | None = None
    """What to train on. A command that makes or fetches its own data needs none; with controller
    paddlejob the image may bring it.
    """
    inputs: Annotated[dict[InputName, Input], conditions.COMMAND] = Field(default_factory=dict)
    """What it reads beside its data, at the path that {<name>} stands for: a local
    file, s3://..., https://..., or {from_job: <an earlier job>}. A tar or zip is unpacked.
    """
    volume: groups.Volume = Field(default_factory=groups.Volume)
    ports: Annotated[groups.Ports, conditions.AGENT] = Field(default_factory=groups.Ports)
    scrape: Annotated[groups.Scrape | None, conditions.AGENT] = None
    """Serve the trainers' metrics to Prometheus or a CloudWatch agent (docs/monitoring.md).
    Default: none are served.
    """
    resources: groups.TrainerResources = Field(default_factory=groups.TrainerResources)
    """Resources of each trainer pod."""
    data_resources: Annotated[groups.Resources, conditions.DATA_JOB] = Field(
        default_factory=groups.Resources
    )
    """Resources of each pod of the data job."""
    gpus: groups.Gpus = Field(default_factory=groups.Gpus)
    scheduling: groups.Scheduling = Field(default_factory=groups.Scheduling)
    pod: PodAdditions = Field(default_factory=PodAdditions)
    """More of each pod, under Kubernetes' own names: labels, sidecars, volumes, pull secrets."""
    data_pod: Annotated[PodAdditions | None, conditions.DATA_JOB] = None
    """The same for the data job's pods. Default: as `pod`; {}: nothing."""
    pod_security: standards.Level = "restricted"
    """Pod Security Standard of the namespace, and of what you add to the pods. A level weaker than
    restricted needs a namespace of its own.
    """
    gang: groups.Gang = Field(default_factory=groups.Gang)
    limits: groups.Limits = Field(default_factory=groups.Limits)
    pin_names: bool = False
    """Name the Jobs without a hash. Then delete a job before you apply a changed one."""
    namespace_limits: groups.NamespaceLimits | None = None
    """A ceiling for all jobs of the namespace together."""
    paddlejob: Annotated[groups.PaddleJobSettings | None, conditions.OPERATOR] = None
    """controller paddlejob: settings that only its operator reads."""

    @model_validator(mode="before")
    @classmethod
    def _train_what_lies_beside_the_file(cls, settings: Any) -> Any:
        """A command's program is the job file's folder where the job names none."""
        if not isinstance(settings, dict) or settings.get("command") is None:
            return settings
        program = settings.get("program", {})
        if (
            settings.get("controller", settings.get("engine", "job")) != "job"
            or not isinstance(program, dict)
            or program.keys() & _PLACES
        ):
            return settings
        settings = copy.copy(settings)  # Of its class: it may know of faults.
        settings["program"] = copy.copy(program)
        settings["program"]["folder"] = "."
        return settings

    @property
    def has_agent(self) -> bool:
        """Whether our agent runs in the pods; an operator's pods run the program alone."""
        return self.controller == "job"

    @property
    def pod_count(self) -> int:
        """How many pods train, or serve parameters."""
        return self.trainers + (0 if self.has_agent else self.parameter_servers or 0)

    @property
    def operator(self) -> groups.PaddleJobSettings:
        """The operator's settings; its defaults if none are given, or no operator runs the pods."""
        settings = None if self.has_agent else self.paddlejob
        return settings or groups.PaddleJobSettings()

    @property
    def way(self) -> Way:
        """How the job trains. Its runtime is as asked for, else launch with a command, else the
        mode's. One pod is a collective of one.
        """
        given = self.command is not None
        runtime = self.runtime or (
            "launch" if given else "fleet-ps" if self.mode == "parameter-server" else "collective"
        )
        return Way(runtime, given and self.has_agent, self.has_agent)

    @property
    def chosen_paddle(self) -> str:
        """The image's Paddle: as asked for, else the newest release that has what trains."""
        return self.paddle or ("2.6" if self.has_parameter_servers else "3.3")

    @property
    def has_parameter_servers(self) -> bool:
        """Whether Paddle's parameter servers hold the model."""
        return self.way.servers if self.has_agent else self.mode == "parameter-server"

    @property
    def chosen_processes(self) -> int:
        """Processes of the command in each pod."""
        return self.processes or max(self.gpus.count, 1)

    @property
    def open_network(self) -> bool:
        """Whether trainers reach more than each other."""
        return self.network == "open" or (self.network is None and self.way.command)

    @property
    def takes_the_node(self) -> bool:
        """Whether the pods use their node's address, which every level of pod security but
        privileged forbids.
        """
        return bool(self.ports.host_ports) or self.operator.intranet == "Host"

    @property
    def pod_security_level(self) -> standards.Level:
        """The Pod Security Standard that the job's namespace enforces."""
        return "privileged" if self.takes_the_node else self.pod_security

    @property
    def derived(self) -> bool:
        """Whether the job's image is another image plus a layer with the program's requirements."""
        program = self.program
        return bool(program.packages or (program.requirements and not self.builds_environment))

    @property
    def builds_environment(self) -> bool:
        """Whether a Job of its own builds the program's requirements."""
        program = self.program
        default = "image" if program.packages or not self.has_agent else "built"
        return bool(program.requirements) and (program.environment or default) == "built"

    @property
    def reads_records(self) -> bool:
        """Whether the data job runs a record reader of the user's."""
        return self.data is not None and ":" in self.data.format and not self.data.shared

    @property
    def image_variant(self) -> str:
        """Which of the pushed images the job runs; empty for the plain one of `make image`."""
        if self.derived:
            content = [
                self.image or "",
                sorted(self.program.requirements),
                sorted(self.program.packages),
            ]
            digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
            return f"{self.chosen_paddle}-{digest[:12]}"
        return "" if self.chosen_paddle == "2.6" else self.chosen_paddle

    @property
    def _source(self) -> str | None:
        return self.data.source if self.data is not None else None

    def _is_local(self, address: str) -> bool:
        return "://" not in address and not self._is_on_volume(address)

    def _is_on_volume(self, address: str) -> bool:
        return PurePosixPath(address).is_relative_to(self.volume.mount_path)

    @property
    def input_files(self) -> dict[str, Path]:
        """The local files to upload among the inputs, by name, as `local_file`."""
        return {
            name: Path(value).expanduser()
            for name, value in self.inputs.items()
            if isinstance(value, str) and self._is_local(value)
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
        return self._source is not None and self._is_on_volume(self._source)

    @property
    def local_file(self) -> Path | None:
        """The local file to upload, absolute or relative to the job file; None if the data job
        reads the source itself.
        """
        source = self._source
        return Path(source).expanduser() if source and self._is_local(source) else None

    @property
    def uploaded(self) -> PurePosixPath | None:
        """The path on the job's volume, below its mount path, to which the local file is uploaded.
        None if there is no local file, or if it goes to the deployed bucket.
        """
        local = self.local_file
        if local is None or self.uploads_to_bucket:
            return None
        return PurePosixPath(self.name, contract.SOURCES, local.name)

    @property
    def reads_bucket(self) -> bool:
        """Whether the data job reads its source, or an input, from a bucket."""
        if self.uploads_to_bucket and (self.input_files or self.local_file is not None):
            return True
        return any(
            str(source).startswith("s3://") for source in (*self.inputs.values(), self._source)
        )

    @property
    def splits(self) -> bool:
        """Whether there is a data job: it brings the program and the inputs, too."""
        if self.data is None:
            return self.has_agent
        return not self.data.prepared
