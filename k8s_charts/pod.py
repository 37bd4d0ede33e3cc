"""A pod that passes Pod Security "restricted" and can still train: what every pod of ours has in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdk8s_plus_33 import k8s
from paddle_node import contract

from k8s_charts import names
from k8s_charts.spec import Resources, TrainerResources, TrainingJob

TEMPORARY = "/tmp"
SHARED_MEMORY = "/dev/shm"


def requirements(resources: Resources) -> k8s.ResourceRequirements:
    """Requests equal limits: the pod is "Guaranteed", the last to be evicted when a node runs short."""
    amounts: Mapping[str, k8s.Quantity] = {
        "cpu": k8s.Quantity.from_string(resources.cpu),
        "memory": k8s.Quantity.from_string(resources.memory),
        "ephemeral-storage": k8s.Quantity.from_string(resources.scratch),
    }
    return k8s.ResourceRequirements(requests=amounts, limits=amounts)


def container(
    *,
    role: names.Role,
    image: str,
    command: str,
    arguments: Sequence[str],
    environment: Sequence[k8s.EnvVar],
    resources: Resources,
    ports: Sequence[k8s.ContainerPort] = (),
    startup_probe: k8s.Probe | None = None,
    liveness_probe: k8s.Probe | None = None,
) -> k8s.Container:
    """The one container: no privilege, a read-only root file system, and the writable places mounted."""
    mounts = [
        k8s.VolumeMount(name="job", mount_path=contract.VOLUME_MOUNT),
        k8s.VolumeMount(name="home", mount_path=contract.HOME),
        k8s.VolumeMount(name="temporary", mount_path=TEMPORARY),
    ]
    if isinstance(resources, TrainerResources):
        mounts.append(k8s.VolumeMount(name="shared-memory", mount_path=SHARED_MEMORY))
    return k8s.Container(
        name=role,
        image=image,
        # A digest never changes and a tag may: the kubelet asks for the tag each time, and for a digest only once.
        image_pull_policy="IfNotPresent" if "@sha256:" in image else "Always",
        command=[command],
        args=list(arguments) or None,
        working_dir=contract.HOME,
        env=list(environment),
        ports=list(ports) or None,
        resources=requirements(resources),
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


def template(
    job: TrainingJob,
    *,
    role: names.Role,
    container: k8s.Container,
    resources: Resources,
    service_account: str,
    subdomain: str | None = None,
    spread: Sequence[k8s.TopologySpreadConstraint] = (),
) -> k8s.PodTemplateSpec:
    """The pod around the container, run as the access point's user."""
    volumes = [
        k8s.Volume(name="job", persistent_volume_claim=k8s.PersistentVolumeClaimVolumeSource(claim_name=names.claim(job))),
        k8s.Volume(name="home", empty_dir=k8s.EmptyDirVolumeSource(size_limit=k8s.Quantity.from_string(resources.scratch))),
        k8s.Volume(name="temporary", empty_dir=k8s.EmptyDirVolumeSource(size_limit=k8s.Quantity.from_string(resources.scratch))),
    ]
    if isinstance(resources, TrainerResources):
        memory = k8s.EmptyDirVolumeSource(medium="Memory", size_limit=k8s.Quantity.from_string(resources.shared_memory))
        volumes.append(k8s.Volume(name="shared-memory", empty_dir=memory))
    return k8s.PodTemplateSpec(
        metadata=k8s.ObjectMeta(labels=names.labels(job, role)),
        spec=k8s.PodSpec(
            containers=[container],
            restart_policy="Never",
            service_account_name=service_account,
            automount_service_account_token=False,
            # Addresses of other Services as variables: noise, and a name that a program could mistake for its own.
            enable_service_links=False,
            subdomain=subdomain,
            termination_grace_period_seconds=job.limits.grace_period_seconds,
            topology_spread_constraints=list(spread) or None,
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


def failure_policy(role: names.Role) -> k8s.PodFailurePolicy:
    """Faults that no retry can heal fail the Job at once; a drained or reclaimed node costs no retry."""
    return k8s.PodFailurePolicy(
        rules=[
            k8s.PodFailurePolicyRule(
                action="FailJob",
                on_exit_codes=k8s.PodFailurePolicyOnExitCodesRequirement(
                    container_name=role, operator="In", values=sorted(int(code) for code in contract.FAIL_JOB)
                ),
            ),
            k8s.PodFailurePolicyRule(
                action="Ignore",
                on_pod_conditions=[k8s.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")],
            ),
        ]
    )
