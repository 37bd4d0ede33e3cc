"""Paths in a container, and how they reach the file system: by `path()` alone."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from paddle_node.contract.variables import Variable

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
