"""The parts of a job: each class is one group of settings in job.yaml, checked on its own."""

from collections.abc import Iterator
from typing import Annotated, Literal

from paddle_node import contract
from paddle_node.contract import Variable
from pydantic import Field

from k8s_charts.spec import conditions
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
    Several,
    Text,
    Zone,
    amount,
    bounded_field,
)
from paddle_settings.model import Fault, Settings

ZONE = "topology.kubernetes.io/zone"
"""The label of a node with its zone."""


class Resources(Settings):
    """What one container asks for and may use.

    Request and limit are equal, so pods run in the Guaranteed QoS class.
    """

    cpu: Cpu = "1"
    """Cores: 500m is half a core."""
    memory: Memory = "2Gi"
    """Bytes: 512Mi, 2Gi."""
    scratch: Memory = "1Gi"
    """Local disk for temporary files."""


class TrainerResources(Resources):
    """A trainer's container."""

    shared_memory: Memory | None = None
    """/dev/shm, which counts against memory: the workers of a DataLoader hand over their batches in
    it. Default: half of memory, as Linux has it.
    """
    efa: int = bounded_field(Variable.EFA)
    """Elastic Fabric Adapters, on nodes with `efa: true`: at most two such pods fit a node of
    `compute: fixed`. The image needs the EFA software (docs/jobs.md).
    """

    @property
    def chosen_shared_memory(self) -> str:
        """The size of /dev/shm."""
        return self.shared_memory or f"{max(1, int(amount(self.memory)) >> 21)}Mi"

    def _faults(self) -> Iterator[Fault]:
        if self.shared_memory and amount(self.memory) <= amount(self.shared_memory):
            counted = f"shared_memory, which is {self.shared_memory} and counts against it"
            yield f"resources.memory is {self.memory}: it has to exceed {counted}"


class Gpus(Settings):
    """NVIDIA GPUs of each trainer. They need an image built for CUDA, and NVIDIA's device plugin in
    the cluster.
    """

    count: int = bounded_field(Variable.GPUS)
    """GPUs of each trainer pod."""
    node_selector: Annotated[Labels, conditions.GPUS] = Field(default_factory=dict)
    """Labels of the nodes with the right GPU, such as accelerator: nvidia-tesla-p100."""
    parameter_servers: Annotated[bool, conditions.SERVERS_GPUS] = False
    """controller paddlejob: parameter servers get the same GPUs and nodes."""


class Volume(Settings):
    """The shared volume with data, program and output."""

    kind: Literal["efs", "lustre", "nfs", "host-path", "claim", "none"] = "efs"
    """efs: the deployed EFS, through its access point and TLS. lustre: the deployed FSx for Lustre.
    nfs: any NFS server, by the kernel's client. host-path: a folder that every node mounts. claim:
    an existing claim. none: only with controller paddlejob. Unset: the kind of the deployed file
    system.
    """
    size: Annotated[Amount, conditions.volume("efs", "lustre", "nfs", "host-path")] = "10Gi"
    """Size of the claim. EFS, NFS and folders have no size, so for them it is a placeholder."""
    mount_path: MountPath = contract.VOLUME_MOUNT
    """Containers see the job's folder below it: <mount_path>/<job name>."""
    folder: FolderBelow | None = None
    """The jobs' folders lie in this folder of the volume, instead of its root."""
    mount_options: Annotated[
        Several[MountOption] | None, conditions.volume("efs", "lustre", "nfs")
    ] = None
    """efs and nfs: mount options instead of the default ones. Default of nfs: the tutorials'
    options, and noresvport.
    """
    file_system_id: Annotated[str | None, conditions.volume("efs")] = Field(
        default=None, pattern=r"^fs-[0-9a-f]{8,40}$"
    )
    """efs: another file system than the deployed one."""
    access_point_id: Annotated[str | None, conditions.volume("efs")] = Field(
        default=None, pattern=r"^fsap-[0-9a-f]{8,40}$"
    )
    """efs: its access point."""
    server: Annotated[Text | None, conditions.volume("nfs")] = Field(default=None, min_length=1)
    """nfs: the server's name. Default: the deployed file system's."""
    path: Annotated[AbsolutePath | None, conditions.volume("nfs", "host-path")] = None
    """nfs: the exported folder, default /; host-path: the folder of the node."""
    claim: Annotated[ObjectName | None, conditions.volume("claim")] = None
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

    first: Annotated[int, Variable.PORT] = bounded_field(Variable.PORT)
    """The parameter server's first port."""
    dense: Annotated[int, Variable.PORTS_NUM] = bounded_field(Variable.PORTS_NUM)
    """Its ports for dense updates."""
    sparse: Annotated[int, Variable.PORTS_NUM_SPARSE] = bounded_field(Variable.PORTS_NUM_SPARSE)
    """Its ports for sparse updates."""
    control: int = bounded_field(Variable.CONTROL_PORT)
    """The agents' port."""
    # A pod's 0, for no metrics, is what a job without `scrape` has.
    metrics: Annotated[int, conditions.SCRAPED] = bounded_field(
        Variable.METRICS_PORT, default=contract.METRICS_PORT, least=1
    )
    """The agents' port at which the pods that `scrape` names read the metrics."""
    host_ports: Annotated[
        bool | Several[Annotated[int, Field(ge=1, le=65535)]], conditions.POD_LIST
    ] = Field(default=False, union_mode="left_to_right")
    """The tutorials' host ports: true for the parameter server's, or a list. Needs discovery
    pod-list and a namespace of its own.
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
        trainers = contract.TRAINER_PORTS
        for name, port in (("first", self.first), ("first", self.last), ("control", self.control)):
            if port in trainers or (name == "first" and self.first < trainers[0] <= self.last):
                yield (
                    f"ports.{name} is {getattr(self, name)}: it overlaps {trainers[0]} to "
                    f"{trainers[-1]}, where trainers listen, choose another"
                )
        if len(set(self.on_host)) != len(self.on_host):
            yield "ports.host_ports names a port twice: each may be taken once"


class Scrape(Settings):
    """Who may read the trainers' metrics: loss, step, speed, goodput, attempt and slow ranks, in
    OpenMetrics at /metrics of `ports.metrics`. With it, the pods have the annotations
    prometheus.io/*.
    """

    namespace: DnsLabel
    """The namespace of the pods that may read, such as monitoring or amazon-cloudwatch. Agents on a
    pod's node always reach its port.
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
    """Whether the pods may run on EKS's spot nodes. A reclaimed node costs no retry: the job
    resumes after its last pass.
    """
    spread: Literal["prefer", "require"] = "prefer"
    """Spread the pods over hosts. require: a pod waits rather than share a host."""
    priority_class: ObjectName | None = None
    """The pods' PriorityClass."""


class Gang(Settings):
    """All pods or none: without it two half-started jobs may wait for each other forever."""

    kind: Literal["none", "volcano", "kueue"] = "none"
    """Needs Volcano or Kueue in the cluster: docs/jobs.md."""
    queue: Annotated[QueueName | None, conditions.QUEUES] = None
    """Kueue's LocalQueue, or Volcano's Queue."""
    priority: Annotated[QueueName | None, conditions.QUEUES] = None
    """Kueue's WorkloadPriorityClass, or the PodGroup's PriorityClass."""


class Limits(Settings):
    """How often to try, and how long."""

    retries: int = bounded_field(Variable.RETRIES)
    """How many pods of one trainer may fail; disruptions and restarts in place do not count."""
    attempts: Annotated[int, Variable.ATTEMPTS, conditions.AGENT] = bounded_field(Variable.ATTEMPTS)
    """After how many failed attempts without progress in between the job fails: 3 means two
    retries. Each counts once, whatever its exception; lost pods do not count. A program that cannot
    start is not retried.
    """
    hours: float = Field(default=24.0, gt=0.001, le=8760)
    """Hours after which the job ends as failed."""
    # A pod accepts any time above 0, for pods of one machine; a cluster first has to schedule them.
    peer_deadline_seconds: Annotated[int, Variable.PEER_DEADLINE, conditions.AGENT] = bounded_field(
        Variable.PEER_DEADLINE, above=None, least=10, most=86400
    )
    """How long to wait for all trainers; then the job fails and names the missing ones."""
    # A pod accepts any time above 0; the kubelet asks too rarely to measure less than a minute.
    stall_seconds: Annotated[int, Variable.STALL, conditions.AGENT] = bounded_field(
        Variable.STALL, above=None, least=60, most=86400
    )
    """A trainer that takes no step for this long counts as hung, and is replaced."""
    # What a pod accepts is this without the 5 seconds that it leaves its container; its default is
    # that of a pod which names no period.
    grace_period_seconds: int = Field(default=120, ge=15, le=3600)
    """How long a pod may save after SIGTERM."""
    nan: Annotated[Literal["fail", "warn"] | None, conditions.COMMAND] = None
    """What follows if a metric becomes NaN or infinite. warn: the log, status and the end of the
    job say so; fail: the job ends. Default: warn.
    """
    keep_finished_hours: Annotated[float, conditions.REMOVED] = Field(default=24.0, ge=0, le=8760)
    """How long a finished job stays visible, a minute at least; its output stays on the volume."""
    keep_finished: Literal["never"] | None = None
    """never: Kubernetes never removes a finished job by itself. For a cluster whose Jobs are
    applied from a repository, which would create a removed Job again, and train it again.
    """


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
    """Settings that only the PaddleJob operator reads."""

    with_gloo: Literal[0, 1, 2] | None = None
    """0: off; 1: workers; 2: workers and servers."""
    intranet: Literal["PodIP", "Service", "Host"] = "PodIP"
    """How the pods reach each other."""
    clean_pod_policy: Literal["Always", "Never", "OnFailure", "OnCompletion"] = "Never"
    """When the operator deletes the pods of a job that ended, and with them their logs."""
    elastic: Annotated[int | None, conditions.ELASTIC] = Field(default=None, ge=0)
    """The operator's elastic level: workers may come and go. Needs etcd_server."""
    etcd_server: Annotated[Server | None, conditions.ETCD] = None
    """host:port of the etcd that elastic workers meet in."""
    install_operator: bool = True
    """Add the operator itself: CRD, namespace, rights, Deployment."""
    operator_image: Annotated[ImageName, conditions.INSTALLED] = (
        "registry.baidubce.com/paddlecloud/controller:v0.3.5"
    )
    """The operator's image, as its own deploy/v1/operator.yaml names it. Mirror it, because that
    registry may be gone. Releases before v0.3.5 give parameter servers no port, and Paddle does not
    start without one.
    """
