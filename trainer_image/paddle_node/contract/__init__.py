"""All names that charts, image, volume and tools share: variables and their bounds, labels, exit
codes, ports and paths. Import them from here.

The names are those of the PaddlePaddle on AWS tutorials (2016-17); ours are marked as such.
"""

from paddle_node.contract.bounds import (
    BOUNDS,
    LEASE,
    Bounds,
)
from paddle_node.contract.exit_codes import (
    FAIL_JOB,
    RESTART_IN_PLACE,
    ExitCode,
)
from paddle_node.contract.labels import (
    PROJECT,
    Label,
)
from paddle_node.contract.layout import (
    DATA_MANIFEST,
    ENVIRONMENTS,
    INPUTS,
    NOT_IN_PATHS,
    SOURCES,
    SPLIT_MANIFEST,
)
from paddle_node.contract.paths import (
    AGENT_PACKAGES,
    ATTEMPT,
    BUILD_ENVIRONMENT,
    CERTIFICATES,
    CONSTRAINTS,
    DATA_ENTRY_POINT,
    ENTRY_POINT,
    ENVIRONMENT,
    EVALUATION,
    GID,
    HOME,
    NUMPY1,
    PROBE_ENTRY_POINT,
    PROGRAM_LIMIT,
    PROGRAMS,
    REQUIREMENTS,
    SHARED_MEMORY,
    SHIPPED,
    TERMINATION_LOG,
    UID,
    UNPACKED,
    VOLUME_MOUNT,
    path,
)
from paddle_node.contract.ports import (
    CONTROL_PORT,
    FIRST_PORT,
    MASTER_PORTS,
    METRICS_PATH,
    METRICS_PORT,
    MOST_PROCESSES,
    TRAINER_PORTS_FROM,
)
from paddle_node.contract.variables import (
    EXIT_CODE,
    LONGEST_STRING,
    RECORD_FORMAT,
    Variable,
)
from paddle_node.contract.way import Way
