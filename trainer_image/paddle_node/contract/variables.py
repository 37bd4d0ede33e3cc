"""Environment variables of a pod and their meanings, under the tutorials' names or, where they had
none, ours.
"""

from enum import StrEnum

EXIT_CODE = "exit-code"
"""The `success` of a command whose exit code alone says how it ended."""


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
    """The data to split: a path in the container, s3://bucket/prefix or an https:// address."""
    DATA_FORMAT = "DATA_FORMAT"
    """lines | files | module:function, a record reader of the user's."""
    HEADER = "DATA_HEADER"
    """1: the first line of each file of the source is a header, not a record; else 0."""
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

    RETRIES = "PADDLE_NODE_RETRIES"
    """Tries of the environment Job that may fail before it fails."""

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
    """File below the job's folder that an attempt of the command writes when it is done; empty: the
    ends of its processes decide; exit-code: its exit codes alone.
    """
    NAN = "PADDLE_NODE_NAN"
    """fail: a metric of the command that becomes NaN or infinite ends the job; empty: the log says
    so.
    """
    APART = "PADDLE_NODE_APART"
    """true: the pods of the command work apart on purpose; empty: their ranks are one world."""
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
    CHECKPOINTS = "PADDLE_NODE_CHECKPOINTS"
    """volume (default) | local: the command writes to its pod's scratch, and the agents copy its
    complete checkpoints to the volume.
    """
    ATTEMPTS = "PADDLE_NODE_ATTEMPTS"
    """How many failures of the program, without progress in between, end the job; each counts once,
    even if it is the same exception again.
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
    WITNESS = "PADDLE_NODE_WITNESS"
    """Folder for what the Pythons of the command write for the agent; its last part names the
    agent's socket (agent/hook/sitecustomize.py).
    """
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
    STAGE_ROOM = "PADDLE_NODE_STAGE_ROOM"
    """Bytes that the pod's scratch may take (its emptyDir's limit); empty: what the disk has
    free.
    """

    # Set only by the rehearsal; empty in a container.
    ROOT = "PADDLE_NODE_ROOT"
    """Folder below which the container's paths lie."""
    HOSTS = "PADDLE_NODE_HOSTS"
    """JSON file {name: address} that is consulted before DNS, read again at each lookup."""


RECORD_FORMAT = r"lines|files|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""Pattern of the values that DATA_FORMAT may have."""
LONGEST_STRING = 131_071
"""Bytes of one argument, or of one variable with its name: Linux starts no program with a longer
one.
"""
