"""What a job reads: its data, and the inputs beside them."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from paddle_node import command_line, contract
from paddle_node.contract import Variable
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from k8s_charts.spec import conditions
from k8s_charts.spec.value_types import ServiceName, Text, bounded_field
from paddle_settings.addresses import hide_secrets
from paddle_settings.model import Fault, Settings


def _is_web_address(address: str) -> bool:
    """Whether it has a host, a valid port or none, and no character that an address must escape."""
    try:
        return (
            bool(urlsplit(address).hostname)
            and urlsplit(address).port != 0
            and bool(re.fullmatch("[!-~]+", address))
        )
    except ValueError:
        return False


def _check_free(name: str) -> str:
    taken = (*command_line.PLACEHOLDERS, *command_line.NEWEST)
    if not re.fullmatch("[a-z][a-z0-9_]{0,40}", name) or name in taken:
        raise ValueError(
            "lower-case letters, digits and '_' are allowed, a letter first, but not "
            + ", ".join(taken)
        )
    return name


_ADDRESS = re.compile("(s3|https?):", re.IGNORECASE)
"""How an address begins, and no file: s3:/bucket is one with a slash too few."""


Stage = Annotated[
    Literal["always", "never"],
    # `auto`, the default of 0.1, measured both disks; it is still taken.
    BeforeValidator(
        lambda value: (
            {True: "always", False: "never", "auto": "never"}.get(value, value)
            if isinstance(value, bool | str)
            else value
        ),
        json_schema_input_type=Literal["always", "never", True, False],
    ),
]


class Data(Settings):
    """The data to train on, and how they come to the volume."""

    source: Annotated[Text | None, conditions.UNPREPARED] = Field(default=None, min_length=1)
    """A local file, s3://bucket/prefix, https://..., or a path on the volume, below its mount path.
    A local file is absolute, ~/... or relative to this file. It is uploaded before the job starts:
    to your own volume, if `volume` names one, else to the deployed bucket. Everybody who may read
    the manifest can read a query (?...).
    """
    upload_to: Annotated[Literal["bucket", "volume"] | None, conditions.LOCAL_FILE] = None
    """Where a local file is uploaded to. bucket: the deployed bucket; the default with the deployed
    file system. volume: the job's folder on the volume; the default with any other volume. An
    upload to the volume needs no AWS rights, but passes through the API server.
    """
    prepared: Annotated[bool, conditions.UNSHARED] = False
    """The shards are on the volume already, as <i>/data/ or data/<i>/ in the job's folder, so there
    is no data job.
    """
    shared: Annotated[bool, conditions.COMMAND] = False
    """One unpacked, unsplit copy for all jobs of this source; for a `command` of your own."""
    format: Annotated[Text, conditions.UNSHARED] = Field(
        default="lines", pattern=f"^({contract.RECORD_FORMAT})$"
    )
    """lines | files | module:function, a record reader in your program's folder."""
    header: Annotated[bool, conditions.UNSHARED, conditions.LINES, conditions.UNPREPARED] = False
    """The first line of each file of the source is a header, not a record."""
    shards: Annotated[int | None, conditions.UNSHARED, conditions.UNPREPARED] = bounded_field(
        Variable.SPLIT_COUNT, optional=True
    )
    """Number of shards. Default: one for each trainer."""
    splitters: Annotated[int, conditions.UNSHARED, conditions.UNPREPARED] = bounded_field(
        Variable.SPLIT_PODS
    )
    """Pods that split together; more than 1 is faster for sources of many objects."""
    hold_out: Annotated[float, Variable.HOLD_OUT, conditions.UNSHARED, conditions.UNPREPARED] = (
        bounded_field(Variable.HOLD_OUT)
    )
    """Share of the records that are held out of training, to measure the model."""
    shuffle_seed: Annotated[
        int | None, Variable.SHUFFLE_SEED, conditions.UNSHARED, conditions.UNPREPARED
    ] = Field(default=1, ge=0, lt=2**63)
    """Shuffle before the split with this seed; null keeps the source's order, which is often
    sorted.
    """
    stage: Annotated[Stage, conditions.AGENT, conditions.UNSHARED] = "never"
    """Whether each trainer copies its shard to the pod's scratch before it trains: always | never,
    or true | false.
    """

    def _faults(self) -> Iterator[Fault]:
        if self.source is not None and (fault := address_fault(self.source)):
            yield f"data.source {fault}"


class FromJob(Settings):
    """What an earlier job left on the volume."""

    from_job: ServiceName
    """The earlier job's name: its finished model, or, with `path`, a checkpoint of it."""
    path: Text | None = Field(
        default=None,
        examples=["epoch_9.*", "best_model/model.pdparams", "pass-00003"],
    )
    """A file, a folder or a pattern below that job's output, also of a job that failed. Default:
    all that a finished job left, or its model for inference.
    """

    def _faults(self) -> Iterator[Fault]:
        if self.path is not None and (
            self.path.startswith(("/", "output/"))
            or not {"", ".."}.isdisjoint(self.path.rstrip("/").split("/"))
        ):
            yield (
                f"inputs has the path {self.path} of job {self.from_job}: a path below that "
                "job's output, without output/ and .., is allowed, such as epoch_9.*"
            )


InputName = Annotated[
    str,
    AfterValidator(_check_free),
    WithJsonSchema({"type": "string", "pattern": "^[a-z][a-z0-9_]{0,40}$"}),
]
Input = FromJob | Text


def address_fault(address: str) -> str:
    """Returns why no data job can read there; empty for a local file, a path on the volume,
    s3://bucket/key or a web address.
    """
    scheme, separator, rest = address.partition("://")
    if separator and "@" in re.split("[/?#]", rest, maxsplit=1)[0]:
        return "has a user or a password: a manifest is no place for either, use s3:// or a file"
    file = (
        not separator
        and not _ADDRESS.match(address)
        and PurePosixPath(address).name not in ("", "..", "~")
        and not re.match("~[^/]", address)
    )
    if (
        file
        or (scheme == "s3" and rest.partition("/")[0].strip())
        or (scheme in ("http", "https") and _is_web_address(address))
    ):
        return ""
    return (
        f"is {hide_secrets(address)}: a local file, s3://bucket/prefix, a path on the "
        "volume, or an http:// or https:// address in ASCII, with a host and a port up to "
        "65535, is allowed"
    )
