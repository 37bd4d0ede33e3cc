"""What Kubernetes' Pod Security Standards refuse in a pod that somebody added to: the rules of the
levels baseline and restricted, after https://kubernetes.io/docs/concepts/security/pod-security-standards/.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Level = Literal["restricted", "baseline", "privileged"]
Object = Mapping[str, Any]

_CAPABILITIES = {
    "baseline": (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    ),
    "restricted": ("NET_BIND_SERVICE",),
}
_VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
    *("persistentVolumeClaim", "projected", "secret"),
)
"""The sources of volumes that restricted allows."""
_OF_THE_NODE = ("hostNetwork", "hostPID", "hostIPC")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def faults(pod: Object, level: Level) -> Iterator[str]:
    """Yields what `level` refuses in a pod's spec, each as `<path> is <value>: <what is allowed>`.

    What a container leaves out counts as the pod's own securityContext has it.
    """
    if level == "privileged":
        return
    for field in _OF_THE_NODE:
        if pod.get(field):
            yield f"{field} is true: false is allowed"
    for volume in pod.get("volumes", ()):
        for source in volume.keys() - {"name"}:
            if source == "hostPath" or (level == "restricted" and source not in _VOLUMES):
                allowed = "any other" if level == "baseline" else ", ".join(_VOLUMES)
                yield f"volumes.{volume.get('name')} is a {source}: {allowed} is allowed"
    context = pod.get("securityContext", {})
    yield from _context_faults("securityContext", context, {}, level)
    if context.get("sysctls"):
        yield "securityContext.sysctls is given: none is allowed"
    for kind in ("initContainers", "containers"):
        for container in pod.get(kind, ()):
            at = f"{kind}.{container.get('name')}"
            for port in container.get("ports", ()):
                if port.get("hostPort"):
                    yield f"{at}.ports has the hostPort {port['hostPort']}: none is allowed"
            yield from _host_faults(at, container)
            yield from _container_faults(
                f"{at}.securityContext", container.get("securityContext", {}), context, level
            )


def _host_faults(at: str, container: Object) -> Iterator[str]:
    """Yields probes and hooks that call another host, which the standards forbid from 1.34 on."""
    hooks = container.get("lifecycle", {})
    handlers = [(probe, container.get(probe)) for probe in _PROBES]
    handlers += [(f"lifecycle.{hook}", handler) for hook, handler in hooks.items()]
    for name, handler in handlers:
        for kind in ("httpGet", "tcpSocket"):
            if host := ((handler or {}).get(kind) or {}).get("host"):
                yield f"{at}.{name}.{kind}.host is {host}: the pod itself is allowed, leave it out"


def _container_faults(at: str, security: Object, context: Object, level: Level) -> Iterator[str]:
    if security.get("privileged"):
        yield f"{at}.privileged is true: false is allowed"
    if security.get("procMount", "Default") != "Default":
        yield f"{at}.procMount is {security['procMount']}: Default is allowed"
    capabilities = security.get("capabilities", {})
    for capability in capabilities.get("add", ()):
        if capability not in _CAPABILITIES[level]:
            allowed = ", ".join(_CAPABILITIES[level])
            yield f"{at}.capabilities.add has {capability}: {allowed} is allowed"
    yield from _context_faults(at, security, context, level)
    if level == "restricted":
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{at}.allowPrivilegeEscalation is not false: false is allowed"
        if "ALL" not in capabilities.get("drop", ()):
            yield f"{at}.capabilities.drop is without ALL: [ALL] is allowed"
        if not security.get("runAsNonRoot", context.get("runAsNonRoot", False)):
            yield f"{at}.runAsNonRoot is not true: true is allowed"
        if security.get("seccompProfile", context.get("seccompProfile")) is None:
            yield f"{at}.seccompProfile is missing: RuntimeDefault or Localhost is allowed"


def _context_faults(at: str, security: Object, context: Object, level: Level) -> Iterator[str]:
    """Yields the faults of what a pod's and a container's securityContext have in common."""
    if level == "restricted" and security.get("runAsUser") == 0:
        yield f"{at}.runAsUser is 0: another user is allowed"
    for field in ("seccompProfile", "appArmorProfile"):
        if security.get(field, {}).get("type") == "Unconfined":
            yield f"{at}.{field}.type is Unconfined: RuntimeDefault or Localhost is allowed"
    linux = security.get("seLinuxOptions", {})
    if linux.get("user") or linux.get("role"):
        yield f"{at}.seLinuxOptions has a user or a role: neither is allowed"
    if security.get("windowsOptions", {}).get("hostProcess"):
        yield f"{at}.windowsOptions.hostProcess is true: false is allowed"
