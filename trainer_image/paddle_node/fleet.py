"""Everything that a training program needs: `train.py` defines the data and the network, this
module does the rest.

    job = fleet.start(parse)
    vocabulary = job.agree("vocabulary", count, merge)
    job.run(network, sample, learning_rate=0.01, batch=64)

The same program serves as pserver, as trainer or as evaluator, as its environment says. A pass
counts only when every record of every shard was trained and every pserver's part is on the volume;
a resumed run continues after the newest such pass.
"""

import sys
import traceback
from pathlib import Path
from types import TracebackType

from paddle_node import contract, environment
from paddle_node.contract import ExitCode, Variable
from paddle_node.coordination import AttemptEnded
from paddle_node.environment import ProgramEnvironment
from paddle_node.failure import BadSetting, Failure, leave
from paddle_node.retry import disk_full
from paddle_node.training.backends.network import Model, embedding, ids, label, number, pooled
from paddle_node.training.job import Job, Parse
from paddle_node.training.pod_job import EvaluatedJob, PodJob
from paddle_node.training.shard import Reader, lines
from paddle_node.volume import passes

__all__ = ["Job", "Model", "embedding", "ids", "label", "lines", "number", "pooled", "start"]


def start(parse: Parse = str, reader: Reader = lines) -> Job:
    """Returns the job. `reader` splits a file into records, `parse` interprets one. From now on a
    `Failure` ends the process.
    """
    sys.excepthook = _report
    program = ProgramEnvironment.read()
    if program.role == "TRIAL":
        # What a pod never needs.
        from paddle_node.training.tried_job import TriedJob

        return TriedJob(parse, reader)
    if program.role not in ("PSERVER", "TRAINER", "EVALUATOR"):
        raise BadSetting(
            f"{Path(sys.argv[0]).name} is run by hand: name its folder in a job file (`program: "
            "{folder: ./my_program}`), then `paddle-aws try job.yaml` runs it on a few "
            "records, and `make rehearse JOB=job.yaml` as a whole job"
        )
    return (EvaluatedJob if program.role == "EVALUATOR" else PodJob)(program, parse, reader)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints one sentence for a deliberate end of the process, or a traceback for a fault of the
    program itself.
    """
    code = 1
    if isinstance(error, Failure):
        print(error.sentence, file=sys.stderr)
        # A pass that cannot be loaded ends the attempt and not the job: the next attempts pass over
        # it.
        code = 1 if isinstance(error, passes.DamagedPass) else error.code
    elif isinstance(error, OSError) and disk_full(error):
        volume = environment.Reader().text(Variable.JOB_PATH, contract.VOLUME_MOUNT)
        remedy = (
            f"make room on the volume at {volume}, or lower {Variable.KEEP_PASSES}; elsewhere, "
            "give the pod more scratch"
        )
        print(f"the disk is full: {error}; {remedy}", file=sys.stderr)
        code = ExitCode.VOLUME_FULL
    elif isinstance(error, AttemptEnded):
        print(f"this attempt is over: {error}", file=sys.stderr)
    else:
        traceback.print_exception(kind, error, trace)
    leave(code)
