"""What can be said of the boot scripts without booting: shellcheck finds nothing, and README.md names every variable and file."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml
from machine import SCRIPTS

README = (SCRIPTS / "README.md").read_text()


@pytest.mark.slow
def test_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    scripts = sorted(path.name for path in SCRIPTS.glob("*.sh"))
    done = subprocess.run(
        ["shellcheck", "--external-sources", *scripts], cwd=SCRIPTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_readme_has_every_variable() -> None:
    table = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", README.split("## What the roles need")[0]))
    own = {"HERE", "SECRETS", "AGENT", "K3S", "STATE", "DEVICE", "LABEL", "INSTANCE", "INSTANCE_TYPE", "ZONE", "CA_HASH"}
    shell = {"PATH", "SECONDS", "LINENO", "BASH_COMMAND", "IFS"}
    used = (
        {name for path in SCRIPTS.glob("*.sh") for name in re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", path.read_text())} - own - shell
    )
    assert used == table


def test_readme_has_every_file() -> None:
    for path in (*SCRIPTS.glob("*.sh"), *SCRIPTS.glob("manifests/*"), SCRIPTS / "ecr-credentials"):
        assert f"`{path.name}`" in README or path.name == "user-data.sh", path.name


def test_manifests_name_only_images_of_the_lock() -> None:
    from stacks.distribution_lock import IMAGES

    named = set(re.findall(r"\{\{([a-z-]+)\}\}", (SCRIPTS / "manifests/efs-csi-driver.yaml").read_text()))
    assert named == set(IMAGES)
    for path in SCRIPTS.glob("manifests/*.yaml"):
        kinds = [each["kind"] for each in yaml.safe_load_all(path.read_text())]
        assert kinds and all(kinds)


@pytest.mark.slow
def test_pods_of_nobodys_job_are_kept_from_the_machines_role() -> None:
    """The policy leaves out exactly the pods that the charts' own policies select, and what those let the data job reach."""
    from k8s_charts.names import PART_OF
    from k8s_charts.pods.network import RULES

    documents = list(yaml.safe_load_all((SCRIPTS / "manifests/people.yaml").read_text()))
    (policy,) = [each for each in documents if each["kind"] == "NetworkPolicy"]
    ((key, value),) = PART_OF.items()
    spec = policy["spec"]
    assert policy["metadata"]["namespace"] == "{{jobs-namespace}}"
    assert spec["podSelector"] == {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}
    (rule,) = spec["egress"]
    everywhere = {"cidr": "0.0.0.0/0", "except": [to["ipBlock"]["cidr"] for to in RULES["instance-profile"]["to"]]}
    assert rule == {"to": [{"namespaceSelector": {}}, {"ipBlock": everywhere}]}, "and every port"


@pytest.mark.slow
def test_manifests_are_what_kubernetes_knows() -> None:
    import kubernetes_validate

    for path in SCRIPTS.glob("manifests/*.yaml"):
        text = re.sub(r"\{\{[a-z-]+\}\}", "registry.example/image", path.read_text().replace("{{jobs-namespace}}", "paddle"))
        for document in yaml.safe_load_all(text):
            kubernetes_validate.validate(document, "1.35", strict=True)
