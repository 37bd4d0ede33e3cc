"""Collections of a cluster, followed as they change.

Promises: each step yields the whole present state, so that a consumer never misses a change; a watch that is cut goes on
where it was, and one whose history is forgotten (410) begins with a new list; a server that is away for minutes is
waited for; a fault that no waiting heals is raised in the consumer.

Not the official client's Watch: it gives up at a lost connection, and without deserializing it trips over a 410.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from operations.cluster import AGAIN, ApiError, Cluster, Lost, Object, Patience

ROUND = 60.0
"""Seconds after which the server is asked to end a watch: a connection that died silently is noticed within them."""
TOGETHER = 0.1
"""Seconds in which changes count as one."""


@dataclass(frozen=True)
class Collection:
    """What to follow: a collection's path, and the labels of the objects that matter."""

    path: str
    labels: str = ""


State = dict[str, dict[str, Object]]
"""Of each followed collection: its objects by name."""
Changes = queue.Queue[tuple[str, dict[str, Object]] | Exception]


def follow(cluster: Cluster, collections: Mapping[str, Collection], every: float | None = None) -> Iterator[State]:
    """Yields the state of all collections: once they are read, after each change, and at least `every` seconds."""
    changes: Changes = queue.Queue()
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
            if isinstance(change, Exception):
                raise change
            state[change[0]] = change[1]
            if len(state) == len(collections) and changes.empty():
                # What changes together is told together.
                time.sleep(TOGETHER)
                if changes.empty():
                    yield dict(state)
    finally:
        closed.set()


def _watch(cluster: Cluster, key: str, collection: Collection, changes: Changes, closed: threading.Event) -> None:
    """Puts the collection's objects at each change; an error ends it."""
    labels = {"labelSelector": collection.labels} if collection.labels else {}
    objects: dict[str, Object] = {}
    version, patience = "", Patience(cluster.say)
    while not closed.is_set():
        try:
            if not version:
                found = cluster.get(collection.path, **labels)
                objects, version = (
                    {item["metadata"]["name"]: item for item in found["items"]},
                    found["metadata"]["resourceVersion"],
                )
                changes.put((key, dict(objects)))
            query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": f"{ROUND:.0f}"}
            for line in cluster.lines(collection.path, query | labels, read=ROUND + 15):
                event = json.loads(line)
                document = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(410, "Gone", str(document.get("message")))
                version = document["metadata"]["resourceVersion"]
                name = document["metadata"]["name"]
                if event["type"] == "DELETED":
                    objects.pop(name, None)
                elif event["type"] != "BOOKMARK":
                    objects[name] = document
                changes.put((key, dict(objects)))
            patience.answered()
        except (Lost, ValueError):
            # What is missed meanwhile, half an event too, is in the server's history.
            patience.answered()
            time.sleep(AGAIN)
        except ApiError as error:
            # 410: the history goes back no further.
            if error.status != 410:
                return changes.put(error)
            version = ""
        except Exception as error:
            try:
                patience.bear(error)
            except Exception:
                return changes.put(error)
