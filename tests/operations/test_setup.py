"""`setup`: what a cluster gets once, and that nothing changes if not everything can.

setup.yaml shows the node pools; its NodePools fit Karpenter's own definition. EKS's definition of
NodeClass is not public, so no test here knows it.
"""

import json
import os
from pathlib import Path
from typing import Any

import kubernetes_api
import kubernetes_validate
import pytest
import yaml
from commands import Run
from job_controller import JobController, Script

from k8s_charts.spec import pod_security

GOLDEN = Path(__file__).with_name("setup.yaml")
VARIANTS = Path(__file__).parents[1] / "aws" / "variants"
AUTO_MODE = {
    "role": "auto-node",
    "subnets": ["subnet-1", "subnet-2"],
    "securityGroups": ["sg-cluster", "sg-clients", "sg-fabric"],
    "placementGroups": {"trainers": "auto-trainers"},
}
AUTO, GPU = str(VARIANTS / "auto.yaml"), str(VARIANTS / "gpu.yaml")


@pytest.fixture(autouse=True)
def deployed(folder: Path) -> None:
    outputs = json.loads((folder / "outputs.json").read_text())
    (folder / "outputs.json").write_text(
        json.dumps({**outputs, "auto-nodes": {"AutoMode": json.dumps(AUTO_MODE)}})
    )


def test_the_documents_of_auto_mode_are_the_reviewed_ones(run: Run) -> None:
    """UPDATE_GOLDEN=1 pytest tests/operations/test_setup.py rewrites the documents."""
    done = run("setup", AUTO, "--yaml")
    assert done.code == 0, done.err
    pools = done.out[done.out.index("---\napiVersion: v1\nkind: ConfigMap") :]
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(pools)
    assert pools == GOLDEN.read_text()


def test_it_is_applied_once_and_again(run: Run, api: JobController, folder: Path) -> None:
    for _ in range(2):
        done = run("setup", GPU)
        assert done.code == 0, done.err
        assert {daemon_set["metadata"]["name"] for daemon_set in api.all("daemonsets")} == {
            "dcgm-exporter",
            "efa-device-plugin",
            "images",
            "nvidia-device-plugin",
        }
    images = yaml.safe_load(Path(GPU).read_text())["jobs"].pop("images")
    (daemon_set,) = (item for item in api.all("daemonsets") if item["metadata"]["name"] == "images")
    kubernetes_validate.validate(daemon_set, "1.34", strict=True)
    pod = daemon_set["spec"]["template"]["spec"]
    assert [container["image"] for container in pod["containers"]] == images
    assert not list(pod_security.faults(pod, "restricted"))
    (folder / "cluster.yaml").write_text("retain: false")
    assert "jobs.images is no longer in cluster.yaml: `kubectl delete" in run("setup").err
    done = run("setup", GPU, "--yaml", "--remove")
    assert done.code == 2 and "--dry-run, --yaml and --remove are given together" in done.err
    before = len(api.requests)
    assert "would apply DaemonSet efa-device-plugin" in run("setup", GPU, "--dry-run").err
    assert all("dryRun=All" in path for method, path in api.requests[before:] if method == "PATCH")


def test_one_exporter_looks_at_a_gpu(run: Run, folder: Path) -> None:
    """CloudWatch's add-on, which counts nodes for a budget, brings its own."""
    nodes = {"workers": {}, "gpus": {"instance_types": ["g5.xlarge"], "gpu": True}}
    settings = {"retain": False, "nodes": nodes, "budget": {"emails": ["a@b.de"]}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(settings))
    done = run("setup", "--yaml")
    assert done.code == 0, done.err
    shown = done.out
    assert "dcgm-exporter" not in shown and "nvidia-device-plugin" in shown
    # Jobs get their GPU by CDI: EKS's runtime heeds no variable of a container without SYS_ADMIN.
    [plugin] = [
        document["spec"]["template"]["spec"]["containers"][0]
        for document in yaml.safe_load_all(shown)
        if document["kind"] == "DaemonSet"
    ]
    assert {"name": "DEVICE_LIST_STRATEGY", "value": "cdi-cri"} in plugin["env"]
    assert plugin["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-south-2", "455263428931.dkr.ecr.eu-south-2.amazonaws.com"),
        ("il-central-1", "066635153087.dkr.ecr.il-central-1.amazonaws.com"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_efa_plugin_comes_from_the_clusters_own_region(
    run: Run, folder: Path, region: str, registry: str
) -> None:
    """Another region's registry is out of reach without a way to the internet."""
    settings = {
        "retain": False,
        "region": region,
        "network": {"availability_zones": [f"{region}a", f"{region}b"]},
        "nodes": {
            "workers": {
                "instance_types": ["c5n.18xlarge"],
                "efa": True,
                "availability_zones": [f"{region}a"],
            }
        },
    }
    (folder / "cluster.yaml").write_text(json.dumps(settings))
    done = run("setup", "--yaml")
    assert (
        done.code == 0
        and f"image: {registry}/eks/aws-efa-k8s-device-plugin:v" in done.out.replace('"', "")
    ), done


def test_a_kind_that_the_cluster_lacks_is_named_before_anything_changes(
    run: Run, api: JobController
) -> None:
    done = run("setup", AUTO)
    assert (
        done.code == 2
        and "NodeClass (eks.amazonaws.com/v1) is unknown" in done.err
        and "compute: auto" in done.err
    )
    assert not api.all("daemonsets") and not any(method == "PATCH" for method, _ in api.requests)


def test_a_pool_that_is_no_longer_wanted_is_named_and_all_go_before_a_destroy(
    run: Run, api: JobController, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.kinds |= {"/apis/karpenter.sh/v1": "NodePool", "/apis/eks.amazonaws.com/v1": "NodeClass"}
    monkeypatch.setattr(
        kubernetes_api, "CLUSTER_WIDE", (*kubernetes_api.CLUSTER_WIDE, "NodePool", "NodeClass")
    )
    (folder / "cluster.yaml").write_text(
        Path(AUTO).read_text().replace("jobs: {queue: trainers}", "")
    )
    assert run("setup").code == 0 and len(api.all("nodepools")) == 2
    (folder / "cluster.yaml").write_text("retain: false\ncompute: auto")
    assert (
        "node pool trainers is no longer in cluster.yaml: `kubectl delete nodepool,nodeclass "
        "trainers`" in run("setup").err
    )
    done = run("setup", "--remove")
    assert done.code == 0 and not [*api.all("nodepools"), *api.all("nodeclasses")], done.err


def test_a_pod_says_whether_the_gpus_of_a_group_work(
    run: Run, api: JobController, folder: Path
) -> None:
    """Limits: no GPU is here; tests/fleet runs the all-reduce by gloo."""
    nodes = {"workers": {}, "gpus": {"instance_types": ["g5.12xlarge"], "gpu": True}}
    settings = {"retain": False, "nodes": nodes}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(settings))
    done = run("setup")
    assert done.code == 0 and "GPUs of gpus: not checked, there is no node yet" in done.err
    labels = {"paddle-aws/gpu": "true", "node.kubernetes.io/instance-type": "g5.12xlarge"}
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}})
    checked = []

    def keep(document: dict[str, Any]) -> None:
        checked.extend([document] if document["kind"] == "Job" else [])
        api.control(document)

    api.created = keep
    api.scripts["reader"] = Script(("+---+", "4 GPUs, an all-reduce over 4 GPUs: 12.0 s"))
    done = run("setup")
    assert done.code == 0, done.err
    assert done.err.endswith("GPUs of gpus: 4 GPUs, an all-reduce over 4 GPUs: 12.0 s\n")
    assert not api.all("jobs"), "the Job is gone"
    [job] = checked
    kubernetes_validate.validate(job, "1.34", strict=True)
    assert not list(pod_security.faults(job["spec"]["template"]["spec"], "restricted"))
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    image = json.loads((folder / "image.json").read_text())["image"]
    assert container["image"] == image and container["command"][-1].startswith("nvidia-smi && ")
    why = "an all-reduce over the GPUs failed: NCCL error"
    api.scripts["reader"] = Script((why,), code=71, message=why)
    done = run("setup")
    assert done.code == 1 and "GPUs of gpus: " in done.err and why in done.err
    (folder / "image.json").unlink()
    assert "GPUs of gpus: not checked, there is no image yet" in run("setup").err
