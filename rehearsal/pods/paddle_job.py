"""The PaddleJob operator's part: which pods a PaddleJob becomes, what their first container is told, and how they run.

Promises: names and variables are those of the operator (api batch.paddlepaddle.org/v1): its own in each pod, the shared
ones in a ConfigMap of the job's name; one pod that fails fails the job, and no process is left. Its limits: no operator
runs, so what it does to pods over time (clean-up, elastic scaling, a lost pod made again) is not played.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rehearsal.pods.addresses import AddressBlock
from rehearsal.pods.container import private_mounts_work
from rehearsal.pods.environment import PodFacts
from rehearsal.pods.job import JobResult, Watcher
from rehearsal.pods.manifests import EnvironmentEntry, EnvironmentSource, PaddleJob, PodTemplate
from rehearsal.pods.pod import Host, Pod, PodEnd

PORT = 36000
"""The first of each pod's ports: where Service names lead, and the first of those that the operator draws one of for a job."""
DRAWN = 41234
"""What it may draw where pods meet by Service: it tells the number, and the endpoints have `PORT` all the same."""
PORTS = 20
ROLES = {"ps": "PSERVER", "worker": "TRAINER"}


@dataclass(frozen=True)
class OperatorPod:
    """One pod of a PaddleJob."""

    name: str
    role: str
    """ps or worker."""
    index: int
    template: PodTemplate


def pods(job: PaddleJob) -> list[OperatorPod]:
    """All pods of the job, servers first; `<job>-<role>-<index>` each."""
    return [
        OperatorPod(f"{job.name}-{role}-{index}", role, index, replicas.template)
        for role, replicas in job.roles.items()
        for index in range(replicas.count)
    ]


def hosts(job: PaddleJob, addresses: Mapping[str, str], *, names_resolve: bool = True) -> dict[str, str]:
    """How the pods are told to reach each of them: its Service's name, which is the pod's, or its address."""
    return {name: name if job.by_service and names_resolve else address for name, address in addresses.items()}


def own(job: PaddleJob, pod: OperatorPod, told: Mapping[str, str]) -> dict[str, str]:
    """What the operator adds to the environment of the pod's first container."""
    return {
        "POD_IP": told[pod.name],
        "PADDLE_TRAINER_ID": str(pod.index),
        "TRAINING_ROLE": ROLES[pod.role],
        "PADDLE_TRAINING_ROLE": ROLES[pod.role],
    }


def shared(job: PaddleJob, told: Mapping[str, str]) -> dict[str, str]:
    """What the operator writes into the job's ConfigMap, once all pods have addresses."""
    by_role: dict[str, list[str]] = {}
    for pod in pods(job):
        by_role.setdefault(pod.role, []).append(told[pod.name])
    workers = by_role["worker"]
    found = {
        "TRAINER_PORTS_NUM": str(PORTS),
        "PADDLE_PORT": str(DRAWN if job.by_service else PORT),
        "PADDLE_TRAINER_ENDPOINTS": _endpoints(workers),
        "PADDLE_TRAINERS": ",".join(workers),
        "PADDLE_TRAINERS_NUM": str(len(workers)),
    }
    if "ps" in by_role:
        found["PADDLE_PSERVERS_IP_PORT_LIST"] = _endpoints(by_role["ps"])
    if job.gloo > 0 and "ps" in by_role:
        found["PADDLE_WITH_GLOO"] = str(job.gloo)
        found["PADDLE_GLOO_RENDEZVOUS"] = "3"
        found["PADDLE_GLOO_HTTP_ENDPOINT"] = f"{by_role['ps'][0]}:{PORT + PORTS - 2}"
    return found


def _endpoints(hosts: Sequence[str]) -> str:
    return ",".join(f"{host}:{PORT}" for host in hosts)


def _hosts_file(file: Path, addresses: Mapping[str, str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
    file.write_text("\n".join(lines) + "\n")
    return file


async def run_paddle_job(job: PaddleJob, host: Host, addresses: AddressBlock, watcher: Watcher | None = None) -> JobResult:
    """Runs all pods to their ends. Cancelling it kills every one before it returns."""
    watcher = watcher or Watcher()
    given = {pod.name: addresses.next() for pod in pods(job)}
    by_name = job.by_service and private_mounts_work()
    told = hosts(job, given, names_resolve=by_name)
    config_maps = {**host.manifests.config_maps, job.name: shared(job, told)}
    host = replace(host, manifests=replace(host.manifests, config_maps=config_maps))
    # A pod's own name is its address; here that name is the machine's.
    files = {
        name: _hosts_file(host.pods / f"{name}.hosts", {**given, socket.gethostname(): address}) if by_name else None
        for name, address in given.items()
    }
    made = [_pod(job, pod, host, given[pod.name], own(job, pod, told), files[pod.name]) for pod in pods(job)]
    ends: list[PodEnd] = []
    culprit: PodEnd | None = None

    async def one(pod: Pod) -> None:
        nonlocal culprit
        watcher.pod_started(pod, None)
        end = await pod.run()
        ends.append(end)
        first = not end.succeeded and culprit is None
        watcher.pod_ended(pod, None, end, "done" if end.succeeded else "the job fails" if first else "ended with the job")
        if first:
            culprit = end
            await asyncio.gather(*(other.terminate() for other in made if other is not pod))

    tasks = [asyncio.create_task(one(pod)) for pod in made]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return JobResult(culprit is None, "Completed" if culprit is None else "Failed", tuple(ends), culprit)


def _pod(job: PaddleJob, pod: OperatorPod, host: Host, address: str, variables: Mapping[str, str], etc_hosts: Path | None) -> Pod:
    first, *others = pod.template.containers
    # `$` is doubled for the kubelet's expansion, as the operator's values have none to be expanded.
    entries = tuple(EnvironmentEntry(name=name, value=value.replace("$", "$$")) for name, value in variables.items())
    told = replace(
        first,
        environment=(*first.environment, *entries),
        environment_from=(*first.environment_from, EnvironmentSource(config_map=job.name)),
    )
    facts = PodFacts(
        name=pod.name,
        namespace=job.namespace,
        uid=str(uuid.uuid4()),
        labels=pod.template.labels,
        annotations=pod.template.annotations,
        address=address,
        service_account=pod.template.service_account,
    )
    return Pod(host, replace(pod.template, containers=(told, *others)), facts, hostname=pod.name, etc_hosts=etc_hosts)
