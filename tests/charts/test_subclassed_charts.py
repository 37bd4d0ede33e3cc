"""A stack author changes our charts without a fork: by a subclass, by `customize` and by patches of
cdk8s.

Whatever the change is, a Job under the same name has the same immutable spec; objects added beside
ours have the job's namespace; the pods still pass restricted pod security.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cdk8s
import pytest
import yaml

from k8s_charts import names
from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents
from k8s_charts.kinds.data_job import DataChart
from k8s_charts.kinds.namespace import NamespaceChart
from k8s_charts.kinds.training_job import TrainingChart
from k8s_charts.kinds.volume import VolumeChart
from k8s_charts.spec import TrainingJob
from paddle_settings.errors import SettingError

Document = dict[str, Any]
Jobs = Callable[..., TrainingJob]


class ChartWithSidecar(TrainingChart):
    """Adds a sidecar to the trainers, and its settings beside them."""

    def __init__(self, *arguments: Any, image: str, **settings: Any) -> None:
        self.sidecar_image = image
        super().__init__(*arguments, **settings)
        cdk8s.ApiObject(self, "Settings", api_version="v1", kind="ConfigMap")

    def customize_pod(self, template: Document, role: names.Role) -> None:
        sidecar = {
            "name": "logs",
            "image": self.sidecar_image,
            "restartPolicy": "Always",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        template["spec"]["initContainers"] = [sidecar]


def named(documents: list[Document], kind: str = "Job") -> dict[str, Document]:
    return {
        document["metadata"]["name"]: document for document in documents if document["kind"] == kind
    }


def test_a_subclass_that_changes_the_pod_gets_another_job(
    job: Jobs, outputs: ClusterOutputs
) -> None:
    def jobs(image: str) -> dict[str, Document]:
        chart = ChartWithSidecar(cdk8s.App(), job(), outputs, "image", image=image)
        added = named(chart.to_json(), "ConfigMap")
        assert {d["metadata"]["namespace"] for d in added.values()} == {"paddle"}
        return named(chart.to_json())

    ours = named(documents(job(), outputs, "image"))
    first, again, second = jobs("logs:1"), jobs("logs:1"), jobs("logs:2")
    assert first == again
    assert not ours.keys() & first.keys() and not first.keys() & second.keys()


def test_a_later_patch_of_the_pod_gets_another_job_and_a_patched_name_stays(
    job: Jobs, outputs: ClusterOutputs
) -> None:
    app = cdk8s.App()
    chart = TrainingChart(app, job(), outputs, "image", labels={"cost-centre": "42"})
    ours = named(documents(job(), outputs, "image"))
    assert named(chart.to_json()).keys() < ours.keys()
    assert {d["metadata"]["labels"]["cost-centre"] for d in chart.to_json()} == {"42"}
    document = cdk8s.ApiObject.of(chart.node.find_child("Job"))
    document.add_json_patch(cdk8s.JsonPatch.add("/spec/template/spec/hostname", "a"))
    (patched,) = named(chart.to_json())
    assert patched.startswith("words-") and patched not in ours
    document.add_json_patch(cdk8s.JsonPatch.replace("/metadata/name", "mine"))
    assert [*named(chart.to_json())] == ["mine"]


def test_trainers_wait_for_the_split_whoever_made_its_chart(
    job: Jobs, outputs: ClusterOutputs
) -> None:
    def customize(template: Document, role: names.Role) -> None:
        template["metadata"]["annotations"] = {"role": role}

    def awaited(chart: cdk8s.Chart) -> set[str]:
        (document,) = named(chart.to_json()).values()
        (container,) = document["spec"]["template"]["spec"]["containers"]
        return {v["value"] for v in container["env"] if v["name"] == "PADDLE_NODE_DATA_JOB"}

    app = cdk8s.App()
    alone = TrainingChart(app, job(), outputs, "image")
    assert awaited(alone) == {DataChart(cdk8s.App(), job(), outputs, "image").identity}
    app = cdk8s.App()
    data = DataChart(app, job(), outputs, "image", customize=customize)
    training = TrainingChart(app, job(), outputs, "image")
    assert awaited(training) == {data.identity} != awaited(alone)


def test_ids_of_the_objects_do_not_change_with_the_settings(
    job: Jobs, outputs: ClusterOutputs
) -> None:
    def ids(**settings: Any) -> set[str]:
        chart = TrainingChart(cdk8s.App(), job(**settings), outputs, "image")
        return {child.node.id for child in chart.node.children}

    plain = ids()
    assert "Job" in plain
    assert ids(gang={"kind": "volcano"}) == plain | {"PodGroup"}
    volume = VolumeChart(cdk8s.App(), job(), outputs).to_json()
    assert "namespace" not in named(volume, "PersistentVolume").popitem()[1]["metadata"]


def test_an_app_of_ones_own_numbers_the_steps_and_labels_every_object(
    job: Jobs, outputs: ClusterOutputs, tmp_path: Path
) -> None:
    app = cdk8s.App(outdir=str(tmp_path))
    TrainingChart(app, job(), outputs, "image")
    argocd = {f"app.kubernetes.io/{name}": "argocd" for name in ("managed-by", "part-of")}
    VolumeChart(app, job(), outputs, labels=argocd)
    NamespaceChart(app, job())
    DataChart(app, job(), outputs, "image")
    app.synth()
    files = sorted(tmp_path.glob("*.yaml"))
    assert [file.name.removesuffix(".k8s.yaml") for file in files] == [
        "0000-paddle-namespace", "0001-words-volume", "0002-words-data", "0003-words-training"
    ]  # fmt: skip
    for file in files:
        for document in yaml.safe_load_all(file.read_text()):
            labels = document["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "paddle-aws"
            assert labels["app.kubernetes.io/part-of"] == "paddle-aws"
            owner = "argocd" if "volume" in file.name else "paddle-aws"
            assert labels["app.kubernetes.io/managed-by"] == owner


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"securityContext": {"privileged": True}}, "securityContext.privileged is true"),
        ({"volumeMounts": []}, None),
        ({"volumeMounts": [{"name": "gone", "mountPath": "/x"}]}, "no volume has that name"),
        ({"env": []}, "lacks the variable "),
        ({"name": "other"}, "the job's own container is needed"),
        ({"resource": {}}, "spec.containers[0].resource is no field of a pod: did you mean resou"),
    ],
)
def test_what_a_hook_leaves_is_checked_as_job_yaml_is(
    change: Mapping[str, Any], refused: str | None, job: Jobs, outputs: ClusterOutputs
) -> None:
    def customize(template: Document, role: names.Role) -> None:
        template["spec"]["containers"][0] |= change

    if refused is None:
        assert named(documents(job(), outputs, "image", customize=customize))
        return
    with pytest.raises(SettingError) as refusal:
        documents(job(), outputs, "image", customize=customize)
    assert refused in str(refusal.value)
