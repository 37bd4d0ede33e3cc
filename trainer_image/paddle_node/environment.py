"""The door of a pod: the container's environment, read once, becomes a `NodeEnvironment`.

Promises: behind this module nothing reads a variable; every value has its type and its bounds; the first wrong
setting raises `SettingError`, which names the variable, what was found and what is allowed.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paddle_node import contract
from paddle_node.contract import JobFolder, Variable
from paddle_node.failure import SettingError
from paddle_node.local_disk import CHOICES, NEVER, LocalDisk
from paddle_node.passes import Identity

DISCOVERIES = ("index", "pod-list")
DEFAULT_RUNTIME = "fleet-ps"
RESUME_FROM = ("same", "any")


@dataclass(frozen=True)
class Peer:
    """One pod of the job, this pod included. `address` is a plain IPv4 or IPv6 address."""

    index: int
    """Trainer id."""
    name: str
    """DNS name (index) or pod name (pod-list): for people and messages."""
    address: str

    def endpoint(self, port: int) -> str:
        """`address:port`, an IPv6 address in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


@dataclass(frozen=True)
class Attempt:
    """One try of all N pods together. A pserver or trainer never outlives its attempt."""

    number: int
    """From 1, kept on the volume; a folder never sees a number twice."""
    resume_pass: int | None
    """The pass to load before training goes on with the next; None: from the beginning."""
    resume_folder: str = ""
    """Where it lies, below output/."""
    interrupted: str = ""
    """Where the part of the next pass lies that SIGTERM cut short, below output/; empty: it is begun anew."""


@dataclass(frozen=True)
class NodeEnvironment:
    """What a pod was told. `index` is None in pod-list mode until discovery calls `identified`."""

    job_name: str
    """Names the folder on the volume."""
    folder: JobFolder
    train_config_dir: str
    program: Path
    """The user's program on the volume: `<volume>/<job name>/<TRAIN_CONFIG_DIR>`."""
    local_disk: LocalDisk | None
    """Where the shard may be copied before training; None: it is read where it lies."""
    data_job: str
    """The data job whose manifest is waited for; empty: any."""
    trainers: int
    """N: pods, trainers and pservers."""
    threads: int
    """Threads in one trainer."""
    passes: int
    keep_passes: int
    """Newest good passes of this data and program to keep; 0 keeps all."""
    resume_from: str
    """One of `RESUME_FROM`."""
    attempts: int
    """How many attempts may end without a new complete pass."""
    seed: int
    runtime: str
    """A name that `runtimes.by_name` knows."""
    discovery: str
    index: int | None
    run_id: str
    job_object: str
    service: str
    namespace: str
    pod_name: str
    pod_ip: str
    nic: str
    port: int
    ports_num: int
    ports_num_sparse: int
    control_port: int
    peer_deadline: float
    """Seconds."""
    grace: float
    """Seconds."""
    stall: float
    """Seconds."""
    lease: float
    """Seconds."""
    arguments: tuple[str, ...]
    """The entry point's own arguments, for the trainer, untouched."""
    environ: Mapping[str, str]
    """The container's whole environment, to build the children's from; nobody reads settings from it."""
    identity: Identity
    """Which data and program this pod has read; in its processes: which the run reads."""

    @property
    def trainer_id(self) -> int:
        """This pod's id, known after discovery. Raises RuntimeError before."""
        if self.index is None:
            raise RuntimeError("the trainer id is not known before discovery")
        return self.index

    @property
    def ports(self) -> range:
        """The pserver's ports: dense, then sparse."""
        return range(self.port, self.port + self.ports_num + self.ports_num_sparse)

    @property
    def home(self) -> Path:
        """Writable scratch of this pod: working directory of the processes, the probe's status."""
        return contract.path(contract.HOME, dict(self.environ))

    def identified(self, index: int, run_id: str) -> NodeEnvironment:
        """The same pod after pod-list discovery has told it who it is."""
        return replace(self, index=index, run_id=run_id)


def parse(environ: Mapping[str, str], arguments: Sequence[str] = ()) -> NodeEnvironment:
    """Reads the container's environment. Raises `SettingError` for the first setting that is missing or wrong."""
    read = Reader(environ)
    job_name = read.folder_name(Variable.JOB_NAME)
    volume = read.absolute(Variable.JOB_PATH, contract.VOLUME_MOUNT)
    root = contract.path(volume, dict(environ)) / job_name
    manifest = read.text(Variable.MANIFEST, "")
    folder = JobFolder(root, root / manifest if manifest else None)
    if contract.NOT_IN_PATHS.intersection(str(folder.root)):
        raise SettingError(
            f"{Variable.JOB_PATH} and {Variable.JOB_NAME} make {str(folder.root)!r}: parameter servers save through a shell, "
            "so spaces, quotes and its other special characters are not allowed there"
        )
    train_config_dir = read.folder_name(Variable.TRAIN_CONFIG_DIR)
    trainers = read.whole(Variable.TRAINERS, None, 1, 10_000)
    discovery = read.choice(Variable.DISCOVERY, DISCOVERIES)
    index: int | None = None
    run_id = read.text(Variable.RUN_ID, "")
    if "/" in run_id or contract.NOT_IN_PATHS.intersection(run_id):
        raise SettingError(f"{Variable.RUN_ID} is {run_id!r}: a part of folders' names is needed, such as the Job's UID")
    service = read.text(Variable.SERVICE, "")
    if discovery == "index":
        if not read.text(Variable.COMPLETION_INDEX, ""):
            raise SettingError(
                f"{Variable.COMPLETION_INDEX} is missing: an Indexed Job sets it; "
                f"in a Job without indexes set {Variable.DISCOVERY}=pod-list"
            )
        index = read.whole(Variable.COMPLETION_INDEX, None, 0, 10_000)
        if index >= trainers:
            raise SettingError(
                f"{Variable.COMPLETION_INDEX} is {index}: with {Variable.TRAINERS}={trainers} it must be 0 to {trainers - 1}; "
                "parallelism, completions and the number of trainers are one number"
            )
        if not run_id:
            raise SettingError(f"{Variable.RUN_ID} is missing: the Job's UID, which tells one run of {job_name} from another")
        if trainers > 1 and not service:
            raise SettingError(
                f"{Variable.SERVICE} is missing: the headless Service by which {trainers} trainers find each other"
            )
    port = read.port(Variable.PORT, contract.FIRST_PORT)
    ports_num = read.whole(Variable.PORTS_NUM, contract.PORTS_NUM, 1, 100)
    ports_num_sparse = read.whole(Variable.PORTS_NUM_SPARSE, contract.PORTS_NUM_SPARSE, 0, 100)
    control_port = read.port(Variable.CONTROL_PORT, contract.CONTROL_PORT)
    last_port = port + ports_num + ports_num_sparse - 1
    if last_port > 65535:
        raise SettingError(f"{Variable.PORT} is {port}: the pserver's last port would be {last_port}, and 65535 is the highest")
    if port <= control_port <= last_port:
        raise SettingError(
            f"{Variable.CONTROL_PORT} is {control_port}: the pserver listens on {port} to {last_port}; choose another port"
        )
    passes = read.whole(Variable.PASSES, 10, 1, 99_999)
    return NodeEnvironment(
        job_name=job_name,
        folder=folder,
        train_config_dir=train_config_dir,
        program=folder.program(train_config_dir),
        local_disk=_local_disk(read, environ, passes),
        data_job=read.text(Variable.DATA_JOB, ""),
        trainers=trainers,
        threads=read.whole(Variable.THREADS, 1, 1, 1024),
        passes=passes,
        keep_passes=read.whole(Variable.KEEP_PASSES, 0, 0, 99_999),
        resume_from=read.choice(Variable.RESUME_FROM, RESUME_FROM),
        attempts=read.whole(Variable.ATTEMPTS, contract.ATTEMPTS, 1, 1000),
        seed=read.whole(Variable.SEED, 0, 0, 2**31 - 1),
        runtime=read.text(Variable.RUNTIME, DEFAULT_RUNTIME),
        discovery=discovery,
        index=index,
        run_id=run_id,
        job_object=read.text(Variable.JOB_OBJECT, job_name),
        service=service,
        namespace=read.text(Variable.JOB_NAMESPACE, "default"),
        pod_name=read.text(Variable.POD_NAME, "") or socket.gethostname(),
        pod_ip=read.address(Variable.POD_IP),
        nic=read.text(Variable.NIC, "eth0"),
        port=port,
        ports_num=ports_num,
        ports_num_sparse=ports_num_sparse,
        control_port=control_port,
        peer_deadline=read.seconds(Variable.PEER_DEADLINE, contract.PEER_DEADLINE),
        grace=read.seconds(Variable.GRACE, contract.GRACE),
        stall=read.seconds(Variable.STALL, contract.STALL),
        lease=read.seconds(Variable.LEASE, contract.LEASE),
        arguments=tuple(arguments),
        environ=dict(environ),
        identity=Identity(read.text(Variable.DATA_DIGEST, ""), read.text(Variable.PROGRAM_DIGEST, "")),
    )


def _local_disk(read: Reader, environ: Mapping[str, str], passes: int) -> LocalDisk | None:
    folder = read.absolute(Variable.STAGE_TO, "")
    when = read.choice(Variable.STAGE, CHOICES)
    if not folder:
        if read.text(Variable.STAGE, NEVER) != NEVER:
            raise SettingError(f"{Variable.STAGE} is {when!r}: {Variable.STAGE_TO} must name a folder on local disk")
        return None
    room = read.whole(Variable.STAGE_ROOM, None, 0, 2**63 - 1) if read.text(Variable.STAGE_ROOM, "") else None
    return LocalDisk(contract.path(folder, dict(environ)), when, passes, room)


class Reader:
    """One method a kind of value; each names the variable in its error."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, variable: Variable, default: str | None) -> str:
        value = self._environ.get(variable, "").strip()
        if value:
            return value
        if default is None:
            raise SettingError(f"{variable} is missing: {_meaning(variable)}")
        return default

    def choice(self, variable: Variable, allowed: tuple[str, ...]) -> str:
        value = self.text(variable, allowed[0])
        if value not in allowed:
            raise SettingError(f"{variable} is {value!r}: allowed are {', '.join(allowed)}")
        return value

    def whole(self, variable: Variable, default: int | None, least: int, most: int) -> int:
        value = self.text(variable, None if default is None else str(default))
        if not (value.isascii() and value.isdigit() and len(value) < 20 and least <= int(value) <= most):
            raise SettingError(f"{variable} is {value[:20]!r}: a whole number from {least} to {most} is needed")
        return int(value)

    def port(self, variable: Variable, default: int) -> int:
        return self.whole(variable, default, 1, 65535)

    def seconds(self, variable: Variable, default: float) -> float:
        value = self.text(variable, str(default))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise SettingError(f"{variable} is {value!r}: a number of seconds above 0 is needed")
        return number

    def folder_name(self, variable: Variable) -> str:
        value = self.text(variable, None)
        if value in (".", "..") or "/" in value or "\0" in value:
            raise SettingError(f"{variable} is {value!r}: the name of one folder is needed, without a slash")
        return value

    def absolute(self, variable: Variable, default: str | None) -> str:
        value = self.text(variable, default)
        if value and not value.startswith("/"):
            raise SettingError(f"{variable} is {value!r}: an absolute path is needed, such as {default or contract.HOME}")
        return value

    def address(self, variable: Variable) -> str:
        value = self.text(variable, "")
        try:
            # The tutorials' manifests do not pass the pod's address: its own host name resolves to it.
            return str(ipaddress.ip_address(value or socket.gethostbyname(socket.gethostname())))
        except ValueError:
            raise SettingError(
                f"{variable} is {value!r}: the pod's IPv4 or IPv6 address is needed (downward API: status.podIP)"
            ) from None
        except OSError:
            raise SettingError(
                f"{variable} is missing, and the pod's host name has no address: pass status.podIP by the downward API"
            ) from None


def _meaning(variable: Variable) -> str:
    return {
        Variable.JOB_NAME: "the job's name, which is its folder on the volume",
        Variable.TRAIN_CONFIG_DIR: "the program's folder below the job's folder, such as quick_start",
        Variable.TRAINERS: "the number of trainers, equal to the Job's parallelism and completions",
        Variable.OUT_DIR: "it names the job's folder on the volume, /home/jobpath/<job name>",
        Variable.SPLIT_COUNT: "the number of shards",
        Variable.COMPLETION_INDEX: "an Indexed Job sets it",
    }.get(variable, "it is needed")
