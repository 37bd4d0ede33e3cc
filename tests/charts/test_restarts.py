"""Who starts what again, by the cluster's version: older API servers refuse a field that they do not know."""

from collections.abc import Callable
from typing import Any

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents


@pytest.mark.parametrize(("version", "in_place"), [("1.34", False), ("1.35", True), ("1.100", True), ("", False), ("new", False)])
def test_containers_start_again_in_place_where_the_version_is_known_to_do_it(
    version: str, in_place: bool, job: Callable[..., Any], outputs: ClusterOutputs
) -> None:
    found = documents(job(), outputs.model_copy(update={"kubernetes_version": version}), "image")
    data, trainer = (d["spec"]["template"]["spec"]["containers"][0] for d in found if d["kind"] == "Job")
    # Neither a code that the agent chooses nor the one that the kubelet's SIGTERM leaves: without its sandbox the pod would stay
    # Running for ever.
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}
    assert trainer.get("restartPolicyRules") == ([rule] if in_place else None) and ("restartPolicy" in trainer) == in_place
    # A data job that runs out of memory does so again: it is the Job that counts.
    assert "restartPolicyRules" not in data
