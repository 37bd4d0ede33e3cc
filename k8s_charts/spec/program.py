"""The training program of a job, as job.yaml names it."""

import copy
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from paddle_node import contract
from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    field_validator,
    model_validator,
)

from k8s_charts.spec import conditions
from k8s_charts.spec.program_archive import ProgramArchive, read_requirements
from k8s_charts.spec.value_types import ObjectName, Several, Text
from paddle_settings.errors import SettingError
from paddle_settings.model import Refused, Settings

_PATH = re.compile(r"(\.{1,2}|~|)/|\.{1,2}$")
"""How the path of a user's own folder begins; the name of an image's folder has no slash."""


class PackageIndex(Settings):
    """A package index of yours."""

    url: Text = Field(
        pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$", examples=["https://packages.example.com/simple"]
    )
    """Its address, as pip's --index-url, without a password."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        try:
            reachable = urlsplit(url).port != 0
        except ValueError:
            reachable = False
        if not reachable:
            raise Refused("", url, "a port of 1 to 65535 and a host are allowed")
        return url

    secret: ObjectName | None = None
    """A Secret in the job's namespace whose PIP_INDEX_URL is the same address with user and
    password. With it, only wheels are installed, so that no package's code can read the password.
    """


class Program(Settings):
    """The training program: a folder with train.py, or with what `command` runs. Default with a
    command: the job file's folder.
    """

    origin: Literal["image", "volume", "configmap", "folder", "git"] = Field(
        default="image", alias="from"
    )
    """Default: image; folder where `folder` is a path. image: the data job copies the folder from
    the image's programs; folder: a local folder of up to 1 GB; git: a repository's commit;
    configmap: a small folder beside this file, copied by the data job (without one, a PaddleJob's
    pods see it at /opt/paddle/own/<folder>); volume: it lies in the job's folder on the volume
    already.
    """
    folder: Annotated[Text, conditions.from_("image", "volume", "configmap", "git")] = Field(
        default="quick_start", examples=["./my_program", "quick_start"]
    )
    """./my_program: a folder of yours, relative to this file (`from: folder` and `path`). Without a
    slash: its name in the image's programs and in the job's folder. `from: git`: the program's
    folder in the repository; default: all.
    """
    path: Annotated[Text | None, conditions.from_("folder", "configmap")] = None
    """The local folder, relative to this file. `from: folder`: subfolders too, without what git
    ignores; `from: configmap`: files only, 250 kB.
    """
    include: Annotated[Several[Text], conditions.from_("folder", "configmap", "git")] = ()
    """Files and folders below that folder which are sent although git ignores them, and files which
    are sent although they look like secrets, such as .env: without their name here, these are
    refused.
    """
    repository: Annotated[Text | None, conditions.from_("git")] = Field(
        default=None,
        pattern=r"^(https://[^\s@]+|ssh://[^\s-]\S*|file:///\S+)$",
        examples=["https://host/name.git", "ssh://git@host/name.git", "file:///folder"],
    )
    """`from: git`: where your own git fetches the commit, with your credentials."""
    commit: Annotated[Text | None, conditions.from_("git")] = Field(
        default=None, pattern="^[0-9a-f]{40}$", examples=["0" * 40]
    )
    """The commit's full id (`git rev-parse HEAD`)."""
    requirements: Text | Several[Text] = ()
    """Python packages: a list, or a file of requirements in the program's folder, with hashes if
    you like.
    """
    environment: Annotated[Literal["built", "image"] | None, conditions.REQUIREMENTS] = None
    """Where the requirements come from. built: a Job of its own builds them once in the cluster;
    image: `make image JOB=` bakes them. Default: built; image with `packages` and controller
    paddlejob.
    """
    index: Annotated[PackageIndex | None, conditions.BUILT] = None
    """Where the Job finds the packages. Default: PyPI."""
    wheels: Annotated[Text | None, conditions.BUILT] = Field(
        default=None, examples=["/home/jobpath/wheels"]
    )
    """A folder of the volume with all packages; with it, the Job has no network. Do not change the
    content of a folder: its name stands for it.
    """
    packages: Several[Annotated[str, Field(pattern="^[a-z0-9][-a-z0-9+.]+$")]] = ()
    """Debian packages for `make image`, such as libgl1."""

    _read: ProgramArchive | None = PrivateAttr(default=None)
    _written: Literal["folder", "path"] = PrivateAttr(default="path")
    """Which of the two settings named the local folder."""

    @property
    def files(self) -> Mapping[str, str]:
        """The program's files by name, read with the job file: `from: configmap` only."""
        return self._read.texts() if self._read is not None and not self.archived else {}

    @property
    def archive(self) -> ProgramArchive | None:
        """The archive that the pods unpack, read with the job file: `from: folder` and `from: git`
        only.
        """
        return self._read if self.archived else None

    @property
    def requirements_text(self) -> str:
        """The requirements as pip reads them, one a line."""
        return "".join(f"{line}\n" for line in self.requirements)

    @property
    def archived(self) -> bool:
        """Whether the pods unpack the program from an archive."""
        return self.origin in ("folder", "git")

    @property
    def name(self) -> str:
        """TRAIN_CONFIG_DIR: an archive's folder is inside the pods, where it always has the same
        name.
        """
        return PurePosixPath(contract.UNPACKED).name if self.archived else self.folder

    def read(self, folder: Path, *, fetch: bool, job_file: Path | None = None) -> Self:
        """Returns the same program with the content of its local folder, without the job file, or
        of its commit; `fetch` allows downloading the commit.
        """
        read = self.read_local(folder, job_file)
        if self.repository is not None and self.commit is not None:
            below = self.folder if "folder" in self.model_fields_set else ""
            read = ProgramArchive.from_commit(
                self.repository, self.commit, below, self.include, fetch=fetch
            )
        lines = read_requirements(self.requirements, read.root if read else None)
        baked = self.packages or self.environment == "image"
        for line in lines:
            _, at, address = line.partition(";")[0].partition("@")
            if at and self.index is not None and self.index.secret is not None:
                raise SettingError(
                    f"program.requirements has {line}: with program.index.secret only wheels of "
                    "the index are allowed, no address"
                )
            if not baked and re.match(r"\s*(\w+\+|file:)", address):
                raise SettingError(
                    f"program.requirements has {line}: the image has no git and no such file; name "
                    "the address of a wheel, or set `environment: image` (with `packages: [git]`)"
                )
        program = self.model_copy(update={"requirements": lines})
        program._read = read
        return program

    def read_local(self, folder: Path, job_file: Path | None = None) -> ProgramArchive | None:
        """Reads the local folder, relative to `folder`; None if the program has none. Raises
        SettingError.
        """
        if self.path is None:
            return None
        return ProgramArchive.from_folder(
            folder / Path(self.path).expanduser(),
            f"program.{self._written}",
            job_file,
            self.include,
        )

    @model_validator(mode="wrap")
    @classmethod
    def _read_path_from_folder(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        folder = values.get("folder") if isinstance(values, dict) else None
        if (
            not isinstance(folder, str)
            or "path" in values
            or values.get("from", "folder") != "folder"
            or not (_PATH.match(folder) or "from" in values)
        ):
            return validate(values)
        values = copy.copy(values)  # Of its class: it may know of faults.
        del values["folder"]
        values |= {"from": "folder", "path": folder}
        program = validate(values)
        program._written = "folder"
        return program
