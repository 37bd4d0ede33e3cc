"""The PaddleJob kind: batch.paddlepaddle.org/v1, as its operator reads it, and stricter where the operator is silent.

The original definition takes any text for cleanPodPolicy and intranet, and jobs without workers; the operator then
waits for ever or deletes what should stay. Here the API server refuses them, and keeps a finished job's pods by default.
"""

from __future__ import annotations

from typing import Any

GROUP = "batch.paddlepaddle.org"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "PaddleJob"
NAME = f"paddlejobs.{GROUP}"
CLEAN_POD_POLICIES = ("Always", "Never", "OnFailure", "OnCompletion")
INTRANETS = ("PodIP", "Service", "Host")
SERVICE_PORT = 36000
"""Where pods that meet by Service listen: the operator's own choice."""
LONGEST_NAME = 51
"""So that `<name>-worker-<up to 9999>` is a host name."""

_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def _whole(least: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "format": "int32", "minimum": least, **more}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _replicas(what: str) -> dict[str, Any]:
    # The inside of a pod template is Kubernetes' own: it is checked when the operator makes the pods.
    named = {"name": _text("Name."), "image": _text("Image.")}
    container = {"type": "object", **_OPEN, "required": ["name", "image"], "properties": named}
    pod = {
        "type": "object",
        **_OPEN,
        "required": ["containers"],
        "properties": {"containers": {"type": "array", "minItems": 1, "items": container}},
    }
    template = {
        "type": "object",
        "description": "Pod template; the operator adds the job's variables to the first container.",
        "required": ["spec"],
        "properties": {"metadata": {"type": "object", **_OPEN}, "spec": pod},
    }
    return {
        "type": "object",
        "description": what,
        "required": ["replicas", "template"],
        "properties": {
            "replicas": _whole(1, description="Pods."),
            "requests": _whole(0, description="Least pods of an elastic job."),
            "limits": _whole(0, description="Most pods of an elastic job."),
            "template": template,
        },
    }


def _spec() -> dict[str, Any]:
    scheduling = {
        "type": "object",
        "description": "For Volcano.",
        "properties": {
            "minAvailable": _whole(1, description="Pods that have to start together; default all."),
            "queue": _text("Volcano's queue."),
            "priorityClass": _text("PriorityClass of the group."),
            "minResources": {
                "type": "object",
                "description": "Resources that have to be free.",
                "additionalProperties": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            },
        },
    }
    return {
        "type": "object",
        "description": "What to run.",
        "required": ["worker"],
        "properties": {
            "cleanPodPolicy": {
                "type": "string",
                "enum": list(CLEAN_POD_POLICIES),
                "default": "Never",
                "description": "When the pods of a job that ended are deleted, and with them their logs.",
            },
            "intranet": {
                "type": "string",
                "enum": list(INTRANETS),
                "default": "PodIP",
                "description": "How pods reach each other.",
            },
            "withGloo": {"type": "integer", "enum": [0, 1, 2], "description": "0: off; 1: workers; 2: workers and servers."},
            "elastic": _whole(0, description="Elastic level; collective jobs only."),
            "schedulingPolicy": scheduling,
            "ps": _replicas("Parameter servers."),
            "worker": _replicas("Workers."),
            "heter": _replicas("Workers on other devices."),
        },
        "x-kubernetes-validations": [
            {"rule": "!(has(self.elastic) && has(self.ps))", "message": "elastic is for collective jobs: leave ps or elastic out"}
        ],
    }


def spec() -> dict[str, Any]:
    """The spec of the CustomResourceDefinition."""
    schema = {
        "type": "object",
        "description": "A distributed PaddlePaddle training job.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": LONGEST_NAME}}},
            "spec": _spec(),
            # The operator writes it; its versions differ in what.
            "status": {"type": "object", "description": "What the operator saw.", **_OPEN},
        },
    }

    def column(name: str, path: str, kind: str = "string") -> dict[str, Any]:
        return {"name": name, "type": kind, "jsonPath": path}

    called = {"kind": KIND, "listKind": f"{KIND}List", "plural": "paddlejobs", "singular": "paddlejob", "shortNames": ["pdj"]}
    return {
        "group": GROUP,
        "scope": "Namespaced",
        "names": called,
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Status", ".status.phase"),
                    column("Mode", ".status.mode"),
                    column("PS", ".status.ps.running", "integer"),
                    column("Worker", ".status.worker.running", "integer"),
                    column("Age", ".metadata.creationTimestamp", "date"),
                ],
                "schema": {"openAPIV3Schema": schema},
            }
        ],
    }
