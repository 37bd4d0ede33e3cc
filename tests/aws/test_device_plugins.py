"""docs/device-plugins: valid for the default Kubernetes version, and found by the labels that our nodes carry."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from constructs_lib.ec2.node_shape import EFA_LABEL, GPU_LABEL, GPU_TAINT


@pytest.mark.parametrize(("name", "label"), [("nvidia", GPU_LABEL), ("efa", EFA_LABEL)])
def test_a_plugin_runs_on_the_nodes_that_need_it(project: Path, name: str, label: str) -> None:
    plugin: dict[str, Any] = yaml.safe_load((project / "docs" / "device-plugins" / f"{name}.yaml").read_text())
    kubernetes_validate.validate(plugin, "1.34", strict=True)
    pod = plugin["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {label: "true"}
    tolerated = [t for t in pod["tolerations"] if t.get("key", GPU_TAINT) == GPU_TAINT and t["operator"] == "Exists"]
    assert tolerated
    (container,) = pod["containers"]
    assert ":v" in container["image"]
