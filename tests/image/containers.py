"""Runs a job's pods as real containers of the real image, with podman, from the job's real
manifests.

Limits: podman replaces neither the scheduler nor the volume's driver (a folder stands in for EFS);
probes are not set (a test calls the probe's command itself), and memory and the size of /dev/shm
only where a test asks for it; the network policy has no effect, but the network leads nowhere else.
"""

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from k8s_charts.spec.value_types import amount
from paddle_aws.rehearsal.pods.environment import PodFacts, environment
from paddle_aws.rehearsal.pods.manifests import PodTemplate

PROJECT = Path(__file__).parents[2]
IMAGE = "localhost/paddle-aws-trainer:test"
COLLECTIVE = "localhost/paddle-aws-trainer:test-collective"
BASE = "localhost/paddle-aws-test-base:bookworm-slim"
PACKAGES = "python3,python3-venv,ca-certificates,libgomp1"


def missing() -> str:
    """Returns why no image can be built here, or an empty string if one can."""
    if os.getuid() != 0:
        return "containers are run as root"
    path = f"{os.environ['PATH']}:/usr/sbin"
    absent = [
        name for name in ("podman", "runc", "debootstrap") if shutil.which(name, path=path) is None
    ]
    return (
        f"{', '.join(absent)} not installed: apt-get install podman runc netavark aardvark-dns "
        "debootstrap"
        if absent
        else ""
    )


class Podman:
    """podman with its own settings instead of the machine's."""

    def __init__(self) -> None:
        self.environ = os.environ | {
            "CONTAINERS_CONF": str(Path(__file__).with_name("containers.conf"))
        }

    def run(
        self, *arguments: str | Path, check: bool = True, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        command = ["podman", *map(str, arguments)]
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, check=False, **more
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        return done

    def build(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs what `make image` runs; uses podman even where docker is installed without its
        daemon.
        """
        command = [sys.executable, "-m", "paddle_aws.operations.images.image", "build", *arguments]
        done = subprocess.run(
            command, cwd=PROJECT, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    def make_base(self, folder: Path) -> None:
        """Makes a base of Debian and Python with debootstrap: no image registry is needed. The base
        is kept for later runs.
        """
        if self.run("image", "exists", BASE, check=False).returncode == 0:
            return
        root = folder / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        # As in a company's own base: the machine's certificates, and where pip finds them.
        shutil.copy(
            "/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt"
        )
        (root / "etc/pip.conf").write_text("[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n")
        # What slim images, such as the Dockerfile's default, leave out.
        for left_out in (
            "var/cache/apt",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/locale",
            "usr/share/man",
        ):
            shutil.rmtree(root / left_out, ignore_errors=True)
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            self.run("import", "-", BASE, stdin=tar.stdout)
        shutil.rmtree(root)


class Cluster:
    """A network, a volume and the containers on them; `close` removes the containers and the
    network.
    """

    def __init__(self, podman: Podman, volume: Path, image: str = IMAGE) -> None:
        self.podman = podman
        self.image = image
        self.volume = volume
        self.network = f"paddle-{uuid.uuid4().hex[:8]}"
        self.uid = str(uuid.uuid4())
        self.pods: list[str] = []
        volume.mkdir()
        os.chown(volume, 1000, 1000)
        # Only their owner may enter the folders that pytest makes.
        for folder in volume.parents:
            if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        podman.run("network", "create", "--internal", self.network)

    def start(
        self,
        job: dict[str, Any],
        index: int | None = None,
        *,
        isolated: bool = False,
        limited: bool = False,
    ) -> str:
        """Starts a pod of the Job as its controller would, `isolated` without a network, `limited`
        with its manifest's memory and /dev/shm. Returns the container's name.
        """
        template, pod = (
            PodTemplate.model_validate(job["spec"]["template"]),
            job["spec"]["template"]["spec"],
        )
        (container,) = template.containers
        host = f"{job['metadata']['name']}-{0 if index is None else index}"
        name = f"{host}-{uuid.uuid4().hex[:6]}"
        user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
        assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
        arguments = [
            "--name",
            name,
            "--hostname",
            host,
            "--network",
            "none" if isolated else self.network,
        ]
        names = () if isolated else (host, f"{host}.{template.subdomain or 'none'}")
        arguments += [word for alias in names for word in ("--network-alias", alias)]
        arguments += [
            "--user",
            user,
            "--cap-drop",
            "all",
        ]
        arguments += [
            "--security-opt",
            "no-new-privileges",
            "--workdir",
            container.working_dir,
            "--read-only",
        ]
        arguments += ["--read-only-tmpfs=false"]
        arguments += self._lay_volumes(job, template, name, limited)
        if limited:
            memory = str(round(amount(container.memory or "0")))
            arguments += ["--memory", memory, "--memory-swap", memory]
        controller = {"controller-uid": self.uid, "job-name": job["metadata"]["name"]}
        labels = template.labels | {
            f"batch.kubernetes.io/{key}": value for key, value in controller.items()
        }
        # The pod's address is known only once it runs: the shell below sets it.
        facts = PodFacts(name, "default", labels, {}, "", "default")
        given = environment(
            container,
            facts,
            job["settings"],
            {} if index is None else {"JOB_COMPLETION_INDEX": str(index)},
        )
        given.pop("POD_IP", None)
        arguments += [word for key, value in given.items() for word in ("--env", f"{key}={value}")]
        shell = ("/bin/sh", "-c", 'POD_IP=$(hostname -i | cut -d" " -f1) exec "$@"', "sh")
        # Not here: podman writes a file `oom` to its own folder.
        words = [*arguments, self.image, *shell, *container.command, *container.args]
        self.podman.run("run", "--detach", *words, cwd=self.volume.parent)
        self.pods.append(name)
        return name

    def _lay_volumes(
        self, job: dict[str, Any], template: PodTemplate, name: str, limited: bool
    ) -> list[str]:
        """Makes the folders of a pod's volumes. Returns the arguments that mount them."""
        pod, arguments = job["spec"]["template"]["spec"], []
        read_only = {
            mount["mountPath"]
            for mount in pod["containers"][0]["volumeMounts"]
            if mount.get("readOnly")
        }
        memory = {
            volume["name"]
            for volume in pod["volumes"]
            if volume.get("emptyDir", {}).get("medium") == "Memory"
        }
        for mount in template.containers[0].mounts:
            if mount.volume in memory:
                size = template.volumes[mount.volume].size_limit if limited else None
                size = f",size={round(amount(size))}" if size else ""
                arguments += ["--tmpfs", f"{mount.path}:rw,mode=1777{size}"]
                continue
            claimed = template.volumes[mount.volume].claim
            files = job["settings"].get(template.volumes[mount.volume].config_map, {})
            folder = (
                self.volume / mount.sub_path
                if claimed
                else self.volume.parent / "empty" / name / mount.volume
            )
            if not folder.exists():
                # As behind an access point: a folder that has to be created belongs to user 1000.
                folder.mkdir(parents=True)
                os.chown(folder, 1000, 1000)
            for key, text in files.items():
                (folder / key).write_text(text)
            arguments += [
                "--volume",
                f"{folder}:{mount.path}{':ro' if mount.path in read_only else ''}",
            ]
        return arguments

    def codes(self, *names: str) -> list[int]:
        """Waits until all of these pods have ended. Returns their exit codes."""
        return [int(code) for code in self.podman.run("wait", *names).stdout.split()]

    def until(self, condition: Callable[[], bool], *names: str) -> None:
        """Waits for `condition`. Fails if one of these pods ends first."""
        while not condition():
            running = self.podman.run("ps", "--format", "{{.Names}}").stdout.split()
            assert set(names) <= set(running), "\n".join(self.logs(name)[-2000:] for name in names)
            time.sleep(0.2)

    def logs(self, name: str) -> str:
        done = self.podman.run("logs", name)
        return done.stdout + done.stderr

    def close(self) -> None:
        for name in self.pods:
            print(f"--- the end of {name}'s log:\n{self.logs(name)[-3000:]}")
            self.podman.run("rm", "--force", "--time", "0", name, check=False)
        self.podman.run("network", "rm", "--force", self.network, check=False)


def jobs(folder: Path, job_file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a job file's data Job and training Job as `paddle-aws manifests` writes them, with
    the ConfigMaps' data.
    """
    out = folder / "dist"
    command = [
        PROJECT / ".venv/bin/paddle-aws",
        "manifests",
        job_file,
        "--out",
        out,
        "--outputs",
        folder / "none.json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    documents = [
        document
        for path in sorted(out.iterdir())
        for document in yaml.safe_load_all(path.read_text())
    ]
    settings = {
        document["metadata"]["name"]: document["data"]
        for document in documents
        if document["kind"] == "ConfigMap"
    }
    kubernetes_jobs = [
        document | {"settings": settings} for document in documents if document["kind"] == "Job"
    ]
    data = next(job for job in kubernetes_jobs if "-data-" in job["metadata"]["name"])
    return data, next(job for job in kubernetes_jobs if job is not data)
