"""Carries out a run's schedule of faults: each comes at its event, while the program waits."""

import asyncio
import ctypes
import errno
import os
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from paddle_aws.rehearsal.pods.container import RunningContainer
from paddle_aws.rehearsal.pods.pod import Pod
from paddle_aws.storm import processes
from paddle_aws.storm.calls import Call, CallReply
from paddle_aws.storm.faults import COUNTED, FREEZES, SERVERS, VOLUME, Fault
from paddle_aws.storm.program_files import ProgramFiles, create_file
from paddle_aws.storm.ranks import Rank, Ranks
from paddle_aws.storm.recorder import Recorder
from paddle_aws.storm.trace import InflictedFault

PATIENCE = 10.0
"""Seconds within which the target of a fault has to be there."""
_SLOW = 2.0
"""Seconds that an operation on a slow volume takes."""
_PIDFD_GETFD = 438
"""pidfd_getfd(2) on x86-64; since Linux 5.6."""
_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER of socket(7)."""
Homes = Mapping[int, tuple[Pod, RunningContainer]]
"""Each container and its pod, by the container's first process. Not by the pod's index: a pod of a
Job without indexes learns its rank from its peers.
"""


@dataclass
class _VolumeFault:
    """A fault of the volume that lasts."""

    fault: Fault
    left: int
    """Operations that it still meets."""
    attempt: int | None = None
    """The attempt that it has met; None: none yet."""


@dataclass(frozen=True)
class _Target:
    """The process that a fault meets, and where it runs."""

    rank: Rank
    pod: Pod
    container: RunningContainer

    def kill(self, pids: Sequence[int]) -> None:
        processes.signal_processes(pids, self.container.init, signal.SIGKILL)


class Inflictor:
    """Inflicts the faults of one run, in their order."""

    def __init__(
        self,
        faults: Sequence[Fault],
        ranks: Ranks,
        recorder: Recorder,
        files: ProgramFiles,
        homes: Homes,
    ) -> None:
        self._armed, self._ranks, self._recorder = list(faults), ranks, recorder
        self._files, self._homes = files, homes
        self._inflicting = False
        self._disturbed = 0
        """The attempt of the last fault."""
        self._volume_faults: dict[int, _VolumeFault] = {}
        """By rank."""
        self._refusals: dict[Fault, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take_due(self, event: str, number: int = 0) -> Fault | None:
        """Returns the next fault if this is its event, and then arms the following one."""
        if self._inflicting or not self._armed:
            return None
        fault = self._armed[0]
        if fault.event == "load" and event in COUNTED and self._ranks.attempt > self._disturbed:
            # The attempt after the last fault began from the beginning.
            self._recorder.trace.inflicted.append(InflictedFault(self._armed.pop(0), None))
            return self.take_due(event, number)
        if fault.event != event or number < fault.number:
            return None
        self._inflicting = True
        return self._armed.pop(0)

    async def inflict(self, fault: Fault, call: Call | None) -> CallReply:
        """Does what the fault says, and those of the same event on other ranks with it, while the
        call at whose event they come waits.
        """
        faults = [fault]
        while (
            self._armed
            and (self._armed[0].event, self._armed[0].number) == (fault.event, fault.number)
            and self._armed[0].rank not in {earlier.rank for earlier in faults}
        ):
            faults.append(self._armed.pop(0))
        for simultaneous in faults:
            await self._inflict_alone(simultaneous)
        self._inflicting = False
        if call is not None and call.does not in ("print", "exit"):
            rank = self._ranks.find(call.process)
            path = None if call.does == "sync" else call.path
            if rank is not None and (refused := await self.answer_of_volume(call, rank, path)):
                return refused
        return CallReply()

    async def _inflict_alone(self, fault: Fault) -> None:
        seconds = self._recorder.now
        self._recorder.say(f"fault: {fault}")
        attempt = self._disturbed = self._ranks.attempt
        try:
            effect = await self._do(fault)
        except OSError as error:
            effect = f"not possible: {error.strerror}"
        self._recorder.say(f"{fault}: {effect}")
        self._recorder.trace.inflicted.append(InflictedFault(fault, seconds, effect, attempt))

    async def _do(self, fault: Fault) -> str:
        """Returns what it did, in words."""
        if fault.kind in VOLUME:
            self._volume_faults[fault.rank] = _VolumeFault(fault, VOLUME[fault.kind])
            self._refusals[fault] = 0
            return "met 0 operations"
        target = await self._find_target(fault)
        if target is None:
            return "no effect: the rank was not there"
        match fault.kind:
            case "damage-checkpoint":
                return self._damage_checkpoint(target)
            case "cut" | "half-open":
                return _cut_connections(target, half_open=fault.kind == "half-open")
            case "kill-agent":
                target.kill(processes.children(target.container.init))
            case "kill-pod":
                self.keep(target.pod.kill())
            case "spot-notice":
                self.keep(target.pod.terminate())
            case "kill-rank" | "kill-server":
                target.kill([target.rank.pid])
            case _:
                self._freeze(fault, target)
        return f"process {target.rank.pid}"

    async def _find_target(self, fault: Fault) -> _Target | None:
        deadline, trains = time.monotonic() + PATIENCE, fault.kind not in SERVERS
        while (
            rank := self._ranks.find_newest(fault.rank, trains)
        ) is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        if rank is None:
            return None
        inits = (above for above in processes.ancestors(rank.pid) if above in self._homes)
        init = next(inits, None)
        return None if init is None else _Target(rank, *self._homes[init])

    def _damage_checkpoint(self, target: _Target) -> str:
        if what := self._files.damage():
            target.kill([target.rank.pid])
        return what or "no effect: there is no older checkpoint beside the newest"

    def _freeze(self, fault: Fault, target: _Target) -> None:
        pod = fault.kind == "freeze-pod"
        top = processes.children(target.container.init)[0] if pod else target.rank.pid
        pids = [top, *processes.descendants(top)]
        self.keep(_stop_for(pids, target.container.init, FREEZES[fault.kind]))

    async def answer_of_volume(self, call: Call, rank: Rank, path: Path | None) -> CallReply | None:
        """Returns the answer to a call on the volume during a fault of the volume; None: there is
        no such fault, or it does not concern this call.
        """
        lasting = self._volume_faults.get(rank.rank)
        if lasting is None or not rank.trains or call.does in ("print", "exit"):
            return None
        if lasting.attempt is not None and rank.attempt > lasting.attempt:
            del self._volume_faults[rank.rank]  # It ends with the attempt that met it.
            return None
        if (answer := _refuse(lasting.fault.kind, call, path)) is None:
            return None
        lasting.attempt = lasting.attempt or rank.attempt
        self._refusals[lasting.fault] += 1
        name = "a sync" if path is None else self._files.below(path)
        self._recorder.say(f"{lasting.fault}: rank {rank.rank} meets it at {name}")
        lasting.left -= 1
        if not lasting.left:
            del self._volume_faults[rank.rank]
        if lasting.fault.kind == "volume-slow":
            await asyncio.sleep(_SLOW)
        return answer

    def keep(self, work: Awaitable[object]) -> None:
        """Lets something happen beside the run, until its end."""

        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def finish(self) -> None:
        """Ends what lasts, and completes what the trace says of the faults."""
        for task in self._tasks:
            task.cancel()
        inflicted = self._recorder.trace.inflicted
        inflicted += [InflictedFault(fault, None) for fault in self._armed]
        for place, one in enumerate(inflicted):
            if (met := self._refusals.get(one.fault)) is not None:
                inflicted[place] = replace(one, effect=f"met {met} operations")


def _refuse(kind: str, call: Call, path: Path | None) -> CallReply | None:
    """Returns how a volume with this fault answers a call; None: as ever."""
    if kind == "volume-full":
        if not call.writes or path is None:
            return None
        create_file(path, call.flags)
        return CallReply(file=os.open("/dev/full", os.O_RDWR))
    if kind == "volume-failing":
        return CallReply(errno.EIO)
    if kind == "volume-read-only":
        return CallReply(errno.EROFS) if call.writes or call.does not in ("open", "sync") else None
    return CallReply()


async def _stop_for(pids: Sequence[int], init: int, seconds: float) -> None:
    with ExitStack() as stack:
        for process in processes.signal_processes(pids, init, signal.SIGSTOP, stack):
            stack.callback(processes.send_signal, process, signal.SIGCONT)
        await asyncio.sleep(seconds)


def _cut_connections(target: _Target, *, half_open: bool) -> str:
    """Ends the connections of the target to other addresses than its own; `half_open`: they stay,
    but nothing that the peers send arrives any more, and nothing is acknowledged to them.
    """
    pid = target.rank.pid
    with ExitStack() as stack:
        ours = processes.signal_processes([pid], target.container.init, signal.SIGCONT, stack)
        count = sum(
            _cut(process, number, half_open)
            for process in ours
            for number in processes.sockets(pid)
        )
    return f"{count} connections" if count else "no effect: the rank has no connection"


def _cut(process: int, number: int, half_open: bool) -> bool:
    """Cuts one connection without privileges, through a copy of its socket."""
    libc = ctypes.CDLL(None, use_errno=True)
    copy = libc.syscall(_PIDFD_GETFD, process, number, 0)
    if copy < 0:
        return False
    with socket.socket(fileno=copy) as connection, suppress(OSError):
        if connection.family != socket.AF_INET or connection.type != socket.SOCK_STREAM:
            return False
        if connection.getpeername()[0] == connection.getsockname()[0]:
            return False
        if half_open:
            # One instruction: return 0, which drops every segment that arrives.
            drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)
            program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop))
            connection.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        else:
            connection.shutdown(socket.SHUT_RDWR)
        return True
    return False
