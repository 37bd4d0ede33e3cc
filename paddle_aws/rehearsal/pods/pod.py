"""Runs one pod as the kubelet would: its containers in order, their environments, its end."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddle_node import contract
from paddle_node.contract import RESTART_IN_PLACE, ExitCode

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.addresses import Names
from paddle_aws.rehearsal.pods.container import CallFilter, RunningContainer
from paddle_aws.rehearsal.pods.environment import PodFacts, environment, expand
from paddle_aws.rehearsal.pods.folders import PodFolders, map_word, path_inside
from paddle_aws.rehearsal.pods.image import Image
from paddle_aws.rehearsal.pods.limits import Machine, find_full_volume, hold_limits, probe_machine
from paddle_aws.rehearsal.pods.manifests import Container, Manifests, PodTemplate, Probe

BACK_OFF_SHARE = 0.1
"""Kubernetes waits 10 s, 20 s, ... before a retry; the rehearsal waits a tenth of that, and at most
three seconds.
"""
_DISK_INTERVAL = 5.0
"""Seconds between two looks at how full a pod's volumes are. The kubelet takes ten."""
_FIRST_DELAY, _LONGEST_DELAY = 10.0, 30.0

Identity = Callable[[str, str], Mapping[str, str]]
"""A function of (namespace, service account) that returns the variables for that account's pods, as
EKS Pod Identity does.
"""


def back_off(failures: int) -> float:
    """Seconds before the next try after `failures` failures."""
    if failures < 1:
        return 0.0
    return min(_FIRST_DELAY * 2.0 ** min(failures - 1, 10), _LONGEST_DELAY) * BACK_OFF_SHARE


@dataclass(frozen=True)
class Host:
    """Everything that the pods of one rehearsal share."""

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
    api_variables: Mapping[str, str] = field(default_factory=dict)
    """How pods with a token find the API server, if there is one (api_server.py)."""
    api_files: Mapping[Path, str] = field(default_factory=dict)
    """What such pods show it, by the places below their roots."""
    machine: Machine = field(default_factory=probe_machine)
    """What of the pods' limits this machine holds."""
    call_filter: "Callable[[Pod], CallFilter] | None" = None
    """Returns the filter for the system calls of a pod's containers."""


OF_OTHERS = (ExitCode.ATTEMPTS_EXHAUSTED, ExitCode.TERMINATED, *RESTART_IN_PLACE)
"""Codes of pods that end because another one's program failed, or because they are told to."""


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

    @property
    def is_own(self) -> bool:
        """Whether its own program failed: other pods end with it, or are told to."""
        return not self.succeeded and self.codes[self.failed_container] not in OF_OTHERS


class Pod:
    """A pod: `run()` runs it to its end, `terminate()` deletes it."""

    def __init__(self, host: Host, template: PodTemplate, facts: PodFacts, hostname: str) -> None:
        self.host, self.template, self.facts, self.hostname = host, template, facts, hostname
        self.started: dict[str, RunningContainer] = {}
        self.restarts = 0
        """How often its containers were started again in place."""
        self._terminating = False
        self._folders = PodFolders(
            host.pods / facts.name, template, host.manifests, host.image_files, host.volume
        )
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
        disk = asyncio.create_task(self._evict_if_full())
        try:
            _, unfinished = await asyncio.wait([containers], timeout=self.template.deadline)
            if unfinished:
                await self.terminate()
            await containers
        finally:
            disk.cancel()
            containers.cancel()
            # Even after a cancellation, the process tree is dead before its folder is removed.
            await asyncio.gather(
                *(container.kill() for container in self.started.values()), return_exceptions=True
            )
            self.host.names.remove(self.facts.address)
            self._folders.remove()
        logs = {name: self.log(name) for name in self._codes}
        return PodEnd(self.facts.name, dict(self._codes), logs, bool(unfinished))

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

    async def _evict_if_full(self) -> None:
        """Ends the pod as the kubelet does when one of its volumes exceeds its limit."""
        while True:
            await asyncio.sleep(_DISK_INTERVAL)
            volumes = self._folders.volumes
            if full := await asyncio.to_thread(find_full_volume, self.template, volumes):
                for name in self.started:
                    with self.log(name).open("a") as log:
                        log.write(f"the pod is evicted: {full} Raise resources.scratch\n")
                await self.kill()
                return

    async def _run_and_restart(self, container: Container) -> int:
        """Runs a container, and again where its rules say so. Returns the last exit code."""
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
        root = self._folders.container_root(container.name)
        if not root.exists():
            self._folders.lay_out(container)
            for place, text in (self.host.api_files if self.template.token else {}).items():
                (root / place).parent.mkdir(parents=True, exist_ok=True)
                (root / place).write_text(text)
        variables = self._environment(container, root)
        folder = path_inside(root, container.working_dir or self.host.image.working_dir)
        folder.mkdir(parents=True, exist_ok=True)
        argv = self._argv(container, root, variables)
        calls = self.host.call_filter(self) if self.host.call_filter is not None else None
        log = self.log(container.name)
        name = f"{self.facts.name}-{container.name}"
        with hold_limits(self.host.machine, self.template, container, name, root) as limits:
            running = await RunningContainer.start(argv, variables, folder, log, calls, limits)
            self.started[container.name] = running
            if self._terminating:
                # The pod was deleted while this container was still starting.
                await running.terminate(self.template.grace)
            probes = asyncio.create_task(self._probe(container, running))
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
        words = [map_word(expand(word, variables), root) for word in container.command]
        return [*words, *(expand(word, variables) for word in container.args)]

    def _environment(self, container: Container, root: Path) -> dict[str, str]:
        host = self.host
        base = {
            **host.image.environment,
            "HOME": str(path_inside(root, contract.HOME)),
            "HOSTNAME": self.hostname,
            **({} if host.machine.namespaces else {"TMPDIR": str(root / "tmp")}),
            **host.identity(self.facts.namespace, self.facts.service_account),
            **(host.api_variables if self.template.token else {}),
        }
        variables = environment(container, self.facts, host.manifests.config_maps, base)
        # These are in no manifest: the folder in which the container's paths begin, the addresses
        # of the pods, and how far the pod's ports are from the usual ones.
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

    async def _probe(self, container: Container, running: RunningContainer) -> None:
        """Runs the startup probe until it succeeds, then the liveness probe. Terminates the
        container when one gives up; the restart policy decides what follows.
        """
        for kind, probe in (("startup", container.startup), ("liveness", container.liveness)):
            if probe is not None and not await self._succeeds(kind, probe, container, running):
                with running.log.open("a") as log:
                    log.write(
                        f"{kind} probe failed {probe.failures} times: the container is ended\n"
                    )
                self._ended_by_probe.add(container.name)
                await running.terminate(self.template.grace)
                return

    async def _succeeds(
        self, kind: str, probe: Probe, container: Container, running: RunningContainer
    ) -> bool:
        """Runs a probe until it gives up or, at startup, succeeds; its output has its own log."""
        root = self._folders.container_root(container.name)
        command = [map_word(expand(word, running.environment), root) for word in probe.command]
        log, failures = self.host.logs / f"{self.facts.name}.{container.name}.probes.log", 0
        while True:
            if await running.run_beside(command, probe.timeout, log) != 0:
                failures += 1
                if failures >= probe.failures:
                    return False
            elif kind == "startup":
                return True
            else:
                failures = 0
            await asyncio.sleep(probe.period)
