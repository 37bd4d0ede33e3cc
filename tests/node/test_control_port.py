"""The control port asks who one is: strangers on real sockets, before a real job's pods and in their place."""

import random
import socket
import threading
from pathlib import Path

import pytest
from paddle_node.rendezvous import messages as m

pytestmark = pytest.mark.slow
PORT = 7163


def memory(pid: int) -> int:
    """Bytes of a process that are in the machine's memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def random_lines(count: int) -> list[bytes]:
    draw = random.Random(1)
    hello = m.Hello(1, 2, "new", "index", "n", "", "10.0.0.9")
    known = [
        hello,
        m.Join(0, 1),
        m.Proof("0", "0" * 64),
        m.Proof("\ud800", "\u00e9"),
        m.Fatal(2, "no"),
        m.Finish(0, "done", None),
    ]
    lines = [m.encode(draw.choice(known)) for _ in range(count // 2)]
    return lines + [draw.randbytes(draw.randrange(1, 6000)) for _ in range(count - len(lines))]


def test_a_thousand_messages_of_a_stranger_change_nothing(job):
    pods = job(count=2, stand_in={"holds": [1, 1, 1]})
    pods.start_and_hold()
    address, before = (pods.address(0), PORT), memory(pods.pods[0].pid)
    idle = [socket.create_connection(address, timeout=60) for _ in range(100)]
    lines = random_lines(1000)
    for lot in (lines[number : number + 4] for number in range(0, 1000, 4)):
        with socket.create_connection(address, timeout=60) as stranger:
            try:
                stranger.sendall(b"".join(lot))
                stranger.shutdown(socket.SHUT_WR)
                said = b"".join(iter(lambda: stranger.recv(4096), b""))
            except ConnectionError:
                continue
        assert isinstance(m.parse(said, m.Challenge), m.Challenge), said
    for each in idle:
        each.sendall(b"x" * 100_000)
    grown = memory(pods.pods[0].pid) - before
    for each in idle:
        each.close()
    assert grown < 64 << 20, f"{grown >> 20} MB"
    pods.release()
    pods.end_undisturbed()
    assert len(pods.attempts()) == 1
    (secret,) = pods.folder.run_state.glob("secret-*")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.read_text() not in pods.logs() and "Error" not in pods.logs()


@pytest.mark.parametrize("planted", ["empty", "link"])
def test_a_secret_that_no_pod_of_the_run_made_opens_no_door(job, planted):
    pods = job(count=1)
    secret = pods.folder.run_state / f"secret-{pods.run}"
    secret.parent.mkdir(parents=True)
    if planted == "empty":
        secret.touch()
    else:
        (pods.folder.root / "known").write_text("0" * 64)
        secret.symlink_to("../../known")
    pods.start()
    pods.end_with(65)
    assert "is not the secret of this run" in pods.log(0) and "Traceback" not in pods.log(0)


FORGED = [m.encode(m.Challenge("0")) + m.encode(m.Proof("", mac)) + m.encode(m.Welcome()) * 2 for mac in ("0" * 64, "\u00e9")]


@pytest.mark.parametrize("said", [b"", *FORGED])
def test_what_only_accepts_connections_is_not_the_pod_that_is_waited_for(job, said):
    """A mesh's proxy, or a listener of somebody else: the deadline of the peers comes all the same."""
    pods = job(count=2, PEER_DEADLINE="2")
    stop = threading.Event()
    with socket.create_server((pods.address(0), PORT)) as listener:
        listener.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.sendall(said)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            pods.name(0)
            pods.start(1)
            pods.end_with(69)
        finally:
            stop.set()
            thread.join()
    assert "1 of 2 pods is missing: job-0.job, which the others wait for" in pods.log(1)
