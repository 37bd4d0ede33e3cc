"""Refuses commands, variables and arguments that no pod can run."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddle_node import command_line, contract

from k8s_charts.spec.job_settings import JobSettings
from k8s_charts.spec.program_archive import INLINE_LIMIT, json_size

_SHELL = ("|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1")
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"$`\\])*"|\{[^{}]*\}""", re.DOTALL)
"""What a shell leaves as it is; in braces stands a placeholder."""
_BACKSLASH = re.compile(r"\\\w")
_LOOKALIKE = re.compile("[\u00a0\u200b\u3000\ufeff\u2018-\u201f]|(?<!\\S)[\u2010-\u2015]")
"""Signs that word processors and web pages put in place of others."""
_OPERATOR = re.compile(r"[;|&<>()]|^#")
_BUILTINS = {".", "cd", "eval", "exec", "export", "set", "source", "ulimit", "unset"}
_SCRIPT = re.compile(r"(?:^|\s)(\S*/)?(ba|da|z|k)?sh\s+(-\S+\s+(\w+\s+)?)*-\w*c\s")
"""A line with a shell in it, which reads the rest."""
_EXPANDED = re.compile(r"(?:^|\s)(~(?:/\S*)?(?=\s|$))|\S*(?:\$[\w({@*#?]|`|\*)\S*")
_EXPANDED_WORD = re.compile(r"\$(\w+|\{\w+\})|~(/.*)?")
_OUTPUT = re.compile(r"(?!.*/\.\.(/|$))(output|\{output\})/+[^/].*", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def command_faults(job: JobSettings, command: tuple[str, ...]) -> Iterator[str]:
    """Yields what is wrong with a command of controller job and the settings that belong to it."""
    if job.gpus.count and job.chosen_processes > job.gpus.count:
        yield (
            f"processes is {job.processes}: gpus.count is {job.gpus.count}, at most one "
            "for each GPU is allowed"
        )
    try:
        line = command_line.read(command)
    except ValueError as error:
        yield f"command is {error}"
        return
    if _ASSIGNMENT.match(command[0]):
        yield (
            f"command begins with {command[0]}: no shell reads it, so variables belong into "
            "environment"
        )
    if shell := next((word for word in command if word in _SHELL), None):
        yield _no_shell("command", shell)
    if wrong := command_line.contradiction(line.flags, job.trainers):
        yield (
            f"command has {wrong} and trainers is {job.trainers}: leave the flag out, or "
            "make them equal"
        )
    texts = [
        *(("command", word) for word in command),
        *(("resume", word) for word in job.resume),
    ]
    texts += [(f"environment.{name}", text) for name, text in job.environment.items()]
    texts += [("progress", job.progress or ""), ("success", job.success or "")]
    placeholders = dict.fromkeys([*command_line.PLACEHOLDERS, *job.inputs], "")
    if job.data is None:
        del placeholders["data"]
    for setting, text in texts:
        try:
            command_line.fill(text, placeholders, "newest" if setting == "resume" else None)
        except ValueError as error:
            if job.data is None and str(error).startswith("{data}"):
                yield f"{setting} has {{data}} and data is missing: give its source"
            else:
                yield f"{setting} has {error}"
    for name, pattern in job.metrics.items():
        if fault := command_line.pattern_fault(pattern):
            yield f"metrics.{name} is {pattern}: {fault}"
    globs = command_line.globs(job.resume)
    if job.resume and len(globs) != 1:
        yield (
            f"resume names {len(globs)} patterns: one {{newest:<glob>}}, {{newest_stem:<glob>}} or "
            "{newest_number:<glob>} is needed"
        )
    for setting, path in [
        *(("resume", glob) for glob in globs),
        ("progress", job.progress),
        ("success", None if job.success == contract.EXIT_CODE else job.success),
    ]:
        if path is not None and not _OUTPUT.fullmatch(path):
            more = f", or {contract.EXIT_CODE}" if setting == "success" else ""
            yield f"{setting} is {path}: a path below output/ is allowed, without ..{more}"


def shell_faults(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields the words of a job file's command and `resume` that a shell would replace, such as
    $EPOCHS, ~/out and data/*.txt; quotes keep a word as it is, and so does a list, but for a
    variable or ~ that is all of a word.
    """
    for name in ("command", "resume"):
        line = settings.get(name)
        if isinstance(line, str) and not _SCRIPT.search(line):
            line = line.replace("\\\n", " ").strip()
            plain = _QUOTED.sub(lambda quoted: "-" * len(quoted[0]), line)
            if sign := _LOOKALIKE.search(plain):
                yield (
                    f"{name} has {sign[0]} (U+{ord(sign[0]):04X}), which only looks like a quote, "
                    "a dash or a blank: retype it, or put its word into quotes"
                )
            elif cut := next(filter(_BACKSLASH.fullmatch, _QUOTED.findall(line)), ""):
                yield (
                    f"{name} has {cut}, of which a shell makes {cut[1:]}: write a path with /, or "
                    "put a backslash into quotes"
                )
            elif found := _EXPANDED.search(plain):
                yield _no_shell(name, line[found.start() : found.end()].strip())
            elif "\n" in plain:
                yield (
                    f"{name} has several lines: one command is allowed; end a line with \\ to go "
                    "on in the next, or write a script"
                )
            elif operator := _find_operator(line, plain):
                yield _no_shell(name, operator)
        elif isinstance(line, list | tuple):
            words = (word for word in line if isinstance(word, str))
            if word := next((word for word in words if _EXPANDED_WORD.fullmatch(word)), None):
                yield _no_shell(name, word)


def _find_operator(line: str, plain: str) -> str:
    """Returns the first word in which a shell would see more than a word; empty: there is none.
    `plain` is the line without what its quotes protect.
    """
    words = [(line[slice(*word.span())], word[0]) for word in re.finditer(r"\S+", plain)]
    if words and words[0][0] in _BUILTINS:
        return words[0][0]
    # An operator that is a word of its own is refused with the command.
    return next((text for text, bare in words if _OPERATOR.search(bare) and text not in _SHELL), "")


def script_fault(command: tuple[str, ...], root: Path) -> str:
    """Returns why a script that the command names cannot run; empty: nothing is known."""
    for number, word in enumerate(command):
        file = root / word
        # A bare word is looked for in PATH, whatever the program's folder has of that name.
        named = word.endswith(".sh") or (number == 0 and "/" in word)
        if "{" in word or not named or not file.is_file():
            continue
        if number == 0 and not file.stat().st_mode & 0o100:
            return (
                f"command begins with {word}, which may not be executed: run `chmod +x {word}`, "
                f"or write bash {word}"
            )
        with file.open("rb") as stream:
            head = stream.read(65_536)
        if b"\r\n" in head and (word.endswith(".sh") or head.startswith(b"#!")):
            return (
                f"command names {word}, whose lines end with CR LF, as Windows writes them, and a "
                "shell takes the CR for a part of each word: run `sed -i 's/\\r$//' "
                f"{word}`"
            )
    return ""


def _no_shell(setting: str, word: str) -> str:
    return (
        f"{setting} has the word {word}: no shell reads it; a script is allowed, or bash -c '...'"
    )


def environment_faults(job: JobSettings) -> Iterator[str]:
    """Yields the variables and arguments that no pod can get."""
    reserved = {str(variable) for variable in contract.Variable}
    for variable in job.environment:
        if variable in reserved:
            yield (
                f"environment has {variable}: the job sets it itself, from the setting of "
                "that meaning"
            )
    strings = {f"environment.{name}": f"{name}={value}" for name, value in job.environment.items()}
    strings |= {f"arguments.{number}": argument for number, argument in enumerate(job.arguments)}
    for setting, text in strings.items():
        if (length := len(text.encode())) > contract.LONGEST_STRING:
            yield (
                f"{setting} has {length} bytes: Linux starts no program with more than "
                f"{contract.LONGEST_STRING}"
            )
    if (size := json_size(job.environment)) > INLINE_LIMIT:
        yield f"environment has {size} bytes as JSON: {INLINE_LIMIT} are allowed"
