"""Every field of every manifest is honoured, named as without effect, or refused by name: nothing is dropped in silence."""

import copy
from pathlib import Path

import pytest
import yaml

from operations.errors import BadInput
from rehearsal.pods import manifests

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "charts" / "golden"
SHIPPED = list(yaml.safe_load_all((GOLDEN / "job.yaml").read_text()))


def training_job(documents: list[dict]) -> dict:
    return [document for document in documents if document["kind"] == "Job"][-1]


def changed(path: str, value: object) -> list[dict]:
    """The shipped job's documents with one field of the training Job set; `/` separates, numbers index."""
    documents = copy.deepcopy(SHIPPED)
    at = training_job(documents)
    *parents, last = path.split("/")
    for parent in parents:
        at = at[int(parent)] if isinstance(at, list) else at.setdefault(parent, {})
    at[last] = value
    return documents


def test_the_shipped_job_is_read_whole():
    read = manifests.read(SHIPPED)
    data, training = read.jobs
    assert training.indexed and training.completions == training.parallelism == 3
    assert [container.name for container in training.template.containers] == ["trainer"]
    assert training.failure_rules[0].matches({"trainer": 65}) and not training.failure_rules[0].matches({"trainer": 1})
    assert training.template.containers[0].liveness.command == ("/usr/local/bin/healthy.sh",)
    assert training.template.containers[0].restart_codes == {137}
    assert data.template.service_account == "paddle-data"
    reasons = dict(name for reason, names in read.without_effect for name in [(n, reason) for n in names])
    assert reasons["securityContext"] == "processes run as you"
    assert reasons["NetworkPolicy"] == "loopback traffic is not filtered"


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_golden_manifest_is_read_or_refused_by_name(golden):
    documents = [document for document in yaml.safe_load_all(golden.read_text()) if document]
    try:
        read = manifests.read(documents)
        assert read.jobs or read.paddle_jobs
    except BadInput as refused:
        assert any(document["metadata"]["name"] in str(refused) for document in documents)
        assert "does not know" not in str(refused)


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_fields.yaml").read_text())


@pytest.mark.parametrize(("path", "value", "sentence"), [tuple(row.values()) for row in REFUSED])
def test_what_cannot_be_rehearsed_is_refused_by_name(path, value, sentence):
    with pytest.raises(BadInput) as refused:
        manifests.read(changed(path, value))
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_job_that_a_queue_admits_runs():
    documents = changed("spec/suspend", True)
    training_job(documents)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    assert manifests.read(documents).jobs


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("elastic", 1, "PaddleJob wide-ande-deep: spec.elastic cannot be rehearsed: there is no etcd here"),
        ("intranet", "Host", "spec.intranet is Host: Input should be 'PodIP' or 'Service'"),
        ("invented", 1, "spec.invented is a field the rehearsal does not know"),
        ("worker", None, "spec.worker is missing"),
    ],
)
def test_what_a_paddle_job_cannot_have_here_is_refused_by_name(field, value, sentence):
    documents = list(yaml.safe_load_all((GOLDEN / "wide-and-deep.yaml").read_text()))
    spec = next(d["spec"] for d in documents if d["kind"] == "PaddleJob")
    spec.update({field: value})
    if value is None:
        del spec[field]
    with pytest.raises(BadInput) as refused:
        manifests.read(documents)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_the_operators_own_objects_are_played_and_nobody_elses():
    documents = list(yaml.safe_load_all((GOLDEN / "wide-and-deep.yaml").read_text()))
    played = next(e.fields for e in manifests.read(documents).without_effect if "plays the PaddleJob operator" in e.reason)
    assert played == ("CustomResourceDefinition", "Deployment")
    next(d for d in documents if d["kind"] == "Deployment")["metadata"]["labels"]["app.kubernetes.io/name"] = "web"
    with pytest.raises(BadInput, match="only Jobs run here"):
        manifests.read(documents)
