"""The PaddleJob operator itself, so that `engine: paddlejob` works on a cluster that has nothing yet.

One operator a job namespace, with rights in that namespace alone. It runs without its coordination container
(`--initImage=`): that container would break restricted pod security, and making pods run commands is a right
that nobody should have; workers have to wait for their parameter servers themselves, as our programs do.
"""

from __future__ import annotations

from cdk8s import Chart
from cdk8s_plus_33 import k8s
from constructs import Construct

from k8s_charts import custom_object, names, network, paddle_job_definition, pod
from k8s_charts.namespace import pod_security
from k8s_charts.spec import TrainingJob

NAMESPACE = "paddle-system"
UID = 65532
"""The user of the operator's image."""
HEALTH_PORT = 8081
_READ = ["get", "list", "watch"]
_OWN = [*_READ, "create", "delete"]


class OperatorChart(Chart):
    """CustomResourceDefinition, namespace, rights, NetworkPolicy and Deployment."""

    def __init__(self, scope: Construct, job: TrainingJob) -> None:
        super().__init__(scope, "paddle-operator")
        self._job = job
        self._name = f"paddle-operator-{job.namespace}"
        self._labels = {**names.PART_OF, "app.kubernetes.io/name": "paddle-operator", names.INSTANCE: job.namespace}
        custom_object.add(
            self,
            "Definition",
            api_version="apiextensions.k8s.io/v1",
            kind="CustomResourceDefinition",
            name=paddle_job_definition.NAME,
            labels=names.PART_OF,
            spec=paddle_job_definition.spec(),
        )
        k8s.KubeNamespace(
            self, "Namespace", metadata=k8s.ObjectMeta(name=NAMESPACE, labels={**names.PART_OF, **pod_security("restricted")})
        )
        k8s.KubeServiceAccount(self, "Account", metadata=self._metadata(NAMESPACE), automount_service_account_token=False)
        self._rights()
        k8s.KubeNetworkPolicy(
            self,
            "NetworkPolicy",
            metadata=self._metadata(NAMESPACE),
            spec=k8s.NetworkPolicySpec(
                pod_selector=k8s.LabelSelector(match_labels=self._labels),
                policy_types=["Ingress", "Egress"],
                egress=[network.to_names_service(), network.to_anywhere(*network.API_SERVER_PORTS)],
            ),
        )
        self._deployment()

    def _metadata(self, namespace: str) -> k8s.ObjectMeta:
        return k8s.ObjectMeta(name=self._name, namespace=namespace, labels=self._labels)

    def _rights(self) -> None:
        """What the operator's code calls, in the jobs' namespace: no secrets, no exec, no other namespace."""
        group = paddle_job_definition.GROUP
        rules = [
            k8s.PolicyRule(api_groups=[group], resources=["paddlejobs"], verbs=[*_READ, "update"]),
            k8s.PolicyRule(api_groups=[group], resources=["paddlejobs/status"], verbs=["update"]),
            # Owning pods with blockOwnerDeletion takes the right to the owner's finalizers.
            k8s.PolicyRule(api_groups=[group], resources=["paddlejobs/finalizers"], verbs=["update"]),
            k8s.PolicyRule(api_groups=[""], resources=["pods", "services", "configmaps"], verbs=_OWN),
            k8s.PolicyRule(api_groups=[""], resources=["events"], verbs=["create", "patch"]),
        ]
        if self._job.gang.kind == "volcano":
            rules.append(k8s.PolicyRule(api_groups=["scheduling.volcano.sh"], resources=["podgroups"], verbs=_OWN))
        namespace = self._job.namespace
        k8s.KubeRole(self, "Role", metadata=self._metadata(namespace), rules=rules)
        k8s.KubeRoleBinding(
            self,
            "RoleBinding",
            metadata=self._metadata(namespace),
            role_ref=k8s.RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=self._name),
            subjects=[k8s.Subject(kind="ServiceAccount", name=self._name, namespace=NAMESPACE)],
        )

    def _arguments(self) -> list[str]:
        arguments = [
            f"--namespace={self._job.namespace}",
            f"--health-probe-bind-address=:{HEALTH_PORT}",
            "--metrics-bind-address=0",
            "--initImage=",
        ]
        if self._job.gang.kind == "volcano":
            arguments.append("--scheduling=volcano")
        return arguments

    def _deployment(self) -> None:
        amounts = {"cpu": k8s.Quantity.from_string("100m"), "memory": k8s.Quantity.from_string("300Mi")}

        def probe(path: str, period: int) -> k8s.Probe:
            return k8s.Probe(
                http_get=k8s.HttpGetAction(path=path, port=k8s.IntOrString.from_string("health")),
                initial_delay_seconds=5,
                period_seconds=period,
                timeout_seconds=5,
                failure_threshold=3,
            )

        container = k8s.Container(
            name="manager",
            image=self._job.operator.operator_image,
            image_pull_policy=pod.pull_policy(self._job.operator.operator_image),
            command=["/manager"],
            args=self._arguments(),
            ports=[k8s.ContainerPort(name="health", container_port=HEALTH_PORT, protocol="TCP")],
            liveness_probe=probe("/healthz", 20),
            readiness_probe=probe("/readyz", 10),
            resources=k8s.ResourceRequirements(requests=amounts, limits=amounts),
            termination_message_policy="FallbackToLogsOnError",
            security_context=k8s.SecurityContext(
                allow_privilege_escalation=False,
                capabilities=k8s.Capabilities(drop=["ALL"]),
                privileged=False,
                read_only_root_filesystem=True,
                run_as_non_root=True,
            ),
        )
        manager = k8s.PodSpec(
            containers=[container],
            service_account_name=self._name,
            automount_service_account_token=True,
            enable_service_links=False,
            termination_grace_period_seconds=10,
            security_context=k8s.PodSecurityContext(
                run_as_non_root=True,
                run_as_user=UID,
                run_as_group=UID,
                seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
            ),
        )
        k8s.KubeDeployment(
            self,
            "Deployment",
            metadata=self._metadata(NAMESPACE),
            spec=k8s.DeploymentSpec(
                replicas=1,
                # Never two operators at once: that spares leader election, and the right to write leases.
                strategy=k8s.DeploymentStrategy(type="Recreate"),
                selector=k8s.LabelSelector(match_labels=self._labels),
                template=k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels=self._labels), spec=manager),
            ),
        )
