"""What holds for the boot scripts without booting: tools find nothing wrong, and README.md names
every variable.
"""

import re
import shutil
import subprocess
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml
from machine import PROJECT, SCRIPTS

README = (SCRIPTS / "README.md").read_text()


@pytest.mark.slow
def test_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    scripts = sorted(path.name for path in SCRIPTS.glob("*.sh"))
    scripts.append(str(PROJECT / "constructs_lib/ec2/mount/mount-file-system.sh"))
    done = subprocess.run(
        ["shellcheck", "-x", *scripts], cwd=SCRIPTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_readme_has_every_variable_for_its_role(rendered: Any) -> None:
    rows = [line.split("|") for line in README.splitlines() if line.startswith("| `")]
    roles = {name: row[2].strip() for row in rows for name in re.findall(r"`([A-Z_]+)`", row[1])}
    waits = {"DEADLINE_SECONDS", "POLL_SECONDS"}
    for role, text in rendered.user_data.items():
        assert len(text.encode()) < 12000, "EC2 takes 16 KB, and names and ARNs may be longer"
        given = set(re.findall(r"^([A-Z_]+)='", text, re.MULTILINE)) | waits
        assert given == {name for name, of in roles.items() if of in ("both", role)}


@pytest.mark.slow
def test_pods_of_nobodys_job_are_kept_from_the_machines_role() -> None:
    """The policy excludes exactly the pods that the charts' own policies select, and what those let
    the data job reach.
    """
    from k8s_charts.names import PART_OF
    from k8s_charts.pods.network import RULES

    documents = list(yaml.safe_load_all((SCRIPTS / "manifests/people.yaml").read_text()))
    (policy,) = [document for document in documents if document["kind"] == "NetworkPolicy"]
    ((key, value),) = PART_OF.items()
    spec = policy["spec"]
    assert policy["metadata"]["namespace"] == "{{jobs-namespace}}"
    assert spec["podSelector"] == {
        "matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]
    }
    (rule,) = spec["egress"]
    everywhere = {
        "cidr": "0.0.0.0/0",
        "except": [to["ipBlock"]["cidr"] for to in RULES["instance-profile"]["to"]],
    }
    assert rule == {"to": [{"namespaceSelector": {}}, {"ipBlock": everywhere}]}, "and every port"


@pytest.mark.slow
def test_manifests_are_what_kubernetes_knows() -> None:
    import kubernetes_validate

    for path in SCRIPTS.glob("manifests/*.yaml"):
        text = re.sub(
            r"\{\{[a-z-]+\}\}",
            "registry.example/image",
            path.read_text().replace("{{jobs-namespace}}", "paddle"),
        )
        for document in yaml.safe_load_all(text):
            kubernetes_validate.validate(document, "1.35", strict=True)


@pytest.mark.slow
def test_each_call_of_the_aws_cli_is_one_that_aws_knows() -> None:
    """The models that the CLI is built from have all options and --query fields; `aws s3` and a
    login are the CLI's own.
    """
    import jmespath
    from botocore import xform_name
    from botocore.session import get_session

    def like(shape: Any, depth: int = 0) -> Any:
        """Returns an answer of this shape, with one of everything."""
        if shape.type_name == "structure":
            return (
                {name: like(member, depth + 1) for name, member in shape.members.items()}
                if depth < 8
                else {}
            )
        return [like(shape.member, depth + 1)] if shape.type_name == "list" else "something"

    text = "\n".join(path.read_text() for path in SCRIPTS.glob("*.sh"))
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    calls = re.findall(r"\baws (ec2|secretsmanager|cloudformation|s3api) ([a-z-]+)(.*)", text)
    assert len(calls) >= 7
    for service, operation, rest in calls:
        # The CLI's name for the service itself is `s3api`; `s3` has the CLI's own commands.
        model = get_session().get_service_model(service.removesuffix("api"))
        described = model.operation_model(
            {xform_name(name, "-"): name for name in model.operation_names}[operation]
        )
        given = set(re.findall(r" --([a-z-]+)", rest.split("|")[0]))
        assert given <= {xform_name(name, "-") for name in described.input_shape.members} | {
            "region",
            "output",
            "query",
        }, operation
        assert {
            xform_name(name, "-") for name in described.input_shape.required_members
        } <= given, operation
        if query := re.search(r"--query (?:'([^']+)'|(\S+))", rest):
            assert jmespath.search(query[1] or query[2], like(described.output_shape)), operation


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["", "dnf", "mount", "chown"])
def test_a_machine_that_cannot_mount_lustre_becomes_no_node(tmp_path: Path, fails: str) -> None:
    """What is real: the shell and the script; dnf, mount and systemctl only say what they are."""
    script = Template((PROJECT / "constructs_lib/storage/prepare-lustre.sh").read_text())
    text = script.substitute(source="fs.example@tcp:/x", owner=1000)
    text = text.replace("/dev/console", str(tmp_path / "console"))
    for name in ("dnf", "mount", "umount", "chown", "stat", "sleep", "systemctl"):
        says = "echo 0" if name == "stat" else f"echo {name} $* >>{tmp_path}/calls"
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n[ {name} != '{fails}' ]\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{text}\necho on >>{tmp_path}/calls"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    calls = (tmp_path / "calls").read_text()
    assert (done.returncode == 0) == (not fails) == calls.endswith("on\n"), done.stderr
    masked = "systemctl mask --now nodeadm-run.service kubelet.service\n"
    assert calls.endswith(masked) == bool(fails)
    if fails:
        assert "cannot be mounted on kernel" in (tmp_path / "console").read_text()
        assert calls.count(f"{fails} ") == 4, "it is tried again"
    else:
        assert "mount -t lustre -o relatime,flock fs.example@tcp:/x" in calls
        assert "chown 1000:1000" in calls and "umount" in calls
