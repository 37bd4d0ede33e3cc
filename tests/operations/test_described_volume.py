"""What a look at a forgotten job's volume leaves: nothing, not even an object on its way out."""

from __future__ import annotations

from typing import Any, cast

from k8s_charts.documents import documents
from k8s_charts.outputs import ClusterOutputs
from k8s_charts.spec import TrainingJob
from operations.cluster import Cluster
from operations.described_volume import DescribedVolume
from operations.volume_access import reader


class SlowCluster:
    """Limits: knows names alone, and lets each object stay for two more looks after its deletion."""

    def __init__(self, *there: str) -> None:
        self.leaving: dict[str, int] = {}
        self.there = set(there)
        self.log: list[str] = []

    def delete(self, path: str) -> bool:
        if path in self.there:
            self.leaving.setdefault(path, 2)
        return path in self.there

    def find(self, path: str) -> dict[str, Any] | None:
        if path in self.leaving:
            self.leaving[path] -= 1
            if not self.leaving[path]:
                self.there.discard(path)
                self.log.append(f"{path} is gone")
        return {} if path in self.there else None

    def items(self, path: str, labels: str = "") -> list[dict[str, Any]]:
        return []

    def path(self, document: dict[str, Any]) -> str:
        return str(document["kind"])

    def apply(self, document: dict[str, Any]) -> None:
        self.there.add(document["kind"])

    def sleep(self, seconds: float) -> None:
        pass


def test_the_claim_goes_behind_the_pod_and_all_are_gone_at_the_end() -> None:
    double = SlowCluster("pod", "Namespace")
    cluster = cast("Cluster", double)
    volume = DescribedVolume(
        "words", "paddle", [{"kind": kind} for kind in ("Namespace", "PersistentVolume", "PersistentVolumeClaim")], {}
    )
    volume.bring(cluster)
    volume.remove(cluster, "pod")
    assert double.log == ["pod is gone", "PersistentVolumeClaim is gone", "PersistentVolume is gone"]
    assert double.there == {"Namespace"}


def test_what_was_there_before_stays() -> None:
    double = SlowCluster("pod", "PersistentVolumeClaim")
    volume = DescribedVolume("words", "paddle", [{"kind": "PersistentVolumeClaim"}], {})
    volume.bring(cast("Cluster", double))
    volume.remove(cast("Cluster", double), "pod")
    assert double.there == {"pod", "PersistentVolumeClaim"}


def test_the_inspection_pod_sees_the_jobs_own_folder_and_can_make_it() -> None:
    """Not what the data job reads beside it: its source may be gone by then."""
    settings = {
        "name": "words",
        "trainers": 1,
        "data": {"source": "/home/jobpath/raw"},
        "volume": {"kind": "nfs", "folder": "team"},
    }
    made = documents(TrainingJob.parse(settings), ClusterOutputs.placeholder(), "image")
    for job in (document for document in made if document["kind"] == "Job"):
        spec = reader(job["spec"]["template"], "words", "helper", "token", write=True)["spec"]
        (maker,), (container,) = spec["initContainers"], spec["containers"]
        assert maker["args"] == ["team/words"] and maker["resources"] == container["resources"]
        own = {"name": "job", "mountPath": "/home/jobpath/words", "subPath": "team/words", "readOnly": False}
        assert container["volumeMounts"] == [own] and container["args"][0] == own["mountPath"]
        assert [volume["name"] for volume in spec["volumes"]] == ["job"]
