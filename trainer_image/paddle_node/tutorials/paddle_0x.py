"""Runs the 2016-17 `paddle pserver` and `paddle train` from an image that the user provides.

The command lines are those of the PaddlePaddle on AWS tutorials, always with `--local=0`: without
it, every trainer trains alone and reports success. The user's arguments come last, so that they
take precedence. 0.x writes the passes and `done` itself.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from paddle_node.environment import Attempt, PodEnvironment
from paddle_node.runtimes import NO_SCRATCH, History, Process, Resumption, Runtime
from paddle_node.runtimes.pass_progress import make_resumption, missing_pass, unrecorded_folders
from paddle_node.volume import durable, passes
from paddle_node.volume.passes import Identity

CONFIG = "trainer_config.lr.py"
COMMENT = "paddle_process_by_paddle"


def processes(
    pod: PodEnvironment, addresses: Sequence[str], attempt: Attempt
) -> tuple[Process, ...]:
    """Returns `paddle pserver`, and `paddle train`, which starts as soon as all pservers listen."""
    network = (f"--nics={pod.nic}", f"--port={pod.port}", f"--ports_num={pod.ports_num}")
    cluster = (
        f"--ports_num_for_sparse={pod.ports_num_sparse}",
        f"--num_gradient_servers={pod.trainers}",
    )
    server = Process(
        role="server",
        argv=("paddle", "pserver", *network, *cluster, f"--comment={COMMENT}"),
        environ=pod.environ,
        log=pod.folder.server_log(pod.trainer_id),
        working_directory=pod.program,
        ports=tuple(pod.ports),
    )
    start = (f"--start_pass={int(attempt.resumed['pass']) + 1}",) if attempt.resumed else ()
    trainer = Process(
        role="trainer",
        argv=(
            "paddle",
            "train",
            *network,
            f"--comment={COMMENT}",
            f"--pservers={','.join(addresses)}",
            *cluster,
            f"--config=./{CONFIG}",
            f"--trainer_count={pod.threads}",
            f"--num_passes={pod.passes}",
            "--use_gpu=0",
            "--log_period=50",
            "--dot_period=10",
            "--saving_period=1",
            "--local=0",
            f"--trainer_id={pod.trainer_id}",
            f"--save_dir={pod.folder.output}",
            *start,
            *pod.arguments,
        ),
        environ=pod.environ,
        log=pod.folder.train_log(pod.trainer_id),
        working_directory=pod.program,
        waits_for_servers=True,
    )
    return (server, trainer)


class OldPassProgress:
    """Passes that Paddle 0.x writes itself: folders like output/pass-00003. An empty `done` is all
    there is to check.
    """

    scratch = NO_SCRATCH

    def __init__(self, pod: PodEnvironment, say: Callable[[str], None]) -> None:
        self._folder = pod.folder
        self._passes = pod.passes
        self._say = say
        self._known: int | None = None

    def begin(self, identity: Identity, history: History) -> Resumption:
        for folder in unrecorded_folders(self._folder):
            if not _complete(folder):
                shutil.rmtree(folder)
                self._say(f"pass {int(folder.name[-5:])} was not complete and is removed")
        number = self._newest()
        return make_resumption(
            {}
            if number is None
            else {"pass": str(number), "folder": self._folder.pass_dir(number).name},
            (),
        )

    def name_progress(self, attempt: int, resumption: Resumption) -> str:
        newest = self._newest()
        return (
            ""
            if newest is None or newest <= int(resumption.resumed.get("pass", -1))
            else f"pass {newest}"
        )

    def find_missing(self, identity: Identity, resumption: Resumption, stopped: bool) -> str | None:
        return missing_pass(self._newest(), self._passes - 1)

    def save_time(self) -> float:
        newest = self._newest()
        return 0.0 if newest is None else self._folder.done(newest).stat().st_mtime

    def has_progressed(self) -> bool:
        newest, self._known = self._known, self._newest()
        return newest != self._known

    def publish(self) -> None:
        """Paddle 0.x saves where people look."""

    def _newest(self) -> int | None:
        complete = filter(_complete, unrecorded_folders(self._folder))
        return max((int(folder.name[-5:]) for folder in complete), default=None)


def _complete(folder: Path) -> bool:
    durable.refresh(folder)
    return (folder / passes.DONE).is_file()


RUNTIME = Runtime(processes, OldPassProgress, program_stays=False)
