"""The image, built and run for real: three containers with their own addresses train together."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from containers import BASE, COLLECTIVE, IMAGE, PROJECT, Cluster, Podman, jobs
from paddle_node import contract
from paddle_node.volume.job_folder import JobFolder

from tests.image.test_built_environment import sdist

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.long]
PASSES = 5


def inside(
    podman: Podman, *command: str, check: bool = True, image: str = IMAGE, flags: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a container like the pods': read-only root, no capabilities, the image's
    own user.
    """
    flags = [
        *flags,
        "--rm",
        "--read-only",
        "--read-only-tmpfs=false",
        "--cap-drop",
        "all",
        "--network",
        "none",
        "--tmpfs",
        "/tmp",
    ]
    return podman.run("run", *flags, image, *command, check=check)


def the_clients_work(podman: Podman, image: str) -> None:
    """Both clients work though the image omits parts of them: AWS's for the data job, Kubernetes'
    for pod-list discovery.
    """
    program = """
import paddle_node.tutorials.pod_list
import boto3, pip
for service in ("s3", "sts"):
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = boto3.client(service, region_name="eu-central-1", **keys)
    print(client.meta.endpoint_url)
"""
    done = inside(podman, "env", "PYTHONPATH=/opt/paddle", "python3", "-c", program, image=image)
    assert done.stdout.split() == [
        "https://s3.eu-central-1.amazonaws.com",
        "https://sts.eu-central-1.amazonaws.com",
    ]


def test_labels_user_and_size(podman: Podman) -> None:
    details = json.loads(podman.run("image", "inspect", IMAGE).stdout)[0]
    assert details["User"] == f"{contract.UID}:{contract.GID}"
    labels = details["Labels"]
    assert labels["org.opencontainers.image.title"] == "paddle-aws trainer"
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert len(labels["org.opencontainers.image.revision"].removesuffix("-dirty")) == 40
    assert labels["dev.paddle-aws.requirements"] == "trainer_image/requirements.lock"
    print(f"image: {details['Size'] / 1e6:.0f} MB unpacked")
    assert details["Size"] < 1e9


def test_what_is_in_it_and_what_is_not(podman: Podman) -> None:
    assert inside(podman, "id", "-u").stdout.strip() == "1000"
    refused = inside(podman, "touch", "/home/paddle/x", "/opt/paddle/x", "/x", check=False)
    assert refused.stderr.count("Read-only file system") == 3
    # Nothing belongs to the user, so that not even a writable root would let a job change the
    # program.
    owned = inside(
        podman,
        "find",
        "/opt",
        "/usr/local",
        "(",
        "-user",
        "1000",
        "-o",
        "-perm",
        "-002",
        "!",
        "-type",
        "l",
        ")",
    )
    leftovers = inside(
        podman, "find", "/opt/paddle", "(", "-name", "*.tsv", "-o", "-name", "*.lock", ")"
    )
    assert owned.stdout == leftovers.stdout == ""
    # Without bash, mkdir, rm and cat a save hangs, or a job trains on nothing and ends with 0.
    for program in ("bash", "mkdir", "rm", "cat"):
        assert inside(podman, "sh", "-c", f"command -v {program}").stdout.strip()
    # A read-only root cannot cache bytecode: unless the image has it, each process of each pod
    # compiles Paddle anew.
    for folder in ("/opt/paddle/paddle_node", "/opt/venv/lib"):
        assert inside(podman, "find", folder, "-name", "*.pyc").stdout.strip()
    the_clients_work(podman, IMAGE)


def test_a_jobs_own_packages_are_one_layer_and_what_does_not_fit_is_refused(
    podman: Podman, tmp_path: Path
) -> None:
    def build(
        requirements: list[str], packages: list[str], code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        job = {"name": "words", "trainers": 2, "data": {"source": "s3://corpus/words"}}
        file = tmp_path / "job.yaml"
        file.write_text(
            yaml.safe_dump(
                job
                | {
                    "program": {
                        "requirements": requirements,
                        "packages": packages,
                        "environment": "image",
                    }
                }
            )
        )
        return podman.build("--tag", IMAGE, "--job", file, code=code)

    # Paddle 2.6.2 works with numpy 1.x only, and pyarrow 26 does not.
    done = build(["pyarrow", "numpy>=1.20"], ["tree"])
    image = done.stdout.splitlines()[-1].removeprefix("built ").partition(": ")[0]
    try:
        program = "import pyarrow, paddle, numpy; print(paddle.__version__, numpy.__version__)"
        assert inside(podman, "python3", "-c", program, image=image).stdout.split() == [
            "2.6.2",
            "1.26.4",
        ]
        assert inside(podman, "tree", "--version", image=image).stdout
        assert inside(podman, "id", "-u", image=image).stdout.strip() == "1000"
        layers = [
            json.loads(podman.run("image", "inspect", name).stdout)[0]["RootFS"]["Layers"]
            for name in (IMAGE, image)
        ]
        assert layers[1][: len(layers[0])] == layers[0]
    finally:
        podman.run("rmi", image, check=False)
    refused = build(["protobuf>=7"], [], code=2)
    sentence = refused.stderr.splitlines()[-1]
    assert sentence.startswith("program.requirements do not fit together: ")
    assert sentence.endswith("(the image's Paddle 2.6 needs protobuf>=5,<7)")


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """The shipped job.yaml with a source on the volume: the containers cannot reach AWS."""
    job = yaml.safe_load((PROJECT / "job.yaml").read_text())
    job["data"]["source"] = "/home/jobpath/sample.tsv"
    job["passes"] = PASSES
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def split(cluster: Cluster, tmp_path: Path, job_file: Path) -> tuple[JobFolder, dict]:
    """Runs the data Job. Returns the job's folder and the training Job."""
    sample = cluster.volume / "sample.tsv"
    subprocess.run(
        [sys.executable, PROJECT / "examples/quick_start/make_sample.py", sample], check=True
    )
    sample.chmod(0o644)
    data, training = jobs(tmp_path, job_file)
    pod = cluster.start(data)
    assert cluster.codes(pod) == [0], cluster.logs(pod)
    return JobFolder(cluster.volume / "quick-start"), training


def metrics(folder: JobFolder, trainer: int) -> list[dict]:
    path = folder.metrics(trainer)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def whole_model(cluster: Cluster, pods: list[str], folder: JobFolder) -> None:
    assert cluster.codes(*pods) == [0, 0, 0], "\n".join(cluster.logs(pod)[-2000:] for pod in pods)
    assert folder.done(PASSES - 1).exists()
    for trainer in range(3):
        shard = json.loads(folder.data_manifest.read_text())["shards"][trainer]
        last = metrics(folder, trainer)[-1]
        assert last["pass"] == PASSES - 1
        assert last["records"] == sum(file["records"] for file in shard["files"]), (
            "each trainer read its whole shard"
        )
        assert last["loss"] < metrics(folder, trainer)[0]["loss"]
    owners = {path.stat().st_uid for path in folder.output.rglob("*")}
    assert owners == {contract.UID}


WAITING = """
import os, time

def sample(labelled):
    first = os.environ.get("PADDLE_NODE_ATTEMPT") == "1"
    done = os.path.exists("/home/jobpath/quick-start/output/pass-00000/done")
    if first and done:
        open("/home/jobpath/quick-start/waits-" + os.environ["PADDLE_NODE_TRAINER_ID"], "w").close()
        time.sleep(3600)
"""


def test_three_containers_train_together_and_one_that_is_killed_is_replaced(
    cluster: Cluster, tmp_path: Path, job_file: Path
) -> None:
    # The trainers of the first attempt wait for the kill after their first pass.
    folder = JobFolder(cluster.volume / "quick-start")
    program = folder.program("waiting")
    program.mkdir(parents=True)
    text = (PROJECT / "examples/quick_start/train.py").read_text()
    (program / "train.py").write_text(text.replace("def sample(labelled):\n", WAITING))
    os.chown(folder.root, contract.UID, contract.GID)
    job = yaml.safe_load(job_file.read_text()) | {
        "program": {"from": "volume", "folder": "waiting"}
    }
    job_file.write_text(yaml.safe_dump(job))
    _, training = split(cluster, tmp_path, job_file)
    pods = [cluster.start(training, index) for index in range(3)]
    probe = ("exec", pods[1], contract.PROBE_ENTRY_POINT)
    cluster.until(lambda: cluster.podman.run(*probe, check=False).returncode == 0, *pods)
    cluster.until(lambda: len(list(folder.root.glob("waits-*"))) == 3, *pods)
    assert folder.done(0).exists() and not folder.done(1).exists()
    cluster.podman.run("kill", "--signal", "KILL", pods[1])
    # The Job's controller creates a new pod with the same index and another address.
    pods[1] = cluster.start(training, 1)
    whole_model(cluster, pods, folder)
    assert metrics(folder, 0)[-1]["attempt"] > metrics(folder, 0)[0]["attempt"], (
        "the kill came in the middle, so there is a second attempt"
    )


@pytest.mark.parametrize("cluster", [COLLECTIVE], indirect=True)
def test_the_collective_image_trains_with_paddle_3_and_refuses_pservers(
    cluster: Cluster, tmp_path: Path, job_file: Path
) -> None:
    details = json.loads(cluster.podman.run("image", "inspect", COLLECTIVE).stdout)[0]
    assert (
        details["Labels"]["dev.paddle-aws.requirements"]
        == "trainer_image/requirements-collective.lock"
    )
    print(f"collective image: {details['Size'] / 1e6:.0f} MB unpacked")
    assert details["Size"] < 1e9
    the_clients_work(cluster.podman, COLLECTIVE)
    folder, of_pservers = split(cluster, tmp_path, job_file)
    pods = [cluster.start(of_pservers, index) for index in range(3)]
    assert cluster.codes(*pods) == [2, 2, 2]
    assert "the image has Paddle 3.3.1, which has no parameter servers" in "".join(
        map(cluster.logs, pods)
    )

    program = folder.program("collective_program")
    shutil.copytree(
        PROJECT / "examples/collective", program, ignore=shutil.ignore_patterns("__pycache__")
    )
    job = yaml.safe_load(job_file.read_text())
    job |= {"mode": "collective", "program": {"from": "volume", "folder": "collective_program"}}
    job_file.write_text(yaml.safe_dump(job))
    cluster.uid = "another-run"
    _, training = split(cluster, tmp_path / "collective", job_file)
    pods = [cluster.start(training, index) for index in range(3)]
    whole_model(cluster, pods, folder)


def test_a_base_that_has_paddle_keeps_it_as_it_is(podman: Podman) -> None:
    """As for GPUs, for which no index has Paddle's wheels. This base's Paddle 3.3.1 is for CPUs."""
    base, image = f"{IMAGE}-others", f"{IMAGE}-agent"
    dockerfile = Path(__file__).with_name("Dockerfile.others")
    podman.run(
        "build",
        "--quiet",
        "--build-arg",
        f"BASE={BASE}",
        "--file",
        dockerfile,
        "--tag",
        base,
        PROJECT,
    )
    try:
        podman.build(
            "--base",
            base,
            "--tag",
            image,
            "--requirements",
            "trainer_image/requirements-agent.lock",
        )
        program = "import paddle, numpy; print(paddle.__version__, paddle.__file__, numpy.__file__)"
        number, *files = inside(podman, "python3", "-c", program, image=image).stdout.split()
        assert number == "3.3.1" and all(file.startswith("/usr/local/lib/") for file in files)
        the_clients_work(podman, image)
        sizes, layers = zip(
            *(
                (details["Size"], details["RootFS"]["Layers"])
                for details in (
                    json.loads(podman.run("image", "inspect", name).stdout)[0]
                    for name in (base, image)
                )
            ),
            strict=True,
        )
        assert layers[1][: len(layers[0])] == layers[0]
        print(f"added to the base: {(sizes[1] - sizes[0]) / 1e6:.0f} MB")
    finally:
        podman.run("rmi", "--force", image, base, check=False)


SPY = """
import glob, os, urllib.request, zipfile

def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=1).read(100)
    except Exception as error:
        return type(error).__name__

def become_root():
    try:
        return os.setuid(0)
    except OSError as error:
        return type(error).__name__

def build_wheel(folder, config_settings=None, metadata_directory=None):
    jobpath = "/home/jobpath"
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
    found = {
        "user": (os.getuid(), os.getgid(), become_root()),
        "rights": [status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs")],
        "variables": sorted(name for name in os.environ if "AWS" in name or "TOKEN" in name),
        "tokens": glob.glob("/var/run/secrets/*/*"),
        "volume": sorted(os.listdir(jobpath)),
        "environments": sorted(os.listdir(jobpath + "/shared/environments")),
        "secrets": sorted(os.path.join(path, name) for path, _, names in os.walk("/")
                          for name in names if name == "s3cret"),
        "writable": [path for path in ("/", "/opt/paddle", "/opt/venv", jobpath,
                                       jobpath + "/shared/environments", jobpath + "/wheels",
                                       "/opt/paddle/requirements") if os.access(path, os.W_OK)],
        "answers": [ask(url) for url in (
            "http://169.254.169.254/latest/meta-data/",
            "http://169.254.170.23/v1/credentials",
            "https://kubernetes.default.svc/api",
            "https://s3.amazonaws.com/",
        )],
    }
    name = "curious-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        info = "curious-1.0.dist-info/"
        wheel.writestr("curious.py", f"print({found!r})")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: curious\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
                       "Tag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""


def test_a_package_that_spies_while_it_is_built_finds_nothing(cluster: Cluster) -> None:
    """In a container of the reviewed manifest, with its user, its rights and its mounts. What else
    lies on the volume is nowhere to be seen.
    """
    documents = list(
        yaml.safe_load_all((PROJECT / "tests/charts/golden/built-environment-wheels.yaml").open())
    )
    (job,) = (
        document
        for document in documents
        if document["kind"] == "Job" and "-environment-" in document["metadata"]["name"]
    )
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    (requirements,) = (volume for volume in pod["volumes"] if "configMap" in volume)
    settings = {requirements["configMap"]["name"]: {"requirements.txt": "curious\n"}}
    volume = cluster.volume
    for place in ("words/output", "shared/environments/another", "wheels"):
        (volume / place).mkdir(parents=True)
        (volume / place / "s3cret").write_text("of another job")
    sdist(volume / "wheels", "curious", SPY)
    name = cluster.start(job | {"settings": settings}, isolated=True)
    assert cluster.codes(name) == [0], cluster.logs(name)
    (digest,) = {path.name for path in volume.glob("shared/environments/*")} - {"another"}
    # As a pod unpacks it.
    environment = volume / "shared/environments" / digest
    unpack = "cd /opt/paddle && python3 -m paddle_node.requirements.archive /home/jobpath /tmp/it"
    mount = ("--volume", f"{environment}:/home/jobpath:ro")
    shell = ("sh", "-c", f"{unpack} && /tmp/it/bin/python -c 'import curious'")
    report = inside(cluster.podman, *shell, flags=mount).stdout
    none = "0" * 16
    assert ast.literal_eval(report) == {
        "user": (contract.UID, contract.GID, "PermissionError"),
        "rights": [none, none, "1"],
        "variables": [],
        "tokens": [],
        "volume": ["shared", "wheels"],
        "environments": [digest],
        "secrets": ["/home/jobpath/wheels/s3cret"],
        "writable": [],
        "answers": ["URLError"] * 4,
    }
