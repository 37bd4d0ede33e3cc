"""A process's part in a job of our training API, as a program sees it."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from paddle_node import own_code
from paddle_node.contract import Variable
from paddle_node.failure import BadSetting
from paddle_node.training.backends.backend import Sample
from paddle_node.training.backends.network import BadSample, Model

Parse = Callable[[str], Any]
"""Turns a record into what it says. None leaves the record out; ValueError means that it cannot be
read: a few such records are left out and counted, too many end the job with the place of the first.
"""
Sampler = Callable[[Any], Sample]
"""Turns what a record says into {input: value}."""


class Job(ABC):
    """This process's part in the job."""

    def __init__(self, parse: Parse, runtime: str, seed: int) -> None:
        self.parse, self._runtime, self._seed = parse, runtime, seed
        if runtime == "fleet-ps":
            # Before the program makes an optimizer of its own.
            import paddle

            paddle.enable_static()

    @abstractmethod
    def agree(
        self, name: str, count: Callable[[Iterable[Any]], Any], merge: Callable[[list[Any]], Any]
    ) -> Any:
        """Returns a JSON value that is the same in every process: `merge` of what `count` finds in
        each trainer's shard.

        `count` gets what `parse` made of the records. `merge` must not depend on the shards' order
        or number; its result is kept with each pass.
        """

    def run(
        self,
        network: Callable[[], Model],
        sample: Sampler,
        *,
        learning_rate: float = 0.01,
        batch: int = 64,
        optimizer: Any = None,
        sync: bool = False,
    ) -> NoReturn:
        """Trains on parameter servers, serves or evaluates, then ends the process.

        `network` builds a static program from this module's inputs and embeddings. `optimizer` is
        Adam with `learning_rate` unless given; `batch` is the records per step of one trainer.
        `sync` makes all trainers take each step together: slower, see docs/runtimes.md.
        """
        import paddle

        enter_static_mode(self._runtime, self._seed)
        with paddle.base.unique_name.guard():
            backend = self._static(network, optimizer or paddle.optimizer.Adam(learning_rate), sync)
        self._use(backend, sample, batch)

    def run_collective(
        self,
        layer: Callable[[], Any],
        forward: Callable[[Any, Sequence[Sample]], Model],
        sample: Sampler,
        *,
        learning_rate: float = 0.01,
        batch: int = 64,
        optimizer: Callable[[Any], Any] | None = None,
    ) -> NoReturn:
        """Trains with the whole model in every trainer, or evaluates, then ends the process.

        `layer()` makes a paddle.nn.Layer, `forward(layer, samples)` a Model of tensors from a
        batch; `optimizer(parameters)` makes the optimizer, which is Adam with `learning_rate`
        unless given.
        """
        import paddle

        expect(self._runtime, "collective", "run")
        from paddle_node.training.backends.collective import Collective

        paddle.seed(self._seed)
        network = layer()
        parameters = network.parameters()
        chosen = (
            optimizer(parameters)
            if optimizer
            else paddle.optimizer.Adam(learning_rate, parameters=parameters)
        )
        self._use(Collective(network, forward, chosen), sample, batch)

    @abstractmethod
    def _static(self, network: Callable[[], Model], optimizer: Any, sync: bool) -> Any:
        """Builds the network, with its parameters if this process has them."""

    @abstractmethod
    def _use(self, backend: Any, sample: Sampler, batch: int) -> NoReturn:
        """Trains or evaluates what `_static` made, or a `Collective`, then ends the process."""


def expect(chosen: str, runtime: str, otherwise: str) -> None:
    """Raises `BadSetting` if the job's runtime is not the one that the program was written
    for.
    """
    if chosen != runtime:
        mode, called = (
            ("parameter-server", "run")
            if runtime == "fleet-ps"
            else ("collective", "run_collective")
        )
        raise BadSetting(
            f"the job's runtime is {chosen}, and job.{called} needs {runtime}: set `mode: "
            f"{mode}`, or call job.{otherwise}"
        )


def enter_static_mode(runtime: str, seed: int) -> None:
    """Prepares Paddle for a network whose embeddings pservers hold. Raises `BadSetting` if this
    Paddle has no pservers.
    """
    import paddle

    expect(runtime, "fleet-ps", "run_collective")
    if not hasattr(paddle.base.core, "DistFleetWrapper"):
        raise BadSetting(
            f"{Variable.RUNTIME} is fleet-ps, and the image has Paddle {paddle.__version__}, "
            "which has no parameter servers: use an image with Paddle 2.6.2, or the runtime "
            "collective and job.run_collective"
        )
    paddle.enable_static()
    # To Paddle a seed of 0 means none, and a seed has 31 bits. The pservers draw the rows of
    # embeddings, and take no seed.
    seed = seed % (2**31 - 1) + 1
    paddle.static.default_startup_program().random_seed = seed
    paddle.static.default_main_program().random_seed = seed


@contextlib.contextmanager
def name_sample(sample: Sampler) -> Iterator[None]:
    """Adds the place of the function to the error for a value that an input cannot take."""
    try:
        yield
    except BadSample as bad:
        raise BadSetting(f"{own_code.describe_place(sample)}: {bad.sentence}") from None
