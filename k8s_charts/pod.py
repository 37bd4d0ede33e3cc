"""A pod that passes Pod Security "restricted" and can still train: what every pod of ours has in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cdk8s_plus_33 import k8s
from constructs import Construct
from paddle_node import contract

from k8s_charts import custom_object, job_folder, names
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.own_program import OwnProgram
from k8s_charts.placement import GPU
from k8s_charts.settings import Resources, TrainerResources
from k8s_charts.spec import TrainingJob

TEMPORARY = "/tmp"
PROGRAM = "program"
"""Name of the volume that holds a user's program from a ConfigMap."""


def pull_policy(image: str) -> str:
    """A digest never changes and a tag may: the kubelet asks for the tag each time, and for a digest only once."""
    return "IfNotPresent" if "@sha256:" in image else "Always"


def requirements(resources: Resources, gpus: int = 0) -> k8s.ResourceRequirements:
    """Requests equal limits: the pod is "Guaranteed", the last to be evicted when a node runs short."""
    amounts = {"cpu": resources.cpu, "memory": resources.memory, "ephemeral-storage": resources.scratch}
    if gpus:
        amounts[GPU] = str(gpus)
    quantities = {name: k8s.Quantity.from_string(amount) for name, amount in amounts.items()}
    return k8s.ResourceRequirements(requests=quantities, limits=quantities)


def container(
    job: TrainingJob,
    *,
    name: str,
    image: str,
    command: Sequence[str] | None,
    arguments: Sequence[str],
    environment: Sequence[k8s.EnvVar],
    settings: str | None = None,
    resources: Resources,
    gpus: int = 0,
    working_dir: str | None = contract.HOME,
    ports: Sequence[k8s.ContainerPort] = (),
    program: OwnProgram | None = None,
    reads_source: bool = False,
    startup_probe: k8s.Probe | None = None,
    liveness_probe: k8s.Probe | None = None,
) -> k8s.Container:
    """The one container: no privilege, a read-only root file system, and the writable places mounted.

    `settings` names a ConfigMap whose keys become variables; those of `environment` go before them. `reads_source`: it
    is the data job's.
    """
    mounts = [
        *job_folder.mounts(job, reads_source=reads_source),
        k8s.VolumeMount(name="home", mount_path=contract.HOME),
        k8s.VolumeMount(name="temporary", mount_path=TEMPORARY),
    ]
    if isinstance(resources, TrainerResources):
        mounts.append(k8s.VolumeMount(name="shared-memory", mount_path=contract.SHARED_MEMORY))
    if program is not None:
        mounts.append(k8s.VolumeMount(name=PROGRAM, mount_path=program.mount_path, read_only=True))
    return k8s.Container(
        name=name,
        image=image,
        image_pull_policy=pull_policy(image),
        command=list(command) if command is not None else None,
        args=list(arguments) or None,
        working_dir=working_dir,
        env=list(environment) or None,
        env_from=_environment_from(job.environment_from if isinstance(resources, TrainerResources) else None, settings),
        ports=list(ports) or None,
        resources=requirements(resources, gpus),
        volume_mounts=mounts,
        startup_probe=startup_probe,
        liveness_probe=liveness_probe,
        # The last lines of a failed container show up in `kubectl describe`, where a user looks first.
        termination_message_policy="FallbackToLogsOnError",
        security_context=k8s.SecurityContext(
            allow_privilege_escalation=False,
            capabilities=k8s.Capabilities(drop=["ALL"]),
            privileged=False,
            read_only_root_filesystem=True,
            run_as_non_root=True,
        ),
    )


def _environment_from(secret: str | None, settings: str | None) -> list[k8s.EnvFromSource] | None:
    """What comes later wins: a Secret changes no setting of the job."""
    found = [k8s.EnvFromSource(secret_ref=k8s.SecretEnvSource(name=secret))] if secret is not None else []
    found += [k8s.EnvFromSource(config_map_ref=k8s.ConfigMapEnvSource(name=settings))] if settings is not None else []
    return found or None


def template(
    job: TrainingJob,
    *,
    role: names.Role,
    container: k8s.Container,
    resources: Resources,
    placement: Mapping[str, Any],
    service_account: str,
    claim: str,
    token: bool = False,
    subdomain: str | None = None,
    scheduler: str | None = None,
    deadline_seconds: int | None = None,
    program: OwnProgram | None = None,
    annotations: Mapping[str, str] | None = None,
    probe_may_kill: bool = False,
) -> k8s.PodTemplateSpec:
    """The pod around the container, run as the access point's user.

    `probe_may_kill`: the container's program is no PID 1, which no process of its own container could kill.
    """
    scratch = k8s.Quantity.from_string(resources.scratch)
    volumes = [
        k8s.Volume(name="home", empty_dir=k8s.EmptyDirVolumeSource(size_limit=scratch)),
        k8s.Volume(name="temporary", empty_dir=k8s.EmptyDirVolumeSource(size_limit=scratch)),
    ]
    if job.volume.kind != "none":
        source = k8s.PersistentVolumeClaimVolumeSource(claim_name=claim)
        volumes.insert(0, k8s.Volume(name=job_folder.VOLUME, persistent_volume_claim=source))
    if isinstance(resources, TrainerResources):
        memory = k8s.EmptyDirVolumeSource(medium="Memory", size_limit=k8s.Quantity.from_string(resources.shared_memory))
        volumes.append(k8s.Volume(name="shared-memory", empty_dir=memory))
    if program is not None:
        volumes.append(k8s.Volume(name=PROGRAM, config_map=k8s.ConfigMapVolumeSource(name=program.config_map)))
    return k8s.PodTemplateSpec(
        metadata=k8s.ObjectMeta(labels=names.labels(job, role), annotations=dict(annotations) if annotations else None),
        spec=k8s.PodSpec(
            init_containers=job_folder.maker(job, container, requirements(resources), reads_source=role == "data") or None,
            containers=[container],
            restart_policy="Never",
            service_account_name=service_account,
            automount_service_account_token=token,
            # Addresses of other Services as variables: noise, and a name that a program could mistake for its own.
            enable_service_links=False,
            share_process_namespace=probe_may_kill or None,
            subdomain=subdomain,
            scheduler_name=scheduler,
            active_deadline_seconds=deadline_seconds,
            termination_grace_period_seconds=job.limits.grace_period_seconds,
            **placement,
            security_context=k8s.PodSecurityContext(
                run_as_non_root=True,
                run_as_user=contract.UID,
                run_as_group=contract.GID,
                fs_group=contract.GID,
                fs_group_change_policy="OnRootMismatch",
                seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
            ),
            volumes=volumes,
        ),
    )


def job_spec(
    job: TrainingJob, template: k8s.PodTemplateSpec, pods: int, *, indexed: bool, suspend: bool | None = None
) -> k8s.JobSpec:
    """`pods` of a Job side by side, which end at the job's limits.

    Where pods have indexes each counts its own failures and waits for its own, and one that has used them up fails the Job.
    """
    retries = job.limits.retries
    return k8s.JobSpec(
        template=template,
        parallelism=pods,
        completions=pods,
        completion_mode="Indexed" if indexed else "NonIndexed",
        pod_failure_policy=failure_policy(template),
        # A replacement starts when its predecessor is gone: two pods of one index would do the same work twice.
        pod_replacement_policy="Failed",
        active_deadline_seconds=int(job.limits.hours * 3600),
        ttl_seconds_after_finished=int(job.limits.keep_finished_hours * 3600),
        suspend=suspend,
        backoff_limit=None if indexed else retries,
        backoff_limit_per_index=retries if indexed else None,
        max_failed_indexes=0 if indexed else None,
    )


def with_restart_rules(job: dict[str, Any], outputs: ClusterOutputs) -> dict[str, Any]:
    """A Job's document, whose first container also says after which exit codes it is started again in its pod.

    Kubernetes waits for its own back-off alone (0, 10, 20, ... seconds, forgotten after ten quiet minutes), and the Job counts
    nothing. cdk8s's types do not know the field, and leave it out.
    """
    if outputs.restarts_in_place:
        codes = {"operator": "In", "values": list(contract.RESTART_IN_PLACE)}
        job["spec"]["template"]["spec"]["containers"][0] |= {
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}],
        }
    # Sorted, as cdk8s sorts what it has types for.
    sorted_job: dict[str, Any] = json.loads(json.dumps(job, sort_keys=True))
    return sorted_job


def disruption_budget(
    scope: Construct, job: TrainingJob, min_available: int, selector: Mapping[str, Any], labels: Mapping[str, str]
) -> None:
    """How many of the pods a drain has to leave alone."""
    (budget,) = custom_object.written(
        "disruption_budget.yaml", job=job.name, namespace=job.namespace, min_available=min_available
    )
    budget["metadata"]["labels"] = labels
    budget["spec"]["selector"] = selector
    custom_object.add(scope, budget)


def failure_policy(template: k8s.PodTemplateSpec) -> k8s.PodFailurePolicy:
    """Faults that no retry can heal fail the Job at once; a drained or reclaimed node costs no retry."""
    codes = sorted(int(code) for code in contract.FAIL_JOB)
    spec = template.spec
    ours = [*(spec.init_containers or ()), *spec.containers] if spec is not None else []
    return k8s.PodFailurePolicy(
        rules=[
            *(
                k8s.PodFailurePolicyRule(
                    action="FailJob",
                    on_exit_codes=k8s.PodFailurePolicyOnExitCodesRequirement(
                        container_name=container.name, operator="In", values=codes
                    ),
                )
                for container in ours
            ),
            k8s.PodFailurePolicyRule(
                action="Ignore",
                on_pod_conditions=[k8s.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")],
            ),
        ]
    )
