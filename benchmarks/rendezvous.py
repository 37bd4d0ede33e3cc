"""How long until N pods know each other, and what it costs: index, pod-list, and the tutorials' polling.

    python benchmarks/rendezvous.py [--pods 3 1000 10000] [--write docs/rendezvous.md]

Everything runs on loopback. `index` is the agents' own rendezvous server with N real TCP connections and N DNS look-ups.
`pod-list` is the pods' own discovery against the tests' small API server; from 100 pods on only a sample of the clients is
real, requests and bytes are scaled from it, and a real server with N clients is slower. `polling` is computed: what a pod of
the tutorials does (list all pods, sleep 20 s unless all run).

Seconds are from the last pod's start until every (sampled) pod knows all peers; with pod-list, those of index come on top.
Last column of `index`: pod 0's peak memory, open files, seconds until all know that 1 % were lost at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests/node"))

from paddle_node import environment, runtimes  # noqa: E402
from paddle_node.background import Tasks  # noqa: E402
from paddle_node.rendezvous import messages  # noqa: E402
from paddle_node.rendezvous.discovery import Discovery  # noqa: E402
from paddle_node.rendezvous.server import Server  # noqa: E402

PORT = 7163
HUB = "127.250.0.1"
SECRET = "s" * 64
HOSTS = random.Random(1).sample(range(65_536), 65_536)
"""A subnet gives its addresses out in no order."""
SAMPLE = 10
POLL = 20.0
"""Seconds that the tutorials' script sleeps between two lists."""
SCALE_UP = 60.0
"""Seconds over which the polling pods are taken to start, evenly: a node group's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[3, 1000, 10_000])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows = []
    for pods in options.pods:
        listed = pod_list(pods)
        rows += [index(pods), listed, polling(pods, listed["bytes_of_a_list"])]
        for row in rows[-3:]:
            print(
                f"{row['pods']:>6} pods  {row['how']:<9} {row['requests']:>10,} API requests {row['bytes'] / 1e6:>12,.2f} MB "
                f"{row['seconds']:>8.3f} s  {row['note']}",
                flush=True,
            )
    if options.write:
        options.write.write_text(page(rows))


def page(rows: list[dict]) -> str:
    """The rows as a page; what they mean is this file's first paragraph."""
    title, _, text = __doc__.partition("\n")
    lines = [
        f"# {title}",
        "",
        "Written by `python benchmarks/rendezvous.py --write docs/rendezvous.md`; load of the machine then: ",
    ]
    lines[-1] += f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores."
    lines += ["", text.strip().partition("\n\n")[2], ""]
    lines += ["| pods | how | API requests | MB | seconds | |", "|---|---|---|---|---|---|"]
    for row in rows:
        megabytes, seconds = f"{row['bytes'] / 1e6:,.2f}", f"{row['seconds']:.2f}"
        lines.append(f"| {row['pods']:,} | {row['how']} | {row['requests']:,} | {megabytes} | {seconds} | {row['note']} |")
    return "\n".join(lines) + "\n"


# Index: the rendezvous server.


def index(pods: int) -> dict:
    allow_files(pods + 300)
    ours, theirs = multiprocessing.Pipe()
    hub = multiprocessing.get_context("spawn").Process(target=serve, args=(pods, theirs), daemon=True)
    hub.start()
    assert ours.recv() == "serving"
    try:
        seconds, end, carried = asyncio.run(members(pods))
        peak = int(Path(f"/proc/{hub.pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1000
        files = sum(1 for _ in Path(f"/proc/{hub.pid}/fd").iterdir())
    finally:
        ours.send("enough")
        hub.join(10)
        if hub.is_alive():
            hub.kill()
    note = f"{peak:,.0f} MB, {files:,} files; {end:.2f} s"
    return {"pods": pods, "how": "index", "requests": 0, "bytes": carried, "seconds": seconds, "note": note}


def serve(pods: int, parent) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as place:
            node = node_of(0, pods, place)
            server = Server(node, Discovery(node), Tasks(), lambda text: None)
            await server.serve(runtimes.by_name(node.runtime), "incarnation", SECRET)
            parent.send("serving")
            while not parent.poll():
                await asyncio.sleep(0.2)
            os._exit(0)

    asyncio.run(run())


class Member(asyncio.Protocol):
    """What an agent says, without what it does."""

    carried = 0
    started = 0
    ended = 0
    members: ClassVar[list[Member]] = []

    def __init__(self, number: int, pods: int) -> None:
        self.number, self.pods = number, pods
        self.rest = b""

    def connection_made(self, transport) -> None:
        self.transport = transport
        host = HOSTS[self.number]
        address = f"10.100.{host >> 8}.{host & 255}"
        name = f"job-{self.number}.job"
        self.hello = messages.Hello(self.number, self.pods, f"{self.number:032x}", "index", name, "", address)

    def say(self, message: messages.Message) -> None:
        line = messages.encode(message)
        if not isinstance(message, messages.Beat):
            Member.carried += len(line)
        self.transport.write(line)

    def prove(self, challenge: messages.Challenge) -> None:
        mac = messages.proof(SECRET, "n", challenge.nonce, messages.encode(self.hello))
        for message in (self.hello, messages.Proof("n", mac), messages.Report(0, True, "", "", False, False, "", False)):
            self.say(message)
        self.members.append(self)

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b'{"kind":"Status"'):
                Member.carried += len(line) + 1
            if line.startswith(b'{"kind":"Challenge"'):
                self.prove(messages.parse(line, messages.Challenge))
            if line.startswith(b'{"kind":"Start"'):
                # Who reads it: every hundredth, because one process plays them all.
                assert self.number % 100 or len(messages.unpack(json.loads(line)["addresses"])) == self.pods
                Member.started += 1
            Member.ended += line.startswith(b'{"kind":"End"')


async def members(pods: int) -> tuple[float, float, int]:
    """Two times in seconds, and all bytes both ways but heartbeats.

    From the last member's start until all have been told to start; from the loss of 1 % at once until all others have been told.
    """
    loop = asyncio.get_running_loop()
    Member.carried, Member.started, Member.ended, Member.members = 0, 0, 0, []

    async def beat() -> None:
        while True:
            await asyncio.sleep(messages.BEAT)
            for member in Member.members:
                member.say(messages.Beat())

    beating = asyncio.create_task(beat())
    for number in range(pods - 1):
        await connect(loop, number, pods)
    await asyncio.sleep(1.5 + pods / 5000)
    began = time.monotonic()
    await connect(loop, pods - 1, pods)
    while Member.started < pods:
        await asyncio.sleep(0.001)
        assert time.monotonic() - began < 120, f"{Member.started} of {pods} were told to start"
    seconds = time.monotonic() - began
    lost = max(1, pods // 100)
    began = time.monotonic()
    for member in Member.members[-lost:]:
        member.transport.abort()
    while Member.ended < pods - lost:
        await asyncio.sleep(0.001)
        assert time.monotonic() - began < 120, f"{Member.ended} of {pods} were told that the attempt ended"
    end = time.monotonic() - began
    beating.cancel()
    return seconds, end, Member.carried


async def connect(loop, number: int, pods: int) -> None:
    # Loopback source addresses of their own: one address has too few ports for ten thousand and their kin.
    await loop.create_connection(
        lambda: Member(number, pods), HUB, PORT, local_addr=(f"127.251.{number // 250}.{number % 250 + 1}", 0)
    )


def node_of(number: int, pods: int, place: str) -> environment.NodeEnvironment:
    return environment.parse(
        {
            "JOB_NAME": "job",
            "JOB_PATH": place,
            "TRAIN_CONFIG_DIR": "program",
            "CONF_PADDLE_GRADIENT_NUM": str(pods),
            "JOB_COMPLETION_INDEX": str(number),
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "job",
            "POD_IP": HUB,
            "PADDLE_NODE_CONTROL_PORT": str(PORT),
        }
    )


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(count, soft), hard), hard))
        if hard < count:
            sys.exit(f"{count} open files are needed for so many pods and {hard} are allowed: fewer --pods, or ulimit -n {count}")


# Pod-list: the pods' own discovery.


def pod_list(pods: int) -> dict:
    from api_server import ApiServer

    sampled = min(pods, max(2, min(SAMPLE, 4000 // pods)))
    api = ApiServer()
    for number in range(pods):
        put(api, number, "Pending" if number == pods - 1 else "Running")
    size = len(json.dumps(list(api.pods.values())))
    with tempfile.TemporaryDirectory() as place:
        api.lay_account(Path(place))
        clients = [list_client(api, number, pods, place) for number in range(sampled)]
        time.sleep(1.5 + sampled * size / 20e6)
        began = time.monotonic()
        put(api, pods - 1, "Running")
        found = []

        async def ask() -> None:
            async def one(client) -> None:
                await client.identify()
                found.append(time.monotonic() - began)

            await asyncio.gather(*(one(client) for client in clients))

        asyncio.run(ask())
        for client in clients:
            client.rest()
    requests, carried = sum(api.requests.values()), api.bytes
    api.close()
    scale = pods / sampled
    return {
        "pods": pods,
        "how": "pod-list",
        "requests": round(requests * scale),
        "bytes": round(carried * scale),
        "seconds": max(found),
        "bytes_of_a_list": size,
        "note": "" if sampled == pods else f"scaled from {sampled} real clients",
    }


def put(api, number: int, phase: str) -> None:
    """A pod as large as a training pod is: about 5 KB of JSON, most of it managed fields and the specification."""
    spec = {"containers": [{"name": "trainer", "env": [{"name": f"VARIABLE_{i}", "value": "a value"} for i in range(30)]}]}
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" if phase == "Running" else ""
    api.put(
        f"job-{number:05d}-abcde", address, phase=phase, status={"containerStatuses": [{"image": "x" * 3000, "name": str(spec)}]}
    )


def list_client(api, number: int, pods: int, place: str):
    from paddle_node.rendezvous.pod_list import PodList

    node = environment.parse(
        {
            "JOB_NAME": "job",
            "TRAIN_CONFIG_DIR": "program",
            "CONF_PADDLE_GRADIENT_NUM": str(pods),
            "PADDLE_NODE_DISCOVERY": "pod-list",
            "PADDLE_NODE_ROOT": place,
            "PADDLE_NODE_PEER_DEADLINE": "300",
            "POD_NAME": f"job-{number:05d}-abcde",
            "POD_IP": "10.0.0.1",
            **api.environment,
        }
    )
    client = PodList(node, lambda text: print(text, file=sys.stderr))
    client.moved()  # Starts its watch.
    return client


# Polling: the arithmetic of the tutorials' script.


def polling(pods: int, bytes_of_a_list: int) -> dict:
    """Pods start evenly over SCALE_UP seconds; each lists until all run. A list then holds the pods that exist: all."""
    starts = [SCALE_UP * number / max(1, pods - 1) for number in range(pods)]
    last = starts[-1]
    polls = [int(-(-(last - start) // POLL)) + 1 for start in starts]
    delays = [start + (count - 1) * POLL - last for start, count in zip(starts, polls, strict=True)]
    return {
        "pods": pods,
        "how": "polling",
        "requests": sum(polls),
        "bytes": sum(polls) * bytes_of_a_list,
        "seconds": max(delays),
        "note": f"a pod waits {statistics.mean(delays):.0f} s",
    }


if __name__ == "__main__":
    main()
