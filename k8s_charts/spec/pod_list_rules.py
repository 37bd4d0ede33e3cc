"""Rules of discovery pod-list, the tutorials' way, and of their host ports."""

from collections.abc import Iterator

from k8s_charts.spec.job_settings import SHARED_NAMESPACES, JobSettings


def _mode(job: JobSettings) -> Iterator[str]:
    if job.discovery == "pod-list" and job.mode == "single":
        yield "discovery is pod-list: mode single has no peers to look for, leave discovery out"
    if job.discovery == "pod-list" and job.mode == "collective":
        yield "discovery is pod-list: collective ranks are found by index, leave discovery out"


def _namespace(job: JobSettings) -> Iterator[str]:
    if job.namespace in SHARED_NAMESPACES and job.ports.host_ports:
        yield (
            "ports.host_ports is given: it needs a privileged namespace of its own, and namespace "
            f"is {job.namespace}"
        )


RULES = (_mode, _namespace)
