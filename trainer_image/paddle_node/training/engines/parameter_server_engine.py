"""A trainer whose parameters live on the pservers.

Promises: asynchronous unless told otherwise: each trainer steps at its own pace, on parameters that are at most one step of its
own old. Synchronous is a barrier loop, since 2.6.2's own synchronous mode crashes: two meetings of all trainers a step.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle import static

from paddle_node.coordination import Session
from paddle_node.training.engines.engine import Sample
from paddle_node.training.engines.network import Feeder, Model
from paddle_node.training.engines.parameter_servers import ParameterServers
from paddle_node.training.local_model import LARGEST_EXPORT, LocalModel, export_size


class ParameterServerEngine:
    """See `Engine`."""

    def __init__(self, servers: ParameterServers, model: Model, network: Callable[[], Model], sync: bool) -> None:
        self.lockstep = sync
        self.answers = model.answers
        self._servers = servers
        self._model = model
        self._network = network
        self._executor: Any = static.Executor()
        self._feeder = Feeder(servers.program)

    def connect(self, session: Session) -> None:
        self._session = session
        self._executor.run(static.default_startup_program())
        session.servers()
        self._servers.connect()
        session.barrier("connected")
        self._servers.pull()

    def load(self, directory: Path) -> None:
        if self._session.trainer_id == 0:
            self._servers.load(directory)
        self._session.barrier("loaded")
        self._servers.pull()

    def step(self, samples: Sequence[Sample]) -> float:
        loss = 0.0
        if samples:
            feed = self._feeder.feed(samples)
            loss = float(self._executor.run(self._servers.program, feed=feed, fetch_list=[self._model.loss])[0])
        if self.lockstep:
            self._servers.flush()
            self._session.barrier("gradients arrived")
        self._servers.pull()
        return loss

    def any_stops(self, stop: bool) -> bool:
        # This meeting is also the step's second barrier: nobody's gradient comes before everybody has pulled.
        return any(self._session.gather("stop", stop)) if self.lockstep else stop

    def settle(self) -> None:
        self._servers.flush()

    def settled(self, steps: int) -> None:
        self._servers.steps += steps

    def save(self, directory: Path) -> None:
        self._servers.save(directory)

    def export(self, directory: Path, target: Path) -> None:
        """See `LocalModel.export`."""
        size = export_size(directory)
        if size > LARGEST_EXPORT:
            print(f"no inference model: its parameters have {size} bytes, and at most {LARGEST_EXPORT} are exported", flush=True)
            return
        LocalModel(directory, self._network).export(target)

    def close(self) -> None:
        if self._session.trainer_id == 0:
            self._servers.stop()
