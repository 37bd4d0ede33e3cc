"""Whatever a user writes reaches the container unchanged: through our charts, cdk8s, YAML and the
kubelet's expansion.
"""

# ruff: noqa: E501 (tables, one row a line)
from pathlib import Path
from typing import Any

import pytest
import yaml
from cdk8s import Yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import write
from k8s_charts.spec import TrainingJob
from k8s_charts.yaml_documents import dump
from paddle_aws.rehearsal.pods.environment import PodFacts, environment, expand
from paddle_aws.rehearsal.pods.manifests import load, read

pytestmark = pytest.mark.slow

SPECIAL = [
    "no", "yes", "on", "off", "null", "~", "true", "1e3", "0x1f", "0o17", "017", "1_000", "12:30:45", "2026-11-21", ".inf", "nan", "=", "<<",
    "", " ", "  two  ", "\t", "\n", "a\nb", "a\n", "\na", "a\r\nb", "- a", "a: b", "a #b", "#", "'", '"', "\\", "\\n", "it's", "{}", "[]", "{{x}}",
    "&a", "*a", "!t", "|", ">", "%", "@", "`", "?", ":", "---", "...", "--flag", "--flag=a b", "$", "$$", "$$$", "$(JOB_NAME)", "$$(JOB_NAME)",
    "$(", "$()", "$(NO_SUCH)", "${HOME}", "$é", "`id`", ";rm -rf /", "a\u0085b", "\u2028", "\ufeff", "é", "训练", "\U0001f680", "\x07", "\x7f", "x" * 5000,
]  # fmt: skip
# Everything but NUL, which cannot be passed to a process, and lone surrogates, which no UTF-8 file
# can hold.
TEXT = st.one_of(
    st.sampled_from(SPECIAL),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
)


FACTS = PodFacts("pod", "paddle", {}, {}, "10.0.0.1", "default")


def containers(
    job: TrainingJob, outputs: ClusterOutputs, folder: Path
) -> dict[str, dict[str, Any]]:
    """Returns each component's command, arguments and variables, as a rehearsal, like the kubelet,
    makes them from the files.
    """
    manifests = read(load(write(job, outputs, "image", folder)))
    templates = [kubernetes_job.template for kubernetes_job in manifests.jobs] + [
        role.template
        for kubernetes_job in manifests.paddle_jobs
        for role in kubernetes_job.roles.values()
    ]
    by_component = {}
    for template in templates:
        (container,) = template.containers
        variables = environment(container, FACTS, manifests.config_maps, {})
        words = {
            name: [expand(word, variables) for word in getattr(container, name)]
            for name in ("command", "args")
        }
        by_component[template.labels["app.kubernetes.io/component"]] = {
            **words,
            "variables": variables,
        }
    return by_component


@settings(max_examples=300, deadline=None)
@given(
    value=st.dictionaries(
        TEXT, st.one_of(TEXT, st.integers(), st.booleans(), st.lists(TEXT, max_size=3)), max_size=5
    )
)
def test_any_text_survives_our_yaml(value: dict[str, Any]) -> None:
    assert list(yaml.safe_load_all(dump([value, value]))) == [value, value]


def test_a_yaml_1_2_reader_agrees(tmp_path: Path) -> None:
    """cdk8s reads with npm's `yaml`, a different parser that follows YAML 1.2."""
    document = {
        "apiVersion": "v1",
        "values": SPECIAL,
        **{f"key{value}": value for value in SPECIAL},
    }
    path = tmp_path / "document.yaml"
    path.write_text(dump([document]), encoding="utf-8")
    assert list(Yaml.load(str(path))) == [document]


OURS = {"data": {"source": "s3://corpus/$(JOB_NAME)/$é"}}
PADDLE_JOB = {
    "controller": "paddlejob",
    "parameter_servers": 1,
    "volume": {"kind": "none"},
    "image": "image",
    "command": SPECIAL[:3],
}


@pytest.mark.parametrize("more", [OURS, PADDLE_JOB], ids=["job", "paddlejob"])
def test_every_special_value(more: dict[str, Any], outputs: ClusterOutputs, tmp_path: Path) -> None:
    given = {f"V{i}": value for i, value in enumerate(SPECIAL)}
    job = TrainingJob.parse(
        {"name": "hostile", "trainers": 1, "arguments": SPECIAL, "environment": given, **more}
    )
    by_component = containers(job, outputs, tmp_path)
    assert len(by_component) == 2
    if data := by_component.pop("data", None):
        assert data["variables"]["DATA_SOURCE"] == OURS["data"]["source"]
    for container in by_component.values():
        assert {name: container["variables"][name] for name in given} == given
        assert container["args"] == SPECIAL and container["command"] == more.get(
            "command", ["/usr/local/bin/start.sh"]
        )
