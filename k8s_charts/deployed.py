"""What a job takes from a deployed cluster: the stacks' outputs, and the pushed image.

A job that names its own image, volume and source takes nothing, and runs on any Kubernetes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_pascal

from k8s_charts.spec import TrainingJob
from k8s_charts.spec.groups import Volume
from k8s_charts.spec.value_types import ImageName
from paddle_settings import file as settings_file
from paddle_settings import model
from paddle_settings.errors import SettingError

PLACEHOLDER = "placeholder.invalid/paddle-trainer@sha256:" + "0" * 64


def read_outputs(path: Path) -> dict[str, dict[str, str]]:
    """Returns {stack: {output: value}}. Raises SettingError if the file is not such JSON."""
    if not path.exists():
        raise SettingError(
            f"{path} does not exist: deploy with `cdk deploy --all --outputs-file {path}`"
        )
    try:
        return TypeAdapter(dict[str, dict[str, str]]).validate_json(settings_file.text(path))
    except ValidationError:
        raise SettingError(
            f"{path} is not an outputs file of cdk deploy: JSON that maps each stack to its "
            "outputs is allowed"
        ) from None


class ClusterOutputs(model.Settings):
    """The outputs that manifests use.

    Every field is text, so inside a CDK app each may be a token (`file_system.file_system_id`):
    pass it to a chart and hand that chart to a cluster; the token comes out as a reference.
    """

    model_config = ConfigDict(alias_generator=to_pascal, validate_by_name=True, extra="ignore")

    file_system_id: str
    access_point_id: str = ""
    """Of EFS; empty: the file system is another."""
    bucket_name: str
    file_system_dns_name: str
    file_system_mount_name: str = ""
    """Of FSx for Lustre; empty: the file system is another."""
    region: str = ""
    """Empty: unknown."""
    data_job_credentials: Literal["pod-identity", "instance-profile"] = "pod-identity"
    """How the data job's pod gets AWS credentials: from EKS's agent on the node, or from the node's
    instance profile.
    """
    jobs_namespace: str = ""
    """The only namespace whose data jobs get them; empty: unknown."""
    host_ports: str = Field(
        default="open", pattern=r"^(open|closed|\d+(-\d+)?(,\d+(-\d+)?)*)$", examples=["7164-7167"]
    )
    """TCP ports at which nodes reach each other. open: all; a self-managed cluster: those of
    cluster.host_ports.
    """
    file_system_mounts: str = ""
    """The folders where nodes mount the file system, separated by commas; none: nowhere; empty:
    unknown.
    """
    kubernetes_version: str = ""
    """Such as 1.35; empty: unknown, so manifests hold nothing that an older cluster would
    refuse.
    """
    auto_mode: str = ""
    """What EKS Auto Mode makes nodes from, as JSON; empty: nodes come from node groups."""
    http_proxy: str = ""
    https_proxy: str = ""
    no_proxy: str = ""
    """How data and environment Jobs reach the internet; empty: without a proxy."""
    certificates: str = ""
    """PEM of what they trust beside the public certificates; empty: nothing."""
    cluster_dns: str = ""
    """Address of EKS Auto Mode's name service; empty: unknown."""
    placeholders: bool = False
    """Whether nothing is deployed yet: the manifests can be read and checked, but not applied."""

    @property
    def proxy_variables(self) -> dict[str, str]:
        """The variables by which a pod's programs find the proxy; empty: there is none."""
        values = {name: getattr(self, name) for name in ("http_proxy", "https_proxy", "no_proxy")}
        given = {name: value for name, value in values.items() if value}
        return {**{name.upper(): value for name, value in given.items()}, **given}

    @property
    def proxy_ports(self) -> list[int]:
        """The proxy's ports."""
        ports = (urlsplit(address).port for address in (self.http_proxy, self.https_proxy))
        return list(dict.fromkeys(port for port in ports if port))

    @property
    def restarts_in_place(self) -> bool:
        """Whether containers may name exit codes after which they restart in place: Kubernetes
        enables that from 1.35 on.
        """
        version = re.fullmatch(r"1\.(\d+)", self.kubernetes_version)
        return version is not None and int(version[1]) >= 35

    @property
    def auto_mode_dns(self) -> list[str]:
        """Addresses of the name service on EKS Auto Mode's nodes: the tenth of the service range.
        Where that range is unknown, the tenth of both that EKS takes by default. Empty without
        Auto Mode.
        """
        if not self.auto_mode:
            return []
        return [self.cluster_dns] if self.cluster_dns else ["172.20.0.10", "10.100.0.10"]

    def closed_ports(self, ports: Iterable[int]) -> list[int]:
        """Returns those of `ports` at which nodes do not reach each other."""
        if self.host_ports == "open":
            return []
        ranges = re.findall(r"(\d+)(?:-(\d+))?", self.host_ports)
        opened = [range(int(first), int(last or first) + 1) for first, last in ranges]
        return [port for port in ports if not any(port in ports_open for ports_open in opened)]

    def mount_of(self, path: str) -> str | None:
        """Returns the folder, `path` or one above it, where nodes mount the file system; None:
        there is none.
        """
        folders = self.file_system_mounts.split(",")
        return next(
            (folder for folder in folders if PurePosixPath(path).is_relative_to(folder)), None
        )

    def volume_source(self, volume: Volume) -> dict[str, str]:
        """Returns the storage behind a job's volume, as job.yaml or the deployed stacks name it;
        empty for an existing claim.
        """
        if volume.kind == "efs":
            return {
                "file_system": volume.file_system_id or self.file_system_id,
                "access_point": volume.access_point_id or self.access_point_id,
            }
        if volume.kind == "lustre":
            return {
                "file_system": self.file_system_id,
                "mount_name": self.file_system_mount_name,
                "server": self.file_system_dns_name,
            }
        if volume.kind == "nfs":
            return {
                "path": volume.path or "/",
                "server": volume.server or self.file_system_dns_name,
            }
        return {"path": str(volume.path)} if volume.kind == "host-path" else {}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads {stack: {output: value}}. Only the output's key counts, whatever the stacks' names
        are.

        Raises SettingError if the file is not such JSON, lacks an output, or has one twice with
        different values.
        """
        outputs_by_name: dict[str, Any] = {}
        for outputs in read_outputs(path).values():
            for key in outputs.keys() & {to_pascal(field) for field in cls.model_fields}:
                if outputs_by_name.setdefault(key, outputs[key]) != outputs[key]:
                    raise SettingError(
                        f"{path} has {key} of two clusters: keep the stacks of one cluster in it"
                    )
        try:
            return model.parse(cls, outputs_by_name)
        except SettingError as error:
            faults = str(error).replace("\n", "; ")
            raise SettingError(
                f"{path}: {faults}; deploy all stacks with `cdk deploy --all --outputs-file {path}`"
            ) from None

    @classmethod
    def placeholder(cls) -> Self:
        """Returns placeholders of the right form, for manifests that are read before anything is
        deployed.
        """
        return cls(
            file_system_id="fs-00000000000000000",
            access_point_id="fsap-00000000000000000",
            bucket_name="placeholder-bucket",
            file_system_dns_name="fs-00000000000000000.efs.placeholder.invalid",
            kubernetes_version="1.35",
            placeholders=True,
        )


def use_deployed_volume(job: TrainingJob, outputs: ClusterOutputs) -> TrainingJob:
    """Returns the job on the deployed file system, of whatever kind that is, if it names no
    `volume.kind`. Raises SettingError for one that names another kind than is deployed.
    """
    volume = job.volume
    if outputs.placeholders or not volume.is_deployed:
        return job
    deployed = "lustre" if outputs.file_system_mount_name else "efs"
    if deployed == "lustre" and "kind" not in volume.model_fields_set:
        return job.model_copy(update={"volume": volume.model_copy(update={"kind": deployed})})
    if {volume.kind, deployed} == {"efs", "lustre"}:
        raise SettingError(
            f"volume.kind is {volume.kind}: the deployed file system is {deployed}: set it to "
            f"{deployed}"
        )
    if volume.kind == "efs" and not outputs.access_point_id:
        raise SettingError(
            "the deployed stacks have no output AccessPointId: deploy all of them, or set "
            "volume.kind to what the deployed file system is"
        )
    return job


def check_namespace(job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Raises SettingError for a data job that would read a bucket without a right to it: EKS gives
    the right to one namespace's account, a self-managed cluster's nodes give it to all.
    """
    served = outputs.jobs_namespace or job.namespace
    if (
        not job.reads_bucket
        or outputs.data_job_credentials != "pod-identity"
        or served == job.namespace
    ):
        return
    local = job.input_files or job.local_file is not None
    otherwise = "a source at https:// or on the volume" if not local else "`data.upload_to: volume`"
    named = f"data.source is {job.data.source}" if job.data is not None else "inputs are given"
    raise SettingError(
        f"namespace is {job.namespace} and {named}: the cluster lets data "
        f"jobs read buckets in namespace {served} alone (jobs.namespace of cluster.yaml); use "
        f"`namespace: {served}`, or {otherwise}"
    )


def choose_image(job: TrainingJob, outputs: ClusterOutputs, image_file: Path) -> str:
    """Returns the pushed image with the job's requirements, if it has any; else job.yaml's `image`,
    else image.json's.

    If the image is unknown, returns a placeholder where nothing is deployed, and raises
    SettingError where a cluster is.
    """
    variant = job.image_variant
    if job.image is not None and not job.derived:
        return job.image
    if image_file.exists() and (image := pushed_images(image_file).get(variant)) is not None:
        return image
    if outputs.placeholders:
        return PLACEHOLDER
    if variant:
        what = (
            "program.requirements and packages are"
            if job.derived
            else f"paddle is {job.chosen_paddle}, which is"
        )
        raise SettingError(
            f"{what} in no image that was pushed ({image_file}): run `make image push JOB=<this "
            "job file>`"
        )
    raise SettingError(
        f"image is missing: set it in the job file, or run `make push`, which writes {image_file}"
    )


class _PushedImages(model.Settings):
    model_config = ConfigDict(extra="ignore")

    image: ImageName | None = None
    variants: dict[str, ImageName] = Field(default_factory=dict)
    cuda: str = Field(default="", pattern=r"^(\d+(\.\d+)*)?$")
    """Of the image that was pushed last; empty: unknown."""


def pushed_images(image_file: Path) -> dict[str, str]:
    """Returns the images that `make push` recorded, by job variant. Raises SettingError if the file
    holds none.
    """
    image = _read(image_file)
    if images := image.variants | ({"": image.image} if image.image else {}):
        return images
    raise SettingError(
        f'{image_file} holds no image: it has to be {{"image": "<repository>@sha256:<digest>"}}, '
        "which `make push` writes"
    )


def read_cuda(image_file: Path) -> str:
    """Returns the CUDA version of the image that `make push` pushed last; empty if it has none or
    that is unknown.
    """
    return _read(image_file).cuda


def _read(image_file: Path) -> _PushedImages:
    try:
        return _PushedImages.model_validate_json(settings_file.text(image_file))
    except (SettingError, ValidationError):
        return _PushedImages()


@dataclass(frozen=True)
class Deployed:
    """What the job's documents are made from, besides the job."""

    outputs: ClusterOutputs
    image: str
    missing: str = ""
    """The first half of a sentence that says for what the documents hold placeholders; empty if
    they can be applied.
    """

    @classmethod
    def load(cls, job: TrainingJob, outputs_file: Path, image_file: Path) -> Self:
        """Reads the files. Raises SettingError if one is invalid, or if a cluster is deployed and
        no image is known.
        """
        outputs = (
            ClusterOutputs.load(outputs_file)
            if outputs_file.exists()
            else ClusterOutputs.placeholder()
        )
        image = choose_image(job, outputs, image_file)
        if not outputs.placeholders:
            return cls(outputs, image)
        volume = job.volume
        needed = {
            "image": image == PLACEHOLDER,
            "volume": volume.is_deployed,
            "data.source (a local file goes to the deployed bucket)": job.local_file is not None
            and job.uploaded is None,
            "inputs (local files go to the deployed bucket)": bool(job.input_files)
            and job.uploads_to_bucket,
        }
        if settings := [setting for setting, missing in needed.items() if missing]:
            return cls(
                outputs,
                image,
                f"{outputs_file} does not exist, and the job takes from it: {', '.join(settings)}",
            )
        # The version of this Kubernetes is unknown, so the documents hold nothing that an older
        # version would refuse.
        return cls(
            outputs.model_copy(update={"kubernetes_version": "", "placeholders": False}), image
        )
