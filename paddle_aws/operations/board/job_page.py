"""The page of one job. It reads the job's folder as `results` does."""

import json
import time
from contextlib import suppress
from typing import Any

from paddle_node.contract import DATA_MANIFEST

from paddle_aws.operations.board.site import NOT_FOUND, Query, Response, json_answer, read_page_file
from paddle_aws.operations.board.usage import read_usage
from paddle_aws.operations.errors import OperationError
from paddle_aws.operations.jobs.backend import Backend
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend
from paddle_aws.operations.jobs.volume.access import Volume
from paddle_aws.operations.jobs.watch.log_stream import PodSelection

POINTS = 10_000
"""Lines of metrics that a page gets at most, for all ranks together."""
READ_BYTES = 4 << 20
"""Bytes of an event file that one request reads."""
LOG_LINES = 400
"""Newest lines of a pod's log that the page shows."""


class JobPage:
    """Answers a browser's requests about a job."""

    def __init__(
        self,
        where: Backend,
        volume: Volume,
        evaluation: dict[str, Any] | None,
        usd_per_hour: float | None,
        *,
        listed: bool = False,
    ) -> None:
        """`usd_per_hour`: the price of a trainer's node, None if none was read. `listed`: there is
        a list of jobs above the page.
        """
        self._where, self._volume, self._evaluation = where, volume, evaluation
        self._usd_per_hour, self._listed = usd_per_hour, listed
        self._shards: list[int] = []
        self._events: set[str] = set()
        self._settings: dict[str, str] = {}

    def answer(self, name: str, query: Query) -> Response:
        """Answers a request for the page, its data or its files."""
        if name == "data":
            return json_answer(self.data())
        if name == "events" and (file := query.get("path", [""])[0]) in self._events:
            offset = query.get("offset", [""])[0]
            begin = int(offset) if offset.isdecimal() else 0
            piece = self._volume.read(f"output/{file}", begin, READ_BYTES)
            return Response(200, "application/octet-stream", piece)
        if name == "log":
            of, rank = (query.get(key, [""])[0] for key in ("of", "rank"))
            chosen = PodSelection(
                frozenset({int(rank)}) if rank.isdecimal() and len(rank) < 6 else None, of
            )
            lines = [line.text for line in self._where.logs(chosen, LOG_LINES)]
            return Response(
                200, "text/plain; charset=utf-8", "\n".join(lines[-LOG_LINES:]).encode()
            )
        return NOT_FOUND if name == "events" else read_page_file(name or "job.html")

    def refresh(self) -> None:
        """Keeps the inspection pod alive while no browser shows the page."""
        with suppress(OperationError, OSError):
            self.data()

    def data(self) -> dict[str, Any]:
        """Returns the job as it is now, and the raw lines of its ranks' metrics."""
        view, steps = self._where.status(), self._volume.steps("output", POINTS)
        self._events = {event["name"] for event in steps["events"]}
        if not self._shards:
            manifest = self._json(DATA_MANIFEST)
            self._shards = [
                sum(file["records"] for file in shard["files"])
                for shard in manifest.get("shards", ())
            ]
        if not self._settings:
            self._settings = self._where.settings()
        training, pods = view.training, view.as_json()["pods"]
        parts = {pod.name: pod.part for pod in view.pods}
        document = {
            "job": self._where.name,
            "state": view.phase,
            "reason": view.reason,
            "pods": [{**pod, "part": parts[pod["pod"]]} for pod in pods],
            "settings": self._settings,
            "world": {
                "pods": training.completions if training else 0,
                "processes": training.processes if training else 1,
            },
            "attempts": self._json("output/run/attempts.json").get("attempts", []),
            "shards": self._shards,
            "evaluation": self._evaluation,
            "listed": self._listed,
            "now": time.time(),
            **steps,
        }
        # A rehearsal costs nothing.
        if not isinstance(self._where, RehearsalBackend):
            document["usd_per_hour"] = self._usd_per_hour
            where = self._where
            document["usage"] = read_usage(where.cluster, where.name, where.namespace, pods)
        return document

    def _json(self, path: str) -> dict[str, Any]:
        """Reads a JSON object from the volume; empty if it does not exist yet, or is damaged."""
        with suppress(FileNotFoundError, ValueError, RecursionError):
            # Drops Python's own numbers (NaN, Infinity), which a browser cannot parse.
            document = json.loads(self._volume.read(path), parse_constant=lambda _: None)
            return document if isinstance(document, dict) else {}
        return {}
