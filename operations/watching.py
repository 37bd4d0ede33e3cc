"""Collections of a cluster, followed as they change.

Promises: each step yields the whole present state, so that a consumer never misses a change; a watch that is cut goes on
where it was, and one whose history is forgotten (410) begins with a new list; a server that is away for minutes is
waited for; a fault that no waiting heals is raised in the consumer.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from operations.cluster import ApiError, Cluster, Lost, Object
from operations.errors import OperationError, Unreachable

ROUND = 60.0
"""Seconds after which the server is asked to end a watch: a connection that died silently is noticed within them."""
TOGETHER = 0.1
"""Seconds in which changes count as one."""
PATIENCE = 600.0
"""Seconds that a server may be away before a watch gives up."""


@dataclass(frozen=True)
class Collection:
    """What to follow: a collection's path, and the labels of the objects that matter."""

    path: str
    labels: str = ""


State = dict[str, dict[str, Object]]
"""Of each followed collection: its objects by name."""


def follow(cluster: Cluster, collections: Mapping[str, Collection], every: float | None = None) -> Iterator[State]:
    """Yields the state of all collections: once they are read, after each change, and at least `every` seconds."""
    changes: queue.Queue[tuple[str, dict[str, Object]] | BaseException] = queue.Queue()
    closed = threading.Event()
    for key, collection in collections.items():
        threading.Thread(target=_watch, args=(cluster, key, collection, changes, closed), daemon=True).start()
    state: State = {}
    try:
        while True:
            try:
                change = changes.get(timeout=every if len(state) == len(collections) else None)
            except queue.Empty:
                yield state
                continue
            if isinstance(change, BaseException):
                raise change
            state[change[0]] = change[1]
            if len(state) == len(collections) and changes.empty():
                # What changes together is told together.
                time.sleep(TOGETHER)
                if changes.empty():
                    yield dict(state)
    finally:
        closed.set()


def _watch(
    cluster: Cluster,
    key: str,
    collection: Collection,
    changes: queue.Queue[tuple[str, dict[str, Object]] | BaseException],
    closed: threading.Event,
) -> None:
    first = True
    away_since: float | None = None
    while not closed.is_set():
        try:
            query = {"labelSelector": collection.labels} if collection.labels else {}
            found = cluster.get(collection.path, **query)
            objects = {item["metadata"]["name"]: item for item in found["items"]}
            changes.put((key, dict(objects)))
            first, away_since = False, None
            version = found["metadata"]["resourceVersion"]
            while not closed.is_set():
                version = _round(cluster, key, collection, version, objects, changes)
        except _Forgotten:
            continue
        except Unreachable as error:
            away_since = away_since or time.monotonic()
            if first or time.monotonic() - away_since > PATIENCE:
                changes.put(error)
                return
            cluster.sleep(2.0)
        except Exception as error:
            changes.put(error if isinstance(error, OperationError) else RuntimeError(f"a watch failed: {error!r}"))
            return


class _Forgotten(Exception):
    """The server no longer knows what happened since the version that was asked for."""


def _round(
    cluster: Cluster,
    key: str,
    collection: Collection,
    version: str,
    objects: dict[str, Object],
    changes: queue.Queue[tuple[str, dict[str, Object]] | BaseException],
) -> str:
    """One watch until it ends or is cut; returns the version to go on from."""
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": f"{ROUND:.0f}",
    } | ({"labelSelector": collection.labels} if collection.labels else {})
    try:
        for line in cluster.lines(collection.path, query, read=ROUND + 15):
            try:
                event = json.loads(line)
            except ValueError:
                raise Lost("half an event") from None
            document = event["object"]
            if event["type"] == "ERROR":
                if document.get("code") == 410:
                    raise _Forgotten
                raise Lost(str(document.get("message", "an error")))
            version = document["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            name = document["metadata"]["name"]
            if event["type"] == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = document
            changes.put((key, dict(objects)))
    except Lost:
        # At once: what was missed is still in the server's history.
        cluster.sleep(0.1)
    except ApiError as error:
        if error.status == 410:
            raise _Forgotten from None
        raise
    return version
