"""Plays the Job controller, the scheduler and the kubelet for kubernetes_api.py, as a test's script says.

Limits: pods live and die as `script` says, not by what their containers would do; no retries, no time-outs.
"""

import subprocess
import sys
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes_api import KubernetesApi, Object, now

JOB = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Script:
    """What becomes of a component's pods."""

    lines: tuple[str, ...] = ("hello",)
    code: int | None = 0
    """Exit code; None: they run until `finish`."""
    message: str = ""
    status: Object | None = None
    """Instead of running: this status."""
    events: tuple[tuple[str, str], ...] = ()
    """(reason, message) of events about each pod."""


@dataclass
class JobController:
    """Set `api.created = controller`."""

    api: KubernetesApi
    scripts: dict[str, Script] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    refused: dict[str, str] = field(default_factory=dict)
    """Of a component: why the cluster takes none of its pods."""
    volume: Path | None = None
    """What the helper pods mount: theirs is the one container that really runs."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, document: Object) -> None:
        if document["kind"] == "Pod" and document["spec"]["containers"][0]["name"] == "volume":
            self.serve(document)
        if document["kind"] != "Job":
            return
        component = document["metadata"]["labels"]["app.kubernetes.io/component"]
        if component in self.refused:
            return self.event(document, 0, "FailedCreate", self.refused[component])
        script = self.scripts.get(component, Script())
        pods = [self.pod(document, index) for index in range(document["spec"]["completions"])]
        for pod in pods:
            self.run(pod, script)
        if script.status is None and script.code is not None:
            self.finish(document, script.code, script.message)

    def serve(self, pod: Object) -> None:
        """Runs the helper pod's own command, in the folder of `volume` that it mounts."""
        (container,) = pod["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        folder, token, _ = container["args"]
        assert self.volume is not None and folder == mount["mountPath"]
        command = [sys.executable, *container["command"][1:], str(self.volume / mount["subPath"]), token, "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.api.proxies[(namespace, name)] = f"http://127.0.0.1:{port}"
        self.api.put("pods", pod | {"spec": pod["spec"] | {"nodeName": "node-1"}, "status": {"phase": "Running"}})

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def pod(self, job: Object, index: int) -> Object:
        template = job["spec"]["template"]
        name = f"{job['metadata']['name']}-{index}-{uuid.uuid4().hex[:5]}"
        labels = template["metadata"]["labels"] | {
            JOB: job["metadata"]["name"],
            "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
            INDEX: str(index),
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
        metadata = {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "labels": labels,
            "annotations": {INDEX: str(index)},
            "ownerReferences": [owner],
        }
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        return self.api.put("pods", document | {"status": {"phase": "Pending"}})

    def run(self, pod: Object, script: Script) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        for number, (reason, message) in enumerate(script.events):
            self.event(pod, number, reason, message)
        if script.status is not None:
            node = {} if "conditions" in script.status else {"nodeName": "node-1"}
            self.api.put("pods", pod | {"spec": pod["spec"] | node, "status": script.status})
            return
        spec = pod["spec"] | {"nodeName": "node-1"}
        self.api.put("pods", pod | {"spec": spec, "status": {"phase": "Running"}})
        rank = pod["metadata"]["annotations"][INDEX]
        for line in script.lines:
            self.api.say(name, line.replace("RANK", rank), namespace)

    def event(self, of: Object, number: int, reason: str, message: str) -> None:
        name, namespace = of["metadata"]["name"], of["metadata"]["namespace"]
        about = {"kind": of["kind"], "name": name, "namespace": namespace}
        self.api.put(
            "events",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{number}", "namespace": namespace},
                "involvedObject": about,
                "reason": reason,
                "message": message,
                "lastTimestamp": now(),
            },
        )

    def finish(self, job: Object, code: int = 0, message: str = "") -> None:
        """All pods of a Job end with `code`, and the Job with them."""
        with self.lock:
            job = self.api.get("jobs", job["metadata"]["name"], job["metadata"]["namespace"])
            pods = [p for p in self.api.all("pods") if p["metadata"]["labels"].get(JOB) == job["metadata"]["name"]]
            for pod in pods:
                self.end(pod, code, message)
            kind = "Failed" if code else "Complete"
            condition: dict[str, Any] = {"type": kind, "status": "True", "lastTransitionTime": now()}
            if code:
                condition |= {"reason": "PodFailurePolicy", "message": f"Container trainer failed with exit code {code}"}
            counts = {"failed": len(pods)} if code else {"succeeded": len(pods)}
            self.api.put("jobs", job | {"status": {"conditions": [condition], "startTime": now(), **counts}})

    def end(self, pod: Object, code: int, message: str = "") -> None:
        self.api.put("pods", pod | {"status": ended_status(pod, code, message)})
        self.api.end_log(pod["metadata"]["name"], pod["metadata"]["namespace"])


def ended_status(pod: Object, code: int, message: str = "") -> Object:
    """A pod's status, as a kubelet writes it when its containers have ended."""
    terminated = {"exitCode": code, "message": message, "reason": "Error" if code else "Completed"}
    ended = {"ready": False, "restartCount": 0, "state": {"terminated": terminated | {"startedAt": now(), "finishedAt": now()}}}
    containers = [{"name": one["name"], "image": "i", "imageID": "i", **ended} for one in pod["spec"]["containers"]]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": containers}
