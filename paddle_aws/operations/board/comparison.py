"""Lays the curves of several jobs over each other, and shows which settings differ."""

from collections.abc import Sequence
from typing import Any

from paddle_node.volume import steps
from paddle_node.volume.steps import Step

from paddle_aws.operations.board.job_page import POINTS
from paddle_aws.operations.board.site import NOT_FOUND, Query, Response, json_answer, read_page_file
from paddle_aws.operations.jobs.backend import Backend
from paddle_aws.operations.jobs.volume.access import Volume

_RANK_0 = "node_0/steps-0.jsonl"


class Comparison:
    """Answers a browser's requests about several jobs."""

    def __init__(self, jobs: Sequence[tuple[Backend, Volume]]) -> None:
        self._jobs = jobs

    def answer(self, name: str, query: Query) -> Response:
        """Answers a request for the page or its data."""
        if name == "data":
            return json_answer(self.data())
        return NOT_FOUND if "/" in name else read_page_file(name or "comparison.html")

    def refresh(self) -> None:
        """Keeps the inspection pods alive while no browser shows the page."""
        for _, volume in self._jobs:
            volume.files("output/run")

    def data(self) -> dict[str, Any]:
        """Returns the jobs as they are now: curves of rank 0, and the settings that differ."""
        settings = [where.settings() for where, _ in self._jobs]
        names = sorted({name for chosen in settings for name in chosen})
        differing = [name for name in names if len({chosen.get(name) for chosen in settings}) > 1]
        return {
            "differing": differing,
            "jobs": [
                {
                    "job": where.name,
                    "state": where.status().phase,
                    "settings": [chosen.get(name, "") for name in differing],
                    "metrics": _curves(volume),
                }
                for (where, volume), chosen in zip(self._jobs, settings, strict=True)
            ],
        }


def _curves(volume: Volume) -> dict[str, list[list[float]]]:
    """Returns each metric's steps and values; of a step that was trained again, the newest."""
    lines = volume.steps("output", POINTS)["lines"].get(_RANK_0, ())
    found: dict[float, Step] = {}
    for step in steps.parse("\n".join(lines).encode()):
        # An attempt goes on behind what the one before had saved: the rest of that is void.
        if found and step.attempt > next(reversed(found.values())).attempt:
            found = {number: earlier for number, earlier in found.items() if number < step.step}
        found[step.step] = step
    curves: dict[str, list[list[float]]] = {}
    for step in found.values():
        for name, value in steps.encode(step.metrics).items():
            if isinstance(value, float):
                curves.setdefault(name, []).append([step.step, value])
    return curves
