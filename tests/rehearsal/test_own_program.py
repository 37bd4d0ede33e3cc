"""A program from a folder of the user's own, with a requirement: one rehearsal, and what a rehearsal refuses before it begins."""

import shutil
import zipfile
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A package that no index has: a test needs no network."""
    wheel = tmp_path / "tiny_words-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tiny_words.py", "def lowered(text):\n    return text.lower()\n")
        made.writestr("tiny_words-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-words\nVersion: 1.0\n")
        made.writestr("tiny_words-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("tiny_words-1.0.dist-info/RECORD", "")
    return wheel


@pytest.fixture
def clone(make_clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return make_clone("own-program")


def test_a_program_from_a_folder_trains_with_its_requirement(clone, wheel: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(clone.folder / "examples" / "quick_start", mine, ignore=shutil.ignore_patterns("*.tsv", "make_sample.py"))
    train = mine / "train.py"
    # In a pod the folder is its own, and can be written.
    train.write_text(
        "import tiny_words\nfrom pathlib import Path\nPath(__file__).with_name('mark').touch()\n" + train.read_text()
    )
    (mine / "requirements.txt").write_text(f"# mine\ntiny-words @ {wheel.as_uri()}\nNumPy>=1.20  # the image's own will do\n")
    settings = yaml.safe_load((clone.folder / "job.yaml").read_text())
    settings |= {"trainers": 1, "passes": 1, "resources": {"scratch": "1Gi"}}
    settings["program"] = {"from": "folder", "path": str(mine), "requirements": "requirements.txt", "packages": ["libgl1"]}
    job = clone.folder / "mine.yaml"
    job.write_text(yaml.safe_dump(settings))
    code, said = clone.run("--job", str(job))
    assert code == 0, said
    assert "Paddle 2.6 with 2 requirements of the program" in said and "libgl1" in said
    folder = clone.state / "volume" / settings["name"]
    (archive,) = (folder / "programs").iterdir()
    assert archive.suffix == ".tar" and not (folder / "quick_start").exists()
    assert not (mine / "mark").exists()

    # The environment is there; what does not fit it is said before anything is deployed.
    settings["program"]["requirements"] = ["numpy<1.20"]
    job.write_text(yaml.safe_dump(settings))
    code, said = clone.run("--job", str(job))
    assert code == 2 and "bootstrap" not in said
    assert "program.requirements has numpy<1.20, which does not fit the image's own packages" in " ".join(said.split())
