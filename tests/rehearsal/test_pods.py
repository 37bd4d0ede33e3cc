"""Jobs run from manifests as real processes: environment, names, mounts, retries, policies, probes,
and no process left.
"""

import asyncio
import copy
import os
import tempfile
from pathlib import Path

import pytest
import yaml

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents as charts
from k8s_charts.spec import TrainingJob
from paddle_aws.rehearsal.pods import job, limits
from paddle_aws.rehearsal.pods.addresses import AddressBlock

pytestmark = pytest.mark.slow
WRITTEN = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text())


def documents(
    script: str, job_spec: dict | None = None, container: dict | None = None
) -> list[dict]:
    """Returns a minimal set of manifests, whose one Job runs `script` in a shell."""
    found = copy.deepcopy(WRITTEN["documents"])
    found[-1]["spec"] |= job_spec or {}
    found[-1]["spec"]["template"]["spec"]["containers"][0] |= {
        "args": [script],
        **(container or {}),
    }
    return found


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr("paddle_aws.rehearsal.pods.pod.BACK_OFF_SHARE", 0.001)


def test_command_arguments_and_environment_are_the_kubelets(machine):
    show = 'printf "%s\\n" "$0" "$@"; env'
    told = WRITTEN["told"]
    docs = documents(show, {"completionMode": "Indexed"}, told | {"args": [show, *told["args"]]})
    os.environ["OF_THIS_MACHINE"] = "yes"
    assert machine.run(docs).succeeded
    lines = machine.log().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert (
        seen["WHO"].startswith("train-0-")
        and seen["POD_IP"].startswith("127.")
        and len(seen["RUN"]) == 36
    )
    assert lines[0] == f"I am {seen['WHO']} $(LATER)"
    assert lines[1:4] == ["$(GREETING)", "$(UNKNOWN)", "two words"]
    assert seen["JOB_COMPLETION_INDEX"] == "0" and seen["HOSTNAME"] == "train-0"
    assert "OF_THIS_MACHINE" not in seen


@pytest.mark.parametrize("row", WRITTEN["ends"], ids=lambda row: row["name"])
def test_how_a_job_ends(machine, row):
    script = f"cd $PADDLE_NODE_ROOT/home/jobpath\n{row.get('script', '')}"
    result = machine.run(documents(script, row.get("job"), row.get("container")))
    assert (result.reason, result.succeeded) == (
        row["reason"],
        row["reason"] == "CompletionsReached",
    )
    assert result.retries == row.get("retries", result.retries) and len(result.ended) == row.get(
        "ended", len(result.ended)
    )
    assert "codes" not in row or result.culprit.codes == row["codes"]
    assert {words: machine.log().count(words) for words in row.get("said", ())} == row.get(
        "said", {}
    )


def test_a_cancelled_job_leaves_no_process(machine, tmp_path):
    host = machine.host(documents("trap '' TERM; setsid sleep 600 & sleep 600"))

    async def go():
        with AddressBlock() as block:
            task = asyncio.create_task(job.run_job(host.manifests.jobs[0], host, block))
            while len(machine.left_running) < 3 and not task.done():
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(go())
    assert machine.left_running == [] and not list(machine.rehearsal.pods.iterdir())


def written(script, name, **volume):
    """Returns the documents of a job whose one trainer runs `script`."""
    settings = WRITTEN["small"] | {"name": name, "volume": volume}
    documents = charts(TrainingJob.parse(settings), ClusterOutputs.placeholder(), "any")
    (container,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    container["command"] = ["/bin/sh", "-c", script.replace("$", "$$")]
    return documents


@pytest.mark.parametrize("volume", WRITTEN["volumes"], ids=str)
def test_a_jobs_pods_see_no_other_jobs_folder(volume, machine):
    script = (
        'cd "$PADDLE_NODE_ROOT$JOB_PATH"; ls; echo mine > $JOB_NAME/note; cat {other}/note; true'
    )
    for name, other in (("alpha", "beta"), ("beta", "alpha")):
        assert machine.run(written(script.format(other=other), name, **volume)).succeeded
        (log,) = machine.logs.glob(f"{name}-*.trainer.log")
        seen, refused = log.read_text().splitlines()
        assert seen == name and "No such file" in refused
    root = machine.volume / volume.get("folder", "")
    assert [path.relative_to(root).as_posix() for path in sorted(root.rglob("note"))] == [
        "alpha/note",
        "beta/note",
    ]


LIMITED = {
    "resources": {"limits": {"memory": "100Mi"}},
    "securityContext": {"runAsUser": 1234, "runAsGroup": 77},
}
SHARED_MEMORY = {"emptyDir": {"medium": "Memory", "sizeLimit": "3Mi"}}
HOG = """
import os, shutil, sys, tempfile
size = shutil.disk_usage("/dev/shm").total
print("user", os.getuid(), os.getgid(), "shm", size, tempfile.gettempdir(), flush=True)
try:
    open("/dev/shm/full", "wb").write(bytes(4 << 20))
except OSError as error:
    print("full", error.errno, flush=True)
open(tempfile.gettempdir() + "/of-a-pod", "w").close()
print("hogs", len(b"x" * (200 << 20)) if len(sys.argv) > 1 else 0, flush=True)
"""


@pytest.mark.parametrize("hogs", ["", "memory"])
def test_a_container_has_the_user_the_shared_memory_and_the_memory_of_its_manifest(machine, hogs):
    held = limits.probe_machine()
    volumes = [*WRITTEN["documents"][-1]["spec"]["template"]["spec"]["volumes"]]
    docs = documents(f"python3 -c '{HOG}' {hogs}", container=LIMITED)
    template = docs[-1]["spec"]["template"]["spec"]
    template["volumes"] = [*volumes, {"name": "memory", **SHARED_MEMORY}]
    template["containers"][0]["volumeMounts"] = [{"name": "memory", "mountPath": "/dev/shm"}]
    result = machine.run(docs)
    if held.namespaces:
        assert f"user 1234 77 shm {3 << 20} /tmp" in machine.log() and "full 28" in machine.log()
        assert not Path("/tmp/of-a-pod").exists()
    assert result.succeeded is not bool(hogs and held.groups), machine.log()
    assert ("hogs" not in machine.log()) is bool(hogs and held.groups)
    # What a machine cannot hold, it says.
    names = {name for note in held.without_effect for name in note.fields}
    assert names == ({"limits.memory"} - ({"limits.memory"} if held.groups else set())) | (
        set() if held.namespaces else {"runAsUser", "runAsGroup", "sizeLimit of /dev/shm"}
    )


def test_a_pod_finds_what_a_link_leads_to_below_tmp(machine, tmp_path: Path):
    with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:
        Path(elsewhere, "file").write_text("here")
        (tmp_path / "link").symlink_to(elsewhere)
        environment = [{"name": "LINK", "value": str(tmp_path / "link")}]
        docs = documents("cat $LINK/file", container={"env": environment})
        assert machine.run(docs).succeeded, machine.log()


def test_a_pod_whose_disk_is_over_its_limit_is_evicted(machine, monkeypatch):
    monkeypatch.setattr("paddle_aws.rehearsal.pods.pod._DISK_INTERVAL", 0.05)
    docs = documents("head -c 3000000 /dev/zero > $PADDLE_NODE_ROOT/tmp/large; sleep 600")
    template = docs[-1]["spec"]["template"]["spec"]
    template["volumes"].append({"name": "temporary", "emptyDir": {"sizeLimit": "1Mi"}})
    mount = {"name": "temporary", "mountPath": "/tmp"}
    template["containers"][0]["volumeMounts"].append(mount)
    assert not machine.run(docs).succeeded
    words = 'Usage of EmptyDir volume "temporary" exceeds the limit "1Mi". Raise resources.scratch'
    assert f"the pod is evicted: {words}" in machine.log()
