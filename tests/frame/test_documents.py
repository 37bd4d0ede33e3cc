"""Who comes from one of the five documents finds each of its headings, in the document's own order,
on its page, and that page in docs/documents.md.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s_charts.spec import TrainingJob
from paddle_aws.stacks.cluster_spec import ClusterSpec
from paddle_settings import model

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENTS: list[dict[str, list[str]]] = yaml.safe_load(
    Path(__file__).with_name("documents.yaml").read_text()
)
PAGES = [page for document in DOCUMENTS for page in document["pages"]]


def headings(page: Path) -> list[str]:
    """Returns a page's headings with their hashes; a fenced block has none."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.findall(r"^#+ .*", text, re.M)


def anchor(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document["pages"][0]))
def test_a_page_has_the_documents_headings_in_their_order(document: dict[str, list[str]]) -> None:
    *others, page = document["pages"]
    assert headings(DOCS / page)[1:] == document["headings"][1:]
    for other in others:
        levels = [heading.split()[0] for heading in headings(DOCS / other)]
        assert levels == [heading.split()[0] for heading in document["headings"]]


def test_the_table_leads_to_each_page() -> None:
    table = (DOCS / "documents.md").read_text()
    assert set(PAGES) <= set(re.findall(r"\]\(([^)#]+)", table))


@pytest.mark.parametrize("page", ["documents.md", *PAGES])
def test_links_lead_to_headings(page: str) -> None:
    for target, name in re.findall(r"\]\(([^)\s#]*\.md)#([^)\s]+)\)", (DOCS / page).read_text()):
        assert name in map(anchor, headings(DOCS / target)), (target, name)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_an_example_and_its_settings_files_are_valid(page: str) -> None:
    text = (DOCS / page).read_text()
    assert "\n```" in text.partition("\n## ")[0]
    for block in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S):
        settings: Any = yaml.safe_load(block)
        if "retain" in settings:
            model.parse(ClusterSpec, settings)
        elif "trainers" in settings:
            TrainingJob.parse(settings, folder=DOCS)
