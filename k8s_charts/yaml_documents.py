"""Kubernetes objects as documents: read from templates/, added to a chart, written as YAML text.

Readers of YAML 1.1 and 1.2 and kubectl differ in what is a number, a boolean or a line break, but
all of them read every string back unchanged. Equal documents give equal bytes. cdk8s's own writer
leaves DEL and NEL bare, which kubectl misreads.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml
from cdk8s import ApiObject, ApiObjectMetadata, Chart, JsonPatch
from constructs import Construct
from paddle_node.contract import PROJECT, Label

from k8s_charts import names

# A word that every reader takes for text; everything else is quoted. Quoting too much costs
# nothing.
_BARE = re.compile(r"(?![-.]*$)[A-Za-z_/][A-Za-z0-9_./@-]*(:[A-Za-z0-9_./@-]+)*", re.ASCII)
_NO_TEXT = frozenset(("y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf"))
# A program in a ConfigMap is written as lines if that is exact.
_LINES = re.compile(
    r"[^\S\n]*[^\s][^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]*\n"
)


def template(file: str, **values: object) -> list[dict[str, Any]]:
    """Returns the documents of a file in templates/ with each `$name` filled in. The values must
    need no quoting.
    """
    text = Path(__file__).with_name("templates").joinpath(file).read_text()
    return list(yaml.safe_load_all(Template(text).substitute(values)))


def plain(document: Any, *, empty: bool = False) -> Any:
    """Returns the document without None and, unless `empty`, without empty values, keys in
    alphabetical order: what names are hashed from.
    """
    if isinstance(document, Mapping):
        content = {str(key): plain(value, empty=empty) for key, value in sorted(document.items())}
        return {
            key: value
            for key, value in content.items()
            if value is not None and (empty or value not in ([], {}))
        }
    if isinstance(document, list | tuple):
        return [plain(value, empty=empty) for value in document]
    return document


def labelled(
    document: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns the document with `labels`, and with those that Kubernetes recommends for every
    object. The pods that it makes, and what selects them, stay as they are.
    """
    metadata = document["metadata"]
    ours = {label.value: PROJECT for label in (Label.NAME, Label.MANAGED_BY)}
    # Commands find this project's objects by the last one.
    labels = {**ours, **(labels or {}), Label.PART_OF.value: PROJECT}
    labels |= metadata.get("labels") or {}
    return {**document, "metadata": {**metadata, "labels": dict(sorted(labels.items()))}}


_SEVERAL_IN_A_CHART = ("NetworkPolicy", "ServiceAccount")
"""Kinds of which a chart has more than one object."""


class Document(ApiObject):
    """A whole document as it is written. The construct's id is the document's kind, followed by its
    name where a chart has several of that kind.
    """

    def __init__(self, scope: Construct, document: Mapping[str, Any]) -> None:
        content = labelled(document, Chart.of(scope).labels)
        kind, metadata = content["kind"], content["metadata"]
        super().__init__(
            scope,
            f"{kind}-{metadata['name']}" if kind in _SEVERAL_IN_A_CHART else kind,
            api_version=content.pop("apiVersion"),
            kind=content.pop("kind"),
            metadata=ApiObjectMetadata(**content.pop("metadata")),
        )
        if "namespace" not in metadata and self.chart.namespace is not None:
            # The chart's namespace is for the objects that a stack author adds beside ours.
            self.add_json_patch(JsonPatch.remove("/metadata/namespace"))
        for field, value in content.items():
            self.add_json_patch(JsonPatch.add(f"/{field}", value))


class NamedByContent(Document):
    """A document whose name ends with a hash of its content, because Kubernetes refuses to change
    it.

    A patch that is added later (`add_json_patch`) gives it another name, unless it patches the
    name.

    Args:
        stem: the name without its hash.
    """

    def __init__(self, scope: Construct, document: Mapping[str, Any], *, stem: str) -> None:
        super().__init__(scope, document)
        self._stem, self._content = stem, _without_metadata(document)

    def to_json(self) -> Any:
        """Returns the document under the name that its content has by now."""
        document = super().to_json()
        content = _without_metadata(document)
        if document["metadata"]["name"] == self.name and content != self._content:
            document["metadata"]["name"] = names.hashed_name(self._stem, content)
        return document


def _without_metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in document.items() if field != "metadata"}


def add(scope: Construct, *documents: Mapping[str, Any]) -> None:
    """Adds documents as they are written."""
    for document in documents:
        Document(scope, document)


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    if _BARE.fullmatch(value) and value.lower() not in _NO_TEXT:
        style = ""
    elif _LINES.fullmatch(value) and "\n" in value.rstrip("\n"):
        style = "|"
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(documents: Iterable[Mapping[str, Any]]) -> str:
    """Returns the documents as one YAML stream, keys in the order given. Each has its own start, so
    streams may be joined.
    """
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=True,
        sort_keys=False,
        width=1_000_000,
    )
