"""Ten programs at a pod's limits: a rehearsal and a real container say the same of each.

Limits: podman enforces memory, /dev/shm, user, capabilities and the read-only root as a node's
containerd does, and RLIMITs of its own; no kubelet runs, so a pod over its scratch is ended by the
test. A rehearsal cannot hold all of it: it names such a field "without effect on one machine".
"""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import PROJECT, Cluster, jobs

from paddle_aws.rehearsal.pods import limits
from paddle_aws.rehearsal.pods.manifests import PodTemplate

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.long]

JOB: dict[str, Any] = {
    "name": "limits",
    "trainers": 1,
    "program": {"from": "image", "folder": "quick_start"},
    "environment": {"GIVEN": "by the job"},
    "resources": {"cpu": "500m", "memory": "1Gi", "shared_memory": "64Mi", "scratch": "8Mi"},
    "limits": {"attempts": 1},
}
LOADER = """
import numpy, paddle
print("seen: loads", flush=True)
class Records(paddle.io.Dataset):
    def __len__(self): return 64
    def __getitem__(self, at): return numpy.zeros({size}, "uint8")
read = sum(len(batch[0]) for batch in paddle.io.DataLoader(
    Records(), batch_size=8, num_workers=4, use_shared_memory=True))
print("seen: read", read, flush=True)
"""
PROGRAMS = {
    "four workers below the shared memory": LOADER.format(size=1000),
    "four workers above the shared memory": LOADER.format(size=16 << 20),
    "a full /dev/shm": """
try:
    open("/dev/shm/full", "wb").write(bytes(65 << 20))
except OSError as error:
    print("seen: errno", error.errno, flush=True)
""",
    "memory over the limit": """
print("seen: hogs", flush=True)
print("seen:", len(b"x" * (1500 << 20)), flush=True)
""",
    "scratch over the limit": """
import os, time
open("/tmp/large", "wb").write(b"x" * (16 << 20))
print("seen: written", flush=True)
time.sleep(600)
""",
    "a crash leaves no core": """
import os, resource, signal
print("seen: core", resource.getrlimit(resource.RLIMIT_CORE), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
""",
    "a thousand open files and sixty processes": """
import os, subprocess
files = [open(os.devnull) for _ in range(1000)]
sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(60)]
print("seen:", len(files), len(sleepers), flush=True)
for sleeper in sleepers:
    sleeper.kill()
""",
    "a read-only place": """
import os
print("seen: may write", os.access("/usr", os.W_OK), flush=True)
""",
    "its user and its variables": """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print("seen:", os.getuid(), os.getgid(), status["CapEff"].strip(), os.environ["GIVEN"], flush=True)
open(os.environ["HOME"] + "/mine", "w").close()
of_podman = "PWD TERM container "
of_rehearsals = "PADDLE_NODE_HOSTS PADDLE_NODE_ROOT AWS_EC2_METADATA_DISABLED "
of_shells = "NO_PROXY no_proxy REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE"
apart = (of_podman + of_rehearsals + of_shells).split()
print("seen:", *sorted(set(os.environ).difference(apart)), flush=True)
print("seen:", "OF_THIS_MACHINE" in os.environ, flush=True)
""",
    "SIGTERM and grace": """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("seen: SIGTERM", flush=True), sys.exit(0)))
print("seen: ready", flush=True)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(600)
""",
}
NOT_HELD = {
    "a read-only place": {"securityContext: "},
    "memory over the limit": {"limits.memory"},
}
"""What a rehearsal may name as without effect instead of agreeing."""
SEEN = re.compile(r"seen: ?(.*)")
CAUSES = ("resources.shared_memory", "resources.memory", "resources.scratch", "signal 11")


def outcome(log: str, succeeded: bool) -> tuple[bool, list[str], set[str]]:
    """Returns whether a pod succeeded, what its program printed, and which causes its log names."""
    return (
        succeeded,
        list(dict.fromkeys(SEEN.findall(log))),
        {cause for cause in CAUSES if cause in log},
    )


def in_container(cluster: Cluster, training: dict[str, Any]) -> tuple[bool, list[str], set[str]]:
    name = cluster.start(training, 0, limited=True)
    template = PodTemplate.model_validate(training["spec"]["template"])
    own, evicted = cluster.volume.parent / "empty" / name, ""
    while cluster.podman.run("inspect", "--format", "{{.State.Running}}", name).stdout != "false\n":
        if evicted := evicted or limits.find_full_volume(template, own):
            cluster.podman.run("kill", name, check=False)
        time.sleep(0.5)
    # A kubelet names the volume, the rehearsal its setting, too.
    told = f"\n{evicted} resources.scratch" if evicted else ""
    return outcome(cluster.logs(name) + told, cluster.codes(name) == [0])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_rehearsal_and_a_container_agree(
    program: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THIS_MACHINE", "yes")
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"command": ["python3", "-c", PROGRAMS[program]]}))
    data, training = jobs(tmp_path, file)
    assert cluster.codes(cluster.start(data)) == [0]
    contained = in_container(cluster, training)

    command = [PROJECT / ".venv/bin/paddle-aws", "rehearse", file, "--no-try", "--verbose"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    logs = (tmp_path / ".rehearsal/logs").glob("limits-*.trainer.log")
    log = "".join(path.read_text() for path in logs)
    rehearsed = outcome(log, done.returncode == 0)
    print(f"container: {contained}\nrehearsal: {rehearsed}\n{said[-1500:]}")
    apart = (tmp_path / ".rehearsal/logs/without-effect.txt").read_text()
    if not any(field in apart for field in NOT_HELD.get(program, ())):
        assert rehearsed == contained, apart
    assert contained[1], "the program ran"
