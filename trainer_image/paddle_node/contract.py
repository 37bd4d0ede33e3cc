"""The single home of every name that charts, image, volume and tools share: variables, ports, paths
and exit codes.

`path()` is the only way a container path reaches the file system. The names are those of the
PaddlePaddle on AWS tutorials (2016-17); ours are marked as such.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from pathlib import Path, PurePosixPath


class Variable(StrEnum):
    """Environment variables of a pod's container."""

    # The tutorials' variables.
    JOB_NAME = "JOB_NAME"
    """Job name: the first folder on the volume."""
    JOB_PATH = "JOB_PATH"
    """Where the volume is mounted."""
    JOB_NAMESPACE = "JOB_NAMESPACE"
    """Namespace to look for sibling pods in (pod-list discovery)."""
    TRAIN_CONFIG_DIR = "TRAIN_CONFIG_DIR"
    """Program folder under the job's folder."""
    NIC = "CONF_PADDLE_NIC"
    """Network device (0.x: --nics)."""
    PORT = "CONF_PADDLE_PORT"
    """First pserver port (0.x: --port)."""
    PORTS_NUM = "CONF_PADDLE_PORTS_NUM"
    """Ports for dense updates (0.x: --ports_num)."""
    PORTS_NUM_SPARSE = "CONF_PADDLE_PORTS_NUM_SPARSE"
    """Ports for sparse updates (0.x: --ports_num_for_sparse)."""
    TRAINERS = "CONF_PADDLE_GRADIENT_NUM"
    """Number of trainers, which is the Job's parallelism and completions (0.x:
    --num_gradient_servers).
    """
    THREADS = "TRAINER_COUNT"
    """Threads in one trainer, NOT the number of trainers (0.x: --trainer_count)."""

    # The data job's variables: the first two are the tutorials', the rest are ours.
    OUT_DIR = "OUT_DIR"
    """The job's folder on the mounted volume."""
    SPLIT_COUNT = "SPLIT_COUNT"
    """Number of shards."""
    DATA_SOURCE = "DATA_SOURCE"
    """What to split: a path in the container, s3://bucket/prefix or an https:// address."""
    DATA_FORMAT = "DATA_FORMAT"
    """lines | files | module:function, a record reader of the user's."""
    HEADER = "DATA_HEADER"
    """1: the first line of each file of the source is a header, and no record; else 0."""
    HOLD_OUT = "HOLD_OUT"
    """Share of the records kept from training for evaluation, 0 <= x < 1."""
    SHUFFLE_SEED = "SHUFFLE_SEED"
    """Seed of the shuffle before the split; empty keeps the source's order."""
    PROGRAM_FROM = "PROGRAM_FROM"
    """Folder in the image from which the data job copies the training program to the volume; empty:
    the volume has it already.
    """
    SHARED = "PADDLE_NODE_SHARED"
    """Folder below the volume for the one unsplit copy that jobs with this source share; empty: the
    data is split.
    """
    INPUTS = "PADDLE_NODE_INPUTS"
    """JSON object from the inputs' names to where the data job finds them: an address as of
    DATA_SOURCE, or job:<name>[/<path below its output>]. Set without DATA_SOURCE: the job has no
    data.
    """
    SPLIT_PODS = "SPLIT_PODS"
    """Pods that share one split (an Indexed data job's completions); empty: 1."""

    PROGRAM_ARCHIVE = "PADDLE_NODE_PROGRAM_ARCHIVE"
    """SHA-256 of the program's archive, `programs/<SHA-256>.tar` in the job's folder; empty: the
    program is a folder.
    """

    ENVIRONMENT = "PADDLE_NODE_ENVIRONMENT"
    """SHA-256 that names the environment of the program's requirements; empty: it has none, or the
    image has them.
    """
    WHEELS = "PADDLE_NODE_WHEELS"
    """Folder with all packages, for an environment Job without a network; empty: an index has
    them.
    """

    # Kubernetes' own, set by the Job controller and the downward API.
    COMPLETION_INDEX = "JOB_COMPLETION_INDEX"
    POD_NAME = "POD_NAME"
    POD_UID = "POD_UID"
    POD_IP = "POD_IP"
    API_HOST = "KUBERNETES_SERVICE_HOST"
    API_PORT = "KUBERNETES_SERVICE_PORT"

    # Ours.
    NODE = "PADDLE_NODE_NODE"
    """The Kubernetes node that the pod runs on, for messages; empty: unknown."""
    RUN_ID = "PADDLE_NODE_RUN_ID"
    """The Job's UID: which run this pod belongs to."""
    JOB_OBJECT = "PADDLE_NODE_JOB_OBJECT"
    """Name of the Kubernetes Job object (it may carry a hash; JOB_NAME names the folder)."""
    SERVICE = "PADDLE_NODE_SERVICE"
    """The headless Service: peer i is `<job object>-<i>.<service>`."""
    DISCOVERY = "PADDLE_NODE_DISCOVERY"
    """index (default) | pod-list."""
    RUNTIME = "PADDLE_NODE_RUNTIME"
    """fleet-ps (default) | collective | launch | paddle-0.x."""
    COMMAND = "PADDLE_NODE_COMMAND"
    """The user's own command: a JSON list of words, with placeholders (`command_line`)."""
    PROCESSES = "PADDLE_NODE_PROCESSES"
    """Processes of the command in each pod (default 1)."""
    GPUS = "PADDLE_NODE_GPUS"
    """GPUs of each pod; 0 (default): its processes communicate over gloo."""
    EFA = "PADDLE_NODE_EFA"
    """Elastic Fabric Adapters of each pod, for the node check; default 0."""
    RESUME = "PADDLE_NODE_RESUME"
    """JSON list of words that are appended to the command if it has something to resume from."""
    PROGRESS = "PADDLE_NODE_PROGRESS"
    """Glob below the job's folder: the numbers in the matches' names are the command's progress or,
    of a fixed name, its content.
    """
    SUCCESS = "PADDLE_NODE_SUCCESS"
    """File below the job's folder that an attempt of the command writes when it is done; empty:
    only its exit codes say so.
    """
    RESUME_LINE = "PADDLE_NODE_RESUME_LINE"
    """JSON list of words: the whole command, with its arguments, that runs instead if there is
    something to resume from; of a recipe.
    """
    CHECKPOINT_FILES = "PADDLE_NODE_CHECKPOINT_FILES"
    """JSON list of the files that a whole checkpoint of the command has, by name or glob: in its
    folder or, with {stem}, beside its file; with {rank}: one for each rank.
    """
    CHECKPOINT_LAST = "PADDLE_NODE_CHECKPOINT_LAST"
    """The one of `CHECKPOINT_FILES` that is written last; empty: unknown."""
    MODEL = "PADDLE_NODE_MODEL"
    """Glob below the job's folder for the command's final model, without which it is not done;
    empty: unknown.
    """
    RECIPE = "PADDLE_NODE_RECIPE"
    """Which recipe the job's settings are from, and why, for people."""
    METRICS = "PADDLE_NODE_METRICS"
    """JSON object from metric names to the patterns that find the metrics of a step in the
    command's lines.
    """
    TEMPLATES = "PADDLE_NODE_TEMPLATES"
    """Comma-separated names of variables whose values hold placeholders."""
    PASSES = "PADDLE_NODE_PASSES"
    """Number of passes over the data (0.x: --num_passes)."""
    KEEP_PASSES = "PADDLE_NODE_KEEP_PASSES"
    """How many of the newest good passes of this data and program stay on the volume; 0 keeps
    all.
    """
    CHECKPOINT = "PADDLE_NODE_CHECKPOINT"
    """Seconds between two checkpoints inside a pass, of programs on paddle_node.fleet; empty:
    none.
    """
    RESUME_FROM = "PADDLE_NODE_RESUME_FROM"
    """same (default): resume only from passes of this very data and program | any: from the newest
    pass, whatever made it.
    """
    ATTEMPTS = "PADDLE_NODE_ATTEMPTS"
    """How many failures of the program, without progress in between, end the job; each counts once,
    also if it is the same exception again.
    """
    CONTROL_PORT = "PADDLE_NODE_CONTROL_PORT"
    """TCP port on which the agents talk to each other."""
    METRICS_PORT = "PADDLE_NODE_METRICS_PORT"
    """TCP port on which each agent serves its pod's numbers in OpenMetrics; 0 (default): none."""
    PEER_DEADLINE = "PADDLE_NODE_PEER_DEADLINE"
    """Seconds to wait for all N pods before the job fails and names the missing ones (pod-list:
    counts them).
    """
    SEED = "PADDLE_NODE_SEED"
    """Seed of initial parameters and of the order of batches."""
    GRACE = "PADDLE_NODE_GRACE"
    """Seconds between SIGTERM and the last moment to leave: terminationGracePeriodSeconds minus a
    margin.
    """
    STALL = "PADDLE_NODE_STALL"
    """Seconds without a step after which the liveness probe fails in the pod that holds the others
    up.
    """
    LEASE = "PADDLE_NODE_LEASE"
    """Seconds without a heartbeat after which a dead run's lease on the folder expires."""

    DATA_JOB = "PADDLE_NODE_DATA_JOB"
    """Hash of the data job's template. The job writes it into the data manifest, and the trainers
    wait for it; empty: any job.
    """

    # What the agent hands to its trainer and pserver processes.
    COORDINATOR = "PADDLE_NODE_COORDINATOR"
    """host:port of the rendezvous server."""
    SESSION_KEY = "PADDLE_NODE_SESSION_KEY"
    """Key by which a trainer of this attempt and the rendezvous server recognize each other."""
    ATTEMPT = "PADDLE_NODE_ATTEMPT"
    """Number of this attempt, from 1, kept on the volume."""
    RESUMED = "PADDLE_NODE_RESUMED"
    """What this attempt resumes from, as its runtime's `Progress` chose it: a JSON object of
    texts.
    """
    MANIFEST = "PADDLE_NODE_MANIFEST"
    """The run's data manifest, below the job's folder; empty: `DATA_MANIFEST`."""
    DATA = "PADDLE_NODE_DATA"
    """Folder with this pod's data: its shard, or the copy that all share."""
    STEPS = "PADDLE_NODE_STEPS"
    """File for this process's metrics by step; empty: none."""
    PRINT_STEPS = "PADDLE_NODE_PRINT_STEPS"
    """Set only by a storm: each report of a step is also a line on stderr."""
    TRIED_IMAGE = "PADDLE_NODE_TRIED_IMAGE"
    """Set only by a trial: the image of the job's own, whose packages the trial does not have."""
    WORLD = "PADDLE_NODE_WORLD"
    """How many ranks the job has, for a command on several pods; 0: any number."""
    RANK = "RANK"
    """Rank of a process that torchrun started."""
    LAUNCHED_RANK = "PADDLE_TRAINER_ID"
    """Rank of a process that Paddle's launcher started; its RANK may be the pod's."""
    DATA_DIGEST = "PADDLE_NODE_DATA_DIGEST"
    """Digest of what the data manifest says about the data; empty: no manifest."""
    PROGRAM_DIGEST = "PADDLE_NODE_PROGRAM_DIGEST"
    """Digest of the whole program folder."""
    TRAINER_ID = "PADDLE_NODE_TRAINER_ID"
    """This pod's trainer id, as discovery found it."""
    ROLE = "TRAINING_ROLE"
    """Paddle's own: PSERVER | TRAINER; EVALUATOR and TRIAL are ours."""
    MASTER = "PADDLE_MASTER"
    """Paddle's own: host:port where the ranks of a collective program meet."""
    EVALUATED_PASS = "PADDLE_NODE_EVALUATED_PASS"
    """Set only by evaluate_pass.py: the folder of the pass that an evaluator loads."""

    STAGE_TO = "PADDLE_NODE_STAGE_TO"
    """Folder on local disk to which a trainer copies its shard before training; empty: it reads the
    shard on the volume.
    """
    STAGE = "PADDLE_NODE_STAGE"
    """always (default where `STAGE_TO` is set) | auto: if a trial of both shows that it is faster |
    never.
    """
    STAGE_ROOM = "PADDLE_NODE_STAGE_ROOM"
    """Bytes that the pod's scratch may take (its emptyDir's limit); empty: what the disk has
    free.
    """

    # Set only by the rehearsal; empty in a container.
    ROOT = "PADDLE_NODE_ROOT"
    """Folder below which the container's paths lie."""
    HOSTS = "PADDLE_NODE_HOSTS"
    """JSON file {name: address} that is consulted before DNS, read again at each lookup."""


class Label(StrEnum):
    """Labels of a job's objects and pods."""

    # Kubernetes' recommended ones, set by the charts.
    PART_OF = "app.kubernetes.io/part-of"
    """Always `PROJECT`."""
    INSTANCE = "app.kubernetes.io/instance"
    """The job's name."""
    COMPONENT = "app.kubernetes.io/component"
    """The pod's role."""

    # Set by the Job controller.
    JOB_NAME = "batch.kubernetes.io/job-name"
    RUN_ID = "batch.kubernetes.io/controller-uid"
    INDEX = "batch.kubernetes.io/job-completion-index"


PROJECT = "paddle-aws"


class ExitCode(IntEnum):
    """How a pod ends; any other code is the trainer's own. The numbers are those of sysexits.h
    where it has the same meaning.
    """

    DONE = 0
    BAD_SETTING = 2
    """A setting is missing or wrong: the message names it."""
    BAD_DATA = 65
    """The shards do not match the manifest, or this job."""
    SOURCE_UNREACHABLE = 68
    """The data's source broke off or answered 5xx more often than the retries allow: another try
    may help.
    """
    PEERS_MISSING = 69
    """A deadline passed and peers were missing: the message names or counts them."""
    ATTEMPTS_EXHAUSTED = 70
    """Every allowed attempt failed: the message names the cause of each."""
    NODE_UNFIT = 71
    """The node lacks GPUs or adapters that the job asked for, or its all-reduce fails: the message
    names it.
    """
    FOLDER_IN_USE = 73
    """Another run holds the job's folder."""
    VOLUME_FULL = 74
    """The volume accepted no more bytes; what was complete before is intact."""
    CANNOT_END = 75
    """The volume hangs, or a process that waits for it does not end: the pod leaves, so that its
    replacement starts clean.
    """
    REPLACED = 76
    """A newer pod with this pod's trainer id has taken its place."""
    NOT_PERMITTED = 77
    """The API server refused (401, 403): the message names the missing Role."""
    KILLED_AGAIN = 79
    """The container was killed and restarted in its pod too often: the Job counts the pod, and
    creates another.
    """
    TERMINATED = 143
    """SIGTERM: saved, then left within the grace period."""


FAIL_JOB = (
    ExitCode.BAD_SETTING,
    ExitCode.BAD_DATA,
    ExitCode.ATTEMPTS_EXHAUSTED,
    ExitCode.FOLDER_IN_USE,
    ExitCode.NOT_PERMITTED,
)
"""Codes after which another try cannot help: the Job fails at once."""

RESTART_IN_PLACE = (137,)
"""128 + SIGKILL, also when memory ran out: nobody decided it, so the kubelet restarts the container
in its pod. Never 143: a container that the kubelet itself ends has lost its sandbox, and its pod
would wait for a restart indefinitely.
"""

# The image.
ENTRY_POINT = "/usr/local/bin/start.sh"
DATA_ENTRY_POINT = "/usr/local/bin/split.sh"
PROBE_ENTRY_POINT = "/usr/local/bin/healthy.sh"
EVALUATION = ("python3", "/opt/paddle/evaluate_pass.py")
"""Measures the newest complete pass, with a trainer's variables."""
BUILD_ENVIRONMENT = ("python3", "/opt/paddle/build_environment.py")
"""Builds the environment of a program's requirements."""
REQUIREMENTS = "/opt/paddle/requirements/requirements.txt"
"""What the environment Job installs: in its container alone, from a ConfigMap."""
CONSTRAINTS = "/opt/venv/constraints.txt"
"""The limits of the image's Paddle for a program's requirements; may be missing."""
NUMPY1 = "/opt/venv/requirements-numpy1.in"
"""Further limits where these bring NumPy 1."""
PROGRAMS = "/opt/paddle/programs"
"""Where the image keeps its training programs."""
AGENT_PACKAGES = "agent"
"""Folder below Python's own with the few packages that paddle_node imports, apart from those of the
program. The agent and the data job have them first on their path.
"""
UID = GID = 1000
"""The image's user, equal to the access point's."""
HOME = "/home/paddle"
"""Writable scratch: the working directory of the processes; an emptyDir, because the root file
system is read-only.
"""

SHARED_MEMORY = "/dev/shm"
"""A volume of the pod's own: the next container finds what a killed one left there."""

UNPACKED = f"{HOME}/program"
"""Where a pod unpacks the program's archive: writable, and its own."""
ENVIRONMENT = f"{HOME}/environment"
"""Where a pod unpacks the environment of its program's requirements."""
ATTEMPT = f"{HOME}/attempt"
"""In a command's pod: leads to the folder of the attempt that runs. The same path in every attempt;
its `output` is a real folder.
"""
SHIPPED = f"{HOME}/shipped-output"
"""In a command's pod: what its program's own folder has in `output`."""
PROGRAM_LIMIT = 1_000_000_000
"""Bytes of the files in a program's archive."""

LONGEST_STRING = 131_071
"""Bytes of one argument, or of one variable with its name: Linux starts no program with a longer
one.
"""

TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes looks for a container's last words: `kubectl describe pod` shows them."""

NOT_IN_PATHS = frozenset(" \t\n\"'\\$`&|;<>(){}[]*?")
"""Characters that no path of the volume may contain: parameter servers of 2.6.2 save through a
shell and quote nothing.
"""

# The tutorials' values.
VOLUME_MOUNT = "/home/jobpath"
FIRST_PORT = 7164
# Ours.
CONTROL_PORT = 7163
METRICS_PORT = 7161
"""Where agents serve metrics in jobs that let somebody read them."""
METRICS_PATH = "/metrics"
TRAINER_PORTS_FROM = 8500
"""fleet's trainers listen from this port upwards, with one port for each trainer of the same
address.
"""
LEASE = 90.0
"""Seconds; longer than the 60 s for which an NFS client may trust its cache of a directory."""
MOST_PROCESSES = 16
"""The most processes of a command in one pod."""
MASTER_PORTS = MOST_PROCESSES
"""Offset of rank 0's two ports from the first port: after the ranks' ports, and clear of every
pserver's, because Paddle binds them on all addresses, also on a machine that rehearses other jobs.
"""


@dataclass(frozen=True)
class Bounds:
    """Which numbers a variable may have."""

    default: float | None = None
    """The number of a missing or empty variable; None: the variable must be set."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """The number must exceed this one."""
    below: float | None = None
    """The number must stay under this one."""

    def hold(self, number: float) -> bool:
        """Returns whether the number is allowed."""
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


_PORT = Bounds(least=1, most=65535)

BOUNDS: Mapping[Variable, Bounds] = {
    Variable.PORT: replace(_PORT, default=FIRST_PORT),
    Variable.PORTS_NUM: Bounds(2, 1, 100),
    Variable.PORTS_NUM_SPARSE: Bounds(2, 0, 100),
    Variable.CONTROL_PORT: replace(_PORT, default=CONTROL_PORT),
    Variable.METRICS_PORT: Bounds(0, 0, 65535),
    Variable.API_PORT: replace(_PORT, default=443),
    # The agents' protocol is measured up to 10,000 pods (benchmarks/scale.py).
    Variable.TRAINERS: Bounds(None, 1, 10_000),
    Variable.COMPLETION_INDEX: Bounds(None, 0, 10_000),
    Variable.TRAINER_ID: Bounds(0, 0, 10_000),
    Variable.WORLD: Bounds(0, 0, 10_000_000),
    Variable.THREADS: Bounds(1, 1, 1024),
    Variable.PROCESSES: Bounds(1, 1, MOST_PROCESSES),
    Variable.GPUS: Bounds(0, 0, MOST_PROCESSES),
    Variable.EFA: Bounds(0, 0, 32),
    Variable.PASSES: Bounds(10, 1, 99_999),
    Variable.KEEP_PASSES: Bounds(0, 0, 99_999),
    Variable.SEED: Bounds(0, 0, below=2**31),
    Variable.ATTEMPTS: Bounds(3, 1, 1000),
    Variable.ATTEMPT: Bounds(1, 1, below=2**63),
    Variable.SPLIT_COUNT: Bounds(None, 1, 10_000),
    Variable.SPLIT_PODS: Bounds(1, 1, 1000),
    Variable.HEADER: Bounds(0, 0, 1),
    Variable.HOLD_OUT: Bounds(0.0, 0, below=1),
    Variable.STAGE_ROOM: Bounds(None, 0, below=2**63),
    Variable.CHECKPOINT: Bounds(None, above=0),
    # A node group that scales up from zero starts its pods within this time.
    Variable.PEER_DEADLINE: Bounds(900, above=0),
    # Kubernetes' terminationGracePeriodSeconds is 30 unless the pod says otherwise.
    Variable.GRACE: Bounds(25, above=0),
    Variable.STALL: Bounds(900, above=0),
    Variable.LEASE: Bounds(LEASE, above=0),
}
"""The numbers that pods accept and, where it says no other, job.yaml. Seconds may be fractions."""


DATA_MANIFEST = "data-manifest.json"
"""In the job's folder, written last by the split: its presence means that the split is complete
(ours).
"""
INPUTS = "shared/inputs"
"""On the volume: one copy of each content that jobs have as an input, under its digest (ours)."""
ENVIRONMENTS = "shared/environments"
"""On the volume: the environments of programs' requirements, each under its digest (ours)."""
SOURCES = "sources"
"""In the job's folder: data files that the user's machine uploads there (ours)."""
RECORD_FORMAT = r"lines|files|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""Pattern of the values that DATA_FORMAT may have."""
SPLIT_MANIFEST = "manifest.json"
"""The data manifest in the split's own folder, created exclusively and never replaced (ours)."""


def path(container_path: str | PurePosixPath, environ: Mapping[str, str] = os.environ) -> Path:
    """Maps a container's absolute path to this machine: below PADDLE_NODE_ROOT if that is set.
    Raises ValueError.
    """
    pure = PurePosixPath(container_path)
    if not pure.is_absolute():
        raise ValueError(
            f"{container_path} is a relative path: the contract knows absolute container paths only"
        )
    root = environ.get(Variable.ROOT, "")
    return Path(root, *pure.parts[1:]) if root else Path(pure)
