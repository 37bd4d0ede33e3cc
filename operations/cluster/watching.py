"""Collections of a cluster, followed as they change: each step yields the whole present state.

A watch that is cut continues where it was, one whose history is forgotten (410) begins with a new list, and a server that is
away is waited for. The official client's Watch gives up at a lost connection, and without deserializing fails on a 410.
"""

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping

from operations.cluster.cluster import AGAIN, ApiError, Cluster, Lost, Object, Outage

ROUND = 60.0
"""Seconds after which the server is asked to end a watch: a connection that died silently is noticed within them."""
TOGETHER = 0.1
"""Seconds in which changes count as one."""

State = dict[str, dict[str, Object]]
"""Of each followed collection: its objects by name."""
Changes = queue.Queue[tuple[str, dict[str, Object]] | Exception]


def follow(cluster: Cluster, paths: Mapping[str, str], labels: str, every: float) -> Iterator[State]:
    """Yields the objects with these labels of all collections: once they are read, after each change, and `every` seconds.

    Raises what waiting does not mend.
    """
    changes: Changes = queue.Queue()
    closed = threading.Event()
    for key, path in paths.items():
        threading.Thread(target=_watch, args=(cluster, key, path, labels, changes, closed), daemon=True).start()
    state: State = {}
    try:
        while True:
            try:
                change = changes.get(timeout=every if len(state) == len(paths) else None)
            except queue.Empty:
                yield state
                continue
            if isinstance(change, Exception):
                raise change
            state[change[0]] = change[1]
            if len(state) == len(paths) and changes.empty():
                time.sleep(TOGETHER)
                if changes.empty():
                    yield dict(state)
    finally:
        closed.set()


def _watch(cluster: Cluster, key: str, path: str, labels: str, changes: Changes, closed: threading.Event) -> None:
    """Puts the collection's objects at each change; an error ends it."""
    objects: dict[str, Object] = {}
    version, outage = "", Outage(cluster)
    while not closed.is_set():
        try:
            if not version:
                found = cluster.get(path, labelSelector=labels)
                objects, version = {one["metadata"]["name"]: one for one in found["items"]}, found["metadata"]["resourceVersion"]
                changes.put((key, dict(objects)))
            query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": f"{ROUND:.0f}"}
            for line in cluster.lines(path, query | {"labelSelector": labels}, read=ROUND + 15):
                event = json.loads(line)
                document = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(410, "Gone", str(document.get("message")))
                version, name = document["metadata"]["resourceVersion"], document["metadata"].get("name")
                if event["type"] == "DELETED":
                    objects.pop(name, None)
                elif event["type"] != "BOOKMARK":
                    objects[name] = document
                changes.put((key, dict(objects)))
            outage.over()
        except (Lost, ValueError):
            # The server's history has what is missed meanwhile, half an event too.
            outage.over()
            time.sleep(AGAIN)
        except Exception as error:
            if isinstance(error, ApiError) and error.status == 410:
                version = ""
                continue
            try:
                outage.wait(error)
            except Exception as lasting:
                return changes.put(lasting)
