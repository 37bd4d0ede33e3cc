"""The control port authenticates its peers: strangers on real sockets talk to a real job's pods, or
take their place.
"""

import contextlib
import random
import socketserver
import threading
from pathlib import Path
from socket import SHUT_WR, create_connection

import pytest
from paddle_node.rendezvous import messages as m

pytestmark = pytest.mark.slow
PORT = 7163


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
    address, before = (pods.address(0), PORT), memory(pods.pods[0].pid)
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
    with Server((pods.address(0), PORT), Stranger) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        pods.name(0)
        pods.start(1)
        pods.end_with(69)
        server.shutdown()
    assert "1 of 2 pods is missing: job-0.job, which the others wait for" in pods.log(1)
