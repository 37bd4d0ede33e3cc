"""NVIDIA's device plugin, which tells Kubernetes of a node's GPUs: without it a job that asks for one waits for ever."""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import names

SOCKETS = "/var/lib/kubelet/device-plugins"
"""Where the kubelet listens for device plugins."""
NAME = "nvidia-device-plugin"


class DevicePluginChart(Chart):
    """DaemonSet in kube-system. It runs on every node and idles where there is no GPU."""

    def __init__(self, scope: Construct, image: str) -> None:
        super().__init__(scope, NAME)
        labels = {**names.PART_OF, "app.kubernetes.io/name": NAME}
        amounts = {"cpu": k8s.Quantity.from_string("50m"), "memory": k8s.Quantity.from_string("128Mi")}
        container = k8s.Container(
            name="device-plugin",
            image=image,
            image_pull_policy="IfNotPresent",
            env=[k8s.EnvVar(name="FAIL_ON_INIT_ERROR", value="false")],
            resources=k8s.ResourceRequirements(requests=amounts, limits=amounts),
            # It runs as root, because the kubelet's socket is root's, and has no other privilege.
            security_context=k8s.SecurityContext(
                allow_privilege_escalation=False, capabilities=k8s.Capabilities(drop=["ALL"]), read_only_root_filesystem=True
            ),
            volume_mounts=[k8s.VolumeMount(name="sockets", mount_path=SOCKETS)],
        )
        pod = k8s.PodSpec(
            containers=[container],
            automount_service_account_token=False,
            priority_class_name="system-node-critical",
            # Whatever a node is tainted with: without the plugin its GPUs are not there for any job.
            tolerations=[k8s.Toleration(operator="Exists")],
            security_context=k8s.PodSecurityContext(seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault")),
            volumes=[k8s.Volume(name="sockets", host_path=k8s.HostPathVolumeSource(path=SOCKETS, type="Directory"))],
        )
        k8s.KubeDaemonSet(
            self,
            "DaemonSet",
            metadata=k8s.ObjectMeta(name=NAME, namespace="kube-system", labels=labels),
            spec=k8s.DaemonSetSpec(
                selector=k8s.LabelSelector(match_labels=labels),
                update_strategy=k8s.DaemonSetUpdateStrategy(type="RollingUpdate"),
                template=k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels=labels), spec=pod),
            ),
        )
