"""Who starts what again, by the cluster's version: older API servers refuse a field that they do not know."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paddle_node.contract import FAIL_JOB, RESTART_IN_PLACE, ExitCode

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents


@pytest.mark.parametrize(("version", "in_place"), [("1.34", False), ("1.35", True), ("1.100", True), ("", False), ("new", False)])
def test_containers_start_again_in_place_where_the_version_is_known_to_do_it(
    version: str, in_place: bool, job: Callable[..., Any], outputs: ClusterOutputs, image: str, tmp_path: Path
) -> None:
    told = {"FileSystemId": "fs-1", "AccessPointId": "fsap-1", "BucketName": "b", "FileSystemDnsName": "d"}
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps({"stack": told | ({"KubernetesVersion": version} if version else {})}))
    assert ClusterOutputs.load(file).restarts_in_place == in_place
    data, training = (
        d for d in documents(job(), outputs.model_copy(update={"kubernetes_version": version}), image) if d["kind"] == "Job"
    )
    [container] = training["spec"]["template"]["spec"]["containers"]
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}
    assert container.get("restartPolicyRules") == ([rule] if in_place else None)
    assert ("restartPolicy" in container) == in_place and training["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    # A data job that runs out of memory does so again: it is the Job that counts.
    assert "restartPolicyRules" not in data["spec"]["template"]["spec"]["containers"][0]


def test_no_code_that_the_agent_chooses_starts_its_container_again() -> None:
    """Nor the one that the kubelet's SIGTERM leaves: without its sandbox the pod would stay Running for ever."""
    assert not set(RESTART_IN_PLACE) & {*FAIL_JOB, *ExitCode}
