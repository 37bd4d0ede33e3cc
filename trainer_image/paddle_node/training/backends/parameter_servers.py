"""Paddle 2.6.2's parameter-server mode, reduced to what works: a trainer whose parameters live on
the pservers.

It uses no gloo, no launcher and none of Paddle's own barriers, which silently do nothing without
gloo: the session's barriers separate the steps. No call returns before every pserver has answered
it. Training is asynchronous by default: each trainer steps on parameters at most one of its own
steps old. Synchronous training is a barrier loop, as 2.6.2's own synchronous mode crashes.
"""

import contextlib
import ctypes
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle import static
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context

from paddle_node.contract import ExitCode
from paddle_node.coordination import Session
from paddle_node.failure import BadSetting, Failure
from paddle_node.training.backends.backend import Backend, Sample
from paddle_node.training.backends.network import Feeder, Model
from paddle_node.training.backends.tables import (
    DenseTable,
    Layout,
    SparseTable,
    beta_powers,
    check,
    missing_parts,
    readable,
)
from paddle_node.training.local_model import LARGEST_EXPORT, LocalModel, export_size
from paddle_node.volume.passes import DamagedPass

LEAST_SHARDS = 8
"""Minimum number of files of a sparse table in a pass. Paddle's default of 1000 makes each save
take seconds.
"""
_LOOKS = 0.03
"""Seconds in which Paddle looks for a queued gradient at least twice."""
_FLUSH = 0.1
"""Seconds that Paddle's flush sleeps before it looks for requests without an answer."""
_LEAST = 1_000_000
"""Nanoseconds of a processor with which a thread that is ready to run has worked, not waited."""
_FULL = 1 << 20
"""Free bytes on a volume below which a failed save is attributed to a full volume."""
_GIVES_UP = "_ZN6paddle11distributed12paddle_flags24FLAGS_pserver_timeout_msE"
"""Paddle's 500 s timeout for each request to a pserver. No environment variable reaches this flag,
so it is set by its symbol.
"""
_WRITTEN_AS_TEXT = ("value", "min", "max", "mean", "std")
"""Numbers of the startup program that pservers receive as text."""


class ParameterServers(Backend):
    """The pservers of one attempt, as a trainer or a pserver sees them. Create it before anything
    runs.
    """

    def __init__(
        self,
        network: Callable[[], Model],
        model: Model,
        optimizer: Any,
        servers: int,
        resume_from: Path | None,
        sync: bool,
    ) -> None:
        """`model` is what `network` built in the default program."""
        self._optimizer: Any = type(optimizer).__name__.lower()
        if self._optimizer not in ("adam", "sgd"):
            raise BadSetting(
                f"the optimizer is {type(optimizer).__name__}: pservers of Paddle 2.6.2 know SGD "
                "and Adam"
            )
        self.lockstep = sync
        self.answers = model.answers
        self._network, self._model, self._servers = network, model, servers
        saved = Layout.load(resume_from) if resume_from else None
        self.steps = saved.steps if saved else 0
        """Gradients from all trainers that the pservers had applied when the trainers last met."""
        # A multiple of the pservers, or some would hold nothing. On a resume, it is the saved
        # number, or the load would fail.
        self._shards = saved.shards if saved else servers * -(-LEAST_SHARDS // servers)
        operators = model.loss.block.program.global_block().ops
        tables = sorted({op.input("W")[0] for op in operators if op.type == "lookup_table"})
        fleet.init(is_collective=False)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        if tables:
            strategy.sparse_table_configs = {name: self._configuration(name) for name in tables}
        fleet.distributed_optimizer(optimizer, strategy).minimize(model.loss)
        # The program with the pservers' operators has replaced the network.
        self._program = static.default_main_program()
        self._handle = fleet.fleet._runtime_handle
        self._start_values(optimizer)

    def _configuration(self, table: str) -> dict[str, int | str]:
        """Returns the settings of a sparse table. Without a rule, Paddle 2.6.2 takes Adam's for
        SGD, too.
        """
        rule = "SparseNaiveSGDRule" if self._optimizer == "sgd" else "SparseAdamSGDRule"
        prefix = f"table_parameters.{table}"
        return {
            f"{prefix}.shard_num": self._shards,
            f"{prefix}.accessor.embed_sgd_param.name": rule,
            f"{prefix}.accessor.embedx_sgd_param.name": rule,
        }

    def serve(self) -> None:
        """Runs a pserver. Returns after trainer 0 has called `close`."""
        fleet.init_server()
        fleet.run_server()

    def connect(self, session: Session) -> None:
        self._session = session
        self._executor: Any = static.Executor()
        self._feeder = Feeder(self._program)
        self._executor.run(static.default_startup_program())
        session.servers()
        # If a pserver does not answer in time, Paddle continues without its answer, and the pass
        # would count. Here a request waits as long as it takes (24 days): the rendezvous server and
        # the health probe end an attempt whose pserver hangs.
        ctypes.c_int32.in_dll(ctypes.CDLL(paddle.base.libpaddle.__file__), _GIVES_UP).value = (
            2**31 - 1
        )
        # Trainer 0 sends the initial dense parameters.
        fleet.init_worker()
        self._received = get_the_one_recv_context(self._handle.context, split_dense_table=False)
        session.barrier("connected")
        self._pull()

    def load(self, directory: Path) -> None:
        if self._session.trainer_id == 0:
            saved, mine = Layout.load(directory), self.layout()
            if (saved.shapes(), saved.optimizer) != (mine.shapes(), mine.optimizer):
                raise BadSetting(
                    f"{directory} holds another model ({_differences(saved, mine)}): "
                    "resume with the program and the data that made it, or choose another job name"
                )
            self._handle._worker.load_model(str(directory), 0)
        self._session.barrier("loaded")
        self._pull()

    def step(self, samples: Sequence[Sample]) -> float:
        loss = 0.0
        if samples:
            feed = self._feeder.feed(samples)
            loss = float(
                self._executor.run(self._program, feed=feed, fetch_list=[self._model.loss])[0]
            )
        if self.lockstep:
            self.settle()
            self._session.barrier("gradients arrived")
        self._pull()
        return loss

    def any_stops(self, stop: bool) -> bool:
        # This meeting is also the step's second barrier: no gradient arrives before every trainer
        # has pulled.
        return any(self._session.gather("stop", stop)) if self.lockstep else stop

    def settle(self) -> None:
        # A gradient is first in a queue of Paddle's, where client_flush does not look: a thread of
        # Paddle's empties it every 10 ms, and on a busy machine it may get no processor for longer.
        # It could also begin to send just after the flush has looked: hence the first wait.
        while _starves(lambda: time.sleep(_LOOKS)) or _starves(self._flush):
            pass

    def _flush(self) -> None:
        # A signal cuts client_flush's sleep short.
        began = time.monotonic()
        while True:
            self._handle._worker.client_flush()
            if time.monotonic() - began >= _FLUSH:
                return

    def finish_steps(self, steps: int) -> None:
        self.steps += steps

    def save(self, directory: Path) -> None:
        layout = self.layout()
        self._handle._worker.save_all_model(str(directory), 0)
        if missing := missing_parts(directory, layout):
            raise _incomplete_save(directory, f"{', '.join(missing)} missing")
        layout.write(directory)

    def check(self, directory: Path, names: Sequence[str]) -> None:
        try:
            check(directory / name for name in names if re.match(r"\d+/part-", name))
        except DamagedPass as damaged:
            raise _incomplete_save(directory, damaged.sentence) from None

    def export(self, directory: Path, target: Path) -> None:
        size = export_size(directory)
        if size > LARGEST_EXPORT:
            print(
                f"no inference model: its parameters have {size} bytes, and at most "
                f"{LARGEST_EXPORT} are exported",
                flush=True,
            )
            return
        LocalModel(self._network).export(directory, target)

    def close(self) -> None:
        if self._session.trainer_id == 0:
            self._handle._worker.stop_server()

    def layout(self) -> Layout:
        names = self._handle.context["grad_name_to_param_name"]
        variables = self._program.global_block().vars
        sparse, dense = [], []
        for context in self._handle._send_ctx.values():
            if context.is_sparse():
                name = names[context.origin_varnames()[0]]
                sparse.append(SparseTable(context.table_id(), name, *variables[name].shape))
            else:
                held = self._received[context.table_id()]
                dense.append(
                    DenseTable(
                        context.table_id(),
                        tuple((name, tuple(variables[name].shape)) for name in held),
                    )
                )
        return Layout(
            self._optimizer, self._servers, self._shards, self.steps, tuple(sparse), tuple(dense)
        )

    def _pull(self) -> None:
        self._handle._pull_all_dense(
            [static.global_scope()], self._handle._send_ctx, self._received
        )

    def _start_values(self, optimizer: Any) -> None:
        """Gives the pservers initial numbers that they can read and, after a resume, the powers of
        Adam's betas.

        A pass holds the moments of dense parameters but not these powers. If the powers started
        over, they would hold the learning rate down for hundreds of steps.
        """
        powers = {}
        if self._optimizer == "adam" and self.steps:
            beta1, beta2 = beta_powers(float(optimizer._beta1), float(optimizer._beta2), self.steps)
            powers = {"_beta1_pow_acc": beta1, "_beta2_pow_acc": beta2}
        for op in (
            op
            for program in self._handle.context["origin_startup_programs"]
            for op in program.global_block().ops
        ):
            for name, power in powers.items():
                if op.type == "fill_constant" and name in op.output("Out")[0]:
                    op._set_attr("value", power)
            for name in _WRITTEN_AS_TEXT:
                if op.has_attr(name) and isinstance(op.attr(name), float):
                    op._set_attr(name, readable(op.attr(name)))


def _starves(wait: Callable[[], object]) -> bool:
    """Returns whether a thread of this process is ready to run after `wait`, but had no processor
    meanwhile.
    """
    before = _thread_times()
    wait()
    for thread, nanoseconds in _thread_times().items():
        with contextlib.suppress(OSError):
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "R" and nanoseconds - before.get(thread, 0) < _LEAST:
                return True
    return False


def _thread_times() -> dict[Path, int]:
    """Returns for how many nanoseconds each other thread of this process has had a processor; none
    where the kernel does not count them.
    """
    times = {}
    for thread in _list_threads():
        with contextlib.suppress(OSError):  # It has ended.
            if thread.name != str(threading.get_native_id()):
                times[thread] = int((thread / "schedstat").read_text().split()[0])
    return times


def _list_threads() -> list[Path]:
    while True:
        # A signal may interrupt an open that somebody supervises (seccomp_unotify(2)); Python does
        # not repeat it for a folder.
        with contextlib.suppress(InterruptedError):
            return list(Path("/proc/self/task").iterdir())


def _incomplete_save(directory: Path, why: str) -> Failure:
    """Returns the failure. A pserver that cannot write reports nothing: the volume's free bytes
    tell the likeliest cause.
    """
    free, sentence = shutil.disk_usage(directory).free, f"{directory} was not saved whole"
    if free < _FULL:
        return Failure(
            ExitCode.VOLUME_FULL, f"{sentence}, the volume is full ({free} bytes free): {why}"
        )
    return Failure(1, f"{sentence}: {why}")


def _differences(saved: Layout, mine: Layout) -> str:
    before, now = saved.shapes(), mine.shapes()
    if before == now:
        return f"trained by {saved.optimizer}, and this program uses {mine.optimizer}"
    name = next(name for name in sorted(before | now) if before.get(name) != now.get(name))
    return f"{name} is {before.get(name, 'absent')} there and {now.get(name, 'absent')} here"
