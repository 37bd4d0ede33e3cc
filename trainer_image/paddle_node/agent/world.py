"""Whether the processes that a command starts form the one world of the job.

A launcher inside a script sets the world size of each rank that it starts. If the launcher ignores
the job's environment, it forms a separate world in each pod, and each pod would train alone. The
environments of this pod's processes, and their connections, show it.
"""

import contextlib
import ipaddress
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from paddle_node import command_line
from paddle_node.agent.process_table import Entry, read_list
from paddle_node.environment import PodEnvironment
from paddle_node.runtimes import Process

RANKS = ("RANK", "PADDLE_TRAINER_ID")
"""Variables in which they give it its rank."""
SIZES = ("WORLD_SIZE", "PADDLE_TRAINERS_NUM")
"""Variables in which torchrun, Paddle's launcher and those like them give a rank its world's
size.
"""
WORKED_ALONE = (
    "none of its processes was ever connected to another pod, so it worked alone (apart: true says "
    "that this is meant)"
)
_LONGEST = 120
"""Characters of a process's command line in a sentence."""
_ESTABLISHED, _LISTENING = "01", "0A"


def describe(pod: PodEnvironment, size: int, who: str) -> str:
    """Says that `who` gives another size than that of the job's world."""
    pods, processes = pod.trainers, pod.command.processes
    sentence = (
        f"{who}, and the job's world is {pods * processes}: {pods} pods with "
        f"{processes} process{'es' if processes > 1 else ''} each"
    )
    if size > pods and size % pods == 0:
        return f"{sentence}; set processes: {size // pods}"
    return (
        f"{sentence}. Each pod would train alone: name the launcher in `command` itself, or let it "
        "take NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT of the environment; what is no "
        f"part of the training starts by `env -u {' -u '.join(SIZES)}`"
    )


def find_other(
    pod: PodEnvironment, processes: Collection[Process], entries: Iterable[Entry]
) -> str | None:
    """Returns what is wrong if a process was started with the size of another world, or one
    launcher has started more ranks than the pod has.
    """
    sizes = {str(process.world) for process in processes}
    sizes |= {process.environ.get(name, "") for process in processes for name in SIZES}
    siblings: dict[tuple[int, str], set[str]] = {}
    for pid, parent, *_ in entries:
        line = " ".join(words := read_list(pid, "cmdline"))[:_LONGEST]
        who = f"process {pid} of the command ({line})"
        if flag := _rendezvous_flag(words, pod.trainers):
            return describe(pod, 0, f"{who} has {flag}")
        for text in read_list(pid, "environ"):
            name, _, value = text.partition("=")
            if name in SIZES and value.isdecimal() and value not in sizes:
                return describe(pod, int(value), f"{who} has {text}")
            if name in RANKS and value.isdecimal():
                ranks = siblings.setdefault((parent, name), set())
                ranks.add(value)
                if len(ranks) > pod.command.processes:
                    beside = f"{who} has {text}, beside {name}={min(ranks - {value})}"
                    return describe(pod, 0, beside)
    return None


def _rendezvous_flag(words: list[str], pods: int) -> str:
    """Returns the flag with which torchrun would look for its peers only in this pod, forever or
    for ten minutes. Empty if the words have none.
    """
    try:
        line = command_line.read(words)
    except ValueError:
        return ""
    if line.launcher is not command_line.TORCH:
        return ""
    if "standalone" in line.flags:
        return "--standalone"
    if line.flags.get("nnodes") in ("1", "1:1"):
        return "--nnodes 1"
    return command_line.contradiction(line.flags, pods) or ""


def describe_alone(pod: PodEnvironment, lines: Iterable[str]) -> str:
    """Says that this pod trains, and has never been connected to another. `lines` are the command
    lines of its Pythons.
    """
    launcher = command_line.name_local_launcher([" ".join(pod.command.words), *lines])
    return (
        f"trainer {pod.trainer_id} trains, and none of its processes has ever been connected to "
        f"another pod: each of the {pod.trainers} pods would train alone. "
        f"{command_line.describe_local(launcher)}; apart: true is for pods that work apart on "
        "purpose"
    )


class Sockets(NamedTuple):
    """Which processes have a TCP connection within the job, which have one to another pod, and
    which listen.
    """

    connected: set[int]
    met: set[int]
    listening: set[int]


def find_sockets(pids: Collection[int], addresses: Collection[str], own: str) -> Sockets:
    """Returns what the sockets of processes show. A socket that several share is that of the first:
    parents come first in `pids`. `addresses`: those of the job's pods, `own`: that of this one.
    """
    here = set(_forms(own))
    peers = {form for address in addresses for form in _forms(address)}
    # In a rehearsal a peer that connects has no address of its own.
    inside = here if ipaddress.ip_address(own).is_loopback else set()
    sockets: dict[str, set[str]] = {}
    for table in ("tcp", "tcp6") if pids else ():  # Each takes the kernel milliseconds.
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                words = line.split()
                local, remote = (word.partition(":")[0] for word in words[1:3])
                name = f"socket:[{words[9]}]"
                if words[3] == _LISTENING:
                    sockets[name] = {"listening"}
                elif words[3] == _ESTABLISHED and (remote in peers or local in inside):
                    sockets[name] = {"connected", *(["met"] if remote in peers - here else [])}
    found = Sockets(set(), set(), set())
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    name = os.readlink(entry.path)  # noqa: PTH115 (there may be thousands)
                    for kind in sockets.pop(name, ()):
                        getattr(found, kind).add(pid)
    return found


def is_inside(local: str, remote: str, addresses: Collection[str], own: str) -> tuple[bool, bool]:
    """Returns whether a connection is one within the job, and whether it leads to another pod than
    that with the address `own`.
    """
    remote = remote.removeprefix("::ffff:")
    # In a rehearsal a peer that connects has no address of its own.
    inside = remote in addresses or (local == own and ipaddress.ip_address(own).is_loopback)
    return inside, remote in addresses and remote != own


def _forms(address: str) -> list[str]:
    """Returns an address as the kernel's tables have it: words of 32 bits, last byte first."""
    packed = ipaddress.ip_address(address).packed
    words = [packed[i : i + 4][::-1].hex().upper() for i in range(0, len(packed), 4)]
    plain = "".join(words)
    return [plain] if len(words) > 1 else [plain, f"{'0' * 16}FFFF0000{plain}"]
