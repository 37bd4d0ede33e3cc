"""The parts of a job: each class is one group of settings in job.yaml, checked on its own."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from paddle_node import command_line, contract
from paddle_node.contract import Variable
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from k8s_charts.spec.program import ProgramArchive, requirements
from k8s_charts.spec.value_types import (
    AbsolutePath,
    Amount,
    Cpu,
    DnsLabel,
    FolderBelow,
    ImageName,
    LabelKey,
    Labels,
    LabelValue,
    Memory,
    MountOption,
    MountPath,
    ObjectName,
    QueueName,
    Server,
    ServiceName,
    Several,
    Text,
    Zone,
    amount,
    bounded,
)
from paddle_aws.settings.addresses import without_secrets
from paddle_aws.settings.model import Fault, Refused, Settings


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


def _not_taken(name: str) -> str:
    taken = (*command_line.PLACEHOLDERS, *command_line.NEWEST)
    if not re.fullmatch("[a-z][a-z0-9_]{0,40}", name) or name in taken:
        raise ValueError(
            "lower-case letters, digits and '_' are allowed, a letter first, but not "
            + ", ".join(taken)
        )
    return name


_ADDRESS = re.compile("(s3|https?):", re.IGNORECASE)
"""How an address begins, and no file: s3:/bucket is one with a slash too few."""
_input_name = AfterValidator(_not_taken)
_PATH = re.compile(r"(\.{1,2}|~|)/|\.{1,2}$")
"""How the path of a user's own folder begins; the name of an image's folder has no slash."""


class Program(Settings):
    """The training program: a folder with train.py, or with what `command` runs."""

    origin: Literal["image", "volume", "configmap", "folder", "git"] = Field(
        default="image", alias="from"
    )
    """Default: image; folder where `folder` is a path. image: the data job copies the folder from
    the image's programs; folder: a local folder of up to 1 GB; git: a repository's commit;
    configmap: a small folder beside this file, copied by the data job (without one, a PaddleJob's
    pods see it at /opt/paddle/own/<folder>); volume: it lies in the job's folder on the volume
    already.
    """
    folder: Text = Field(default="quick_start", examples=["./my_program", "quick_start"])
    """./my_program: a folder of yours, relative to this file (`from: folder` and `path`). Without a
    slash: its name in the image's programs and in the job's folder. `from: git`: the program's
    folder in the repository; default: all.
    """
    path: Text | None = None
    """The local folder, relative to this file. `from: folder`: subfolders too, without what git
    ignores; `from: configmap`: files only, 250 kB.
    """
    repository: Text | None = Field(
        default=None,
        pattern=r"^(https://[^\s@]+|ssh://[^\s-]\S*|file:///\S+)$",
        examples=["https://host/name.git", "ssh://git@host/name.git", "file:///folder"],
    )
    """`from: git`: where your own git fetches the commit, with your credentials."""
    commit: Text | None = Field(default=None, pattern="^[0-9a-f]{40}$", examples=["0" * 40])
    """The commit's full id (`git rev-parse HEAD`)."""
    requirements: Text | Several[Text] = ()
    """Python packages for `make image`: a list, or a file of requirements in the program's
    folder.
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
        read = self.local(folder, job_file)
        if self.repository is not None and self.commit is not None:
            below = self.folder if "folder" in self.model_fields_set else ""
            read = ProgramArchive.of_commit(self.repository, self.commit, below, fetch=fetch)
        found = self.model_copy(
            update={"requirements": requirements(self.requirements, read.root if read else None)}
        )
        found._read = read
        return found

    def local(self, folder: Path, job_file: Path | None = None) -> ProgramArchive | None:
        """Reads the local folder, relative to `folder`; None if the program has none. Raises
        SettingError.
        """
        if self.path is None:
            return None
        return ProgramArchive.of_folder(
            folder / Path(self.path).expanduser(), f"program.{self._written}", job_file
        )

    @model_validator(mode="wrap")
    @classmethod
    def _folder_by_its_path(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        folder = given.get("folder") if isinstance(given, dict) else None
        if (
            not isinstance(folder, str)
            or "path" in given
            or given.get("from", "folder") != "folder"
            or not (_PATH.match(folder) or "from" in given)
        ):
            return validate(given)
        others = {name: value for name, value in given.items() if name != "folder"}
        program = validate({**others, "from": "folder", "path": folder})
        program._written = "folder"
        return program


Stage = Annotated[
    Literal["auto", "always", "never"],
    BeforeValidator(
        lambda value: {True: "always", False: "never"}[value] if isinstance(value, bool) else value,
        json_schema_input_type=Literal["auto", "always", "never", True, False],
    ),
]


class Data(Settings):
    """What to train on, and how it comes to the volume."""

    source: Text | None = Field(default=None, min_length=1)
    """A local file (absolute, ~/..., or relative to this file; uploaded before the job starts, to
    the deployed bucket or, where `volume` names a volume of yours, to that), s3://bucket/prefix,
    https://..., or a path on the volume, below its mount path. A query (?...) stands in the
    manifest for all to read.
    """
    upload_to: Literal["bucket", "volume"] | None = None
    """Where a local file is uploaded to. bucket: the deployed one, the default with the deployed
    file system; volume: the job's folder on the volume, the default with any other, which needs no
    AWS rights, but passes through the API server.
    """
    prepared: bool = False
    """The shards lie on the volume already, as <i>/data/ or data/<i>/ in the job's folder: there is
    no data job.
    """
    shared: bool = False
    """One unpacked, unsplit copy for all jobs of this source; for a `command` of your own."""
    format: Text = Field(default="lines", pattern=f"^({contract.RECORD_FORMAT})$")
    """lines | files | module:function, a record reader in your program's folder."""
    header: bool = False
    """The first line of each file of the source is a header, and no record."""
    shards: int | None = bounded(Variable.SPLIT_COUNT, optional=True)
    """Default: one for each trainer."""
    splitters: int = bounded(Variable.SPLIT_PODS)
    """Pods that split together; more than 1 pays for sources of many objects."""
    hold_out: Annotated[float, Variable.HOLD_OUT] = bounded(Variable.HOLD_OUT)
    """Share of the records kept from training, on which the model is measured."""
    shuffle_seed: Annotated[int | None, Variable.SHUFFLE_SEED] = Field(default=1, ge=0, lt=2**63)
    """Shuffle before the split with this seed; null keeps the source's order, which is often
    sorted.
    """
    stage: Stage = "auto"
    """Whether each trainer copies its shard to the pod's scratch before it trains: auto does where
    a try of both shows that the job's passes gain by it and the scratch has room; true means
    always, false never.
    """

    def _faults(self) -> Iterator[Fault]:
        if self.source is not None and (fault := address_fault(self.source)):
            yield f"data.source {fault}"
        if self.header and self.format != "lines":
            yield (
                f"data.header is true and data.format is {self.format}: only lines have a header, "
                "leave it out"
            )


class FromJob(Settings):
    """What an earlier job left on the volume."""

    from_job: ServiceName
    """The earlier job's name: its finished model, or, with `path`, a checkpoint of it."""
    path: Text | None = Field(
        default=None,
        examples=["epoch_9.*", "best_model/model.pdparams", "pass-00003"],
    )
    """A file, a folder or a pattern below that job's output, also of a job that failed. Default:
    all that a finished one left, or its model for inference.
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
    _input_name,
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
        f"is {without_secrets(address)}: a local file, s3://bucket/prefix, a path on the "
        "volume, or an http:// or https:// address in ASCII, with a host and a port up to "
        "65535, is allowed"
    )


class Resources(Settings):
    """What one container asks for and may use.

    Request and limit are equal, so that no pod is evicted for its neighbour's hunger.
    """

    cpu: Cpu = "1"
    """Cores: 500m is half a core."""
    memory: Memory = "2Gi"
    """Bytes: 512Mi, 2Gi."""
    scratch: Memory = "1Gi"
    """Local disk for temporary files."""


class TrainerResources(Resources):
    """A trainer's container."""

    shared_memory: Memory = "128Mi"
    """/dev/shm, which counts against memory."""
    efa: int = bounded(Variable.EFA)
    """Elastic Fabric Adapters, on nodes with `efa: true`: at most two such pods fit a node of
    `compute: fixed`. The image needs the EFA software (docs/jobs.md).
    """

    def _faults(self) -> Iterator[Fault]:
        if amount(self.memory) <= amount(self.shared_memory):
            counted = f"shared_memory, which is {self.shared_memory} and counts against it"
            yield f"resources.memory is {self.memory}: it has to exceed {counted}"


class Gpus(Settings):
    """NVIDIA GPUs of each trainer. They need an image built for CUDA, and NVIDIA's device plugin in
    the cluster.
    """

    count: int = bounded(Variable.GPUS)
    """GPUs of each trainer pod."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes with the right GPU, such as accelerator: nvidia-tesla-p100."""
    parameter_servers: bool = False
    """controller paddlejob: parameter servers get the same GPUs and nodes."""


class Volume(Settings):
    """The shared volume with data, program and output."""

    kind: Literal["efs", "lustre", "nfs", "host-path", "claim", "none"] = "efs"
    """efs: the deployed file system, through its access point and TLS; lustre: the deployed one, if
    that is FSx for Lustre; nfs: any NFS server, by the
    kernel's client; host-path: a folder of the node, where all nodes mount the same; claim: a claim
    that exists; none: controller paddlejob only.
    """
    size: Amount = "10Gi"
    """What the claim asks for. EFS, NFS and folders have no size of their own: it is a
    placeholder.
    """
    mount_path: MountPath = contract.VOLUME_MOUNT
    """Containers see the job's folder below it: <mount_path>/<job name>."""
    folder: FolderBelow | None = None
    """The jobs' folders lie in this folder of the volume, instead of its root."""
    mount_options: Several[MountOption] | None = None
    """efs and nfs: instead of the default options. Default of nfs: the tutorials' and
    noresvport.
    """
    file_system_id: str | None = Field(default=None, pattern=r"^fs-[0-9a-f]{8,40}$")
    """efs: another file system than the deployed one."""
    access_point_id: str | None = Field(default=None, pattern=r"^fsap-[0-9a-f]{8,40}$")
    """efs: its access point."""
    server: Text | None = Field(default=None, min_length=1)
    """nfs: the server's name. Default: the deployed file system's."""
    path: AbsolutePath | None = None
    """nfs: the exported folder, default /; host-path: the folder of the node."""
    claim: ObjectName | None = None
    """claim: the name of a PersistentVolumeClaim in the job's namespace."""

    @property
    def is_deployed(self) -> bool:
        """Whether it is the deployed file system: no other is named."""
        return (self.kind in ("efs", "lustre") and self.file_system_id is None) or (
            self.kind == "nfs" and self.server is None
        )


class Ports(Settings):
    """Where a trainer pod listens. Each pod has its own address, so these need no change for many
    jobs on one node.
    """

    first: Annotated[int, Variable.PORT] = bounded(Variable.PORT)
    """The parameter server's first port."""
    dense: Annotated[int, Variable.PORTS_NUM] = bounded(Variable.PORTS_NUM)
    """Its ports for dense updates."""
    sparse: Annotated[int, Variable.PORTS_NUM_SPARSE] = bounded(Variable.PORTS_NUM_SPARSE)
    """Its ports for sparse updates."""
    control: int = bounded(Variable.CONTROL_PORT)
    """The agents' port."""
    # A pod's 0, for no metrics, is what a job without `scrape` has.
    metrics: int = bounded(Variable.METRICS_PORT, default=contract.METRICS_PORT, least=1)
    """The agents' port for whoever `scrape` lets read their numbers."""
    host_ports: bool | Several[Annotated[int, Field(ge=1, le=65535)]] = Field(
        default=False, union_mode="left_to_right"
    )
    """The tutorials' host ports: true for the parameter server's, or a list. Needs pod-list and an
    own namespace.
    """

    @property
    def last(self) -> int:
        """The parameter server's last port."""
        return self.first + self.dense + self.sparse - 1

    @property
    def pserver(self) -> range:
        """All of the parameter server's ports."""
        return range(self.first, self.last + 1)

    @property
    def on_host(self) -> tuple[int, ...]:
        """Ports that the pod takes on its node's address."""
        return tuple(self.pserver) if self.host_ports is True else self.host_ports or ()

    def _faults(self) -> Iterator[Fault]:
        if self.last > 65535:
            yield (
                f"ports.first is {self.first}: the parameter server's last port would be "
                f"{self.last}, and 65535 is the highest"
            )
        if self.control in self.pserver:
            yield (
                f"ports.control is {self.control}: the parameter server listens on {self.first} "
                f"to {self.last}, choose another"
            )
        trainers = range(contract.TRAINER_PORTS_FROM, contract.TRAINER_PORTS_FROM + 100)
        for name, port in (("first", self.first), ("first", self.last), ("control", self.control)):
            if port in trainers or (name == "first" and self.first < trainers[0] <= self.last):
                yield (
                    f"ports.{name} is {getattr(self, name)}: it overlaps {trainers[0]} to "
                    f"{trainers[-1]}, where trainers listen, choose another"
                )
        if len(set(self.on_host)) != len(self.on_host):
            yield "ports.host_ports names a port twice: each may be taken once"


class Scrape(Settings):
    """Who may read the trainers' numbers: loss, step, speed, goodput, attempt and slow ranks, in
    OpenMetrics at /metrics of `ports.metrics`. The pods then have the annotations prometheus.io/*.
    """

    namespace: DnsLabel
    """The namespace of the pods that may, such as monitoring or amazon-cloudwatch. An agent of the
    pod's own node reaches it in any case.
    """
    pods: Labels = Field(default_factory=dict)
    """Labels of those pods. Default: all of that namespace."""


class Toleration(Settings):
    """A taint that the job's pods tolerate, as Kubernetes writes it."""

    key: LabelKey | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    def _faults(self) -> Iterator[Fault]:
        if self.operator == "Exists" and self.value is not None:
            yield (
                f"scheduling.tolerations has Exists with the value {self.value}: Exists takes no "
                "value"
            )
        if self.operator == "Equal" and self.key is None:
            yield (
                "scheduling.tolerations has Equal without a key: name the taint's key, or use "
                "Exists"
            )


class Scheduling(Settings):
    """Which nodes the job's pods may run on."""

    node_selector: Labels = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Several[Toleration] = ()
    """Taints that the pods tolerate."""
    zone: Zone | None = None
    """Pin the job to one zone: traffic between zones costs money."""
    spot: Literal["allow", "avoid", "require"] = "allow"
    """EKS's spot nodes. A reclaimed node costs no retry: the job resumes after its last pass."""
    spread: Literal["prefer", "require"] = "prefer"
    """Over hosts: require leaves a pod waiting rather than on a shared host."""
    priority_class: ObjectName | None = None
    """The pods' PriorityClass."""


class Gang(Settings):
    """All pods or none: without it two half-started jobs may wait for each other forever."""

    kind: Literal["none", "volcano", "kueue"] = "none"
    """Needs Volcano or Kueue in the cluster: docs/jobs.md."""
    queue: QueueName | None = None
    """Kueue's LocalQueue, or Volcano's Queue."""
    priority: QueueName | None = None
    """Kueue's WorkloadPriorityClass, or the PodGroup's PriorityClass."""


class Limits(Settings):
    """How often to try, and how long."""

    retries: int = Field(default=6, ge=0, le=1000)
    """Pods of one trainer that may fail; disruptions and restarts in place do not count."""
    attempts: Annotated[int, Variable.ATTEMPTS] = bounded(Variable.ATTEMPTS)
    """Attempts that fail without progress in between until the job fails: 3 are two retries. Each
    counts once, whatever its exception; lost pods cost none. A program that cannot start is not
    retried.
    """
    hours: float = Field(default=24.0, gt=0.001, le=8760)
    """The job ends as failed after this long."""
    # A pod accepts any time above 0, for pods of one machine; a cluster first has to schedule them.
    peer_deadline_seconds: Annotated[int, Variable.PEER_DEADLINE] = bounded(
        Variable.PEER_DEADLINE, above=None, least=10, most=86400
    )
    """How long to wait for all trainers before the missing ones are named."""
    # A pod accepts any time above 0; the kubelet asks too rarely to measure less than a minute.
    stall_seconds: Annotated[int, Variable.STALL] = bounded(
        Variable.STALL, above=None, least=60, most=86400
    )
    """A trainer that takes no step for this long counts as hung, and is replaced."""
    # What a pod accepts is this without the 5 seconds that it leaves its container; its default is
    # that of a pod which names no period.
    grace_period_seconds: int = Field(default=120, ge=15, le=3600)
    """How long a pod may save after SIGTERM."""
    keep_finished_hours: float = Field(default=24.0, ge=0, le=8760)
    """How long a finished job stays visible, a minute at least; its output stays on the volume."""
    keep_finished: Literal["never"] | None = None
    """never: Kubernetes never removes a finished job by itself. For a cluster whose Jobs are
    applied from a repository, where a removed one would be made and trained again.
    """

    def _faults(self) -> Iterator[Fault]:
        if self.keep_finished is not None and "keep_finished_hours" in self.model_fields_set:
            yield Refused(
                "keep_finished_hours",
                self.keep_finished_hours,
                "leave it out, keep_finished is never: a finished job is not removed",
            )


class NamespaceLimits(Settings):
    """A ceiling for all jobs of the namespace together, and defaults for pods that name no
    resources.
    """

    cpu: Cpu
    """Cores in all."""
    memory: Memory
    """Memory in all."""
    pods: int = Field(ge=1)
    """Pods in all that have not ended."""
    gpus: int = Field(default=0, ge=0)
    """NVIDIA GPUs in all."""


class PaddleJobSettings(Settings):
    """What only the PaddleJob operator knows."""

    with_gloo: Literal[0, 1, 2] | None = None
    """0: off; 1: workers; 2: workers and servers."""
    intranet: Literal["PodIP", "Service", "Host"] = "PodIP"
    """How the pods reach each other."""
    clean_pod_policy: Literal["Always", "Never", "OnFailure", "OnCompletion"] = "Never"
    """When the operator deletes the pods of a job that ended, and with them their logs."""
    elastic: int | None = Field(default=None, ge=0)
    """The operator's elastic level: workers may come and go. Needs etcd_server."""
    etcd_server: Server | None = None
    """host:port of the etcd that elastic workers meet in."""
    install_operator: bool = True
    """Add the operator itself: CRD, namespace, rights, Deployment."""
    operator_image: ImageName = "registry.baidubce.com/paddlecloud/controller:v0.3.5"
    """The operator's image, as its own deploy/v1/operator.yaml names it. Mirror it: the registry is
    not yours. Releases before v0.3.5 tell parameter servers no port, which Paddle then refuses to
    start without.
    """
