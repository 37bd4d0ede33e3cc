"""All names that charts, image, volume and tools share: variables and their bounds, labels, exit
codes, ports and paths. Import them from here.

The names are those of the PaddlePaddle on AWS tutorials (2016-17); ours are marked as such.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from paddle_node.contract.exit_codes import FAIL_JOB, RESTART_IN_PLACE, ExitCode
from paddle_node.contract.variables import EXIT_CODE, LONGEST_STRING, RECORD_FORMAT, Variable

PROJECT = "paddle-aws"

# Where a pod's processes listen: the first port is the tutorials', the others are ours.
FIRST_PORT = 7164
CONTROL_PORT = 7163
METRICS_PORT = 7161
"""Where agents serve metrics in jobs that let somebody read them."""
METRICS_PATH = "/metrics"
TRAINER_PORTS = range(8500, 8600)
"""fleet's trainers listen from the first port upwards, with one port for each trainer of the same
address.
"""
MOST_PROCESSES = 16
"""The most processes of a command in one pod."""
MASTER_PORTS = MOST_PROCESSES
"""Offset of rank 0's two ports from the first port: after the ranks' ports, and clear of every
pserver's, because Paddle binds them on all addresses, also on a machine that rehearses other jobs.
"""

# Names on the volume; all but the job's folder are ours.
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
SPLIT_MANIFEST = "manifest.json"
"""The data manifest in the split's own folder, created exclusively and never replaced (ours)."""

NOT_IN_PATHS = frozenset(" \t\n\"'\\$`&|;<>(){}[]*?")
"""Characters that no path of the volume may contain: parameter servers of 2.6.2 save through a
shell and quote nothing.
"""

# Paths in a container; `path()` alone maps them to the file system.
ENTRY_POINT = "/usr/local/bin/start.sh"
DATA_ENTRY_POINT = "/usr/local/bin/split.sh"
PROBE_ENTRY_POINT = "/usr/local/bin/healthy.sh"
EVALUATION = ("python3", "/opt/paddle/evaluate_pass.py")
"""Measures the newest complete pass, with a trainer's variables."""
BUILD_ENVIRONMENT = ("python3", "/opt/paddle/build_environment.py")
"""Builds the environment of a program's requirements."""
REQUIREMENTS = "/opt/paddle/requirements/requirements.txt"
"""What the environment Job installs: in its container alone, from a ConfigMap."""
CERTIFICATES = "/opt/paddle/certificates/cluster.pem"
"""What data and environment Jobs trust beside the public certificates; may be missing."""
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
TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes looks for a container's last words: `kubectl describe pod` shows them."""
VOLUME_MOUNT = "/home/jobpath"
"""Where the tutorials mount the volume."""
LEASE = 90.0
"""Seconds; longer than the 60 s for which an NFS client may trust its cache of a directory."""


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


class Label(StrEnum):
    """Labels of a job's objects and pods."""

    # Kubernetes' recommended ones, set by the charts.
    NAME = "app.kubernetes.io/name"
    """What an object belongs to by itself: `PROJECT`, or a program of others, such as a driver."""
    PART_OF = "app.kubernetes.io/part-of"
    """Always `PROJECT`."""
    MANAGED_BY = "app.kubernetes.io/managed-by"
    """Always `PROJECT`."""
    INSTANCE = "app.kubernetes.io/instance"
    """The job's name."""
    COMPONENT = "app.kubernetes.io/component"
    """The pod's role."""

    # Set by the Job controller.
    JOB_NAME = "batch.kubernetes.io/job-name"
    RUN_ID = "batch.kubernetes.io/controller-uid"
    INDEX = "batch.kubernetes.io/job-completion-index"


class Way(NamedTuple):
    """How a job trains: what a runtime means with a `command` and without one. Chosen once, where a
    job file or a pod's variables are parsed.
    """

    runtime: str
    """A name that `runtimes.find_runtime` knows."""
    command: bool = False
    """The agent runs the job's own line."""
    agent: bool = True
    """Our agent runs in the pods; otherwise an operator's pods run the program alone."""

    @property
    def fault(self) -> str:
        """What is wrong with a command, or with its absence; empty: nothing."""
        if self.agent and self.command and self.runtime not in ("launch", "fleet-ps"):
            return f"is given and runtime is {self.runtime}: launch and fleet-ps take one"
        if self.agent and not self.command and self.runtime == "launch":
            return "is missing: runtime launch needs the line that trains"
        return ""

    @property
    def servers(self) -> bool:
        """Whether each pod has a parameter server."""
        return self.agent and self.runtime in ("fleet-ps", "paddle-0.x")

    @property
    def ships(self) -> bool:
        """Whether the image runs the program's train.py."""
        return not self.command and self.runtime in ("fleet-ps", "collective")

    @property
    def passes(self) -> bool:
        """Whether it trains in passes that our API counts: each trainer opens a session to show
        that it runs, and one that exits with 0 without a session has not trained.
        """
        return self.agent and self.ships

    @property
    def launches(self) -> bool:
        """Whether the agent starts the ranks of a command."""
        return self.command and self.runtime == "launch"

    @property
    def old(self) -> bool:
        """Whether it is Paddle 0.x, from an image of the user's."""
        return self.runtime == "paddle-0.x"


@dataclass(frozen=True)
class Bounds:
    """The numbers that a variable may have."""

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
    Variable.PORTS_NUM: Bounds(default=2, least=1, most=100),
    Variable.PORTS_NUM_SPARSE: Bounds(default=2, least=0, most=100),
    Variable.CONTROL_PORT: replace(_PORT, default=CONTROL_PORT),
    Variable.METRICS_PORT: Bounds(default=0, least=0, most=65535),
    Variable.API_PORT: replace(_PORT, default=443),
    # The agents' protocol is measured up to 10,000 pods (benchmarks/scale.py).
    Variable.TRAINERS: Bounds(least=1, most=10_000),
    Variable.COMPLETION_INDEX: Bounds(least=0, most=10_000),
    Variable.TRAINER_ID: Bounds(default=0, least=0, most=10_000),
    Variable.WORLD: Bounds(default=0, least=0, most=10_000_000),
    Variable.THREADS: Bounds(default=1, least=1, most=1024),
    Variable.PROCESSES: Bounds(default=1, least=1, most=MOST_PROCESSES),
    Variable.GPUS: Bounds(default=0, least=0, most=MOST_PROCESSES),
    Variable.EFA: Bounds(default=0, least=0, most=32),
    Variable.PASSES: Bounds(default=10, least=1, most=99_999),
    Variable.KEEP_PASSES: Bounds(default=0, least=0, most=99_999),
    Variable.SEED: Bounds(default=0, least=0, below=2**31),
    Variable.ATTEMPTS: Bounds(default=3, least=1, most=1000),
    Variable.RETRIES: Bounds(default=6, least=0, most=1000),
    Variable.ATTEMPT: Bounds(default=1, least=1, below=2**63),
    Variable.SPLIT_COUNT: Bounds(least=1, most=10_000),
    Variable.SPLIT_PODS: Bounds(default=1, least=1, most=1000),
    Variable.HEADER: Bounds(default=0, least=0, most=1),
    Variable.HOLD_OUT: Bounds(default=0.0, least=0, below=1),
    Variable.STAGE_ROOM: Bounds(least=0, below=2**63),
    Variable.CHECKPOINT: Bounds(above=0),
    # A node group that scales up from zero starts its pods within this time.
    Variable.PEER_DEADLINE: Bounds(default=900, above=0),
    # Kubernetes' terminationGracePeriodSeconds is 30 unless the pod says otherwise.
    Variable.GRACE: Bounds(default=25, above=0),
    Variable.STALL: Bounds(default=900, above=0),
    # Another run waits as long for a holder that died.
    Variable.LEASE: Bounds(default=LEASE, above=0, most=3600),
}
"""The numbers that pods accept and, unless it states others, job.yaml. Seconds may be fractions."""
