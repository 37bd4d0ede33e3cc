"""What a job adds to its pods, under Kubernetes' own names: a sidecar, a volume, a label."""

from collections.abc import Iterator, Sequence
from typing import Any

from paddle_node.contract import Label
from pydantic import Field, JsonValue

from k8s_charts.spec.value_types import LabelKey, Labels, ObjectName, Several, Text
from paddle_settings.model import Fault, Refused, Settings, check

Object = dict[str, JsonValue]

OWN_LABELS = (Label.PART_OF, Label.INSTANCE, Label.COMPONENT)
"""Labels of every pod of a job. Services, policies and commands find it by them."""
_OF_THE_JOB = ("batch.kubernetes.io/", "job-name", "controller-uid")
_CONTAINER_DEFAULTS: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""What restricted pod security asks of each container; the pod's securityContext has the rest."""


class PullSecret(Settings):
    """A Secret with the credentials of a registry."""

    name: ObjectName
    """Its name in the job's namespace."""


class PodAdditions(Settings):
    """More of a pod: each setting has the name, form and meaning of Kubernetes' own field, and what
    the job itself sets stays.
    """

    labels: Labels = Field(default_factory=dict)
    """metadata.labels."""
    annotations: dict[LabelKey, Text] = Field(default_factory=dict)
    """metadata.annotations."""
    image_pull_secrets: Several[PullSecret] = Field(default=(), alias="imagePullSecrets")
    """Secrets of registries: [{name: registry}]."""
    runtime_class_name: ObjectName | None = Field(default=None, alias="runtimeClassName")
    """A RuntimeClass of the cluster, such as gvisor or nvidia."""
    affinity: Object = Field(default_factory=dict)
    """Joined with `scheduling`: a node has to satisfy both."""
    volumes: Several[Object] = ()
    """More volumes: [{name: corpus, persistentVolumeClaim: {claimName: corpus}}]."""
    volume_mounts: Several[Object] = Field(default=(), alias="volumeMounts")
    """Where the job's own container sees them: [{name: corpus, mountPath: /corpus}]."""
    init_containers: Several[Object] = Field(default=(), alias="initContainers")
    """Containers that end before the program starts or, with `restartPolicy: Always`, run beside it
    (sidecars) and end with it. They may mount the pod's volumes: job, home, temporary. Give each
    its resources, requests equal to limits: without them the pod is evicted sooner.
    """

    def containers(self) -> list[dict[str, Any]]:
        """Returns the init containers, with what restricted pod security asks for unless they say
        otherwise.
        """
        return [
            {
                **container,
                "securityContext": {
                    **_CONTAINER_DEFAULTS,
                    **_mapping(container.get("securityContext")),
                },
            }
            for container in self.init_containers
        ]

    def _faults(self) -> Iterator[Fault]:
        yield from check(
            self._labels,
            lambda: _entry_faults("initContainers", self.init_containers, ("name", "image")),
            lambda: _entry_faults("volumes", self.volumes, ("name",)),
            lambda: _entry_faults("volumeMounts", self.volume_mounts, ("name", "mountPath")),
            self._sources,
            self._mounts,
        )

    def _labels(self) -> Iterator[Fault]:
        for key in self.labels:
            if key in OWN_LABELS or key.startswith(_OF_THE_JOB):
                yield Refused(f"labels.{key}", self.labels[key], "the job sets it, leave it out")

    def _sources(self) -> Iterator[Fault]:
        for number, volume in enumerate(self.volumes):
            if len(volume) != 2:
                sources = ", ".join(sorted(volume.keys() - {"name"})) or None
                yield Refused(
                    f"volumes.{number}",
                    sources,
                    "a name and one source are allowed",
                )

    def _mounts(self) -> Iterator[Fault]:
        names = [volume.get("name") for volume in self.volumes]
        for number, mount in enumerate(self.volume_mounts):
            if mount.get("name") not in names:
                yield Refused(
                    f"volumeMounts.{number}.name",
                    mount.get("name"),
                    "the name of one of {here}volumes is allowed",
                )


def _entry_faults(field: str, entries: Sequence[Object], needed: Sequence[str]) -> Iterator[Fault]:
    for number, entry in enumerate(entries):
        for name in needed:
            if not isinstance(entry.get(name), str) or not entry[name]:
                yield Refused(f"{field}.{number}.{name}", entry.get(name), "text is needed")


def _mapping(value: JsonValue) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
