"""job.yaml as a typed value: every check of a job happens here, before anything is synthesized.

`TrainingJob.load(path)` either returns a job that can become manifests or raises JobError with one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from paddle_node import contract
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from k8s_charts import yaml_file
from k8s_charts.errors import JobError

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_SUFFIX = {
    "m": 0.001,
    "": 1,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
_ENVIRONMENT_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
LABEL_LENGTH = 63
HASH_LENGTH = 8


def _sentence(text: str) -> PydanticCustomError:
    """A fault that spans settings: the text is the whole sentence."""
    return PydanticCustomError("sentence", "{text}", {"text": text})


def amount(quantity: str) -> float:
    """A Kubernetes quantity as a number: bytes for memory, cores for CPU."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity} is no quantity")
    return float(found[1]) * _SUFFIX[found[2] or ""]


def _dns_label(value: str) -> str:
    if not _DNS_LABEL.fullmatch(value) or len(value) > LABEL_LENGTH:
        raise ValueError("lower-case letters, digits and inner hyphens are allowed, at most 63 (a DNS label)")
    return value


def _quantity(value: str) -> str:
    if not _QUANTITY.fullmatch(value) or amount(value) <= 0:
        raise ValueError("a number above 0 with an optional unit is allowed, such as 500m, 2 or 1Gi")
    return value


def _memory(value: str) -> str:
    if not _QUANTITY.fullmatch(value) or amount(value) < 2**20:
        raise ValueError("an amount of memory from 1Mi upwards is allowed, such as 512Mi or 2Gi")
    return value


def _number_as_text(value: object) -> object:
    """YAML reads `cpu: 2` as a number; Kubernetes takes it as the text "2"."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("no environment variable or argument can hold a NUL character")
    return value


def _folder(value: str) -> str:
    parts = PurePosixPath(value).parts
    if not parts or PurePosixPath(value).is_absolute() or ".." in parts or str(PurePosixPath(value)) != value:
        raise ValueError("a folder's name is allowed, such as quick_start")
    return value


DnsLabel = Annotated[str, AfterValidator(_dns_label)]
Cpu = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_quantity)]
Memory = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_memory)]
Text = Annotated[str, AfterValidator(_no_nul)]
Folder = Annotated[str, AfterValidator(_no_nul), AfterValidator(_folder)]


class _Settings(BaseModel):
    # strict: `passes: "5"` or `threads: true` is a slip of the pen, not a number.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Program(_Settings):
    """The training program: a folder with train.py."""

    origin: Literal["image", "volume"] = Field(
        default="image",
        alias="from",
        description="image: the data job copies it from the image's programs; volume: it lies on the volume already, in the job's folder.",
    )
    folder: Folder = Field(
        default="quick_start", description="The folder's name in the image's programs, or in the job's folder."
    )


class Data(_Settings):
    """What to train on."""

    source: Text = Field(
        min_length=1,
        description="A local file (relative to this file; uploaded before submission), an absolute path in the container, s3://bucket/prefix, or https://...",
    )
    format: Text = Field(
        default="lines",
        pattern=r"^(lines|files|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description="lines | files | module:function, a record reader of yours.",
    )
    hold_out: float = Field(
        default=0.0, ge=0, lt=1, description="Share of the records kept from training, on which the model is measured."
    )
    shuffle_seed: int | None = Field(
        default=1, description="Shuffle before the split with this seed; null keeps the source's order, which is often sorted."
    )

    @property
    def local_file(self) -> PurePosixPath | None:
        """The local file to upload; None where the data job reads the source itself."""
        if "://" in self.source or self.source.startswith("/"):
            return None
        return PurePosixPath(self.source)


class Resources(_Settings):
    """What one container asks for and may use: request and limit are equal, so that no pod is evicted for its neighbour's hunger."""

    cpu: Cpu = Field(default="1", description="Cores: 500m is half a core.")
    memory: Memory = Field(default="2Gi", description="Bytes: 512Mi, 2Gi.")
    scratch: Memory = Field(default="1Gi", description="Local disk for temporary files.")


class TrainerResources(Resources):
    """A trainer pod's container: one parameter server and one trainer."""

    shared_memory: Memory = Field(default="128Mi", description="/dev/shm, which counts against memory.")

    @model_validator(mode="after")
    def _shared_memory_fits(self) -> TrainerResources:
        if amount(self.shared_memory) > amount(self.memory):
            raise _sentence(
                f"resources.memory is {self.memory}: it has to exceed shared_memory, which is {self.shared_memory} and counts against it"
            )
        return self


class Volume(_Settings):
    """The shared volume with data, program and output."""

    kind: Literal["efs"] = Field(default="efs", description="efs: the deployed file system, through its access point and TLS.")
    size: Memory = Field(
        default="10Gi", description="What the claim asks for. EFS has no size of its own: it is a placeholder there."
    )
    file_system_id: str | None = Field(
        default=None, pattern=r"^fs-[0-9a-f]{8,40}$", description="Another file system than the deployed one."
    )
    access_point_id: str | None = Field(default=None, pattern=r"^fsap-[0-9a-f]{8,40}$", description="Its access point.")

    @model_validator(mode="after")
    def _own_file_system_is_whole(self) -> Volume:
        if (self.file_system_id is None) != (self.access_point_id is None):
            missing = "access_point_id" if self.access_point_id is None else "file_system_id"
            raise _sentence(
                f"volume.{missing} is missing: file_system_id and access_point_id name a file system of yours together"
            )
        return self


class Limits(_Settings):
    """How often to try, and how long."""

    retries: int = Field(
        default=6, ge=0, le=1000, description="Pods that may fail before the job fails; disruptions (spot, drain) do not count."
    )
    attempts: int = Field(
        default=3, ge=1, le=1000, description="Attempts that may end without a new complete pass before the job fails."
    )
    hours: float = Field(default=24, gt=0, le=8760, description="The job ends as failed after this long.")
    peer_deadline_seconds: int = Field(
        default=600, ge=10, le=86400, description="How long to wait for all trainers before the missing ones are named."
    )
    grace_period_seconds: int = Field(default=120, ge=10, le=3600, description="How long a pod may save after SIGTERM.")
    keep_finished_hours: float = Field(
        default=24, ge=0, le=8760, description="How long a finished job stays visible; its output stays on the volume."
    )


class TrainingJob(_Settings):
    """One training job: all that job.yaml says."""

    name: DnsLabel = Field(description="The job's name, and its folder on the volume.")
    namespace: DnsLabel = Field(
        default="paddle",
        description="Made with the job, with restricted pod security. The data job's AWS rights are bound to it.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        pattern=r"^[a-zA-Z0-9][\w./:@-]*$",
        description="Default: the image that was pushed last (image.json).",
    )
    trainers: int = Field(description="How many pods train; each runs a parameter server and a trainer.")
    passes: int = Field(default=10, ge=1, description="Passes over the data.")
    threads: int = Field(default=1, ge=1, le=1024, description="Threads in one trainer.")
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of initial parameters and of the order of batches.")
    keep_passes: int = Field(default=0, ge=0, description="How many of the newest passes stay on the volume; 0 keeps all.")
    program: Program = Field(default_factory=Program)
    arguments: tuple[Text, ...] = Field(default=(), strict=False, description="Handed on to the training program untouched.")
    environment: dict[str, Text] = Field(default_factory=dict, description="More variables for the training program.")
    data: Data
    volume: Volume = Field(default_factory=Volume)
    resources: TrainerResources = Field(default_factory=TrainerResources, description="Of each trainer pod.")
    data_resources: Resources = Field(default_factory=Resources, description="Of the data job's pod.")
    limits: Limits = Field(default_factory=Limits)

    @classmethod
    def load(cls, path: Path) -> TrainingJob:
        """Reads and checks a job file. Raises JobError with the first fault as one sentence."""
        return cls.parse(yaml_file.load(path))

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> TrainingJob:
        """Checks settings as `load` does, from a mapping."""
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise JobError(_explain(cls, error.errors()[0])) from None

    @model_validator(mode="after")
    def _can_work(self) -> TrainingJob:
        if self.trainers < 1:
            raise _sentence(f"trainers is {self.trainers}: a job needs at least 1 trainer")
        if self.trainers > 10_000:
            raise _sentence(f"trainers is {self.trainers}: at most 10000 are allowed")
        # The longest name that Kubernetes makes of it is a DNS label too: <name>-data-<hash>-<index>.
        longest = LABEL_LENGTH - len("-data-") - HASH_LENGTH - 1 - len(str(self.trainers - 1))
        if len(self.name) > longest:
            raise _sentence(
                f"name is {self.name}: at most {longest} characters are allowed, so that <name>-data-<hash>-<index> is a DNS label of {LABEL_LENGTH}"
            )
        if self.namespace.startswith("kube-"):
            raise _sentence(f"namespace is {self.namespace}: kube-* belongs to the cluster, choose one for training jobs")
        own = {str(variable) for variable in contract.Variable}
        for variable in self.environment:
            if not _ENVIRONMENT_NAME.fullmatch(variable):
                raise _sentence(
                    f"environment has the name {variable!r}: letters, digits, '_', '-' and '.' are allowed, and no digit first"
                )
            if variable in own:
                raise _sentence(f"environment has {variable}: the job sets it itself, from the setting of that meaning")
        return self


def _explain(model: type[BaseModel], fault: ErrorDetails) -> str:
    """Pydantic's finding as one sentence: the setting, what was found, what is allowed."""
    if fault["type"] == "sentence":
        return fault["msg"]
    setting = ".".join(str(part) for part in fault["loc"]) or "the job"
    found = fault["input"]
    if fault["type"] == "missing":
        return f"{setting} is missing: {_field(model, fault['loc']).rstrip('.') or 'give it'}"
    if fault["type"] == "extra_forbidden":
        known = _names(model, fault["loc"][:-1])
        near = get_close_matches(str(fault["loc"][-1]), known, 1)
        return f"{setting} is no setting of a job: " + (f"did you mean {near[0]}?" if near else f"{', '.join(known)} are allowed")
    shown = "empty" if found is None or found == "" else repr(found) if isinstance(found, bool | list | dict) else str(found)
    allowed = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if fault["type"] == "string_type":
        allowed = "text is allowed; a number or a word like yes, no or null needs quotes"
    elif allowed != fault["msg"] and not fault["type"] == "value_error":
        allowed = f"{allowed} is allowed"
    return f"{setting} is {shown}: {allowed}"


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    for part in location:
        for name, field in model.model_fields.items():
            if part in (name, field.alias) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                model = field.annotation
    return model


def _names(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    return [field.alias or name for name, field in _model_at(model, location).model_fields.items()]


def _field(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    for name, field in _model_at(model, location[:-1]).model_fields.items():
        if location[-1] in (name, field.alias):
            return field.description or ""
    return ""
