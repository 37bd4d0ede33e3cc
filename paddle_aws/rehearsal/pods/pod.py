"""Runs one pod as the kubelet would: its folders, its containers in order, its probes, its end."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from paddle_node import contract

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.addresses import Names
from paddle_aws.rehearsal.pods.container import CallFilter, RunningContainer
from paddle_aws.rehearsal.pods.environment import PodFacts, environment, expand
from paddle_aws.rehearsal.pods.image import Image
from paddle_aws.rehearsal.pods.manifests import Container, Manifests, Mount, PodTemplate

BACK_OFF_SHARE = 0.1
"""Kubernetes waits 10 s, 20 s, ... before a retry; the rehearsal waits a tenth of that, and at most
three seconds.
"""
_FIRST_DELAY, _LONGEST_DELAY = 10.0, 30.0

Identity = Callable[[str, str], Mapping[str, str]]
"""A function of (namespace, service account) that returns the variables for that account's pods, as
EKS Pod Identity does.
"""


def back_off(failures: int) -> float:
    """Seconds before the next try after `failures` failures."""
    return (
        0.0
        if failures < 1
        else min(_FIRST_DELAY * 2.0 ** min(failures - 1, 10), _LONGEST_DELAY) * BACK_OFF_SHARE
    )


class Api(Protocol):
    """An API server that pods with a token may ask (api_server.py)."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that the kubelet sets for it."""

    def lay_account(self, root: Path) -> None:
        """Writes the token and the CA into a pod."""


@dataclass(frozen=True)
class Host:
    """What the pods of one rehearsal share."""

    manifests: Manifests
    image: Image
    image_files: Path
    """The image laid out once; each container gets its own copy."""
    pods: Path
    volume: Path
    logs: Path
    names: Names
    interpreter: Path
    """The first folder on the pods' PATH: `.venv-image/bin`, or the one made for the job's image
    variant.
    """
    identity: Identity
    api: "Api | None" = None
    """The API server that pods with a token may ask."""
    call_filter: "Callable[[Pod], CallFilter] | None" = None
    """Returns the filter for the system calls of a pod's containers."""


@dataclass(frozen=True)
class PodEnd:
    """How a pod ended: each container's last exit code and log."""

    name: str
    codes: Mapping[str, int]
    logs: Mapping[str, Path]
    deadline_exceeded: bool = False

    @property
    def succeeded(self) -> bool:
        return not self.deadline_exceeded and all(code == 0 for code in self.codes.values())

    @property
    def failed_container(self) -> str:
        return next(name for name, code in self.codes.items() if code != 0)


class Pod:
    """A pod: `run()` runs it to its end, `terminate()` deletes it."""

    def __init__(self, host: Host, template: PodTemplate, facts: PodFacts, hostname: str) -> None:
        self.host, self.template, self.facts, self.hostname = host, template, facts, hostname
        self.started: dict[str, RunningContainer] = {}
        self.restarts = 0
        """How often its containers were started again in place."""
        self._terminating = False
        self._folder = host.pods / facts.name
        self._codes: dict[str, int] = {}
        self._ended_by_probe: set[str] = set()

    def log(self, container: str) -> Path:
        return self.host.logs / f"{self.facts.name}.{container}.log"

    async def run(self) -> PodEnd:
        """Runs the pod to its end. Whatever happens, none of its processes is left and its names
        are gone; its logs stay.
        """
        facts = self.facts
        self.host.names.add(
            self.hostname, self.template.subdomain, facts.namespace, facts.labels, facts.address
        )
        containers = asyncio.create_task(self._containers())
        try:
            _, unfinished = await asyncio.wait([containers], timeout=self.template.deadline)
            if unfinished:
                await self.terminate()
            await containers
        finally:
            containers.cancel()
            # Under cancellation too, the process tree is dead before its folder goes.
            await asyncio.gather(
                *(container.kill() for container in self.started.values()), return_exceptions=True
            )
            self.host.names.remove(self.facts.address)
            shutil.rmtree(self._folder, ignore_errors=True)
        return PodEnd(
            self.facts.name,
            dict(self._codes),
            {name: self.log(name) for name in self._codes},
            bool(unfinished),
        )

    async def _containers(self) -> None:
        """Runs the init containers one after the other, then the containers side by side."""
        for container in self.template.init_containers:
            if await self._run_and_restart(container) != 0:
                return
        await asyncio.gather(
            *(self._run_and_restart(container) for container in self.template.containers)
        )

    async def terminate(self) -> None:
        """Ends the pod as a deletion would: SIGTERM, the grace period, SIGKILL. No container
        restarts.
        """
        self._terminating = True
        await asyncio.gather(
            *(container.terminate(self.template.grace) for container in self.started.values())
        )

    async def kill(self) -> None:
        """Ends the pod as the loss of its node would: SIGKILL at once. No container restarts."""
        self._terminating = True
        await asyncio.gather(*(container.kill() for container in self.started.values()))

    async def _run_and_restart(self, container: Container) -> int:
        """Runs a container to its end, and again where its restart rules say so. Returns the last
        exit code.
        """
        failures = 0
        while True:
            code = self._codes[container.name] = await self._run_once(container)
            # No rule restarts a container that the kubelet ended for a probe.
            if (
                self._terminating
                or code not in container.restart_codes
                or container.name in self._ended_by_probe
            ):
                return code
            with self.log(container.name).open("a") as log:
                log.write(f"the container ended with {code}: it is started again in its pod\n")
            await asyncio.sleep(back_off(failures))
            failures += 1
            self.restarts += 1
            if self._terminating:
                return code

    async def _run_once(self, container: Container) -> int:
        root = self._folder / container.name
        if not root.exists():
            self._lay_out(container, root)
        variables = self._environment(container, root)
        folder = _path_inside(root, container.working_dir or self.host.image.working_dir)
        folder.mkdir(parents=True, exist_ok=True)
        argv = self._argv(container, root, variables)
        calls = self.host.call_filter(self) if self.host.call_filter is not None else None
        log = self.log(container.name)
        running = await RunningContainer.start(argv, variables, folder, log, calls)
        self.started[container.name] = running
        if self._terminating:
            # The pod was deleted while this container was still starting.
            await running.terminate(self.template.grace)
        probes = asyncio.create_task(self._probe(container, running, root))
        try:
            return await running.wait()
        finally:
            probes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probes

    def _argv(self, container: Container, root: Path, variables: Mapping[str, str]) -> list[str]:
        if not container.command:
            raise BadInput(
                f"container {container.name} has no command: a rehearsal cannot know what its "
                "image would run"
            )
        words = [_map_word(expand(word, variables), root) for word in container.command]
        return [*words, *(expand(word, variables) for word in container.args)]

    def _environment(self, container: Container, root: Path) -> dict[str, str]:
        host = self.host
        base = {
            **host.image.environment,
            "HOME": str(_path_inside(root, contract.HOME)),
            "HOSTNAME": self.hostname,
            "LANG": "C.UTF-8",
            "TMPDIR": str(root / "tmp"),
            **host.identity(self.facts.namespace, self.facts.service_account),
            **(host.api.environment if host.api is not None and self.template.token else {}),
        }
        variables = environment(container, self.facts, host.manifests.config_maps, base)
        # Not in any manifest: where the container's paths begin, which pod has which address, and
        # how far its ports are from the usual ones.
        variables[contract.Variable.ROOT] = str(root)
        variables[contract.Variable.HOSTS] = str(host.names.file)
        for port, default in (
            (contract.Variable.PORT, contract.FIRST_PORT),
            (contract.Variable.CONTROL_PORT, contract.CONTROL_PORT),
        ):
            variables[port] = str(int(variables.get(port, default)) + self.facts.port_shift)
        # There is no GPU and no EFA adapter here.
        variables |= dict.fromkeys(
            {contract.Variable.GPUS, contract.Variable.EFA} & variables.keys(), "0"
        )
        variables["PATH"] = f"{host.interpreter}:{root}/usr/local/bin:/usr/local/bin:/usr/bin:/bin"
        return variables

    def _lay_out(self, container: Container, root: Path) -> None:
        shutil.copytree(self.host.image_files, root)
        for path in ("tmp", contract.HOME):
            _path_inside(root, path).mkdir(parents=True, exist_ok=True)
        for mount in _sort_outer_first(container):
            source, place = self._mount_source(mount), _path_inside(root, mount.path)
            if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(root)):
                continue  # Within another mount: visible through that one.
            if place.is_dir():
                shutil.rmtree(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
        if self.host.api is not None and self.template.token:
            self.host.api.lay_account(root)

    def _mount_source(self, mount: Mount) -> Path:
        volume = self.template.volumes[mount.volume]
        if volume.claim is not None:
            folder = self.host.volume
        else:
            folder = self._folder / "volumes" / volume.name
            if not folder.exists():
                folder.mkdir(parents=True)
                if volume.config_map is not None:
                    data = self.host.manifests.config_maps.get(volume.config_map, {})
                    for key, text in data.items():
                        (folder / key).write_text(text)
        if mount.sub_path:
            folder = _path_inside(folder, mount.sub_path)
            if not folder.exists():
                if volume.claim is not None and not self.host.manifests.claims.get(volume.claim):
                    raise BadInput(
                        f"pod {self.facts.name}: {mount.sub_path} is not on the volume: the "
                        "kubelet would make it as root, and user 1000 could not write there; an "
                        "init container has to make it before"
                    )
                folder.mkdir(parents=True)
        return folder

    async def _probe(self, container: Container, running: RunningContainer, root: Path) -> None:
        """Terminates the container when a probe gives up; the restart policy decides what
        follows.
        """
        for kind, probe in (("startup", container.startup), ("liveness", container.liveness)):
            if probe is None:
                continue
            command = [_map_word(expand(word, running.environment), root) for word in probe.command]
            log = self.host.logs / f"{self.facts.name}.{container.name}.probes.log"
            failures = 0
            while True:
                if await running.run_beside(command, probe.timeout, log) == 0:
                    failures = 0
                    if kind == "startup":
                        break
                else:
                    failures += 1
                    if failures >= probe.failures:
                        with running.log.open("a") as log_file:
                            log_file.write(
                                f"{kind} probe failed {failures} times: the container is ended\n"
                            )
                        self._ended_by_probe.add(container.name)
                        await running.terminate(self.template.grace)
                        return
                await asyncio.sleep(probe.period)


def _path_inside(root: Path, container_path: str) -> Path:
    """A container's path below `root`. Raises BadInput for a path with `..`, which could lead out
    of it.
    """
    parts = PurePosixPath("/", container_path).parts[1:]
    if ".." in parts:
        raise BadInput(f"{container_path}: a path with .. is refused")
    return root.joinpath(*parts)


def _map_word(word: str, root: Path) -> str:
    """A command's word as it runs here: the image's own file if the word names one, else the word
    itself (/bin/sh).
    """
    if (
        word.startswith("/")
        and ".." not in PurePosixPath(word).parts
        and (inside := _path_inside(root, word)).exists()
    ):
        return str(inside)
    return word


def _sort_outer_first(container: Container) -> list[Mount]:
    return sorted(container.mounts, key=lambda mount: len(PurePosixPath(mount.path).parts))
