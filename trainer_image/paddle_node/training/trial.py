"""Tries a training program on the first records of its source, in one process.

    python -m paddle_node.training.trial <train.py> <arguments>

The program runs as in a pod, but alone and with local embeddings. If the program or its data has a
fault, the trial exits with 2 and one sentence that names the program's line. If this machine cannot
reach the source, it exits with 68. A command is not run: its script is parsed, and its imports are
looked up, also those of the program's own modules. The trial writes only to the working directory,
the caller's scratch folder.
"""

import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_node import command_line, contract, environment, own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.environment import Reader
from paddle_node.failure import BadSetting, Failure, Finished, leave
from paddle_node.training import imports
from paddle_node.training.program import run

MISSING = "missing.json"
"""A file beside the program's folder: the modules that are nowhere, each with the line that imports
it; first those that the program needs, then those that it may do without.
"""
SOME = dataclasses.replace(contract.BOUNDS[Variable.TRAINERS], default=1)
"""How many trainers there may be; a trial of one knows none."""
LEFT_OUT = "left-out.json"
"""A file beside the program's folder: what is not sent of the user's folder, and why."""


BLIND = re.compile(
    r"(?m)^(?!\s*#).*?(?P<what>\bpython[\d.]* -[a-zA-Z]*[IES]\b|\benv -i\b|\bPYTHONPATH=(?!\S*\$))"
)
"""In a script: what hides a Python from the agent."""
SCRIPTS = re.compile(r"[\w./-]+\.(?:py|sh|bash)\b")


def _look_at_world(words: Sequence[str], folder: Path) -> None:
    """Says if the command, or a script that it names, may start ranks with what knows one machine,
    or hides a Python from the agent.
    """
    lines = [(" ".join(words), "command")]
    for word in dict.fromkeys(words):
        if word.endswith((".py", ".sh", ".bash")):
            with contextlib.suppress(OSError):
                lines.append(((folder / word).read_text(errors="replace"), word))
    for name in dict.fromkeys(SCRIPTS.findall(lines[-1][0]) if lines[-1][1].endswith("sh") else ()):
        with contextlib.suppress(OSError):
            lines.append(((folder / name).read_text(errors="replace"), name))
    together = Reader().integer(Variable.TRAINERS, SOME) > 1 and not os.environ.get(Variable.APART)
    for text, where in lines:
        code = [line.partition("#")[0] for line in text.splitlines()]
        if together and (launcher := command_line.name_local_launcher(code)):
            print(
                f"{where} names {launcher}, and trainers is {os.environ[Variable.TRAINERS]}: if "
                "that starts the ranks, each pod trains alone, and the job ends with 2. "
                f"{command_line.describe_local(launcher)}; apart: true is for pods that work apart "
                "on purpose"
            )
            together = False
        if where.endswith("sh") and (hidden := BLIND.search(text)):
            print(
                f"{where}: {hidden['what'].strip()} hides a Python from the agent, which may not "
                "see how it ends (docs/pod.md): name a file of success"
            )


def _command(words: Sequence[str], folder: Path) -> None:
    _look_at_world(words, folder)
    script = command_line.script(words)
    if not script or not (folder / script).is_file():
        print(f"what {' '.join(words[:3])} starts was not checked: `paddle-aws try --run` runs it")
        return
    texts = [(folder / script).read_text(errors="replace")]
    # The agent's own packages, such as six, are not the program's.
    sys.path[:] = [path for path in sys.path if Path(path).name != contract.AGENT_PACKAGES]
    sys.path.insert(0, str((folder / script).parent))
    if "sys.path" in texts[0]:  # Most scripts that change it add a folder above their own.
        sys.path += [str(folder / above) for above in Path(script).parent.parents]
    if line := imports.fitted(texts[0]):
        print(
            f"{script}:{line}: paddle.Model.fit counts its epochs anew in each attempt, also "
            "behind Model.load: hand it those that are left, such as by {newest_number:<glob>}"
        )
    unknown: dict[str, str] = {}
    missing: dict[str, str] = {}
    optional: dict[str, str] = {}
    for imported in imports.follow(folder / script, folder):
        module = imported.module if imported.own else imported.module.partition(".")[0]
        if imported.found or module in unknown or module in missing:
            continue
        place = f"{imported.file.relative_to(folder)}:{imported.line}"
        if imported.optional:
            if not imported.own:
                optional[module] = place
            continue
        if left := _left_out(module, folder):
            raise BadSetting(
                f"{place}: there is no module {module} in what the pods get: {left}; name it in "
                "program.include"
            )
        text = "\n".join([*texts, imported.file.read_text(errors="replace")])
        why = _place(module, folder) or _other_path(text)
        if not why and imported.own:
            raise BadSetting(
                f"{place}: there is no module {module}: the program's folder has no such file"
            )
        if not why:
            missing[module] = place
            continue
        unknown[module] = f"{place}: {module} was not checked: {why}"
    if missing:
        optional = {name: place for name, place in optional.items() if name not in missing}
        (folder.parent / MISSING).write_text(json.dumps([missing, optional]))
        module, place = next(iter(missing.items()))
        raise BadSetting(
            f"{place}: there is no module {module}: name its package in program.requirements"
        )
    print(*unknown.values(), sep="\n", end="\n" * bool(unknown))
    print(
        f"{script} has no syntax error, and all {'else ' if unknown else ''}that it imports is "
        "there; `paddle-aws try --run` runs it for a few steps"
    )


def _left_out(module: str, folder: Path) -> str:
    """Returns which name of the program's folder on the user's machine is the module, and why it is
    not in the archive; empty: none is known.
    """
    try:
        reasons: dict[str, str] = json.loads((folder.parent / LEFT_OUT).read_text())
    except FileNotFoundError:
        return ""
    path = module.replace(".", "/")
    for name, why in reasons.items():
        plain = f"/{name.removesuffix('.py').rstrip('/')}"
        if f"/{path}".startswith(f"{plain}/") or plain.endswith(f"/{path}"):
            return f"{name} stays on this machine ({why})"
    return ""


def _place(module: str, folder: Path) -> str:
    """Returns where the program's own folder has a module that Python's path does not lead to."""
    for path in sorted(folder.rglob(f"{module}*"), key=lambda path: (len(path.parts), path)):
        is_package = path.name == module and path.is_dir()
        is_file = path.stem.partition(".")[0] == module and path.suffix in (".py", ".so")
        # PaddleSpeech has a module .../librosa.py in a package, and a folder tests/.../soundfile.
        below = (path.parent / "__init__.py").exists() or "tests" in path.parts
        if (is_package or is_file) and not below:
            place, above = path.relative_to(folder), path.parent.relative_to(folder)
            return (
                f"it is {place}{'/' * is_package} of the program's folder, which `environment: "
                f"{{PYTHONPATH: {above}}}` puts on Python's path"
            )
    for name in ("setup.py", "setup.cfg", "pyproject.toml"):
        with contextlib.suppress(OSError):
            text = (folder / name).read_text(errors="replace")
            if re.search(rf"(\bname *= *|Extension\(\s*)['\"]?{re.escape(module)}\b", text):
                return f"{name} names it, which installs the program's folder"
    return ""


def _other_path(text: str) -> str:
    """Returns how a script may find modules elsewhere; empty: it has no way that is known."""
    if os.environ.get(Variable.TRIED_IMAGE):
        return "the job has an image of its own, whose packages are not here"
    way = re.search(r"sys\.(meta_path|modules)|addsitedir|-m pip\b|['\"]pip['\"]|\bexec\(", text)
    return f"the script may find it by `{way[0]}`" if way else ""


def main() -> int:
    """Tries the program in `sys.argv[1]`. Returns the exit code."""
    program = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.dont_write_bytecode = True
    os.environ.setdefault(
        "GLOG_minloglevel", "2"
    )  # Otherwise Paddle prints which executor it chose.
    try:
        if command := environment.Reader().words(Variable.COMMAND):
            _command(command, program.parent)
            return ExitCode.DONE
        run()
        sentence = f"{program.name} ended without a call of job.run or job.run_collective"
    except Finished:
        return ExitCode.DONE
    except Failure as failure:
        sentence = failure.sentence
        if failure.code == ExitCode.SOURCE_UNREACHABLE:
            print(sentence, file=sys.stderr)
            return failure.code
    except (Exception, SystemExit) as error:
        sentence = own_code.summary(error)
    print(sentence, file=sys.stderr)
    return ExitCode.BAD_SETTING


if __name__ == "__main__":
    leave(main())
