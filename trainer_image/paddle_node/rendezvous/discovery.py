"""Finds this pod's id and trainer 0 by the Job's completion index and the headless Service's names,
without the API server. Discovery by the API server is in tutorials/pod_list.py.
"""

import importlib
import json
import socket
from collections.abc import Callable
from pathlib import Path

from paddle_node import background
from paddle_node.environment import PodEnvironment


class Discovery:
    """How a pod learns its trainer id, here its completion index, and the address of trainer 0."""

    def __init__(self, pod: PodEnvironment) -> None:
        self._pod = pod

    async def identify(self) -> PodEnvironment:
        """Returns the pod with its trainer id. Raises `Failure` when a deadline passes or a
        permission is missing.
        """
        return self._pod

    @property
    def run_id(self) -> str:
        """The run that this pod belongs to; empty until it is known."""
        return self._pod.run_id

    async def server_address(self) -> str:
        """Returns the current address of trainer 0's pod. Until there is one, raises OSError, whose
        text says what is missing.
        """
        if self._pod.trainer_id == 0:
            return self._pod.pod_ip
        name = self.name_of(0)
        return await background.call(lambda: resolve(name, self._pod.hosts))

    def name_of(self, trainer_id: int) -> str:
        """Returns a peer's name for messages, even if the peer is missing."""
        name = f"{self._pod.job_object}-{trainer_id}"
        return f"{name}.{self._pod.service}" if self._pod.service else name

    @property
    def membership(self) -> str:
        """Equal on all pods that agree on which pod has which rank."""
        return "index"

    def has_moved(self) -> bool:
        """Whether membership changed since the last `identify`, so that ranks must be reassigned;
        an index never changes.
        """
        return False

    def stop_requests(self) -> None:
        """Sends no requests until the next question: this pod waits for no other."""


def find_discovery(name: str, pod: PodEnvironment, say: Callable[[str], None]) -> Discovery:
    """Returns the discovery called `name`. Raises `Failure` if it cannot work."""
    if name == "index":
        return Discovery(pod)
    # TLS and HTTP take time to import: only pod-list pays for it.
    module = importlib.import_module("paddle_node.tutorials.pod_list")
    discovery: Discovery = module.discover(pod, say)
    return discovery


def resolve(name: str, hosts: str = "") -> str:
    """Resolves a host name: by the file `hosts`, read again each time, then by the system's
    resolver. Raises OSError.
    """
    if hosts:
        try:
            addresses_by_name = json.loads(Path(hosts).read_text())
        except (OSError, ValueError):
            # The file changes while pods come and go; the next try reads it again.
            addresses_by_name = {}
        if name in addresses_by_name:
            return str(addresses_by_name[name])
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(f"{name} has no address yet ({error.strerror or error})") from None
    return str(answers[0][4][0])
