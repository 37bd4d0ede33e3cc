"""Who am I, asked of the API server: the tutorials' way, for a Job without indexes.

Promises: one list and one watch a pod, never a poll; exactly N running pods of this very run, ordered by address; whoever is
missing when the deadline passes is named, with Kubernetes' reason. For two requests no client of Kubernetes' is needed.
"""

import asyncio
import hashlib
import ipaddress
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import urllib3

from paddle_node import contract
from paddle_node.agent.discovery import Discovery
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import NodeEnvironment
from paddle_node.failure import Failure, SettingError
from paddle_node.patience import REMIND

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a service account's token and the cluster's CA."""
CONNECT, ANSWER = 5.0, 15.0
"""Seconds to reach the API server, and for its next bytes."""
WATCH = 240
"""Seconds after which the server ends a watch by itself; the next one goes on where it ended."""
BACKOFF = (0.2, 10.0)
"""Seconds before a request is tried again: first and longest, doubled each time, half of it at random."""
LOOK = 0.05
"""Seconds between two looks at what the watching thread has found."""


@dataclass(frozen=True)
class Pod:
    """What matters of a pod."""

    name: str
    owner: str
    phase: str
    address: str
    ending: bool
    reason: str
    """Why it does not run yet, in Kubernetes' own words."""

    @property
    def runs(self) -> bool:
        return self.phase == "Running" and bool(self.address) and not self.ending


def pod(document: Mapping[str, Any]) -> Pod:
    """Reads a v1 Pod."""
    metadata, status = document["metadata"], document.get("status", {})
    labels = metadata.get("labels") or {}
    owners = [owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    reasons = [
        f"{condition.get('reason', '')}: {condition.get('message', '')}"
        for condition in status.get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    waiting = [
        f"{state.get('reason', '')}: {state['message']}" if state.get("message") else str(state.get("reason", ""))
        for container in status.get("containerStatuses") or ()
        if (state := (container.get("state") or {}).get("waiting"))
    ]
    return Pod(
        name=metadata["name"],
        owner=owners[0] if owners else labels.get("controller-uid", ""),
        phase=status.get("phase", "Pending"),
        address=status.get("podIP") or "",
        ending=bool(metadata.get("deletionTimestamp")),
        reason=(reasons or waiting or [""])[0],
    )


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """By address, as numbers: 10.0.0.9 comes before 10.0.0.10. IPv4 before IPv6."""

    def number(found: Pod) -> tuple[int, int]:
        address = ipaddress.ip_address(found.address)
        return address.version, int(address)

    return sorted(pods, key=number)


def own_run(pods: Mapping[str, Pod], node: NodeEnvironment) -> list[Pod] | None:
    """The pods of this pod's own run: an earlier Job of the same name may still have some. None: this pod is not among them."""
    me = pods.get(node.pod_name) or next((p for p in pods.values() if p.address == node.pod_ip and p.runs), None)
    if me is None:
        return None
    return [p for p in pods.values() if p.owner == me.owner]


class PodList(Discovery):
    """Discovery by the API server. A thread watches while this pod waits for others, and rests while it trains."""

    def __init__(self, node: NodeEnvironment, say: Callable[[str], None]) -> None:
        super().__init__(node)
        self._say = say
        self._watching = _Watching(node, say)
        self._order: list[Pod] = []

    async def identify(self) -> NodeEnvironment:
        """Waits until exactly N pods of this run are running. Raises `Failure` that names the missing ones at the deadline."""
        self._watching.resume()
        node = self._node
        began = reminded = time.monotonic()
        while True:
            found = self._present()
            if found is not None:
                break
            now = time.monotonic()
            if now - began > node.peer_deadline:
                raise Failure(
                    ExitCode.PEERS_MISSING,
                    f"{self._missing()} after {now - began:.0f} s ({Variable.PEER_DEADLINE} is {node.peer_deadline:g})",
                )
            if now - reminded > REMIND:
                reminded = now
                self._say(f"{self._missing()} after {now - began:.0f} s")
            await asyncio.sleep(LOOK)
        self._order = found
        index = next(i for i, p in enumerate(found) if p.name == node.pod_name or p.address == node.pod_ip)
        return replace(node, index=index, run_id=node.run_id or found[index].owner)

    @property
    def run_id(self) -> str:
        return self._node.run_id or next((p.owner for p in own_run(self._watching.found(), self._node) or ()), "")

    async def coordinator(self) -> str:
        return self._order[0].address

    def name_of(self, trainer_id: int) -> str:
        return self._order[trainer_id].name if trainer_id < len(self._order) else f"trainer {trainer_id}"

    @property
    def view(self) -> str:
        return hashlib.sha256("\n".join(f"{p.name} {p.address}" for p in self._order).encode()).hexdigest()[:16]

    def moved(self) -> bool:
        """Whether exactly N pods run that are others than those of the last `identify`."""
        self._watching.resume()
        present = self._present()
        return present is not None and present != self._order

    def rest(self) -> None:
        """No requests until the next question: training has begun."""
        self._watching.rest()

    def _present(self) -> list[Pod] | None:
        pods = self._watching.found()
        run = own_run(pods, self._node)
        if run is None:
            return None
        running = [p for p in run if p.runs]
        return in_order(running) if len(running) == self._node.trainers else None

    def _missing(self) -> str:
        """Who is there and who is not, as one half sentence."""
        node = self._node
        if self._watching.problem:
            return f"the API server gives no list of pods: {self._watching.problem}"
        pods = self._watching.found()
        run = own_run(pods, node)
        selector = f"job-name={node.job_object} in namespace {node.namespace}"
        if run is None:
            return f"this pod ({node.pod_name}) is not among the {len(pods)} pods of {selector}; is that the Job's name?"
        running = [p for p in run if p.runs]
        waiting = [p for p in run if not p.runs and not p.ending and p.phase == "Pending"]
        text = f"{len(running)} of {node.trainers} pods of {selector} run"
        if running and len(running) != node.trainers:
            text += ": " + ", ".join(p.name for p in in_order(running)[:20])
        if waiting:
            text += "; waiting: " + ", ".join(f"{p.name} ({p.reason or p.phase})" for p in waiting[:5])
        return text


class _Watching:
    """The thread that keeps what is known of the pods up to date."""

    def __init__(self, node: NodeEnvironment, say: Callable[[str], None]) -> None:
        self._node = node
        self._say = say
        self._pods: dict[str, Pod] = {}
        self._listed = False
        self._failure: Failure | None = None
        self.problem = ""
        """Why nothing is known at the moment; empty while all is well."""
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._account = contract.path(ACCOUNT, node.environ)
        self._server = _server(node, self._account)
        threading.Thread(target=self._work, name="pod-list", daemon=True).start()

    def resume(self) -> None:
        self._wanted.set()

    def rest(self) -> None:
        self._wanted.clear()

    def found(self) -> Mapping[str, Pod]:
        """What is known; empty until the first list has come. Raises the `Failure` that no retry can help."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return dict(self._pods)

    def _work(self) -> None:
        pause, longest = BACKOFF
        version = ""
        while True:
            self._wanted.wait()
            wait = 0.0
            try:
                version = version or self._list()
                began = time.monotonic()
                for latest in self._follow(version):
                    version, pause = latest, BACKOFF[0]
                self.problem = ""
                if time.monotonic() - began > 1.0:
                    continue
                # Ended before it began: a server that is going down does so again and again.
            except Exception as error:  # This thread must outlive whatever the client and the network come up with.
                refused = error if isinstance(error, _Refused) else None
                if refused.status == 410 if refused else not isinstance(error, urllib3.exceptions.HTTPError | OSError):
                    version = ""  # What we knew is too old to go on from, or not what it seemed.
                self._failure = _hopeless(self._node, refused) if refused else None
                if self._failure is not None:
                    return
                self.problem, wait = _problem(error), refused.wait if refused else 0.0
            if not self._wanted.is_set():
                version = ""  # We cut the watch ourselves.
                continue
            if self.problem:
                self._say(f"the API server: {self.problem}; trying again")
            time.sleep(max(wait, pause * (0.5 + random.random() / 2)))
            pause = min(2 * pause, longest)

    def _list(self) -> str:
        """All pods now; returns the version to watch from."""
        # From the server's own cache: thousands of pods may ask at once.
        with self._ask(ANSWER, resourceVersion="0") as answer:
            document = json.loads(answer.read())
        with self._lock:
            self._pods = {p.name: p for p in map(pod, document["items"])}
        self.problem = ""
        version: str = document["metadata"]["resourceVersion"]
        return version

    def _follow(self, version: str) -> Iterator[str]:
        """Takes in changes until the server ends the watch, or nobody wants to know any more; yields each new version."""
        more = {"watch": "true", "timeoutSeconds": str(WATCH), "allowWatchBookmarks": "true"}
        with self._ask(WATCH + ANSWER, resourceVersion=version, **more) as answer:
            for event in map(json.loads, answer):
                kind, document = event["type"], event["object"]
                if kind == "ERROR":
                    raise _Refused(document["code"], document.get("reason", ""))
                if kind != "BOOKMARK":
                    with self._lock:
                        if kind == "DELETED":
                            self._pods.pop(document["metadata"]["name"], None)
                        else:
                            self._pods[document["metadata"]["name"]] = pod(document)
                yield str(document["metadata"]["resourceVersion"])
                if not self._wanted.is_set():
                    return

    def _ask(self, silence: float, **more: str) -> urllib3.BaseHTTPResponse:
        """About the Job's pods. Raises `_Refused`, or what urllib3 raises."""
        # Read anew for each request, because the kubelet renews it.
        token = (self._account / "token").read_text().strip()
        answer = self._server.request(
            "GET",
            f"/api/v1/namespaces/{self._node.namespace}/pods",
            fields={"labelSelector": f"job-name={self._node.job_object}", **more},
            headers={"Authorization": f"Bearer {token}"},
            timeout=urllib3.Timeout(connect=CONNECT, read=silence),
            preload_content=False,
            # Every retry is ours: urllib3's own would hide what went wrong, and know no deadline.
            retries=False,
        )
        if answer.status != 200:
            answer.close()
            wait = answer.headers.get("Retry-After", "")
            raise _Refused(answer.status, answer.reason or "", min(60.0, float(wait)) if wait.isdecimal() else 0.0)
        return answer


class _Refused(Exception):
    """An answer that is no list; `wait` is the seconds that the server asks for."""

    def __init__(self, status: int, reason: str, wait: float = 0.0) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.wait = wait


def _server(node: NodeEnvironment, account: Path) -> urllib3.HTTPSConnectionPool:
    """The API server, as a pod's service account knows it."""
    authority = account / "ca.crt"
    if not node.api_host or not (account / "token").is_file() or not authority.is_file():
        raise SettingError(
            f"{Variable.DISCOVERY} is pod-list, and this pod has no service account token ({account}/token): "
            "set automountServiceAccountToken: true and a service account that may list pods, or use index"
        )
    return urllib3.HTTPSConnectionPool(node.api_host, node.api_port, cert_reqs="CERT_REQUIRED", ca_certs=str(authority))


def _hopeless(node: NodeEnvironment, error: _Refused) -> Failure | None:
    """The end of this pod, for what no retry can change."""
    if error.status == 401:
        return Failure(
            ExitCode.NOT_PERMITTED,
            "the API server does not accept this pod's token (401 Unauthorized): is it expired, or of another cluster?",
        )
    if error.status == 403:
        return Failure(
            ExitCode.NOT_PERMITTED,
            f"this pod's service account may not list pods in namespace {node.namespace} (403 Forbidden): it needs a RoleBinding "
            f'there to a Role with apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "watch"]; '
            f"or use {Variable.DISCOVERY}=index, which asks for nothing",
        )
    if not 400 <= error.status < 500 or error.status in (408, 409, 410, 429):
        return None
    return Failure(ExitCode.BAD_SETTING, f"the API server does not understand the question: {error}")


def _problem(error: Exception) -> str:
    """What kept the server from answering; empty when it only wants to be asked anew."""
    text = str(error)
    if isinstance(error, _Refused):
        return "" if error.status == 410 else text
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not signed by the mounted CA"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "it does not answer in time"
    if isinstance(error, urllib3.exceptions.NewConnectionError | ConnectionError):
        return "it cannot be reached"
    if isinstance(error, urllib3.exceptions.ProtocolError) or "EOF" in text:
        return "it cut the connection"
    return " ".join(text.split()) or type(error).__name__
