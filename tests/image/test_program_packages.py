"""What a program requires, resolved for real by uv against an environment with Paddle: packages of
a few hundred bytes stand in for the real ones, and no index is asked.
"""

import fcntl
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from paddle_node.requirements import install

from k8s_charts.spec import TrainingJob
from paddle_aws.operations.errors import BadInput
from paddle_aws.operations.images import interpreter, packages
from paddle_settings.file import cache_path

pytestmark = pytest.mark.slow


def wheel(folder: Path, name: str, version: str, *needs: str) -> None:
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{module}.py", f'__version__ = "{version}"\n')
        archive.writestr(
            f"{info}/METADATA", metadata + "".join(f"Requires-Dist: {need}\n" for need in needs)
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


class Project:
    """A project whose environment has a small Paddle that needs numpy, and its agent's xxhash."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels = folder, folder / "wheels"
        self.wheels.mkdir()
        wheel(self.wheels, "paddlepaddle", "2.6.2", "numpy>=1.13")
        for version in ("1.26.4", "2.4.0"):
            wheel(self.wheels, "numpy", version)
        for version in ("3.0.0", "4.0.0"):
            wheel(self.wheels, "xxhash", version)
        wheel(self.wheels, "pyarrow", "25.0.0")
        wheel(self.wheels, "pyarrow", "26.0.0")
        wheel(self.wheels, "fast-index", "0.1.2", "numpy<=1.26.4")
        wheel(self.wheels, "formers", "1.2.0", "fast-index")
        wheel(self.wheels, "newest", "3.0", "numpy>=2")
        for version in ("1.0", "2.0"):
            wheel(self.wheels, "dill", version)
        wheel(self.wheels, "datasets", "4.5", "dill<2")
        wheel(self.wheels, "trainer", "1.0", "datasets")
        wheel(self.wheels, "strict", "3.0", "dill>=2")
        (folder / "trainer_image").symlink_to(interpreter.PROJECT / "trainer_image")
        image = folder / ".venv-image"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", image], check=True)
        into = ["install", "--python", str(image / "bin/python")]
        assert install.run([*into, "paddlepaddle", "numpy<2"], print)[0] == 0
        agent = ["--target", str(image / "agent"), "xxhash==4.0.0"]
        assert install.run([*into, *agent], print)[0] == 0
        (image / "agent/bin").mkdir(exist_ok=True)
        (image / "agent/bin/uv").symlink_to(install.find_uv())

    def python_with(self, *requirements: str, **more: object) -> Path:
        settings = {
            "name": "a",
            "trainers": 1,
            "paddle": "2.6",
            "command": "python train.py",
            "program": {"folder": "quick_start", "requirements": list(requirements), **more},
            "data": {"source": "s3://a/b"},
        }
        return interpreter.folder(TrainingJob.parse(settings), self.folder) / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "XDG_CACHE_HOME": folder / "cache",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": folder / "wheels",
        }.items():
            patch.setenv(name, str(value))
        yield Project(folder)


def run(python: Path, program: str) -> str:
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_gets_its_own_versions_and_the_agent_keeps_its(project: Project) -> None:
    beside = cache_path("archives").parent
    for name in ("old", "held", "new"):
        (beside / f"{name}.unpacked/bin").mkdir(parents=True)
        (beside / f"{name}.lock").touch()
    for name in ("old", "held"):
        month_ago = time.time() - interpreter.UNUSED_AFTER - 60
        os.utime(beside / f"{name}.lock", (month_ago, month_ago))
    with (beside / "held.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = project.python_with("xxhash==3.0.0", "pyarrow", "numpy<2")
    kept = {file.stem for file in beside.glob("*.unpacked")}
    assert kept == {"held", "new", python.parent.parent.stem}, "what is in use stays in the cache"
    program = (
        "import numpy, pyarrow, xxhash; print(*(m.__version__ for m in (numpy, pyarrow, xxhash)))"
    )
    # pyarrow 26 does not say that it needs numpy 2: 25 is the newest that works.
    assert run(python, program) == "1.26.4 25.0.0 3.0.0"
    path = f"import sys; sys.path.insert(0, {str(interpreter.PROJECT / 'trainer_image')!r}); "
    assert run(python, f"{path}import paddle_node, xxhash; print(xxhash.__version__)") == "3.0.0"
    # The agent's entry point, up to where it would begin.
    entry = (interpreter.PROJECT / "trainer_image/start_paddle.py").read_text()
    begun = entry.replace("runpy.run_module(", "__import__('xxhash'), (lambda *a, **b: 0)(")
    begun = f"__file__ = {str(interpreter.PROJECT / 'trainer_image/start_paddle.py')!r}\n{begun}"
    assert run(python, f"{begun}\nprint(sys.modules['xxhash'].__version__)") == "4.0.0"


def test_making_an_environment_is_never_silent(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "REPORT_INTERVAL", 0.01)
    said: list[str] = []
    settings = {"name": "a", "trainers": 1, "paddle": "2.6", "command": "python train.py"}
    program = {"folder": "quick_start", "requirements": ["dill==1.0"]}
    interpreter.folder(
        TrainingJob.parse({**settings, "program": program}), project.folder, said.append
    )
    assert any(line.endswith("s: unpacking") for line in said), said


def test_a_package_without_a_wheel_is_required_all_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PaddleSpeech needs jieba, of which PyPI has the source alone. PaddleVideo names scipy 1.6,
    of which this Python has no wheel: a later one has.
    """
    from tests.image.test_built_environment import sdist

    wheel(project.wheels, "setuptools", "80.0.0")
    sdist(project.wheels, "scipy", "raise SystemExit('not run by try')")
    wheel(project.wheels, "scipy", "2.0")
    declaring = project.folder / "declaring"
    declaring.mkdir()
    (declaring / "requirements.txt").write_text("scipy==1.0\n")
    sdist(project.wheels, "jieba", "raise SystemExit('not run by try')")
    monkeypatch.setattr(packages, "PROJECT", project.folder)
    monkeypatch.setattr(packages, "LOCKS", {"2.6": "image.lock"})
    (project.folder / "image.in").write_text("paddlepaddle==2.6.2\n")
    python = project.folder / ".venv-image" / "bin"
    settings = {"name": "a", "trainers": 1, "paddle": "2.6", "command": "python train.py"}
    for given, modules, lines in [
        ([], ["jieba", "dill"], ("dill", "jieba")),
        (["jieba"], ["jieba", "dill"], ("dill",)),
        # What was written is not asked for again.
        (["setuptools<81"], ["pkg_resources"], ()),
    ]:
        job = TrainingJob.parse(
            {**settings, "program": {"folder": "quick_start", "requirements": given}}
        )
        found = packages.find_packages(job, project.wheels, modules, python)
        assert (found.lines, found.remarks) == (lines, ())
    found = packages.find_packages(job, declaring, ["scipy"], python)
    assert (found.lines, found.remarks) == (
        ("scipy",),
        ("scipy==1.0 cannot be had: it has no wheel",),
    )
    # Informer names numpy 1.19, and takes np.Inf, which numpy 2 removed.
    (declaring / "requirements.txt").write_text("numpy==1.19.4\n")
    into = ["install", "--python", str(python / "python"), "numpy==2.4.0"]
    assert install.run(into, print)[0] == 0
    found = packages.find_packages(job, declaring, ["dill"], python)
    assert found.lines == ("dill", "numpy<2")
    assert found.remarks[0].startswith("numpy==1.19.4 cannot be had: Because there is no version")


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        (["trainer", "strict"], ("datasets", "dill<2", "strict", "dill>=2", "change one of them")),
        (["newest"], ("newest depend on numpy>=2", "numpy<2", "set another `paddle` than 2.6")),
        (["formers", "numpy==2.4.0"], ("numpy==2.4.0", "(the image's Paddle 2.6 needs numpy<2)")),
    ],
    ids=lambda row: row[0],
)
def test_a_conflict_names_both_sides_and_the_remedy(
    project: Project, requirements: list[str], says: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput, match="do not fit together: ") as refused:
        project.python_with(*requirements)
    assert [part for part in says if part not in str(refused.value)] == []


def test_a_rehearsal_has_the_password_of_the_same_index_and_keeps_its_rule(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.image.test_built_environment import index, sdist

    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    sdist(project.wheels, "thief", "import os; os.environ['PIP_INDEX_URL']")
    with index(project.wheels) as host:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://bob:s3cret@{host}/simple")
        address = f"http://{host}/files/thief-1.0.tar.gz"
        wheel(project.wheels, "door", "1.0", f"thief @ {address}")
        with pytest.raises(BadInput, match="Package `thief` was included as a URL"):
            project.python_with("door", index={"url": f"http://{host}/simple", "secret": "mine"})
