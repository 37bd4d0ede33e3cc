"""Jobs run from manifests as real processes: environment, names, mounts, retries, policies, probes, and nothing left."""

import asyncio
import os
import textwrap
import time

import pytest

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import documents as charts
from k8s_charts.spec import TrainingJob
from operations.errors import BadInput
from rehearsal.pods import job
from rehearsal.pods.addresses import AddressBlock
from rehearsal.pods.container import private_mounts_work

pytestmark = pytest.mark.slow


def documents(
    script: str, *, job_spec: dict | None = None, pod_spec: dict | None = None, container: dict | None = None
) -> list[dict]:
    """The least set of manifests: a volume, a claim, a headless Service and one Job that runs `script` in a shell."""
    first = {"name": "main", "image": "any", "command": ["/bin/sh", "-c"], "args": [script], **(container or {})}
    first.setdefault("volumeMounts", []).append({"name": "shared", "mountPath": "/home/jobpath"})
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": {"volumeName": "pv"}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "train"},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "train"}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {
                "completions": 1,
                "backoffLimit": 0,
                **(job_spec or {}),
                "template": {
                    "metadata": {"labels": {"app": "train"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "subdomain": "train",
                        "terminationGracePeriodSeconds": 1,
                        **(pod_spec or {}),
                        "containers": [first],
                        "volumes": [
                            {"name": "shared", "persistentVolumeClaim": {"claimName": "claim"}},
                            *(pod_spec or {}).get("volumes", []),
                        ],
                    },
                },
            },
        },
    ]


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr("rehearsal.pods.pod.BACK_OFF_SHARE", 0.001)


def test_command_arguments_and_environment_are_the_kubelets(machine):
    show = 'printf "%s\\n" "$0" "$@"; env'
    docs = documents(
        show,
        job_spec={"completionMode": "Indexed"},
        container={
            "args": [show, "$(GREETING)", "$$(GREETING)", "$(UNKNOWN)", "two words"],
            "env": [
                {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {
                    "name": "RUN",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}},
                },
                {"name": "GREETING", "value": "I am $(WHO) $(LATER)"},
                {"name": "LATER", "value": "later"},
            ],
        },
    )
    os.environ["OF_THIS_MACHINE"] = "yes"
    assert machine.run(docs).succeeded
    lines = machine.log().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["WHO"].startswith("train-0-") and seen["POD_IP"].startswith("127.") and len(seen["RUN"]) == 36
    assert lines[0] == f"I am {seen['WHO']} $(LATER)"
    assert lines[1:4] == ["$(GREETING)", "$(UNKNOWN)", "two words"]
    assert seen["JOB_COMPLETION_INDEX"] == "0" and seen["HOSTNAME"] == "train-0"
    assert "OF_THIS_MACHINE" not in seen


def test_the_image_is_what_the_dockerfile_copies(machine, tmp_path):
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "hello.sh").write_text('#!/bin/sh\necho "hello $1 from $COLOUR"\npwd\n')
    (tmp_path / "context" / "hello.sh").chmod(0o755)
    dockerfile = textwrap.dedent("""\
        FROM base AS build
        COPY nothing /from/an/older/stage
        FROM base
        ENV COLOUR=blue
        COPY --chown=1000 --from=build /opt/venv /opt/venv
        # a comment \\
        COPY --chmod=755 context/hello.sh \\
             /usr/local/bin/
        WORKDIR /home/paddle
    """)
    docs = documents("", container={"command": ["/usr/local/bin/hello.sh", "$(HOSTNAME_)"], "args": []})
    assert machine.run(docs, dockerfile).succeeded
    first, folder = machine.log().splitlines()
    assert first == "hello $(HOSTNAME_) from blue" and folder.endswith("/home/paddle")


def test_a_failed_pod_is_replaced_under_its_index_with_another_address(machine):
    script = """
        cd $PADDLE_NODE_ROOT/home/jobpath
        echo "$JOB_COMPLETION_INDEX $POD_IP" >> seen
        [ $JOB_COMPLETION_INDEX = 0 ] || [ $(grep -c "^1" seen) -gt 1 ]
    """
    docs = documents(
        script,
        job_spec={"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 1},
        container={"env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    )
    result = machine.run(docs)
    assert result.succeeded and result.retries == 1
    ones = [line for line in (machine.volume / "seen").read_text().splitlines() if line.startswith("1 ")]
    assert len(set(ones)) == 2


def test_the_back_off_limit_ends_the_job_and_its_other_pods(machine):
    docs = documents(
        """
        if [ $JOB_COMPLETION_INDEX = 0 ]; then echo broken; exit 7; fi
        trap "echo asked; exit 1" TERM
        while :; do sleep 0.1; done
        """,
        job_spec={"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 2},
    )
    result = machine.run(docs)
    assert not result.succeeded and result.reason == "BackoffLimitExceeded"
    assert result.culprit.codes == {"main": 7} and job.last_lines(result.culprit.logs["main"]) == "broken"
    assert machine.log().count("broken") == 3 and machine.log().count("asked") == 1


def test_pod_failure_policy_reads_exit_codes(machine):
    rules = [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [9]}},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [65]}},
    ]
    script = (
        "echo try >> $PADDLE_NODE_ROOT/home/jobpath/n; [ $(wc -l < $PADDLE_NODE_ROOT/home/jobpath/n) -gt 3 ] && exit 65; exit 9"
    )
    result = machine.run(documents(script, job_spec={"backoffLimit": 1, "podFailurePolicy": {"rules": rules}}))
    assert result.reason == "PodFailurePolicy" and result.retries == 0 and result.culprit.codes == {"main": 65}


IN_PLACE = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [137]}}],
    "env": [{"name": "UID_OF_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
}


def test_a_container_that_is_killed_starts_again_in_its_pod_and_one_that_fails_does_not(machine):
    """And no limit counts the first: the second fails the index at once."""
    script = """
        echo $UID_OF_POD >> $PADDLE_NODE_ROOT/home/jobpath/pods
        [ -e "$TMPDIR/killed" ] && exit 7
        touch "$TMPDIR/killed"
        kill -9 $$$$
    """
    limits = {"completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    result = machine.run(documents(script, job_spec=limits, container=IN_PLACE))
    assert result.reason == "MaxFailedIndexesExceeded" and result.culprit.codes == {"main": 7} and len(result.ended) == 1
    first, again = (machine.volume / "pods").read_text().split()
    assert first == again and "the container ended with 137: it is started again in its pod" in machine.log()


def test_what_a_probe_ends_does_not_start_again_in_its_pod(machine):
    """Kubernetes would leave such a pod Running for ever: its sandbox is gone."""
    ready = "$PADDLE_NODE_ROOT/home/jobpath/ready"
    probe = {"exec": {"command": ["/bin/sh", "-c", f"[ ! -e {ready} ]"]}, "periodSeconds": 0.05, "failureThreshold": 1}
    script = f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"
    result = machine.run(documents(script, container={**IN_PLACE, "livenessProbe": probe}))
    assert result.culprit.codes == {"main": 137} and len(result.ended) == 1
    assert "liveness probe failed 1 times" in machine.log()


def test_each_index_counts_its_own_failures(machine):
    """Two of each index are allowed: four in all do not end the Job, a third of one does."""
    script = """
        cd $PADDLE_NODE_ROOT/home/jobpath
        echo x >> $JOB_COMPLETION_INDEX
        [ $(wc -l < $JOB_COMPLETION_INDEX) -gt $ENOUGH ]
    """
    limits = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 2, "maxFailedIndexes": 0}
    limits["backoffLimit"] = 2**31 - 1
    for enough, reason in (("2", "CompletionsReached"), ("3", "MaxFailedIndexesExceeded")):
        result = machine.run(documents(script, job_spec=limits, container={"env": [{"name": "ENOUGH", "value": enough}]}))
        assert result.reason == reason
        for tried in machine.volume.iterdir():
            tried.unlink()

    # The fixture looks for what was left.


def test_a_program_that_is_not_there_is_named(machine):
    result = machine.run(documents("", container={"command": ["/usr/local/bin/nothing.sh"], "args": []}))
    assert result.culprit.codes == {"main": 128} and "cannot start /usr/local/bin/nothing.sh" in machine.log()


def test_a_cancelled_job_leaves_no_process(machine, tmp_path):
    host = machine.host(documents("trap '' TERM; setsid sleep 600 & sleep 600"))

    async def go():
        with AddressBlock() as block:
            task = asyncio.create_task(job.run_job(host.manifests.jobs[0], host, block))
            deadline = time.monotonic() + 90
            while len(machine.left_running) < 3 and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
            assert len(machine.left_running) >= 3
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(go())
    assert machine.left_running == [] and not list(machine.state.pods.iterdir())


KINDS = {
    "efs": {},
    "nfs": {"kind": "nfs", "folder": "team/jobs"},
    "host-path": {"kind": "host-path", "path": "/srv"},
    "claim": {"kind": "claim", "claim": "mine"},
}


def written(script, name="words", data=None, **volume):
    """The documents of a job whose one trainer runs `script`."""
    settings = {
        "name": name, "mode": "single", "trainers": 1, "volume": volume, "data": data or {"prepared": True},
        "program": {"from": "image" if data else "volume"}, "image": "any",
    }  # fmt: skip
    documents = charts(TrainingJob.parse(settings), ClusterOutputs.placeholder(), "any")
    (container,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    container["command"] = ["/bin/sh", "-c", script.replace("$", "$$")]
    return documents


@pytest.mark.parametrize("kind", KINDS)
def test_a_jobs_pods_see_no_other_jobs_folder(kind, machine):
    script = (
        'cd "$PADDLE_NODE_ROOT$JOB_PATH"; ls; echo mine > $JOB_NAME/note; echo new > $JOB_NAME/../stray;'
        "cat {other}/note {name}/../{other}/note; true"
    )
    for name, other in (("alpha", "beta"), ("beta", "alpha")):
        assert machine.run(written(script.format(name=name, other=other), name, **KINDS[kind])).succeeded
        (log,) = machine.logs.glob(f"{name}-*.trainer.log")
        seen, *refused = log.read_text().splitlines()
        assert seen == name and all("No such file" in line for line in refused) and len(refused) == 2, log.read_text()
    root = machine.volume / KINDS[kind].get("folder", "")
    assert [path.relative_to(root).as_posix() for path in sorted(root.rglob("note"))] == ["alpha/note", "beta/note"]
    assert not (root / "stray").exists()


def test_a_folder_that_only_the_kubelet_would_make_is_refused(machine):
    docs = written("true", kind="nfs")
    del docs[-1]["spec"]["template"]["spec"]["initContainers"]
    with pytest.raises(BadInput, match="words is not on the volume: the kubelet would make it as root"):
        machine.run(docs)


@pytest.mark.parametrize("source", ["corpora/a.txt", "corpora", "corpora/*.txt", "*/a.txt", "words/mine.txt"])
def test_a_source_elsewhere_on_the_volume_is_read_and_never_written(source, machine, tmp_path):
    for name in ("corpora/a.txt", "words/mine.txt", "other/secret"):
        (machine.volume / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.volume / name).write_text("line\n")
    (tmp_path / "split.sh").write_text(
        '#!/bin/sh\ncd "$PADDLE_NODE_ROOT$JOB_PATH" || exit\n'
        "{ find -L corpora words other; echo x >> corpora/a.txt; echo x > corpora/b.txt; } 2>&1\necho done > words/done\n"
    )
    (tmp_path / "split.sh").chmod(0o755)
    docs = written("true", data={"source": f"/home/jobpath/{source}"}, kind="nfs")
    assert machine.run(docs, "FROM scratch\nCOPY split.sh /usr/local/bin/split.sh\n").succeeded
    (log,) = machine.logs.glob("*.data.log")
    assert ("corpora/a.txt\n" in log.read_text()) == ("words/" not in source), log.read_text()
    assert ("other/secret" in log.read_text()) == source.startswith("*")
    assert (machine.volume / "words" / "done").exists()
    assert [path.read_text() for path in (machine.volume / "corpora").iterdir()] == ["line\n"]
    assert private_mounts_work() is ("ead-only" in log.read_text() or source.startswith("words"))
