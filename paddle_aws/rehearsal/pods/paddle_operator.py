"""Does what the PaddleJob operator does on a cluster: creates a PaddleJob's pods, sets the
variables of their first container, and decides how the job ends.

Names and variables are those of the operator (api batch.paddlepaddle.org/v1): a pod has its own
variables, and a ConfigMap with the job's name has the shared ones. One failed pod fails the job.
Not simulated: what the operator does to running pods (clean-up, elastic scaling, replacement of a
lost pod).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from paddle_aws.rehearsal.pods.addresses import AddressBlock
from paddle_aws.rehearsal.pods.environment import PodFacts
from paddle_aws.rehearsal.pods.job import CANCELLED, JobResult, PodsRun, Watcher
from paddle_aws.rehearsal.pods.manifests import EnvironmentEntry, Job, PaddleJob
from paddle_aws.rehearsal.pods.pod import Host, Pod

PORT = 36000
"""The first port of a pod: Services forward to it, and the operator draws a job's port from a range
that starts at it.
"""
DRAWN_PORT = 41234
"""A port that the operator may draw for pods that meet by Service: PADDLE_PORT gets it, the
endpoints keep `PORT`.
"""
PORTS = 20
ROLES = {"ps": "PSERVER", "worker": "TRAINER"}


def _shared_variables(
    job: PaddleJob, servers: Sequence[str], workers: Sequence[str], shift: int
) -> dict[str, str]:
    """Returns what the operator writes to the job's ConfigMap; `shift` is added to its ports."""
    port = PORT + shift
    settings = {
        "TRAINER_PORTS_NUM": str(PORTS),
        "PADDLE_PORT": str(DRAWN_PORT + shift if job.intranet == "Service" else port),
        "PADDLE_TRAINER_ENDPOINTS": _endpoints(workers, port),
        "PADDLE_TRAINERS": ",".join(workers),
        "PADDLE_TRAINERS_NUM": str(len(workers)),
    }
    if servers:
        settings["PADDLE_PSERVERS_IP_PORT_LIST"] = _endpoints(servers, port)
    if job.gloo > 0 and servers:
        settings["PADDLE_WITH_GLOO"] = str(job.gloo)
        settings["PADDLE_GLOO_RENDEZVOUS"] = "3"
        settings["PADDLE_GLOO_HTTP_ENDPOINT"] = f"{servers[0]}:{port + PORTS - 2}"
    return settings


def _endpoints(hosts: Sequence[str], port: int) -> str:
    return ",".join(f"{host}:{port}" for host in hosts)


async def run_paddle_job(
    job: PaddleJob,
    host: Host,
    addresses: AddressBlock,
    *watchers: Watcher,
    cancelled: Callable[[], bool] = lambda: False,
) -> JobResult:
    """Runs all pods to their end, as `run_job` does."""
    of_role = {
        role: [addresses.next() for _ in range(replicas.count)]
        for role, replicas in job.roles.items()
    }
    # Programs behind Services use the Services' port, which is always the same.
    shift = 0 if job.intranet == "Service" else addresses.port_shift
    shared = _shared_variables(job, of_role.get("ps", ()), of_role["worker"], shift)
    config_maps = {**host.manifests.config_maps, job.name: shared}
    host = replace(host, manifests=replace(host.manifests, config_maps=config_maps))
    pod_makers = [
        partial(_pod, job, role, number, host, address)
        for role, of_pods in of_role.items()
        for number, address in enumerate(of_pods)
    ]
    # One failed pod fails the job: the operator retries none.
    rules = Job.model_construct(name=job.name, template=job.worker.template, back_off_limit=0)
    result = await PodsRun(rules, pod_makers, watchers, cancelled).run()
    if result.reason == CANCELLED:
        return result
    return replace(result, reason="Completed" if result.succeeded else "Failed")


def _pod(job: PaddleJob, role: str, number: int, host: Host, address: str) -> Pod:
    name, template = f"{job.name}-{role}-{number}", job.roles[role].template
    operator_variables = {
        "POD_IP": address,
        "PADDLE_TRAINER_ID": str(number),
        "TRAINING_ROLE": ROLES[role],
        "PADDLE_TRAINING_ROLE": ROLES[role],
    }
    first = template.containers[0]
    template = template.change_first(
        environment=(
            *first.environment,
            *(EnvironmentEntry(name=key, value=value) for key, value in operator_variables.items()),
        ),
        config_maps=(*first.config_maps, job.name),
    )
    facts = PodFacts(
        name,
        job.namespace,
        template.labels,
        template.annotations,
        address,
        template.service_account,
    )
    return Pod(host, template, facts, hostname=name)
