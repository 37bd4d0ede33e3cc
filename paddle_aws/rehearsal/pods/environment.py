"""A container's environment as the kubelet makes it, without this machine's own variables.

Order and rules are those of Kubernetes: the image's ENV, then `envFrom`, then `env` in order.
`$(NAME)` becomes the value of a variable defined earlier, or stays as it is if there is none; `$$`
becomes `$`.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.manifests import Container

_LABEL_OR_ANNOTATION = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True)
class PodFacts:
    """What the downward API can tell a container about its pod."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    address: str
    service_account: str
    port_shift: int = 0
    """How far this machine moves the ports that the manifests name."""
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def value(self, path: str) -> str:
        """Returns the value of one `fieldRef.fieldPath`. Raises BadInput for a path that does not
        exist.
        """
        if match := _LABEL_OR_ANNOTATION.fullmatch(path):
            values = self.labels if match[1] == "labels" else self.annotations
            return values.get(match[2], "")
        fields = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": "rehearsal",
            "status.podIP": self.address,
        }
        if path not in fields:
            raise BadInput(
                f"fieldRef {path}: the downward API has {', '.join(fields)}, "
                "metadata.labels['x'] and annotations"
            )
        return fields[path]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` and `$$` as the kubelet does."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]),
        text,
    )


def environment(
    container: Container,
    facts: PodFacts,
    config_maps: Mapping[str, Mapping[str, str]],
    base: Mapping[str, str],
) -> dict[str, str]:
    """Returns the variables of `container`; `base` is what the image sets."""
    variables = dict(base)
    for name in container.config_maps:
        variables |= config_maps[name]
    for entry in container.environment:
        if entry.field_path is not None:
            variables[entry.name] = facts.value(entry.field_path)
        else:
            variables[entry.name] = expand(entry.value or "", variables)
    return variables
