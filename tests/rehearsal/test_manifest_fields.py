"""Every field of every manifest is honoured, named as without effect, or refused by name: nothing is dropped in silence."""

import copy
from pathlib import Path

import pytest
import yaml

from operations.errors import BadInput
from rehearsal.pods import manifests

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "charts" / "golden"
WRITTEN = {"Job": "job.yaml", "PaddleJob": "wide-and-deep.yaml"}
READ = {kind: list(yaml.safe_load_all((GOLDEN / file).read_text())) for kind, file in WRITTEN.items()}


def changed(path: str, value: object, of: str = "Job") -> list[dict]:
    """Golden documents with one field of the last of that kind set."""
    documents = copy.deepcopy(READ[of])
    at = [document for document in documents if document["kind"] == of][-1]
    *parents, last = path.split("/")
    for parent in parents:
        at = at[int(parent)] if isinstance(at, list) else at.setdefault(parent, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return documents


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


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["refused"])
def test_what_cannot_be_rehearsed_is_refused_by_name(row):
    with pytest.raises(BadInput) as refused:
        manifests.read(changed(row["path"], row["value"], row.get("of", "Job")))
    assert row["refused"] in str(refused.value) and "\n" not in str(refused.value)


def test_a_job_that_a_queue_admits_runs():
    documents = changed("spec/suspend", True)
    documents[-1]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    assert manifests.read(documents).jobs


def test_the_operators_own_objects_are_played_and_nobody_elses():
    documents = copy.deepcopy(READ["PaddleJob"])
    played = next(e.fields for e in manifests.read(documents).without_effect if "plays the PaddleJob operator" in e.reason)
    assert played == ("CustomResourceDefinition", "Deployment")
    next(d for d in documents if d["kind"] == "Deployment")["metadata"]["labels"]["app.kubernetes.io/name"] = "web"
    with pytest.raises(BadInput, match="only Jobs run here"):
        manifests.read(documents)
