"""Which settings of a job exclude or need each other."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath

from paddle_node import contract

from k8s_charts.spec import pod_security
from k8s_charts.spec.command_rules import command_faults, environment_faults
from k8s_charts.spec.data import FromJob, address_fault
from k8s_charts.spec.groups import ZONE
from k8s_charts.spec.job_settings import (
    DATA_ENDING,
    ENVIRONMENT_ENDING,
    HASH_LENGTH,
    SHARED_NAMESPACES,
    JobSettings,
)
from k8s_charts.spec.value_types import LABEL_LENGTH
from paddle_settings.model import check, format_value

_POD_FILES = re.compile(
    "/(home|opt)|/(home/paddle|opt/paddle|tmp|bin|dev|etc|lib|lib64|proc|run|sbin|sys|usr|var)(/.*)?",
    re.DOTALL,
)
"""Paths at which the pod has files of its own."""
_NOWHERE = re.compile(r"(.*/)?\.{0,2}(/.*)?", re.DOTALL)
"""A path that is no folder below the program's: empty, absolute, `.` or `..`."""


LONGEST_ENDING = "-worker-9999"
"""The longest ending of the name of a PaddleJob's pod: the kind's definition cannot know the number
of pods, and leaves room for four digits.
"""
Rule = Callable[[JobSettings], Iterator[str]]


def faults(job: JobSettings) -> Iterator[str]:
    """Yields a sentence for each rule that the job breaks."""
    return check(*(partial(rule, job) for rule in RULES))


def _refuse(broken: Callable[[JobSettings], object], sentence: str) -> Rule:
    """Returns the rule that refuses a job of which `broken` holds. `{job}` in its sentence stands
    for the job.
    """

    def rule(job: JobSettings) -> Iterator[str]:
        if broken(job):
            yield sentence.format(job=job)

    return rule


def _program(job: JobSettings) -> Iterator[str]:
    program, origin = job.program, job.program.origin
    local = origin in ("folder", "configmap")
    if local and program.path is None:
        yield f"program.path is missing: `from: {origin}` needs it"
    if origin == "git":
        for name in ("repository", "commit"):
            if getattr(program, name) is None:
                yield f"program.{name} is missing: `from: git` needs it"
    if origin in ("image", "configmap") and job.data is not None and job.data.prepared:
        yield (
            f"program.from is {origin}: with `data.prepared: true` no data job brings the "
            "program; `from: volume`, folder or git is allowed"
        )
    if _NOWHERE.fullmatch(program.folder) or ("/" in program.folder and origin != "git"):
        yield (
            f"program.folder is {format_value(program.folder)}: a path that begins with ./, or the "
            "name of one folder, is allowed"
        )
    # The programs that trainer_image/Dockerfile copies; a job that names its own image knows what
    # it holds.
    if (
        origin == "image"
        and job.image is None
        and program.folder not in ("quick_start", "recommendation", "")
    ):
        yield (
            f"program.folder is {program.folder}: the image has quick_start and recommendation; a "
            "folder of yours begins with ./"
        )


def _environment(job: JobSettings) -> Iterator[str]:
    program, mount = job.program, job.volume.mount_path
    if program.environment == "built" and program.packages:
        yield (
            "program.environment is built and program.packages are given: Debian packages need "
            "an image, set `environment: image` or leave packages out"
        )
    if program.wheels is None:
        return
    wheels = PurePosixPath(program.wheels)
    if program.index is not None:
        yield f"program.wheels is {wheels} and program.index is given: leave one of them out"
    ours = PurePosixPath(mount, contract.ENVIRONMENTS).parent
    if (
        not wheels.is_relative_to(mount)
        or ".." in wheels.parts
        # Code of package authors reads this folder, so it must not be all jobs' output or the other
        # environments.
        or PurePosixPath(mount) == wheels
        or wheels.is_relative_to(ours)
    ):
        yield (
            f"program.wheels is {wheels}: a folder on the volume is allowed, such as {mount}/wheels"
        )


def _data(job: JobSettings) -> Iterator[str]:
    data, controlled = job.data, job.has_agent
    if data is None:
        if controlled and not job.way.command:
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
    # The pod mounts what it names, and Kubernetes takes no such path.
    if job.source_on_volume and ".." in (data.source or "").split("/"):
        yield f"data.source is {data.source}: a path on the volume without .. is allowed"
    if controlled and data.shards not in (None, job.trainers):
        yield (
            f"data.shards is {data.shards}: trainer i reads shard i, so with {job.trainers} "
            "trainers leave it out"
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
    mode, servers, controlled = job.mode, job.parameter_servers, job.has_agent
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
    if controlled and job.paddle == "3.3" and job.has_parameter_servers:
        yield (
            f"paddle is 3.3 and mode is {mode}: Paddle 3 has no parameter servers; use `mode: "
            'collective`, or `paddle: "2.6"`'
        )


def _volume(job: JobSettings) -> Iterator[str]:
    volume, kind = job.volume, job.volume.kind
    if _POD_FILES.fullmatch(volume.mount_path):
        yield (
            f"volume.mount_path is {volume.mount_path}: the pod has files of its own there, "
            "choose another path"
        )
    if kind == "none" and job.has_agent:
        yield (
            "volume.kind is none: with controller job all data is on a volume; efs, lustre, nfs, "
            "host-path or claim is allowed"
        )
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


def _command_line(job: JobSettings) -> Iterator[str]:
    command = job.command
    if command is not None and not "".join(command[:1]).strip():
        yield "command is empty: leave it out, or name the program to run"
    elif job.way.command:
        yield from command_faults(job, command or ())


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
    trainers = f"{ending}-{job.trainers - 1}" if job.has_agent else LONGEST_ENDING
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
        port = job.ports.metrics
        if port in (job.ports.control, *job.ports.pserver, *contract.TRAINER_PORTS):
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


OPERATOR_RULES = (
    _refuse(
        lambda job: not job.has_agent and job.program.archived,
        "program.from is {job.program.origin}: the operator's pods unpack no archive, use "
        "`from: configmap` or image",
    ),
    _refuse(
        lambda job: not job.has_agent and job.program.environment == "built",
        "program.environment is built: the operator's pods unpack no environment, use "
        "`environment: image`",
    ),
    _refuse(
        lambda job: not job.has_agent and job.command is None and job.image is None,
        "command is missing: with controller paddlejob each pod is a parameter server or a "
        "worker: name the program that the pushed image runs, or name an image of your own",
    ),
    _refuse(
        lambda job: (
            not job.has_agent and job.mode == "parameter-server" and not job.parameter_servers
        ),
        "parameter_servers is missing: a PaddleJob of mode parameter-server needs at least 1 "
        "beside its workers",
    ),
    _refuse(
        lambda job: (
            job.paddlejob
            and job.paddlejob.elastic is not None
            and job.paddlejob.etcd_server is None
        ),
        "paddlejob.elastic is {job.paddlejob.elastic}: elastic workers meet in an etcd, give its "
        "host:port as etcd_server",
    ),
    _refuse(
        lambda job: job.operator.intranet == "Host" and job.namespace in SHARED_NAMESPACES,
        "paddlejob.intranet is Host: it needs a privileged namespace of its own, and namespace is "
        "{job.namespace}",
    ),
    _refuse(
        lambda job: not job.has_agent and job.volume.kind == "none" and job.data is not None,
        "volume.kind is none: data has to come to a volume; efs, lustre, nfs, host-path or "
        "claim is allowed",
    ),
    _refuse(
        lambda job: not job.has_agent and job.gang.kind == "kueue",
        "gang.kind is kueue: a PaddleJob cannot be suspended, use volcano or none",
    ),
)
"""Of controller paddlejob: what its operator knows, and what only our agent does."""

POD_LIST_RULES = (
    _refuse(
        lambda job: job.discovery == "pod-list" and job.mode == "single",
        "discovery is pod-list: mode single has no peers to look for, leave discovery out",
    ),
    _refuse(
        lambda job: job.discovery == "pod-list" and job.mode == "collective",
        "discovery is pod-list: collective ranks are found by index, leave discovery out",
    ),
    _refuse(
        lambda job: job.namespace in SHARED_NAMESPACES and job.ports.host_ports,
        "ports.host_ports is given: it needs a privileged namespace of its own, and namespace is "
        "{job.namespace}",
    ),
)
"""Of discovery pod-list, the tutorials' way, and of their host ports."""

RULES: tuple[Rule, ...] = (
    _program,
    _environment,
    _refuse(lambda job: job.way.fault, "command {job.way.fault}"),
    _refuse(
        lambda job: re.search("[*?[]", job.success or ""),
        "success is {job.success}: one file below output/ is allowed, without *, ? and [",
    ),
    _data,
    _names,
    _mode,
    *OPERATOR_RULES,
    *POD_LIST_RULES,
    _refuse(
        lambda job: job.namespace in SHARED_NAMESPACES and job.pod_security != "restricted",
        "pod_security is {job.pod_security}: it needs a namespace of its own, because it holds for "
        "every pod there, and namespace is {job.namespace}",
    ),
    _volume,
    _refuse(
        lambda job: job.gpus.count and job.image is None,
        "image is missing: a job with GPUs names an image that was built for CUDA (docs/jobs.md)",
    ),
    _refuse(
        lambda job: job.gang.kind == "kueue" and job.gang.queue is None,
        "gang.queue is missing: Kueue admits a job through a LocalQueue of its namespace",
    ),
    _name_length,
    _command_line,
    environment_faults,
    _pod_additions,
    _metrics_port,
    _inputs,
    _refuse(
        lambda job: (
            job.scheduling.zone
            and job.scheduling.node_selector.get(ZONE, job.scheduling.zone) != job.scheduling.zone
        ),
        "scheduling.zone is {job.scheduling.zone}: node_selector names another zone, leave one of "
        "them out",
    ),
)
