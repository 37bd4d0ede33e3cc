"""The handshake that opens every connection to the rendezvous server, without its input and output.

Both sides prove that they know the run's secret, or an attempt's key, before either trusts the
other. The secret never travels; it is in a file that only this job's user may read.

    server                 client
    Challenge        ->
                     <-    Hello or Join, and its Proof
    Proof            ->

`introduce` and `admit` are generators: they yield what to send and are sent each line that comes.
Any other line raises ValueError.
"""

import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import NamedTuple

from paddle_node.rendezvous.messages import Challenge, Hello, Join, Proof, encode, parse

HANDSHAKE_SECONDS = 5.0
"""Seconds within which a connection must prove that it belongs to the run."""
LINE_BYTES = 4096
"""Longest line in bytes."""


class Admission(NamedTuple):
    """A peer that has proved that it belongs to the run."""

    client: Hello | Join
    answer: bytes
    """The server's own proof, which is to be sent to it."""


def introduce(key: str, client: Hello | Join) -> Generator[bytes, bytes, bool]:
    """The client's side. Returns whether the server has proved that it knows `key`."""
    challenge: Challenge = parse((yield b""), Challenge)
    nonce, line = secrets.token_hex(16), encode(client)
    proof: Proof = parse(
        (yield line + encode(Proof(nonce, mac(key, nonce, challenge.nonce, line)))), Proof
    )
    return _equal(proof.mac, mac(key, challenge.nonce, nonce))


def admit(secret: str) -> Generator[bytes, bytes, Admission | None]:
    """The server's side. Returns None if the client's proof is wrong."""
    nonce = secrets.token_hex(16)
    line = yield encode(Challenge(nonce))
    client: Hello | Join = parse(line, Hello, Join)
    proof: Proof = parse((yield b""), Proof)
    key = attempt_key(secret, client.attempt) if isinstance(client, Join) else secret
    if not _equal(proof.mac, mac(key, proof.nonce, nonce, line)):
        return None
    return Admission(client, encode(Proof("", mac(key, nonce, proof.nonce))))


def mac(key: str, sender: str, receiver: str, sent: bytes = b"") -> str:
    """Returns the MAC of both sides' nonces and what was sent before: it proves that the sender
    knows `key`.
    """
    text = f"{sender} {receiver} ".encode(errors="replace") + sent
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def attempt_key(secret: str, attempt: int) -> str:
    """Returns the key of an attempt's trainers: a key found later in a process's environment no
    longer admits anyone.
    """
    return hmac.new(secret.encode(), f"attempt {attempt}".encode(), hashlib.sha256).hexdigest()


def _equal(text: str, expected: str) -> bool:
    # Strings must be ASCII.
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())
