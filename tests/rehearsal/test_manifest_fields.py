"""Every field of every manifest is honoured, named as without effect, or refused by name: none is
silently dropped.
"""

import copy
from pathlib import Path

import pytest
import yaml

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods import manifests

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "charts" / "golden"
WRITTEN = {"Job": "job.yaml", "PaddleJob": "wide-and-deep.yaml"}
READ = {
    kind: list(yaml.safe_load_all((GOLDEN / file).read_text())) for kind, file in WRITTEN.items()
}


def changed(path: str, value: object, of: str = "Job") -> list[dict]:
    """Returns the golden documents with one field of the last document of that kind set, or deleted
    if `value` is None.
    """
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


NOT_HERE = {
    "there is no etcd here": ("paddlejob-elastic",),
    "there is no store of secrets here": ("built-environment",),
}


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_golden_manifest_is_read_or_refused_by_name(golden):
    documents = [document for document in yaml.safe_load_all(golden.read_text()) if document]
    try:
        read = manifests.read(documents)
        assert read.jobs or read.paddle_jobs
    except BadInput as refused:
        assert any(document["metadata"]["name"] in str(refused) for document in documents)
        assert any(
            golden.stem in names and reason in str(refused) for reason, names in NOT_HERE.items()
        )


def test_sidecars_and_what_only_they_mount_are_named_as_without_effect():
    documents = list(yaml.safe_load_all((GOLDEN / "pod-additions.yaml").read_text()))
    read = manifests.read(documents)
    without_effect = {note.reason: note.fields for note in read.without_effect}
    assert without_effect["no image is pulled, so sidecars do not run here"] == ("logs",)
    assert without_effect["there is no container runtime here"] == ("runtimeClassName",)
    training = read.jobs[-1].template
    assert [container.name for container in training.init_containers] == ["job-folder"]
    assert training.labels["team"] == "search"
    assert {"vocabulary"} == {*training.volumes} - {"job", "home", "temporary", "shared-memory"}


REFUSED = yaml.safe_load(Path(__file__).with_name("refused_fields.yaml").read_text())


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["refused"])
def test_what_cannot_be_rehearsed_is_refused_by_name(row):
    with pytest.raises(BadInput) as refused:
        manifests.read(changed(row["path"], row["value"], row.get("of", "Job")))
    assert row["refused"] in str(refused.value) and "\n" not in str(refused.value)


def test_a_field_whose_name_only_begins_like_a_listed_one_is_refused():
    with pytest.raises(BadInput, match="a field the rehearsal does not know"):
        manifests.read(changed("spec/template/spec/securityContext\n", 1))
