"""Paddle 2.6.2's parameter-server mode, reduced to what was seen to work.

Promises: no gloo, no launcher and no barrier of Paddle's own (without gloo that one silently does nothing): callers put a
coordinator's barrier between the steps where the methods say so. No call returns before every pserver has answered it.
"""

import ctypes
import shutil
from pathlib import Path
from typing import Any

import paddle
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context

from paddle_node.contract import ExitCode
from paddle_node.failure import Failure
from paddle_node.training.engines.tables import DenseTable, Layout, SparseTable, beta_powers, check, missing_parts, readable
from paddle_node.training.passes import DamagedPass

LEAST_SHARDS = 8
"""Files of a sparse table in a pass. Paddle's default of 1000 makes each save take seconds."""

_FULL = 1 << 20
"""Bytes free on a volume below which a failed save is put down to it."""
_GIVES_UP = "_ZN6paddle11distributed12paddle_flags24FLAGS_pserver_timeout_msE"
"""Paddle's own 500 s for each request to a pserver: no environment variable reaches this flag, so it is set by its symbol."""
_WRITTEN_AS_TEXT = ("value", "min", "max", "mean", "std")
"""Numbers of the startup program that pservers get as text."""


class ParameterServers:
    """The pservers of one attempt, as this process sees them. Build it after the network, before anything runs."""

    def __init__(self, loss: Any, optimizer: Any, servers: int, resume_from: Path | None) -> None:
        self._optimizer: Any = type(optimizer).__name__.lower()
        if self._optimizer not in ("adam", "sgd"):
            raise Failure(
                ExitCode.BAD_SETTING, f"the optimizer is {type(optimizer).__name__}: pservers of Paddle 2.6.2 know SGD and Adam"
            )
        self._servers = servers
        saved = Layout.load(resume_from) if resume_from else None
        self.steps = saved.steps if saved else 0
        """Gradients that the pservers have applied up to the last pass, from all trainers."""
        # A multiple of the pservers, or some would hold nothing; as before on a resume, or the load would fail.
        shards = servers * -(-LEAST_SHARDS // servers)
        self._shards = saved.shards if saved else shards
        network = loss.block.program
        tables = sorted({op.input("W")[0] for op in network.global_block().ops if op.type == "lookup_table"})
        fleet.init(is_collective=False)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        if tables:
            strategy.sparse_table_configs = {name: {f"table_parameters.{name}.shard_num": self._shards} for name in tables}
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
        # Not `network`: the program with the pservers' operators has taken its place.
        self.program = paddle.static.default_main_program()
        self._handle = fleet.fleet._runtime_handle
        self._start_values(optimizer)

    def serve(self) -> None:
        """In a pserver: returns after trainer 0 has called `stop`."""
        fleet.init_server()
        fleet.run_server()

    def connect(self) -> None:
        """In a trainer, when all pservers listen. Trainer 0 sends the initial dense parameters: barrier, then `pull`."""
        # Paddle trains on without what a pserver did not answer in time, and the pass would count. Here a request waits for
        # as long as it takes (24 days): the rendezvous server and the health probe end an attempt whose pserver hangs.
        ctypes.c_int32.in_dll(ctypes.CDLL(paddle.base.libpaddle.__file__), _GIVES_UP).value = 2**31 - 1
        fleet.init_worker()
        self._received = get_the_one_recv_context(self._handle.context, split_dense_table=False)

    def pull(self) -> None:
        """Dense parameters from the pservers into this process."""
        self._handle._pull_all_dense([paddle.static.global_scope()], self._handle._send_ctx, self._received)

    def flush(self) -> None:
        """Returns when every gradient that this trainer sent has arrived."""
        self._handle._worker.client_flush()

    def save(self, directory: Path) -> None:
        """In trainer 0, behind a barrier after every trainer's `flush`: each pserver writes its parts."""
        layout = self.layout()
        self._handle._worker.save_all_model(str(directory), 0)
        try:
            missing = missing_parts(directory, layout)
            if missing:
                raise DamagedPass(f"{', '.join(missing)} missing")
            layout.write(directory)
            check(directory)
        except DamagedPass as damaged:
            raise _not_saved(directory, damaged.sentence) from None

    def load(self, directory: Path) -> None:
        """In trainer 0, after everybody's `connect` and a barrier: each pserver reads its parts; barrier, then `pull`."""
        saved, mine = Layout.load(directory), self.layout()
        if (saved.shapes(), saved.optimizer) != (mine.shapes(), mine.optimizer):
            raise Failure(
                ExitCode.BAD_SETTING,
                f"{directory} holds another model ({_differences(saved, mine)}): "
                "resume with the program and the data that made it, or choose another job name",
            )
        self._handle._worker.load_model(str(directory), 0)

    def stop(self) -> None:
        """In trainer 0, after every trainer's last call: all pservers end with 0."""
        self._handle._worker.stop_server()

    def _start_values(self, optimizer: Any) -> None:
        """What the pservers begin with: numbers that they can read, and the powers of Adam's betas where the saved pass had them.

        A pass holds the moments of dense parameters, but not these powers. From their beginning again they
        would hold the learning rate down for hundreds of steps behind every resume.
        """
        powers = {}
        if self._optimizer == "adam" and self.steps:
            beta1, beta2 = beta_powers(float(optimizer._beta1), float(optimizer._beta2), self.steps)
            powers = {"_beta1_pow_acc": beta1, "_beta2_pow_acc": beta2}
        for op in (op for program in self._handle.context["origin_startup_programs"] for op in program.global_block().ops):
            for name, power in powers.items():
                if op.type == "fill_constant" and name in op.output("Out")[0]:
                    op._set_attr("value", power)
            for name in _WRITTEN_AS_TEXT:
                if op.has_attr(name) and isinstance(op.attr(name), float):
                    op._set_attr(name, readable(op.attr(name)))

    def layout(self) -> Layout:
        """What a pass of this model consists of."""
        names = self._handle.context["grad_name_to_param_name"]
        variables = self.program.global_block().vars
        sparse, dense = [], []
        for context in self._handle._send_ctx.values():
            if context.is_sparse():
                name = names[context.origin_varnames()[0]]
                sparse.append(SparseTable(context.table_id(), name, *variables[name].shape))
            else:
                held = self._received[context.table_id()]
                dense.append(DenseTable(context.table_id(), tuple((name, tuple(variables[name].shape)) for name in held)))
        return Layout(self._optimizer, self._servers, self._shards, self.steps, tuple(sparse), tuple(dense))


def _not_saved(directory: Path, why: str) -> Failure:
    """A pserver that cannot write says nothing of it: the volume's free bytes tell the likeliest cause."""
    free = shutil.disk_usage(directory).free
    if free < _FULL:
        return Failure(ExitCode.VOLUME_FULL, f"{directory} was not saved whole, the volume is full ({free} bytes free): {why}")
    return Failure(1, f"{directory} was not saved whole: {why}")


def _differences(saved: Layout, mine: Layout) -> str:
    before, now = saved.shapes(), mine.shapes()
    if before == now:
        return f"trained by {saved.optimizer}, and this program uses {mine.optimizer}"
    name = next(name for name in sorted(before | now) if before.get(name) != now.get(name))
    return f"{name} is {before.get(name, 'absent')} there and {now.get(name, 'absent')} here"
