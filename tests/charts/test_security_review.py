"""checkov, a reviewer of Kubernetes manifests that nobody here has tuned, over every golden document.

What it finds and we keep is in security_review.yaml with the reason; what is named there and not found any more fails as well.
It does not know PaddleJob: its pods come from the same code as those of Jobs.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CHECKOV = HERE.parents[1] / ".venv-checkov" / "bin" / "checkov"

KEPT = [tuple(row) for row in yaml.safe_load((HERE / "security_review.yaml").read_text())]


@pytest.mark.skipif(not CHECKOV.exists(), reason="checkov's environment is not made here (make test)")
def test_checkov_finds_nothing_that_is_not_explained(tmp_path: Path) -> None:
    shutil.copytree(HERE / "golden", tmp_path / "golden")
    options = ["--framework", "kubernetes", "--skip-download", "--compact", "--quiet", "--output", "json"]
    command = [str(CHECKOV), "--directory", ".", *options]
    done = subprocess.run(command, cwd=tmp_path / "golden", capture_output=True, text=True, timeout=300)
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 2000
    used = set()
    unexplained = []
    for found in report["results"]["failed_checks"]:
        reasons = [kept for kept in KEPT if kept[0] == found["check_id"] and Path(found["resource"]).match(kept[1])]
        used.update(reasons)
        if not reasons:
            unexplained.append(f"{found['check_id']} {found['resource']}: {found['check_name']}")
    assert unexplained == []
    assert set(KEPT) - used == set()
