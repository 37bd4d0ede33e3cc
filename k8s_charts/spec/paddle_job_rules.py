"""Rules of controller paddlejob: what its operator knows, and what only our agent does."""

from collections.abc import Iterator

from k8s_charts.spec.job_settings import SHARED_NAMESPACES, JobSettings
from paddle_settings.model import Settings

LONGEST_ENDING = "-worker-9999"
"""The longest ending of a pod's name: the kind's definition cannot know the number of pods, and
leaves room for four digits.
"""


def _program(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.program.archived:
        yield (
            f"program.from is {job.program.origin}: the operator's pods unpack no archive, use "
            "`from: configmap` or image"
        )


def _environment(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.program.environment == "built":
        yield (
            "program.environment is built: the operator's pods unpack no environment, use "
            "`environment: image`"
        )


def _command(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.command is None and job.image is None:
        yield (
            "command is missing: with controller paddlejob each pod is a parameter server or a "
            "worker: name the program that the pushed image runs, or name an image of your own"
        )


def _servers(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.mode == "parameter-server" and not job.parameter_servers:
        yield (
            "parameter_servers is missing: a PaddleJob of mode parameter-server needs at least 1 "
            "beside its workers"
        )


def _controller(job: JobSettings) -> Iterator[str]:
    if job.paddlejob is not None and not _operated(job):
        yield (
            "paddlejob is given and controller is job: its settings belong to `controller: "
            "paddlejob`"
        )


def _unread(job: JobSettings) -> Iterator[str]:
    for path in _paths_for_agents(job) if _operated(job) else ():
        yield (
            f"{path} is given: with controller paddlejob nothing in the pods reads it, leave it out"
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
        ("", job, ("processes", "resume", "progress", "success", "apart", "metrics", "inputs")),
    )
    for prefix, group, names in groups:
        for name, _ in group.given(*names) if group is not None else ():
            yield prefix + name


def _elastic(job: JobSettings) -> Iterator[str]:
    operator = job.paddlejob
    if operator is None:
        return
    if operator.elastic is not None and job.mode != "collective" and _operated(job):
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


def _discovery(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.discovery == "pod-list":
        yield (
            "discovery is pod-list: with controller paddlejob the operator tells each pod its "
            "peers, leave discovery out"
        )


def _scrape(job: JobSettings) -> Iterator[str]:
    if _operated(job) and "scrape" in job.model_fields_set:
        yield (
            "scrape is given: the operator's pods have no agent that serves numbers, leave it out"
        )


def _host_network(job: JobSettings) -> Iterator[str]:
    if job.operator.intranet != "Host":
        return
    if job.namespace in SHARED_NAMESPACES:
        yield (
            "paddlejob.intranet is Host: it needs a privileged namespace of its own, and "
            f"namespace is {job.namespace}"
        )
    if job.network:
        yield (
            f"network is {job.network}: with `paddlejob.intranet: Host` no policy holds for the "
            "pods, leave it out"
        )


def _volume(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.volume.kind == "none" and job.data is not None:
        yield (
            "volume.kind is none: data has to come to a volume; efs, lustre, nfs, host-path or "
            "claim is allowed"
        )


def _gang(job: JobSettings) -> Iterator[str]:
    if _operated(job) and job.gang.kind == "kueue":
        yield "gang.kind is kueue: a PaddleJob cannot be suspended, use volcano or none"


def _operated(job: JobSettings) -> bool:
    return job.controller == "paddlejob"


RULES = (
    _program,
    _environment,
    _command,
    _servers,
    _controller,
    _unread,
    _elastic,
    _discovery,
    _scrape,
    _host_network,
    _volume,
    _gang,
)
