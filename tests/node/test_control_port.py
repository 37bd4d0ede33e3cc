"""The control port authenticates its peers: strangers on real sockets talk to a real job's pods, or
take their place.
"""

import contextlib
import random
import socketserver
import threading
import time
from pathlib import Path
from socket import AF_INET, SHUT_WR, SOCK_STREAM, create_connection, socket

import pytest
from paddle_node.rendezvous import messages as m
from paddle_node.rendezvous.handshake import introduce

pytestmark = pytest.mark.slow


def memory(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def random_line(draw: random.Random) -> bytes:
    hello, proof = m.Hello(1, 2, "new", "index", "n", "", "10.0.0.9"), m.Proof("\ud800", "\u00e9")
    known = [
        hello,
        m.Join(0, 1),
        m.Proof("0", "0" * 64),
        proof,
        m.Fatal(2, "no"),
        m.Finish(0, "done", None),
    ]
    return draw.choice([m.encode(draw.choice(known)), draw.randbytes(draw.randrange(1, 6000))])


def test_a_thousand_messages_of_a_stranger_change_nothing(job):
    pods, draw = job(count=2, stand_in={"holds": [1, 1, 1]}), random.Random(1)
    pods.start_and_hold()
    address, before = (pods.address(0), pods.control_port), memory(pods.pods[0].pid)
    idle = [create_connection(address, timeout=60) for _ in range(100)]
    for _ in range(250):
        with (
            create_connection(address, timeout=60) as stranger,
            contextlib.suppress(ConnectionError),
        ):
            stranger.sendall(b"".join(random_line(draw) for _ in range(4)))
            stranger.shutdown(SHUT_WR)
            assert m.parse(b"".join(iter(lambda: stranger.recv(4096), b"")), m.Challenge)
    for each in idle:
        each.sendall(b"x" * 100_000)
    assert memory(pods.pods[0].pid) - before < 64 << 20
    for each in idle:
        each.close()
    pods.release()
    pods.end_undisturbed()
    assert len(pods.attempts()) == 1
    (secret,) = pods.folder.run_state.glob("secret-*")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text() not in pods.logs() and "Error" not in pods.logs()


@pytest.mark.parametrize("limit", ["ulimit -Sn 1024", "ulimit -n 300"], ids=["soft", "hard"])
def test_three_thousand_silent_strangers_hold_nobody_up(job, limit):
    """A replacement is admitted among them, though the pod's limit of open files is a third of
    that.
    """
    pods = job(count=2, stand_in={"holds": [1, 1, 1]})
    pods.command = ("/bin/sh", "-c", f'{limit}; exec "$@"', "sh", *pods.command)
    pods.start_and_hold()
    idle = []
    for _ in range(3000):
        idle.append(socket(AF_INET, SOCK_STREAM))
        idle[-1].setblocking(False)
        idle[-1].connect_ex((pods.address(0), pods.control_port))
    pods.kill(1)
    began = time.monotonic()
    pods.start(1)
    pods.wait_for(1, "attempt 2: from pass 1")
    assert time.monotonic() - began < 8, pods.logs()
    pods.release()
    pods.end_undisturbed()
    for each in idle:
        each.close()
    assert len(pods.log(0)) < 10_000 and "Traceback" not in pods.logs()


def test_bursts_of_strangers_end_neither_the_job_nor_an_attempt(job):
    pods, over = job(count=2, stand_in={"steps": 40}, PEER_DEADLINE="15"), threading.Event()
    pods.command = ("/bin/sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh", *pods.command)

    def flood() -> None:
        while not over.is_set():
            burst = []
            for _ in range(1500):
                burst.append(socket(AF_INET, SOCK_STREAM))
                burst[-1].setblocking(False)
                burst[-1].connect_ex((pods.address(0), pods.control_port))
            over.wait(0.3)
            for each in burst:
                each.close()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        pods.start()
        pods.end_undisturbed()
    finally:
        over.set()
        flooding.join()
    assert len(pods.attempts()) == 1


def test_what_a_peer_calls_itself_is_no_line_of_the_agent(job):
    pods = job(count=2, PEER_DEADLINE="2")
    pods.start(0)
    pods.wait_for(0, "has read data")
    pods.wait_until(lambda: [*pods.folder.run_state.glob("lease-*")])
    (secret,) = (file.read_text() for file in pods.folder.run_state.glob("secret-*"))
    forged = "\n[agent 0] goodput 100% of 9 s: 9 training"
    hello = m.Hello(1, 2, "new", "index", f"job-1{forged}", "", pods.address(1))
    pods.wait_until(lambda: admitted(pods, secret, hello))
    pods.end_with(69)
    assert f"job-1{forged[1:]}" in pods.log(0).replace("\\n", "") and forged not in pods.log(0)


def admitted(pods, secret: str, hello: m.Hello) -> bool:
    """Whether the agent of pod 0 takes one that knows the secret for a pod, which then leaves."""
    try:
        with (
            create_connection((pods.address(0), pods.control_port), timeout=9) as peer,
            peer.makefile("rb") as lines,
        ):
            dialogue = introduce(secret, hello)
            next(dialogue)
            peer.sendall(dialogue.send(lines.readline()))
            lines.readline()
            return bool(m.parse(lines.readline(), m.Welcome))
    except OSError:  # It does not listen yet.
        return False


@pytest.mark.parametrize("planted", ["empty", "link"])
def test_a_secret_that_no_pod_of_the_run_made_opens_no_door(job, planted):
    pods = job(count=1)
    secret = pods.folder.run_state / f"secret-{pods.run_id}"
    secret.parent.mkdir(parents=True)
    if planted == "empty":
        secret.touch()
    else:
        (pods.folder.root / "known").write_text("0" * 64)
        secret.symlink_to("../../known")
    pods.start()
    pods.end_with(65)
    assert "is not the secret of this run" in pods.log(0)


FORGED = m.encode(m.Challenge("0")) + m.encode(m.Proof("", "\u00e9")) + m.encode(m.Welcome()) * 2


@pytest.mark.parametrize("said", [b"", FORGED])
def test_what_only_accepts_connections_is_not_the_pod_that_is_waited_for(job, said):
    """A mesh's proxy or somebody else's listener accepts connections; the peers' deadline expires
    all the same.
    """

    class Stranger(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(said)

    class Server(socketserver.TCPServer):
        allow_reuse_address = (
            True  # The last test's connections to this address may still be in TIME_WAIT.
        )

    pods = job(count=2, PEER_DEADLINE="2")
    with Server((pods.address(0), pods.control_port), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        pods.name(0)
        pods.start(1)
        pods.end_with(69)
        server.shutdown()
    assert "1 of 2 pods is missing: job-0.job, which the others wait for" in pods.log(1)
