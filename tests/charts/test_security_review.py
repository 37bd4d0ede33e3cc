"""checkov, a reviewer of Kubernetes manifests that nobody here has tuned, over every golden document.

What it finds and we keep is named here with the reason; a finding that is named and not there any more fails as well.
It does not know PaddleJob: its pods come from the same code as those of Jobs.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CHECKOV = HERE.parents[1] / ".venv-checkov" / "bin" / "checkov"

KEPT = {
    ("CKV_K8S_15", "Job.vision.*"): "a version is pulled once, as by default, so that a preloaded image is used",
    ("CKV_K8S_15", "Job.paddle.imagenet*"): "a version is pulled once, as by default, so that a preloaded image is used",
    ("CKV_K8S_15", "Deployment.paddle-system.*"): "a version is pulled once, as by default, so that a preloaded image is used",
    ("CKV_K8S_21", r"*.default.*"): "the namespace `default` is the job file's choice (a tutorial's, and a test's)",
    ("CKV_K8S_26", "Job.paddle-tutorial.*"): "host ports on request, in a privileged namespace of their own: a tutorial's",
    ("CKV_K8S_38", "Job.*.paddle-cluster-job"): "pods that list their peers need a token; it reads pods of one namespace",
    ("CKV_K8S_38", "Deployment.paddle-system.*"): "an operator is a program that calls the API server",
    ("CKV_K8S_40", "Job.*"): "user 1000 is the image's and the access point's; files on the volume belong to it",
    ("CKV_K8S_43", "Job.vision.*"): "an image that the job file names by its tag",
    ("CKV_K8S_43", "Job.paddle.imagenet*"): "an image that the job file names by its tag",
    ("CKV_K8S_35", "Job.paddle.imagenet*"): "`environment_from`: the job file hands a Secret's variables to its program",
    ("CKV_K8S_43", "Deployment.paddle-system.*"): "the tag that the operator's own manifests have; name a mirrored digest",
}


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
