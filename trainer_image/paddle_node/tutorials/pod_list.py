"""Finds this pod's id by asking the API server: the tutorials' way, for a Job without indexes.

Each pod makes one list and one watch request, never polls, and needs exactly N running pods of its
own run, ordered by address. The Kubernetes client has nothing that two requests need: pods are read
as plain JSON, and each retry has this pod's deadline.
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
from typing import Any

import urllib3

from paddle_node import contract
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import PodEnvironment
from paddle_node.failure import BadSetting, Failure
from paddle_node.rendezvous.discovery import Discovery
from paddle_node.retry import REMIND_INTERVAL

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a service account's token and the cluster's CA."""
CONNECT_TIMEOUT, ANSWER_TIMEOUT = 5.0, 15.0
"""Seconds to reach the API server, and to wait for its next bytes."""
WATCH = 240
"""Seconds after which the server ends a watch on its own; the next watch continues where it
ended.
"""
BACKOFF = (0.2, 10.0)
"""Seconds before a retry of a request: first and longest. The pause doubles each time, and half of
it is random.
"""
LOOK_INTERVAL = 0.05
"""Seconds between checks of what the watching thread has found."""


@dataclass(frozen=True)
class ListedPod:
    """What matters about a pod."""

    name: str
    owner: str
    runs: bool
    address: str

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "ListedPod":
        """Reads a v1 Pod."""
        metadata, status = document["metadata"], document.get("status", {})
        owners = [
            owner["uid"]
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("controller")
        ]
        return cls(
            name=metadata["name"],
            owner=(owners or [(metadata.get("labels") or {}).get("controller-uid", "")])[0],
            runs=status.get("phase") == "Running"
            and bool(status.get("podIP"))
            and not metadata.get("deletionTimestamp"),
            address=status.get("podIP") or "",
        )


def sort_by_address(pods: Iterable[ListedPod]) -> list[ListedPod]:
    """Sorts pods by numeric address: 10.0.0.9 comes before 10.0.0.10, and IPv4 before IPv6."""
    return sorted(
        pods, key=lambda pod: ipaddress.get_mixed_type_key(ipaddress.ip_address(pod.address))
    )


class PodList(Discovery):
    """Discovery by the API server. A thread watches while this pod waits for others, and rests
    while the pod trains.
    """

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        super().__init__(pod)
        self._say = say
        self._order: list[ListedPod] = []
        self._pods: dict[str, ListedPod] = {}
        """All pods of the Job, of any run, by name. The watching thread writes this."""
        self._failure: Failure | None = None
        self._problem = ""
        """Why nothing is known at the moment; empty: all is well."""
        self._wanted = threading.Event()
        self._account = contract.path(ACCOUNT, pod.environ)
        authority = self._account / "ca.crt"
        if not pod.api_host or not (self._account / "token").is_file() or not authority.is_file():
            raise BadSetting(
                f"{Variable.DISCOVERY} is pod-list, and this pod has no service account token "
                f"({self._account}/token): set automountServiceAccountToken: true and a service "
                "account that may list pods, or use index"
            )
        self._server = urllib3.HTTPSConnectionPool(
            pod.api_host, pod.api_port, cert_reqs="CERT_REQUIRED", ca_certs=str(authority)
        )
        threading.Thread(target=self._watch, name="pod-list", daemon=True).start()

    async def identify(self) -> PodEnvironment:
        """Waits until exactly N pods of this run are running. At the deadline, raises a `Failure`
        that says what is missing.
        """
        self._wanted.set()
        environment = self._pod
        began = reminded = time.monotonic()
        while (present := self._list_present()) is None:
            now = time.monotonic()
            if now - began > environment.peer_deadline:
                sentence = (
                    f"{self._missing()} after {now - began:.0f} s ({Variable.PEER_DEADLINE} is "
                    f"{environment.peer_deadline:g})"
                )
                raise Failure(ExitCode.PEERS_MISSING, sentence)
            if now - reminded > REMIND_INTERVAL:
                reminded = now
                self._say(f"{self._missing()} after {now - began:.0f} s")
            await asyncio.sleep(LOOK_INTERVAL)
        self._order = present
        index = next(
            i
            for i, pod in enumerate(present)
            if pod.name == environment.pod_name or pod.address == environment.pod_ip
        )
        return replace(environment, index=index, run_id=environment.run_id or present[index].owner)

    @property
    def run_id(self) -> str:
        return self._pod.run_id or next((pod.owner for pod in self._pods_of_run() or ()), "")

    async def server_address(self) -> str:
        return self._order[0].address

    def name_of(self, trainer_id: int) -> str:
        has_name = trainer_id < len(self._order)
        return self._order[trainer_id].name if has_name else f"trainer {trainer_id}"

    @property
    def membership(self) -> str:
        members = "\n".join(f"{pod.name} {pod.address}" for pod in self._order)
        return hashlib.sha256(members.encode()).hexdigest()[:16]

    def has_moved(self) -> bool:
        """Whether exactly N pods run and they are not those of the last `identify`."""
        self._wanted.set()
        present = self._list_present()
        return present is not None and present != self._order

    def stop_requests(self) -> None:
        """Sends no requests until the next question: training has begun."""
        self._wanted.clear()

    def _pods_of_run(self) -> list[ListedPod] | None:
        """Returns the pods of this pod's run: an earlier Job of the same name may still have some.
        None: this pod is missing.
        """
        if self._failure is not None:
            raise self._failure
        environment, pods = self._pod, dict(self._pods)
        me = pods.get(environment.pod_name) or next(
            (pod for pod in pods.values() if pod.address == environment.pod_ip and pod.runs), None
        )
        return None if me is None else [pod for pod in pods.values() if pod.owner == me.owner]

    def _list_present(self) -> list[ListedPod] | None:
        running = [pod for pod in self._pods_of_run() or () if pod.runs]
        return sort_by_address(running) if len(running) == self._pod.trainers else None

    def _missing(self) -> str:
        """Says as one clause why the run's pods are not complete."""
        environment, run = self._pod, self._pods_of_run()
        if self._problem:
            return f"the API server gives no list of pods: {self._problem}"
        selector = f"job-name={environment.job_object} in namespace {environment.namespace}"
        if run is None:
            return (
                f"this pod ({environment.pod_name}) is not among the {len(self._pods)} pods of "
                f"{selector}; is that the Job's name?"
            )
        running = sort_by_address(pod for pod in run if pod.runs)
        text = f"{len(running)} of {environment.trainers} pods of {selector} run"
        if running and len(running) != environment.trainers:
            text += ": " + ", ".join(pod.name for pod in running[:20])
        return text

    # In the thread.

    def _watch(self) -> None:
        pause, longest = BACKOFF
        version = ""
        while True:
            self._wanted.wait()
            try:
                version = version or self._list()
                began = time.monotonic()
                for version in self._changes(version):  # noqa: B007, B020  The newest one seen.
                    pause = BACKOFF[0]
                self._problem = ""
                if time.monotonic() - began > 1.0:
                    continue
                # The watch ended at once: a server that is shutting down ends one after another
                # like that.
            except _Refusal as refused:
                self._failure = _lasting_failure(self._pod, refused)
                if self._failure is not None:
                    return
                self._problem = str(refused)
                if refused.status == 410:
                    version = self._problem = ""
            # This thread must survive anything that the client and the network raise.
            except Exception as error:
                if not isinstance(error, urllib3.exceptions.HTTPError | OSError):
                    version = ""  # What this thread knew may be wrong.
                self._problem = " ".join(str(error).split()) or type(error).__name__
                if "CERTIFICATE_VERIFY_FAILED" in self._problem:
                    self._problem = "its certificate is not signed by the mounted CA"
            if not self._wanted.is_set():
                version = ""  # This thread cut the watch itself.
                continue
            if self._problem:
                self._say(f"the API server: {self._problem}; trying again")
            time.sleep(pause * (0.5 + random.random() / 2))
            pause = min(2 * pause, longest)

    def _list(self) -> str:
        """Lists all pods. Returns the version to watch from."""
        # Version 0 comes from the server's own cache: thousands of pods may ask at once.
        with self._ask(ANSWER_TIMEOUT, resourceVersion="0") as answer:
            document = json.loads(answer.read())
        self._pods = {pod.name: pod for pod in map(ListedPod.read, document["items"])}
        self._problem = ""
        return str(document["metadata"]["resourceVersion"])

    def _changes(self, version: str) -> Iterator[str]:
        """Takes in changes until the server ends the watch or `stop_requests` does. Yields each
        new version.
        """
        more = {"watch": "true", "timeoutSeconds": str(WATCH), "allowWatchBookmarks": "true"}
        with self._ask(WATCH + ANSWER_TIMEOUT, resourceVersion=version, **more) as answer:
            for event in map(json.loads, answer):
                kind, document = event["type"], event["object"]
                if kind == "ERROR":
                    raise _Refusal(document["code"], document.get("reason", ""))
                if kind == "DELETED":
                    self._pods.pop(document["metadata"]["name"], None)
                elif kind != "BOOKMARK":
                    self._pods[document["metadata"]["name"]] = ListedPod.read(document)
                yield str(document["metadata"]["resourceVersion"])
                if not self._wanted.is_set():
                    return

    def _ask(self, silence: float, **more: str) -> urllib3.BaseHTTPResponse:
        """Requests the Job's pods. Raises `_Refusal`, or what urllib3 raises."""
        # Read the token for each request, because the kubelet renews it.
        token = (self._account / "token").read_text().strip()
        answer = self._server.request(
            "GET",
            f"/api/v1/namespaces/{self._pod.namespace}/pods",
            fields={"labelSelector": f"job-name={self._pod.job_object}", **more},
            headers={"Authorization": f"Bearer {token}"},
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=silence),
            preload_content=False,
            # The watching thread retries: urllib3's own retries would hide what went wrong, and
            # know no deadline.
            retries=False,
        )
        if answer.status != 200:
            answer.close()
            raise _Refusal(answer.status, answer.reason or "")
        return answer


class _Refusal(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status


def _lasting_failure(pod: PodEnvironment, error: _Refusal) -> Failure | None:
    """Returns the failure that ends this pod if no retry can help; None: a retry may."""
    if not 400 <= error.status < 500 or error.status in (408, 409, 410, 429):
        return None
    advice = {
        401: "is this pod's token expired, or of another cluster?",
        403: "this pod's service account needs a RoleBinding there to a Role with apiGroups: "
        '[""], resources: ["pods"], verbs: ["get", "list", "watch"]; or use '
        f"{Variable.DISCOVERY}=index, which asks for nothing",
    }
    code = ExitCode.NOT_PERMITTED if error.status in advice else ExitCode.BAD_SETTING
    why = advice.get(error.status, "it does not understand the question")
    return Failure(
        code, f"the API server lists no pods of namespace {pod.namespace} ({error}): {why}"
    )


def discover(pod: PodEnvironment, say: Callable[[str], None]) -> Discovery:
    """Returns the discovery by pod-list. Raises `BadSetting` without a service account."""
    return PodList(pod, say)
