"""Which settings of a job exclude or need each other."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from paddle_node import contract

from k8s_charts.spec import pod_security
from k8s_charts.spec.command_rules import command_faults, environment_faults
from k8s_charts.spec.data import FromJob, address_fault
from k8s_charts.spec.job_settings import DATA_ENDING, ENVIRONMENT_ENDING, HASH_LENGTH, JobSettings
from k8s_charts.spec.value_types import LABEL_LENGTH
from paddle_aws.settings.model import Settings, shown

_OF_A_COMMAND = ("processes", "recipe", "resume", "progress", "success", "metrics", "inputs")
_OF_THE_SPLIT = (
    "prepared",
    "format",
    "header",
    "shards",
    "splitters",
    "hold_out",
    "shuffle_seed",
    "stage",
)
_POD_FILES = re.compile(
    "/(home|opt)|/(home/paddle|opt/paddle|tmp|bin|dev|etc|lib|lib64|proc|run|sbin|sys|usr|var)(/.*)?",
    re.DOTALL,
)
"""Paths at which the pod has files of its own."""
_NOWHERE = re.compile(r"(.*/)?\.{0,2}(/.*)?", re.DOTALL)
"""A folder below the program's own that is none: empty, absolute, `.` or `..`."""
_OF_VOLUMES = {
    "file_system_id": ("efs",),
    "access_point_id": ("efs",),
    "server": ("nfs",),
    "mount_options": ("efs", "lustre", "nfs"),
    "path": ("nfs", "host-path"),
    "claim": ("claim",),
}
"""Settings of a volume, and the kinds that have them."""
_SHARED_NAMESPACES = ("paddle", "default")


def faults(job: JobSettings) -> Iterator[str]:
    """Yields a sentence for each rule that the job breaks."""
    for rules in (
        _program,
        _environment,
        _command,
        _data,
        _names,
        _mode,
        _paddle_job,
        _reach,
        _volume,
        _gpus,
        _gang,
        _name_length,
        _command_line,
        environment_faults,
        _pod_additions,
        _metrics_port,
        _inputs,
        _zone,
    ):
        yield from rules(job)


def _given(group: Settings | None, *names: str) -> Iterator[tuple[str, object]]:
    """Yields the names and values of those settings that the file has, whatever their value."""
    for name in names:
        if group is not None and name in group.model_fields_set:
            yield name, getattr(group, name)


def _program(job: JobSettings) -> Iterator[str]:
    program, origin = job.program, job.program.origin
    local = origin in ("folder", "configmap")
    for name, value in _given(program, "path", "repository", "commit"):
        if name == "path" and not local:
            kinds = "`from: folder | configmap`"
        elif name != "path" and origin != "git":
            kinds = "`from: git`"
        else:
            continue
        yield (
            f"program.{name} is {shown(value)} and program.from is {origin}: {name} belongs to "
            f"{kinds}"
        )
    folder = shown(program.folder)
    if origin == "folder" and "folder" in program.model_fields_set:
        yield (
            f"program.folder is {folder} and program.from is folder: folder belongs to "
            "`from: image | volume | configmap | git`"
        )
    if local and program.path is None:
        yield f"program.path is missing: `from: {origin}` needs it"
    if origin == "git":
        for name in ("repository", "commit"):
            if getattr(program, name) is None:
                yield f"program.{name} is missing: `from: git` needs it"
    if program.archived and job.controller == "paddlejob":
        yield (
            f"program.from is {origin}: the operator's pods unpack no archive, use `from: "
            "configmap` or image"
        )
    if origin in ("image", "configmap") and job.data is not None and job.data.prepared:
        yield (
            f"program.from is {origin}: with `data.prepared: true` no data job brings the "
            "program; `from: volume`, folder or git is allowed"
        )
    if _NOWHERE.fullmatch(program.folder) or ("/" in program.folder and origin != "git"):
        yield (
            f"program.folder is {folder}: a path that begins with ./, or the name of one folder, "
            "is allowed"
        )
    # The programs that trainer_image/Dockerfile copies; a job that names its own image knows what
    # it holds.
    if (
        origin == "image"
        and job.image is None
        and program.folder not in ("quick_start", "recommendation", "")
    ):
        yield (
            f"program.folder is {program.folder}: the image has quick_start and recommendation; "
            f"write ./{program.folder} for a folder beside this file"
        )


def _environment(job: JobSettings) -> Iterator[str]:
    program, mount = job.program, job.volume.mount_path
    if program.environment == "built" and program.packages:
        yield (
            "program.environment is built and program.packages are given: Debian packages need "
            "an image, set `environment: image` or leave packages out"
        )
    if program.environment == "built" and job.controller == "paddlejob":
        yield (
            "program.environment is built: the operator's pods unpack no environment, use "
            "`environment: image`"
        )
    for name, _ in () if job.builds_environment else _given(program, "index", "wheels"):
        yield f"program.{name} is given: it belongs to requirements of `environment: built`"
    if program.wheels is None:
        return
    wheels = PurePosixPath(program.wheels)
    if program.index is not None:
        yield f"program.wheels is {wheels} and program.index is given: leave one of them out"
    ours = PurePosixPath(mount, contract.ENVIRONMENTS).parent
    if (
        not wheels.is_relative_to(mount)
        or ".." in wheels.parts
        # Strangers' code reads this folder: not all jobs' output, and not the other environments.
        or PurePosixPath(mount) == wheels
        or wheels.is_relative_to(ours)
    ):
        yield (
            f"program.wheels is {wheels}: a folder on the volume is allowed, such as {mount}/wheels"
        )


def _command(job: JobSettings) -> Iterator[str]:
    runtime = job.chosen_runtime
    if job.controller == "job" and job.command is None:
        for name, _ in _given(job, *_OF_A_COMMAND):
            yield f"{name} is given and command is missing: it belongs to a command"
        if runtime == "launch":
            yield "command is missing: runtime launch needs the line that trains"
    if job.controller == "job" and job.command:
        if runtime not in ("launch", "fleet-ps"):
            yield f"command is given and runtime is {job.runtime}: launch and fleet-ps take one"
        if runtime == "fleet-ps" and job.processes:
            yield (
                f"processes is {job.processes}: runtime fleet-ps has one pserver and one trainer "
                "a pod, leave it out"
            )
        if runtime != "launch" and job.recipe not in (None, "none"):
            yield (
                f"recipe is {job.recipe} and runtime is {runtime}: recipes belong to runtime launch"
            )
    if re.search("[*?[]", job.success or ""):
        yield f"success is {job.success}: one file below output/ is allowed, without *, ? and ["
    if job.controller == "paddlejob" and job.command is None and job.image is None:
        yield (
            "command is missing: with controller paddlejob each pod is a parameter server or a "
            "worker: name the program that the pushed image runs, or name an image of your own"
        )


def _data(job: JobSettings) -> Iterator[str]:
    data, controlled = job.data, job.controller == "job"
    if data is None:
        if controlled and job.command is None:
            yield (
                "data is missing: give its source, or `prepared: true` where the shards are on the "
                "volume"
            )
        return
    if job.inputs and data.prepared:
        yield (
            "inputs are given and data.prepared is true: no data job brings them; leave one of "
            "them out (a command needs no data)"
        )
    if data.source is None and not data.prepared:
        yield (
            "data.source is missing: a local file, s3://bucket/prefix, https://... or a path on "
            "the volume is allowed; with `prepared: true` the shards are on the volume already"
        )
    if data.source and data.prepared:
        yield (
            f"data.source is {shown(data.source)}: with `prepared: true` nothing is split, so "
            "leave one of them out"
        )
    if "upload_to" in data.model_fields_set and job.local_file is None:
        yield (f"data.upload_to is {data.upload_to}: it belongs to a local file as data.source")
    # The pod mounts what it names, and Kubernetes takes no such path.
    if job.source_on_volume and ".." in (data.source or "").split("/"):
        yield f"data.source is {data.source}: a path on the volume without .. is allowed"
    if data.shared:
        for name, _ in _given(data, *_OF_THE_SPLIT):
            yield (
                f"data.{name} is given: with `shared: true` nothing is split or copied further, "
                "leave it out"
            )
    if controlled and data.shards not in (None, job.trainers):
        yield (
            f"data.shards is {data.shards}: trainer i reads shard i, so with {job.trainers} "
            "trainers leave it out"
        )
    if controlled and data.shared and job.command is None:
        yield (
            "data.shared is true and command is missing: without a command programs train on "
            "shards; leave it out"
        )


def _names(job: JobSettings) -> Iterator[str]:
    if job.namespace.startswith("kube-"):
        yield (
            f"namespace is {job.namespace}: kube-* belongs to the cluster, choose one for "
            "training jobs"
        )
    for ending, what in ((DATA_ENDING, "data job"), (ENVIRONMENT_ENDING, "environment Job")):
        if job.name.endswith(ending) and job.pin_names:
            yield (
                f"name is {job.name}: with pin_names that is the {what} of another job, choose a "
                f"name that does not end in {ending}"
            )
    if job.name == "shared":
        yield (
            "name is shared: that folder of the volume holds the data that jobs share, choose "
            "another name"
        )


def _mode(job: JobSettings) -> Iterator[str]:
    """Mode, runtime and controller."""
    mode, servers, controlled = job.mode, job.parameter_servers, job.controller == "job"
    if mode != "parameter-server" and servers:
        yield f"parameter_servers is {servers}: mode {mode} has none"
    if mode == "parameter-server" and not controlled and not servers:
        yield (
            "parameter_servers is missing: a PaddleJob of mode parameter-server needs at least 1 "
            "beside its workers"
        )
    if mode == "parameter-server" and controlled and servers not in (None, job.trainers):
        yield (
            f"parameter_servers is {servers}: with controller job each of the {job.trainers} "
            "trainer pods runs one; leave it out, or use `controller: paddlejob`"
        )
    if mode == "single" and job.trainers != 1:
        yield (
            f"trainers is {job.trainers}: mode single has 1, use parameter-server or collective "
            "for more"
        )
    unfit = (
        job.runtime == "collective"
        if mode == "parameter-server"
        else job.runtime not in (None, "collective", "launch")
    )
    if controlled and unfit:
        yield f"runtime is {job.runtime}: it does not fit mode {mode}"
    if controlled and job.paddle == "3.3" and job.chosen_runtime in ("fleet-ps", "paddle-0.x"):
        yield (
            f"paddle is 3.3 and mode is {mode}: Paddle 3 has no parameter servers; use `mode: "
            'collective`, or `paddle: "2.6"`'
        )


def _paddle_job(job: JobSettings) -> Iterator[str]:
    """What the operator knows, and what it does not."""
    operator = job.paddlejob
    if job.controller == "job" and operator is not None:
        yield (
            "paddlejob is given and controller is job: its settings belong to `controller: "
            "paddlejob`"
        )
    if job.controller == "paddlejob":
        for path in _paths_for_agents(job):
            yield (
                f"{path} is given: with controller paddlejob nothing in the pods reads it, leave "
                "it out"
            )
    if operator is None:
        return
    if operator.elastic is not None and job.mode != "collective" and job.controller == "paddlejob":
        yield f"paddlejob.elastic is {operator.elastic}: only mode collective is elastic"
    if operator.elastic is not None and operator.etcd_server is None:
        yield (
            f"paddlejob.elastic is {operator.elastic}: elastic workers meet in an etcd, give its "
            "host:port as etcd_server"
        )
    if operator.elastic is None and operator.etcd_server:
        yield (
            f"paddlejob.etcd_server is {operator.etcd_server}: it is for elastic workers, and "
            "elastic is not given"
        )


def _paths_for_agents(job: JobSettings) -> Iterator[str]:
    """Yields the paths of the settings given that only an agent reads."""
    groups: tuple[tuple[str, Settings | None, tuple[str, ...]], ...] = (
        (
            "",
            job,
            (
                "runtime",
                "keep_passes",
                "checkpoint_minutes",
                "resume_from",
                "network_device",
                "ports",
            ),
        ),
        ("data.", job.data, ("stage", "shared")),
        ("limits.", job.limits, ("attempts", "peer_deadline_seconds", "stall_seconds")),
        ("", job, ("processes", "resume", "progress", "success", "metrics", "inputs")),
    )
    for prefix, group, names in groups:
        for name, _ in _given(group, *names):
            yield prefix + name


def _reach(job: JobSettings) -> Iterator[str]:
    """How pods find and reach each other."""
    operated = job.controller == "paddlejob"
    on_host = operated and job.paddlejob is not None and job.paddlejob.intranet == "Host"
    shared = job.namespace in _SHARED_NAMESPACES
    if job.discovery == "pod-list" and operated:
        yield (
            "discovery is pod-list: with controller paddlejob the operator tells each pod its "
            "peers, leave discovery out"
        )
    if operated and "scrape" in job.model_fields_set:
        yield (
            "scrape is given: the operator's pods have no agent that serves numbers, leave it out"
        )
    if job.discovery == "pod-list" and job.mode == "single":
        yield ("discovery is pod-list: mode single has no peers to look for, leave discovery out")
    if job.discovery == "pod-list" and job.mode == "collective":
        yield ("discovery is pod-list: collective ranks are found by index, leave discovery out")
    if job.discovery == "index" and job.ports.host_ports:
        yield (
            "ports.host_ports is given and discovery is index: host ports belong to the "
            "tutorials' `discovery: pod-list`"
        )
    if shared and job.ports.host_ports:
        yield (
            "ports.host_ports is given: it needs a privileged namespace of its own, and namespace "
            f"is {job.namespace}"
        )
    if shared and job.pod_security != "restricted":
        yield (
            f"pod_security is {job.pod_security}: it needs a namespace of its own, because it "
            f"holds for every pod there, and namespace is {job.namespace}"
        )
    if shared and on_host:
        yield (
            "paddlejob.intranet is Host: it needs a privileged namespace of its own, and "
            f"namespace is {job.namespace}"
        )
    if job.network and on_host:
        yield (
            f"network is {job.network}: with `paddlejob.intranet: Host` no policy holds for the "
            "pods, leave it out"
        )


def _volume(job: JobSettings) -> Iterator[str]:
    volume, kind = job.volume, job.volume.kind
    if _POD_FILES.fullmatch(volume.mount_path):
        yield (
            f"volume.mount_path is {volume.mount_path}: the pod has files of its own there, "
            "choose another path"
        )
    if kind == "none" and job.controller == "job":
        yield (
            "volume.kind is none: with controller job all data is on a volume; efs, lustre, nfs, "
            "host-path or claim is allowed"
        )
    if kind == "none" and job.controller == "paddlejob" and job.data is not None:
        yield (
            "volume.kind is none: data has to come to a volume; efs, lustre, nfs, host-path or "
            "claim is allowed"
        )
    for name, kinds in _OF_VOLUMES.items():
        if getattr(volume, name) is not None and kind not in kinds:
            *others, last = kinds
            named = f"{', '.join(others)} and {last}" if others else last
            yield f"volume.{name} is given and volume.kind is {kind}: {name} belongs to {named}"
    if kind == "claim" and volume.claim is None:
        yield (
            "volume.claim is missing: `kind: claim` needs the name of a PersistentVolumeClaim in "
            "the job's namespace"
        )
    if kind == "host-path" and volume.path in (None, "/"):
        state = "missing" if volume.path is None else "/"
        yield (
            f"volume.path is {state}: `kind: host-path` needs a folder of the node that is not /"
        )
    pair = {"file_system_id": volume.file_system_id, "access_point_id": volume.access_point_id}
    missing = [name for name, value in pair.items() if value is None]
    if len(missing) == 1:
        yield (
            f"volume.{missing[0]} is missing: file_system_id and access_point_id name a file "
            "system of yours together"
        )


def _gpus(job: JobSettings) -> Iterator[str]:
    gpus = job.gpus
    if gpus.count and job.image is None:
        yield (
            "image is missing: a job with GPUs names an image that was built for CUDA "
            "(docs/jobs.md)"
        )
    for name in ("node_selector", "parameter_servers"):
        if getattr(gpus, name) and not gpus.count:
            yield f"gpus.{name} is given and gpus.count is 0: GPU settings need at least 1 GPU"
    if gpus.parameter_servers and job.controller == "job":
        yield (
            "gpus.parameter_servers is given: with controller job servers are in the trainers' "
            "pods; leave it out"
        )


def _gang(job: JobSettings) -> Iterator[str]:
    gang = job.gang
    for name in ("queue", "priority"):
        if getattr(gang, name) and gang.kind == "none":
            yield f"gang.{name} is given and gang.kind is none: volcano or kueue has queues"
    if gang.kind == "kueue" and gang.queue is None:
        yield ("gang.queue is missing: Kueue admits a job through a LocalQueue of its namespace")
    if gang.kind == "kueue" and job.controller == "paddlejob":
        yield "gang.kind is kueue: a PaddleJob cannot be suspended, use volcano or none"


def _command_line(job: JobSettings) -> Iterator[str]:
    if job.command is not None and not "".join(job.command[:1]).strip():
        yield "command is empty: leave it out, or name the program to run"
    elif job.command is not None and job.controller == "job":
        yield from command_faults(job, job.command)


def _pod_additions(job: JobSettings) -> Iterator[str]:
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for setting, pod in (("pod", job.pod), ("data_pod", job.data_pod)):
        if pod is None:
            continue
        added = {
            "initContainers": pod.containers(),
            "volumes": pod.volumes,
            "securityContext": context,
        }
        for fault in pod_security.faults(added, job.pod_security_level):
            yield (
                f"{setting}.{fault} by {job.pod_security_level} pod security; a weaker "
                "pod_security allows more, in a namespace of the job's own"
            )


def _name_length(job: JobSettings) -> Iterator[str]:
    ending = "" if job.pin_names else "-" + "h" * HASH_LENGTH
    splitters = job.data.splitters if job.data is not None else 1
    # The PaddleJob kind's definition cannot know the number of pods, and leaves room for four
    # digits.
    trainers = f"{ending}-{job.trainers - 1}" if job.controller == "job" else "-worker-9999"
    others = [f"{DATA_ENDING}{ending}-{splitters - 1}"]
    others += [f"{ENVIRONMENT_ENDING}{ending}"] if job.builds_environment else []
    longest = max(trainers, *others, key=len)
    if len(job.name) + len(longest) > LABEL_LENGTH:
        yield (
            f"name is {job.name}: at most {LABEL_LENGTH - len(longest)} characters are "
            f"allowed here, so that the host name {job.name}{longest} fits {LABEL_LENGTH}"
        )


def _metrics_port(job: JobSettings) -> Iterator[str]:
    if job.scrape is not None:
        port, trainers = job.ports.metrics, contract.TRAINER_PORTS_FROM
        taken = (job.ports.control, *job.ports.pserver, *range(trainers, trainers + 100))
        if port in taken:
            yield f"ports.metrics is {port}: the job's pods listen there already, choose another"


def _inputs(job: JobSettings) -> Iterator[str]:
    for name, source in job.inputs.items():
        if isinstance(source, FromJob):
            if source.from_job == job.name:
                yield (
                    f"inputs.{name}.from_job is {source.from_job}: that is this job itself, "
                    "which `resume` continues; another job's name is allowed"
                )
        elif fault := address_fault(source):
            yield f"inputs.{name} {fault}"
        elif ".." in PurePosixPath(source).parts and name not in job.input_files:
            yield f"inputs.{name} is {source}: a path on the volume without .. is allowed"


def _zone(job: JobSettings) -> Iterator[str]:
    zone = job.scheduling.node_selector.get("topology.kubernetes.io/zone", job.scheduling.zone)
    if job.scheduling.zone not in (None, zone):
        yield (
            f"scheduling.zone is {job.scheduling.zone}: node_selector names another zone, "
            "leave one of them out"
        )
