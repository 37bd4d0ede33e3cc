"""Rules of controller paddlejob: what its operator knows, and what only our agent does."""

from collections.abc import Iterator

from k8s_charts.spec.job_settings import SHARED_NAMESPACES, JobSettings

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


def _elastic(job: JobSettings) -> Iterator[str]:
    operator = job.paddlejob
    if operator is None:
        return
    if operator.elastic is not None and operator.etcd_server is None:
        yield (
            f"paddlejob.elastic is {operator.elastic}: elastic workers meet in an etcd, give its "
            "host:port as etcd_server"
        )


def _host_network(job: JobSettings) -> Iterator[str]:
    if job.operator.intranet != "Host":
        return
    if job.namespace in SHARED_NAMESPACES:
        yield (
            "paddlejob.intranet is Host: it needs a privileged namespace of its own, and "
            f"namespace is {job.namespace}"
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
    _elastic,
    _host_network,
    _volume,
    _gang,
)
