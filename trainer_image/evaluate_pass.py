"""Measures the last complete pass of a job on the held-out records, in the image with the trainer's
variables.

Prints ONE line of JSON: {pass, metric, value, better, baseline, baseline_of, records}, where
`baseline` is the value of the best constant answer. Exits with 65 and a sentence if any part of the
pass is missing or damaged.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from paddle_node import environment
from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import BadData, BadSetting, Failure, Finished
from paddle_node.requirements import archive
from paddle_node.training.program import run
from paddle_node.volume import data_manifest, passes


def main() -> int:
    """Runs the pass's own copy of the training program as evaluator."""
    try:
        archive.enter(os.environ, lambda text: print(text, file=sys.stderr))
        # Paddle and the user's program may print: standard output is reserved for the one line.
        answer = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        node = environment.parse(os.environ)
        if not node.way.passes:
            raise BadSetting(
                f"{Variable.RUNTIME} is {node.runtime}: its programs measure themselves; "
                "fleet-ps or collective is allowed, without a command"
            )
        newest = next(passes.read_newest_first(node.folder), None)
        if newest is None:
            raise BadData(
                f"{node.folder.output} holds no complete pass: nothing was trained to the end yet"
            )
        directory = newest.folder
        passes.verify(directory)
        # A copy, because the program may write next to its own files, and must leave nothing on the
        # volume.
        scratch = TemporaryDirectory()
        shutil.copytree(directory / "program", Path(scratch.name, "program"))
        program = Path(scratch.name) / (directory / "path.txt").read_text().strip()
        manifest = data_manifest.find(node.folder, newest.identity.data)
        if manifest is None and newest.identity.data:
            print(
                f"the data of {newest.name} was split again meanwhile: its newest held-out "
                "records are used",
                file=sys.stderr,
            )
        os.environ |= {Variable.ROLE: "EVALUATOR", Variable.EVALUATED_PASS: str(directory)}
        os.environ[Variable.MANIFEST] = (
            "" if manifest is None else str(manifest.relative_to(node.folder.root))
        )
        sys.argv = [str(program), *sys.argv[1:]]
        run()
    except Finished as finished:
        print(json.dumps(finished.result), file=answer, flush=True)
        return ExitCode.DONE
    except Failure as failure:
        print(failure.sentence, file=sys.stderr)
        return failure.code
    print(f"{program} ended without a call of job.run: nothing was evaluated", file=sys.stderr)
    return ExitCode.BAD_SETTING


if __name__ == "__main__":
    sys.exit(main())
