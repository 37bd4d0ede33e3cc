"""Reads the variables of contract.Variable: of a pod, of the data job and of the agent's workers.

A dataclass whose fields are `setting`s is a part of the table: `read_settings` reads it,
`variables` writes it. The first wrong setting raises `BadSetting`, which names the variable, what
was found and what is allowed. Other modules read variables through this one, except `contract.path`
(PADDLE_NODE_ROOT); what libraries and Paddle read (credentials, proxies) is theirs.
"""

import ipaddress
import json
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from paddle_node import command_line, contract
from paddle_node.contract import EXIT_CODE, Bounds, Variable, Way
from paddle_node.failure import BadSetting
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume.passes import Identity

DISCOVERIES = ("index", "pod-list")
DEFAULT_RUNTIME = "fleet-ps"
RESUME_FROM = ("same", "any")
CHECKPOINTS = ("volume", "local")
_REQUIRED = {
    Variable.JOB_NAME: "the job's name, which is its folder on the volume",
    Variable.TRAIN_CONFIG_DIR: "the program's folder below the job's folder, such as quick_start",
    Variable.TRAINERS: "the number of trainers, equal to the Job's parallelism and completions",
    Variable.OUT_DIR: "it names the job's folder on the volume, /home/jobpath/<job name>",
    Variable.SPLIT_COUNT: "the number of shards",
    Variable.COMPLETION_INDEX: "an Indexed Job sets it; in a Job without indexes set "
    f"{Variable.DISCOVERY}=pod-list",
}


class Reader:
    """One method per kind of value; each names the variable in its error."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ

    def raw(self, variable: Variable) -> str:
        """Returns the value with the blanks around it; empty if the variable is missing."""
        return self._environ.get(variable, "")

    def text(self, variable: Variable, default: str | None) -> str:
        value = self.raw(variable).strip()
        if value:
            return value
        if default is None:
            raise BadSetting(f"{variable} is missing: {_REQUIRED.get(variable, 'it is needed')}")
        return default

    def choice(self, variable: Variable, allowed: tuple[str, ...]) -> str:
        value = self.text(variable, allowed[0])
        if value not in allowed:
            raise BadSetting(f"{variable} is {value!r}: allowed are {', '.join(allowed)}")
        return value

    def integer(self, variable: Variable, bounds: Bounds | None = None) -> int:
        """Returns a whole number in the variable's own bounds, if no other are given."""
        allowed = bounds or contract.BOUNDS[variable]
        default = None if allowed.default is None else f"{allowed.default:.0f}"
        value = self.text(variable, default)
        if not (
            value.isascii() and value.isdigit() and len(value) < 20 and allowed.hold(int(value))
        ):
            most = allowed.most if allowed.below is None else allowed.below - 1
            raise BadSetting(
                f"{variable} is {value[:20]!r}: a whole number from {allowed.least} to {most} is "
                "needed"
            )
        return int(value)

    def matching_text(
        self, variable: Variable, pattern: str, allowed: str, default: str | None = ""
    ) -> str:
        """Returns the default, or a text that matches the whole pattern; `allowed` describes such a
        text to people.
        """
        value = self.text(variable, default)
        if value != default and not re.fullmatch(pattern, value):
            raise BadSetting(f"{variable} is {value[:80]!r}: {allowed}")
        return value

    def digest(self, variable: Variable) -> str:
        return self.matching_text(
            variable, "[0-9a-f]{64}", "the 64 hex digits of a SHA-256 are needed"
        )

    def folder_name(self, variable: Variable) -> str:
        return self.matching_text(
            variable,
            r"(?!\.\.?$)[^/\0]+",
            "the name of one folder is needed, without a slash",
            None,
        )

    def absolute(self, variable: Variable, default: str | None) -> str:
        allowed = f"an absolute path is needed, such as {default or contract.HOME}"
        return self.matching_text(variable, "(?s)/.*", allowed, default)

    def words(self, variable: Variable) -> tuple[str, ...]:
        return tuple(self._json(variable, [], "list"))

    def texts(self, variable: Variable) -> Mapping[str, str]:
        return dict(self._json(variable, {}, "object"))

    def _json(self, variable: Variable, default: Any, kind: str) -> Any:
        value = self.text(variable, json.dumps(default))
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            document = None
        texts = document.values() if isinstance(document, dict) else document
        if type(document) is not type(default) or not all(isinstance(text, str) for text in texts):
            raise BadSetting(f"{variable} is {value[:80]!r}: a JSON {kind} of texts is needed")
        return document

    def number(self, variable: Variable, allowed: str) -> float:
        """Returns a finite number in the variable's bounds, which `allowed` describes to people."""
        bounds = contract.BOUNDS[variable]
        value = self.text(variable, None if bounds.default is None else str(bounds.default))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and bounds.hold(number)):
            raise BadSetting(f"{variable} is {value[:40]!r}: {allowed}")
        return number

    def seconds(self, variable: Variable) -> float:
        return self.number(variable, "a number of seconds above 0 is needed")

    def optional(
        self, variable: Variable, how: Callable[..., Any], missing: float | None = None
    ) -> Any:
        """Returns what `how` reads, or `missing` if the variable is missing or empty."""
        return how(self, variable) if self.text(variable, "") else missing

    def place(self, variable: Variable, default: str | None = None) -> Path:
        """Returns where a container's absolute path leads on this machine."""
        return contract.path(self.absolute(variable, default), self._environ)

    def address(self, variable: Variable) -> str:
        value = self.text(variable, "")
        try:
            # The tutorials' manifests do not pass the pod's address: the pod's own host name
            # resolves to it.
            return str(ipaddress.ip_address(value or socket.gethostbyname(socket.gethostname())))
        except (ValueError, OSError):
            allowed = "the pod's IPv4 or IPv6 address is needed (downward API: status.podIP)"
            raise BadSetting(f"{variable} is {value!r}: {allowed}") from None


def setting(how: Callable[..., Any], variable: Variable, *more: Any) -> Any:
    """Declares a field with the value of one variable, read by the method `how` of `Reader` with
    `more`: default and bounds.
    """
    return field(
        metadata={"variable": variable, "read": lambda reader: how(reader, variable, *more)}
    )


def read_settings(kind: type[Any], reader: Reader) -> dict[str, Any]:
    """Reads every `setting` of a dataclass, in the order of its fields."""
    return {
        field_.name: field_.metadata["read"](reader) for field_ in fields(kind) if field_.metadata
    }


def variables(settings: Any) -> dict[str, str]:
    """Returns the variables from which `read_settings` reads these settings."""
    values = {
        field_.metadata["variable"].value: getattr(settings, field_.name)
        for field_ in fields(settings)
        if field_.metadata
    }
    return {
        name: json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)
        for name, value in values.items()
    }


def endpoint(address: str, port: int) -> str:
    """Returns `address:port`, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True)
class Attempt:
    """One try of all N pods together. A pserver or trainer never outlives its attempt."""

    number: int
    """From 1, kept on the volume; a folder never has the same number twice."""
    resumed: Mapping[str, str] = field(default_factory=dict)
    """What the runtime's `Progress.begin` chose to resume from, under the runtime's own names;
    empty: from the beginning.
    """
    local: bool = False
    """Whether its command writes to the pod's scratch instead of the volume."""


@dataclass(frozen=True, kw_only=True)
class UserCommand:
    """The command that runs instead of train.py, and its settings. All texts may hold
    placeholders.
    """

    words: tuple[str, ...] = setting(Reader.words, Variable.COMMAND)
    processes: int = setting(Reader.integer, Variable.PROCESSES)
    gpus: int = setting(Reader.integer, Variable.GPUS)
    efa: int = setting(Reader.integer, Variable.EFA)
    resume: tuple[str, ...] = setting(Reader.words, Variable.RESUME)
    resume_line: tuple[str, ...] = setting(Reader.words, Variable.RESUME_LINE)
    checkpoint_files: tuple[str, ...] = setting(Reader.words, Variable.CHECKPOINT_FILES)
    checkpoint_last: str = setting(Reader.text, Variable.CHECKPOINT_LAST, "")
    model: str = setting(Reader.text, Variable.MODEL, "")
    recipe: str = setting(Reader.text, Variable.RECIPE, "")
    progress: str = setting(Reader.text, Variable.PROGRESS, "")
    success: str = setting(Reader.text, Variable.SUCCESS, "")
    templates: str = setting(Reader.text, Variable.TEMPLATES, "")
    metrics: Mapping[str, str] = setting(Reader.texts, Variable.METRICS)
    apart: str = setting(Reader.text, Variable.APART, "")
    """Not empty: the pods work apart on purpose."""
    nan: str = setting(Reader.text, Variable.NAN, "")
    """fail: a metric that is not finite ends the job."""

    @property
    def success_file(self) -> str:
        """The file that says that the command is done; empty: none."""
        return "" if self.success == EXIT_CODE else self.success


@dataclass(frozen=True, kw_only=True)
class PodEnvironment:
    """A pod's settings: `Variable` says what each is. `index` is None in pod-list mode until
    discovery knows it.
    """

    job_name: str = setting(Reader.folder_name, Variable.JOB_NAME)
    folder: JobFolder
    train_config_dir: str = setting(Reader.folder_name, Variable.TRAIN_CONFIG_DIR)
    program: Path
    """The user's program: `<volume>/<job name>/<TRAIN_CONFIG_DIR>`, or where this pod unpacked
    it.
    """
    archive: str = setting(Reader.digest, Variable.PROGRAM_ARCHIVE)
    environment: str = setting(Reader.digest, Variable.ENVIRONMENT)
    python: str = sys.executable
    """Which Python runs the program: the image's, or that of the environment."""
    stage_to: Path | None
    room: int | None = setting(Reader.optional, Variable.STAGE_ROOM, Reader.integer)
    """Bytes that the pod's scratch may take: above it, Kubernetes evicts the pod even if the disk
    has space. None: what the disk has.
    """
    checkpoints: str = setting(Reader.choice, Variable.CHECKPOINTS, CHECKPOINTS)
    data_job: str = setting(Reader.text, Variable.DATA_JOB, "")
    trainers: int = setting(Reader.integer, Variable.TRAINERS)
    threads: int = setting(Reader.integer, Variable.THREADS)
    passes: int = setting(Reader.integer, Variable.PASSES)
    keep_passes: int = setting(Reader.integer, Variable.KEEP_PASSES)
    checkpoint: float = setting(Reader.optional, Variable.CHECKPOINT, Reader.seconds, math.inf)
    resume_from: str = setting(Reader.choice, Variable.RESUME_FROM, RESUME_FROM)
    attempts: int = setting(Reader.integer, Variable.ATTEMPTS)
    seed: int = setting(Reader.integer, Variable.SEED)
    runtime: str = setting(Reader.text, Variable.RUNTIME, DEFAULT_RUNTIME)
    command: UserCommand
    discovery: str = setting(Reader.choice, Variable.DISCOVERY, DISCOVERIES)
    index: int | None
    run_id: str = setting(Reader.text, Variable.RUN_ID, "")
    job_object: str
    service: str = setting(Reader.text, Variable.SERVICE, "")
    hosts: str = setting(Reader.text, Variable.HOSTS, "")
    api_host: str = setting(Reader.text, Variable.API_HOST, "")
    api_port: int = setting(Reader.integer, Variable.API_PORT)
    namespace: str = setting(Reader.text, Variable.JOB_NAMESPACE, "default")
    pod_name: str
    kubernetes_node: str = setting(Reader.text, Variable.NODE, "")
    pod_ip: str = setting(Reader.address, Variable.POD_IP)
    nic: str = setting(Reader.text, Variable.NIC, "eth0")
    port: int = setting(Reader.integer, Variable.PORT)
    ports_num: int = setting(Reader.integer, Variable.PORTS_NUM)
    ports_num_sparse: int = setting(Reader.integer, Variable.PORTS_NUM_SPARSE)
    control_port: int = setting(Reader.integer, Variable.CONTROL_PORT)
    metrics_port: int = setting(Reader.integer, Variable.METRICS_PORT)
    peer_deadline: float = setting(Reader.seconds, Variable.PEER_DEADLINE)
    grace: float = setting(Reader.seconds, Variable.GRACE)
    stall: float = setting(Reader.seconds, Variable.STALL)
    lease: float = setting(Reader.seconds, Variable.LEASE)
    arguments: tuple[str, ...]
    """The entry point's own arguments, for the trainer, untouched."""
    environ: Mapping[str, str]
    """The container's whole environment, from which the children's is built; no module reads
    settings from it.
    """
    identity: Identity
    """The data and program that this pod has read; in its processes: those that the run reads."""

    @property
    def trainer_id(self) -> int:
        """This pod's id, known after discovery. Raises RuntimeError before."""
        if self.index is None:
            raise RuntimeError("the trainer id is not known before discovery")
        return self.index

    @property
    def way(self) -> Way:
        """How the job trains."""
        return Way(self.runtime, bool(self.command.words))

    @property
    def ports(self) -> range:
        """The pserver's ports: dense, then sparse."""
        return range(self.port, self.port + self.ports_num + self.ports_num_sparse)

    @property
    def local(self) -> bool:
        """Whether checkpoints go to the pod's scratch first."""
        return self.checkpoints == "local"

    def scratch(self, attempt: int) -> Path:
        """The folder on this pod's scratch to which an attempt of its command writes."""
        return self.home / "attempts" / f"{self.run_id}-{attempt}"

    @property
    def home(self) -> Path:
        """Writable scratch of this pod, with the working directory of the processes and the probe's
        status.
        """
        return contract.path(contract.HOME, self.environ)


@dataclass(frozen=True, kw_only=True)
class WorkerEnvironment:
    """The settings that the agent gives its pserver and trainers, besides the container's
    variables.
    """

    server: str = setting(Reader.text, Variable.COORDINATOR, "")
    session_key: str = setting(Reader.text, Variable.SESSION_KEY, "")
    attempt: int = setting(Reader.integer, Variable.ATTEMPT)
    resumed: Mapping[str, str] = setting(Reader.texts, Variable.RESUMED)
    manifest: str = setting(Reader.text, Variable.MANIFEST, "")
    data_digest: str = setting(Reader.text, Variable.DATA_DIGEST, "")
    program_digest: str = setting(Reader.text, Variable.PROGRAM_DIGEST, "")
    trainer_id: int = setting(Reader.integer, Variable.TRAINER_ID)
    trainers: int = setting(
        Reader.integer, Variable.TRAINERS, replace(contract.BOUNDS[Variable.TRAINERS], default=1)
    )
    run_id: str = setting(Reader.text, Variable.RUN_ID, "")

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Reads the worker's own settings; if no agent started it, it is 1 of 1."""
        return cls(**read_settings(cls, Reader(environ)))


@dataclass(frozen=True, kw_only=True)
class ProgramEnvironment(WorkerEnvironment):
    """Adds what a training program on `paddle_node.fleet` gets from its runtime, or from the
    evaluation or trial that runs it.
    """

    role: str = setting(Reader.text, Variable.ROLE, "")
    master: str = setting(Reader.text, Variable.MASTER, "")
    evaluated_pass: str = setting(Reader.text, Variable.EVALUATED_PASS, "")
    steps: str = setting(Reader.text, Variable.STEPS, "")
    metrics: Mapping[str, str] = setting(Reader.texts, Variable.METRICS)
    world: int = setting(Reader.integer, Variable.WORLD)
    rank: str = setting(Reader.text, Variable.RANK, "")
    launched_rank: str = setting(Reader.text, Variable.LAUNCHED_RANK, "")


def parse(environ: Mapping[str, str] = os.environ, arguments: Sequence[str] = ()) -> PodEnvironment:
    """Reads the container's environment. Raises `BadSetting` for the first setting that is
    missing or wrong.
    """
    read = Reader(environ)
    settings = read_settings(PodEnvironment, read)
    root = read.place(Variable.JOB_PATH, contract.VOLUME_MOUNT) / settings["job_name"]
    worker = WorkerEnvironment.read(environ)
    folder = JobFolder(root, root / worker.manifest if worker.manifest else None)
    pod = PodEnvironment(
        **settings,
        folder=folder,
        program=folder.program(settings["train_config_dir"]),
        stage_to=read.optional(Variable.STAGE_TO, Reader.place),
        command=UserCommand(**read_settings(UserCommand, read)),
        index=read.integer(Variable.COMPLETION_INDEX) if settings["discovery"] == "index" else None,
        job_object=read.text(Variable.JOB_OBJECT, settings["job_name"]),
        pod_name=read.text(Variable.POD_NAME, "") or socket.gethostname(),
        arguments=tuple(arguments),
        environ=dict(environ),
        identity=Identity(worker.data_digest, worker.program_digest),
    )
    _check(pod)
    return pod


def _check(pod: PodEnvironment) -> None:
    """Checks the settings that no method of `Reader` can check alone."""
    folder = str(pod.folder.root)
    last = max(pod.ports[-1], pod.port + contract.MASTER_PORTS + 1 if pod.command.words else 0)
    by_index = pod.index is not None
    _refuse(
        pod.way.servers and contract.NOT_IN_PATHS.intersection(folder),
        f"{Variable.JOB_PATH} and {Variable.JOB_NAME} make {folder!r}: parameter servers save "
        "through a shell, so spaces, quotes and its other special characters are not allowed "
        "there",
    )
    _refuse(
        contract.NOT_IN_PATHS.union("/").intersection(pod.run_id),
        f"{Variable.RUN_ID} is {pod.run_id!r}: a part of folders' names is needed, such as the "
        "Job's UID",
    )
    _refuse(
        by_index and pod.trainer_id >= pod.trainers,
        f"{Variable.COMPLETION_INDEX} is {pod.index}: with {Variable.TRAINERS}={pod.trainers} "
        f"it must be 0 to {pod.trainers - 1}; parallelism, completions and the number of "
        "trainers are one number",
    )
    missing = (
        f"{Variable.RUN_ID} is missing: the Job's UID, which tells one run of {pod.job_name} "
        "from another"
    )
    _refuse(by_index and not pod.run_id, missing)
    _refuse(
        by_index and pod.trainers > 1 and not pod.service,
        f"{Variable.SERVICE} is missing: the headless Service by which {pod.trainers} trainers "
        "find each other",
    )
    highest = (
        f"{Variable.PORT} is {pod.port}: the pserver's last port would be {last}, and 65535 is "
        "the highest"
    )
    _refuse(last > 65535, highest)
    for name, pattern in pod.command.metrics.items():
        _refuse(
            fault := command_line.pattern_fault(pattern),
            f"{Variable.METRICS} has {name}: {pattern[:80]!r}: {fault}",
        )
    taken = (
        f"{Variable.CONTROL_PORT} is {pod.control_port}: the pserver listens on {pod.port} to "
        f"{last}; choose another port"
    )
    _refuse(pod.port <= pod.control_port <= last, taken)
    _refuse(
        pod.port <= pod.metrics_port <= last or pod.metrics_port == pod.control_port,
        f"{Variable.METRICS_PORT} is {pod.metrics_port}: the pserver or the agent listens there; "
        "choose another port",
    )


def _refuse(wrong: object, sentence: str) -> None:
    if wrong:
        raise BadSetting(sentence)
