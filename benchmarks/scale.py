"""Measures what a job costs its cluster at 100, 1,000 and 10,000 pods, for docs/scale.md:
`python benchmarks/scale.py [--pods 100 1000 10000] [--write docs/scale.md]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

PROJECT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(PROJECT / "tests/node"), str(PROJECT / "tests/operations")]

from paddle_node import environment, runtimes  # noqa: E402
from paddle_node.background import Tasks  # noqa: E402
from paddle_node.rendezvous import handshake, heartbeat, messages  # noqa: E402
from paddle_node.rendezvous.discovery import Discovery  # noqa: E402
from paddle_node.rendezvous.server import Server  # noqa: E402
from paddle_node.volume import passes  # noqa: E402
from paddle_node.volume.job_folder import JobFolder  # noqa: E402

PORT = 7163
HUB = "127.250.0.1"
SECRET = "s" * 64
HOSTS = random.Random(1).sample(range(65_536), 65_536)
"""In random order, because a subnet gives out its addresses in no order."""
SAMPLE = 10
POLL = 20.0
"""Seconds that the tutorials' script sleeps between two lists."""
SCALE_UP = 60.0
"""Seconds that a node group takes to scale up: the polling pods are assumed to start evenly over
them.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows = []
    for pods in options.pods:
        listed = pod_list(pods)
        polled = polling(pods)["requests"]
        requests = f"0; pod-list {listed['requests']:,}; tutorials {polled:,}"
        row = {
            "pods": f"{pods:,}",
            "objects": f"{objects(pods):,}",
            **index(pods),
            "API requests": requests,
        }
        volume = {
            "EFS: a pod": f"{calls(pods, PREPARE):,}",
            "EFS: pod 0": f"{calls(pods, NEWEST):,}",
        }
        rows.append(row | {"DNS": f"{pods - 1:,}"} | volume)
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if options.write:
        options.write.write_text(page(rows))


COLUMNS = """
* **objects**: Kubernetes objects: the manifests of a job on EFS, a Pod for each trainer, an
  EndpointSlice for each 100 pods.
* **start**: from the last pod's first message until all pods know that the attempt starts.
* **end**: 1 % of the pods are lost at once; until all others know that the attempt ends.
* **pod 0**: the pod of rank 0, where the rendezvous server runs: peak memory, open files, and
  traffic over its connections without heartbeats.
* **API requests**: of all pods, until they know each other: with `discovery: index`; with
  `pod-list`, scaled up from a sample; with the tutorials' scripts, calculated.
* **DNS**: look-ups of pod 0's name. Each is two queries, A and AAAA, in the first search domain
  (resolv.conf(5), `ndots:5`).
* **EFS: a pod**: system calls on the volume (strace) while a pod checks its shard.
* **EFS: pod 0**: the same while pod 0 looks for the newest of 30 passes and checks it; that pass
  has a file for each pod.

## What breaks first

1. Kubernetes is tested with up to 5,000 nodes ("Considerations for large clusters").
2. Above 6,500 trainers, the list of all peers does not fit into one environment variable (131,071
   bytes on Linux), so job.yaml allows no more. The row of 10,000 pods counts the manifests of
   6,500.
3. Each pod and each node needs an address of the private subnets (`network.cidr`).
4. EFS accepts 25,000 connections and, in mode `elastic`, 250,000 reads a second of frequently used
   data, metadata included ("Amazon EFS quotas").
"""


def page(rows: list[dict]) -> str:
    """Returns the rows as a page."""
    lines = [
        "# What a job costs its cluster, and what breaks first",
        "",
        "This page is for people who plan a job of hundreds or thousands of pods. `python",
        "benchmarks/scale.py --write docs/scale.md` measured it over loopback and a local disk, on",
        f"a machine of {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.0f}:",
        "",
        f"| {' | '.join(rows[0])} |",
        "|" + "---|" * len(rows[0]),
        *(f"| {' | '.join(row.values())} |" for row in rows),
    ]
    return "\n".join(lines) + "\n" + COLUMNS


# Kubernetes' objects.


def objects(pods: int) -> int:
    from k8s_charts.deployed import ClusterOutputs
    from k8s_charts.documents import documents
    from k8s_charts.spec import TrainingJob

    job = {"name": "job", "trainers": min(pods, 6_500), "data": {"source": "s3://corpus/words"}}
    return (
        len(documents(TrainingJob.parse(job), ClusterOutputs.placeholder(), "image"))
        + pods
        + -(-pods // 100)
    )


# The volume.

PREPARE = """
from paddle_node import environment
from paddle_node.staging.preparation import prepare
prepare(environment.parse(), print)
"""
NEWEST = """
import sys
from pathlib import Path
from paddle_node.volume.job_folder import JobFolder
from paddle_node.volume import passes
found = next(passes.read_newest_first(JobFolder(Path(sys.argv[1]))))
passes.verify(found.folder)
"""


def calls(pods: int, program: str) -> int:
    """Returns the number of system calls of `program` on the volume of a job with `pods` pods."""
    image = PROJECT / "trainer_image"
    with tempfile.TemporaryDirectory() as place:
        root, trace = Path(place, "volume", "job"), Path(place, "trace")
        (root / "program").mkdir(parents=True)
        (root / "program" / "train.py").touch()
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(image),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if program is PREPARE:
            source = Path(place, "source")
            source.write_text("a record\n" * pods * 2)
            split = {"OUT_DIR": str(root), "SPLIT_COUNT": str(pods), "DATA_SOURCE": str(source)}
            subprocess.run(
                [sys.executable, image / "split_data.py"],
                env=environ | split,
                check=True,
                capture_output=True,
            )
        else:
            for number in range(30):
                folder = JobFolder(root).attempt("run", 1) / f"pass-{number:05d}"
                folder.mkdir(parents=True)
                for file in range(pods if number == 29 else 1):
                    (folder / f"{file:05d}").write_text("x")
                passes.seal(
                    folder,
                    {
                        "pass": number,
                        "run": "run",
                        "attempt": 1,
                        "data": "",
                        "program": "",
                        "trainers": [],
                    },
                )
        node = {
            "JOB_NAME": "job",
            "JOB_PATH": str(root.parent),
            "TRAIN_CONFIG_DIR": "program",
            "CONF_PADDLE_GRADIENT_NUM": str(pods),
            "JOB_COMPLETION_INDEX": "1",
            "PADDLE_NODE_RUN_ID": "run",
            "PADDLE_NODE_SERVICE": "job",
            "POD_IP": HUB,
        }
        traced = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=%file,getdents64",
            "-y",
            "-o",
            trace,
            sys.executable,
            "-c",
            program,
            root,
        ]
        subprocess.run(traced, env=environ | node, check=True, capture_output=True)
        return sum(str(root) in line for line in trace.read_text().splitlines())


# Index: the rendezvous server.


def index(pods: int) -> dict:
    allow_files(pods + 300)
    ours, theirs = multiprocessing.Pipe()
    hub = multiprocessing.get_context("spawn").Process(
        target=serve, args=(pods, theirs), daemon=True
    )
    hub.start()
    assert ours.recv() == "serving"
    try:
        seconds, end, carried = asyncio.run(members(pods))
        peak = (
            int(Path(f"/proc/{hub.pid}/status").read_text().partition("VmHWM:")[2].split()[0])
            / 1000
        )
        files = sum(1 for _ in Path(f"/proc/{hub.pid}/fd").iterdir())
    finally:
        ours.send("enough")
        hub.join(10)
        if hub.is_alive():
            hub.kill()
    pod = f"{peak:,.0f} MB, {files:,} files; {carried / 1e6:,.1f} MB"
    return {"start": f"{seconds:.2f} s", "end": f"{end:.2f} s", "pod 0": pod}


def serve(pods: int, parent) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as place:
            node = node_of(0, pods, place)
            server = Server(node, Discovery(node), Tasks(), lambda text: None)
            await server.serve(runtimes.find_runtime(node.way), "incarnation", SECRET)
            parent.send("serving")
            while not parent.poll():
                await asyncio.sleep(0.2)
            os._exit(0)

    asyncio.run(run())


class Member(asyncio.Protocol):
    """An agent's messages, without its work."""

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
        self.hello = messages.Hello(
            self.number, self.pods, f"{self.number:032x}", "index", name, "", address
        )

    def say(self, message: messages.Message) -> None:
        line = messages.encode(message)
        if not isinstance(message, messages.Beat):
            Member.carried += len(line)
        self.transport.write(line)

    def prove(self, challenge: messages.Challenge) -> None:
        mac = handshake.mac(SECRET, "n", challenge.nonce, messages.encode(self.hello))
        for message in (
            self.hello,
            messages.Proof("n", mac),
            messages.Report(0, True, True, "", "", False, False, "", False),
        ):
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
                # Only every hundredth member reads it, because one process plays all members.
                assert (
                    self.number % 100
                    or len(messages.unpack(json.loads(line)["addresses"])) == self.pods
                )
                Member.started += 1
            Member.ended += line.startswith(b'{"kind":"End"')


async def members(pods: int) -> tuple[float, float, int]:
    """Returns two times in seconds, and the bytes in both directions except heartbeats.

    From the last member's start until all have received Start; from the loss of 1 % at once until
    all others have received End.
    """
    loop = asyncio.get_running_loop()
    Member.carried, Member.started, Member.ended, Member.members = 0, 0, 0, []

    async def beat() -> None:
        while True:
            await asyncio.sleep(heartbeat.INTERVAL)
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
        assert time.monotonic() - began < 120, (
            f"{Member.ended} of {pods} were told that the attempt ended"
        )
    end = time.monotonic() - began
    beating.cancel()
    return seconds, end, Member.carried


async def connect(loop, number: int, pods: int) -> None:
    # Each member has its own loopback source address: one has too few ports for ten thousand and
    # the like.
    await loop.create_connection(
        lambda: Member(number, pods),
        HUB,
        PORT,
        local_addr=(f"127.251.{number // 250}.{number % 250 + 1}", 0),
    )


def node_of(number: int, pods: int, place: str) -> environment.PodEnvironment:
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
            sys.exit(
                f"{count} open files are needed for so many pods and {hard} are allowed: fewer "
                f"--pods, or ulimit -n {count}"
            )


# Pod-list: the pods' own discovery.


def pod_list(pods: int) -> dict:
    from api_server import ApiServer

    sampled = min(pods, max(2, min(SAMPLE, 4000 // pods)))
    api = ApiServer().__enter__()
    for number in range(pods):
        put(api, number, "Pending" if number == pods - 1 else "Running")
    size = len(json.dumps(api.all("pods")))
    with tempfile.TemporaryDirectory() as place:
        api.lay_account(Path(place))
        clients = [list_client(api, number, pods, place) for number in range(sampled)]
        time.sleep(1.5 + sampled * size / 20e6)
        put(api, pods - 1, "Running")

        async def identify_all() -> None:
            await asyncio.gather(*(client.identify() for client in clients))

        asyncio.run(identify_all())
        for client in clients:
            client.stop_requests()
    requests = len(api.requests)
    api.__exit__()
    scale = pods / sampled
    return {
        "requests": round(requests * scale),
        "bytes_of_a_list": size,
    }


def put(api, number: int, phase: str) -> None:
    """Puts a pod as large as a training pod: about 5 KB of JSON, most of it managed fields and the
    specification.
    """
    spec = {
        "containers": [
            {
                "name": "trainer",
                "env": [{"name": f"VARIABLE_{i}", "value": "a value"} for i in range(30)],
            }
        ]
    }
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" if phase == "Running" else ""
    api.put_pod(
        f"job-{number:05d}-abcde",
        address,
        phase=phase,
        status={"containerStatuses": [{"image": "x" * 3000, "name": str(spec)}]},
    )


def list_client(api, number: int, pods: int, place: str):
    from paddle_node.tutorials.pod_list import PodList

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
    client.has_moved()  # Starts its watch.
    return client


# Polling: the arithmetic of the tutorials' script.


def polling(pods: int) -> dict:
    """Counts requests: pods start evenly over SCALE_UP seconds, and each lists until all run. A
    list holds all pods.
    """
    starts = [SCALE_UP * number / max(1, pods - 1) for number in range(pods)]
    last = starts[-1]
    polls = [int(-(-(last - start) // POLL)) + 1 for start in starts]
    return {"requests": sum(polls)}


if __name__ == "__main__":
    main()
