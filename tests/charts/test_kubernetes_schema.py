"""Every golden document passes Kubernetes' own schemas, strict, for each version that EKS supports."""

import json
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

pytestmark = pytest.mark.slow

CUSTOM = ("PaddleJob", "PodGroup")
"""Kinds that Kubernetes has no schema for: PaddleJob's is ours (test_paddle_job.py), PodGroup's is Volcano's."""
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.yaml"))


@cache
def valid(document: str, version: str) -> bool:
    """Whether a document fits; jobs share many, and a look takes a tenth of a second."""
    found: str = kubernetes_validate.validate(json.loads(document), version, strict=True)
    return found == version


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_strict_schema(path: Path, version: str) -> None:
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] not in CUSTOM:
            assert valid(json.dumps(document), version)
