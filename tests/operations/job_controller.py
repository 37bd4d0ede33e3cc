"""Plays the Job controller, the scheduler and the kubelet for kubernetes_api.py, as a test's script
says.

Limits: pods live and die as their `Script` says, not as their containers would; there are no
retries and no timeouts.
"""

import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from kubernetes_api import KubernetesApi, Object, now

JOB = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Script:
    """What happens to a component's pods."""

    lines: tuple[str, ...] = ("hello",)
    code: int | None = 0
    """Exit code; None: the pods run until `finish`."""
    message: str = ""
    status: Object | None = None
    """The status that the pods have instead of running."""
    events: tuple[tuple[str, str], ...] = ()
    """(reason, message) of events about each pod."""
    refused: str = ""
    """Why the cluster creates none of the component's pods."""


class JobController(KubernetesApi):
    """A cluster whose pods do what their component's script says."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, Script] = {}
        self.volume: Path | None = None
        """What the inspection pods mount; theirs is the only container that really runs."""
        self.processes: list[subprocess.Popen[str]] = []
        self.created = self.control

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for process in self.processes:
            process.kill()
            process.wait()

    def control(self, document: Object) -> None:
        if document["kind"] not in ("Job", "Pod"):
            return
        script = self.scripts.get(
            document["metadata"]["labels"]["app.kubernetes.io/component"], Script()
        )
        if document["kind"] == "Pod":
            return self.serve(document) if script.status is None else self.run(document, script)
        if script.refused:
            return self.event(document, 0, "FailedCreate", script.refused)
        for index in range(document["spec"].get("completions", 1)):
            self.run(self.pod(document, index), script)
        if script.status is None and script.code is not None:
            self.finish(document, script.code, script.message)

    def serve(self, pod: Object) -> None:
        """Runs the inspection pod's own command, in the folder of `volume` that it mounts."""
        (container,) = pod["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        folder, token_digest, _ = container["args"]
        assert self.volume is not None and folder == mount["mountPath"]
        command = [
            sys.executable,
            *container["command"][1:],
            str(self.volume / mount["subPath"]),
            token_digest,
            "0",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        self.proxies[pod["metadata"]["name"]] = f"http://127.0.0.1:{port}"
        self.put(pod | {"status": {"phase": "Running"}})

    def pod(self, job: Object, index: int) -> Object:
        template, named = job["spec"]["template"], job["metadata"]
        metadata = {
            "name": f"{named['name']}-{index}-{uuid.uuid4().hex[:5]}",
            "namespace": named["namespace"],
            "labels": template["metadata"]["labels"] | {JOB: named["name"], INDEX: str(index)},
            "annotations": {INDEX: str(index)},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": named["name"],
                    "uid": named["uid"],
                }
            ],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    def run(self, pod: Object, script: Script) -> None:
        for number, (reason, message) in enumerate(script.events):
            self.event(pod, number, reason, message)
        status = script.status or {"phase": "Running"}
        node = {} if "conditions" in status else {"nodeName": "node-1"}
        self.put(pod | {"spec": pod["spec"] | node, "status": status})
        for line in script.lines if script.status is None else ():
            self.say(
                pod["metadata"]["name"], line.replace("RANK", pod["metadata"]["annotations"][INDEX])
            )

    def event(self, of: Object, number: int, reason: str, message: str) -> None:
        name, namespace = of["metadata"]["name"], of["metadata"]["namespace"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{number}", "namespace": namespace},
        }
        event |= {
            "involvedObject": {"kind": of["kind"], "name": name},
            "type": "Warning",
            "lastTimestamp": now(),
        }
        self.put(event | {"reason": reason, "message": message})

    def finish(self, job: Object, code: int = 0, message: str = "") -> None:
        """Ends all pods of a Job with `code`, and the Job with them."""
        pods = [
            p
            for p in self.all("pods")
            if p["metadata"]["labels"].get(JOB) == job["metadata"]["name"]
        ]
        for pod in pods:
            self.end(pod, code, message)
        self.conclude(job, code, len(pods))

    def conclude(self, job: Object, code: int, pods: int) -> None:
        """Ends a Job."""
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": now()}
        if code:
            failure = f"Container trainer failed with exit code {code}"
            condition |= {"type": "Failed", "reason": "PodFailurePolicy", "message": failure}
        counted = "failed" if code else "succeeded"
        self.put(job | {"status": {"conditions": [condition], counted: pods}})

    def end(self, pod: Object, code: int, message: str = "") -> None:
        self.put(pod | {"status": ended_status(pod, code, message)})
        self.logs[pod["metadata"]["name"]].ended = True


def ended_status(pod: Object, code: int, message: str = "") -> Object:
    """A pod's status as a kubelet writes it once the pod's containers have ended."""
    terminated = {"exitCode": code, "message": message, "reason": "Error" if code else "Completed"}
    ended = {
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": terminated | {"startedAt": now(), "finishedAt": now()}},
    }
    containers = [
        {"name": container["name"], "image": "i", "imageID": "i", **ended}
        for container in pod["spec"]["containers"]
    ]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": containers}
