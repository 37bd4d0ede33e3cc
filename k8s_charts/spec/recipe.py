"""Recipes: settings that a job of a known training stack need not have.

Each stack has a YAML file in k8s_charts/recipes/, and users may write their own. It says how to
recognize the stack's command line, how the stack resumes, which files a whole checkpoint has, and
what its printed lines mean. `apply` fills in what job.yaml leaves open; the pods get the result as
data and know no stack.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from paddle_node import command_line
from pydantic import Field

from k8s_charts.spec.value_types import Several, Text, VariableName
from paddle_settings import model
from paddle_settings.errors import SettingError
from paddle_settings.model import Fault, Settings

RECIPES = Path(__file__).parents[1] / "recipes"
NONE = "none"
_OUTPUT = "output"
_MARKS = ("{folder}", "{checkpoint}", "{checkpoint_stem}")
_BELOW = re.compile(r"(?!.*/\.\.(/|$))\{folder\}/+[^/].*", re.DOTALL)
_SHELL = re.compile(r"(\S*/)?(ba|da|z)?sh -\w*c ")


class RecipeSource(Settings):
    """Where the recipe was read, and is true."""

    name: Text
    """The stack and its version, for people."""
    repository: Text
    """Its repository, or the package that was read."""
    commit: Text
    """The commit, or the package's version."""
    files: Several[Text] = Field(min_length=1)
    """What was read there."""


class Marks(Settings):
    """How to recognize the stack. All given conditions must hold."""

    command: Text
    """A regular expression (RE2's) for the command's words, joined by blanks. The stack's options
    stand behind what it matches.
    """
    files: Several[Text] = ()
    """Files that the program's folder has."""
    script: Text | None = None
    """A regular expression for the text of the Python file that the command names."""


class Options(Settings):
    """How the stack's command line says an option."""

    style: Literal["word", "flag", "group", "repeated"]
    """word: `key=value`. flag: `--key value` or `--key=value`. group: `key=value` words behind
    `flag`; the stack reads only the last group. repeated: `flag` before each `key=value`.
    """
    flag: Several[Text] = ()
    """group and repeated: the names of that flag, such as -o."""

    def _faults(self) -> Iterator[Fault]:
        if bool(self.flag) != (self.style in ("group", "repeated")):
            yield f"options.style is {self.style}: flag belongs to group and repeated, give both"


class Output(Settings):
    """The option that leads the stack's output to output/."""

    option: Text
    default: Text = Field(default=_OUTPUT, pattern="^output(/[^/.][^/]*)*$")
    """Added if the command does not have the option."""


class Resume(Settings):
    """What the command gets to resume. An option that it has already gets the new value."""

    set: dict[Text, Text] = Field(min_length=1)
    """Options and their values: {checkpoint} is the newest complete checkpoint, {checkpoint_stem}
    the same without its last suffix. A name with dashes, such as --resume, is a flag in any style.
    """
    drop: Several[Text] = ()
    """Options that a resumed command must not have."""


class Checkpoint(Settings):
    """What the stack saves, and when that is complete."""

    path: Text = Field(examples=["{folder}/checkpoint-*"])
    """A glob below {folder}, for folders, or for one file of each checkpoint."""
    files: Several[Text] = ()
    """What a complete checkpoint has, by name or glob. Of a folder: in it; of a file: beside it,
    with {stem} for its name without the last suffix. {rank}: one for each rank; `a | b`: either.
    """
    last: Text | None = None
    """The one of `files` that the stack writes last, so it must not be older than the others
    without {rank}. For checkpoints that are overwritten in place.
    """

    def _faults(self) -> Iterator[Fault]:
        if "**" in self.path:
            yield f"checkpoint.path is {self.path}: a glob without ** is needed"
        for name in self.files:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                yield f"checkpoint.files has {name}: a name in or beside the checkpoint is needed"
        if self.last is not None and self.last not in self.files:
            yield f"checkpoint.last is {self.last}: one of checkpoint.files is allowed"


class Recipe(Settings):
    """What a recipe's file says."""

    source: RecipeSource
    marks: Marks
    options: Options
    output: Output | None = None
    resume: Resume
    checkpoint: Checkpoint
    progress: Text | None = None
    """As in job.yaml, below {folder}; default: checkpoints that are complete."""
    success: Text | None = None
    """As in job.yaml, below {folder}."""
    model: Text | None = None
    """A glob below {folder} for the final model: without one, the job is not done."""
    metrics: dict[VariableName, Text] = Field(default_factory=dict)
    """As in job.yaml. `step` is the step's number."""

    def _faults(self) -> Iterator[Fault]:
        for setting, pattern in [
            ("marks.command", self.marks.command),
            ("marks.script", self.marks.script or ""),
        ]:
            try:
                command_line.compile_pattern(pattern)
            except ValueError as error:
                yield f"{setting} is {pattern}: RE2 cannot read this pattern ({error})"
        for name, pattern in self.metrics.items():
            if fault := command_line.pattern_fault(pattern):
                yield f"metrics.{name} is {pattern}: {fault}"
        if not any(mark in text for text in self.resume.set.values() for mark in _MARKS[1:]):
            yield f"resume.set names no checkpoint: {_MARKS[1]} or {_MARKS[2]} is needed"
        for setting, path in [
            ("progress", self.progress),
            ("success", self.success),
            ("model", self.model),
            ("checkpoint.path", self.checkpoint.path),
        ]:
            if path is not None and not _BELOW.fullmatch(path):
                yield f"{setting} is {path}: a path below {{folder}}/ is needed, without .."


@dataclass(frozen=True)
class AppliedRecipe:
    """A recipe in one job: what the job takes from it."""

    sentence: str
    """Which recipe, and why, for the first lines of the job's log."""
    settings: Mapping[str, Any]
    """Settings of job.yaml that it fills in."""
    resume_line: tuple[str, ...] = ()
    """The whole line that resumes, with its {newest:<glob>}; empty: the job says how itself."""
    files: tuple[str, ...] = ()
    """See `Checkpoint.files`."""
    last: str = ""
    model: str = ""


class OptionLine:
    """A command line whose options one can read and change. Raises no errors: what it does not know
    stays.
    """

    def __init__(self, words: Sequence[str], begin: int, options: Options) -> None:
        """The stack's options stand in `words[begin:]`."""
        self._program, self._words = list(words[:begin]), list(words[begin:])
        self._options = options

    @property
    def words(self) -> tuple[str, ...]:
        return (*self._program, *self._words)

    def value(self, key: str) -> str | None:
        """Returns the value that counts; None: the line does not have the option."""
        places = list(self._places(key))
        if not places:
            return None
        begin, end = places[-1]
        word = self._words[end - 1]
        return word if end - begin == 2 and self._style(key) == "flag" else word.split("=", 1)[1]

    def drop(self, key: str) -> None:
        """Removes the option, wherever it stands."""
        for begin, end in reversed(list(self._places(key, every=True))):
            del self._words[begin:end]

    def set(self, key: str, value: str) -> None:
        """Sets the option, once."""
        self.drop(key)
        style, word = self._style(key), f"{key}={value}"
        if style == "word":
            self._words.append(word)
        elif style == "flag":
            self._words += [_flag(key), value]
        elif style == "group" and (groups := list(self._groups())):
            self._words.insert(groups[-1][1], word)
        else:
            self._words += [self._options.flag[0], word]

    def _style(self, key: str) -> str:
        return "flag" if key.startswith("-") else self._options.style

    def _groups(self) -> Iterator[tuple[int, int]]:
        """Yields where the words behind each flag of groups begin and end."""
        for number, word in enumerate(self._words):
            if word in self._options.flag:
                rest = self._words[number + 1 :]
                length = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
                yield number + 1, number + 1 + length

    def _places(self, key: str, every: bool = False) -> Iterator[tuple[int, int]]:
        """Yields where the option stands; of groups only in the last one, which counts, or in
        `every` one.
        """
        style, words, flag = self._style(key), self._words, _flag(key)
        if style == "flag":
            for number, word in enumerate(words):
                if word.startswith(f"{flag}="):
                    yield number, number + 1
                elif word == flag:
                    # With its value, if that is the next word.
                    value = words[number + 1 : number + 2]
                    has_value = value and not re.match(r"--?[A-Za-z]", value[0])
                    yield number, number + (2 if has_value else 1)
            return
        searched = list(range(len(words)))
        if style == "group":
            groups = list(self._groups())
            searched = [n for group in (groups if every else groups[-1:]) for n in range(*group)]
        for number in searched:
            if not words[number].startswith(f"{key}="):
                continue
            if style != "repeated":
                yield number, number + 1
            elif number and words[number - 1] in self._options.flag:
                yield number - 1, number + 1


def _flag(key: str) -> str:
    return key if key.startswith("-") else f"--{key}"


def load(path: Path) -> Recipe:
    """Reads a recipe's file. Raises SettingError."""
    return model.read(Recipe, path)


@cache
def load_shipped() -> Mapping[str, Recipe]:
    """Returns this release's recipes by name."""
    return {path.stem: load(path) for path in sorted(RECIPES.glob("*.yaml"))}


def apply(
    recipe: str | None,
    command: Sequence[str],
    job_settings: Mapping[str, Any],
    folder: Path,
    program: Path | None,
    names: Sequence[str],
) -> AppliedRecipe | None:
    """Returns what the job takes from its recipe; None: it has none.

    `recipe`: its name, a file's path relative to `folder`, `none`, or None to find it.
    `job_settings`: what job.yaml itself sets. `program` and `names`: the program's folder on this
    machine and its files. Raises SettingError.
    """
    if recipe == NONE:
        return None
    if recipe is not None:
        named = _load_named(recipe, folder)
        return _apply(recipe, named, "job.yaml names it", command, job_settings)
    if "resume" in job_settings or _SHELL.match(" ".join(command)):
        return None
    reasons = {
        name: why
        for name, shipped in load_shipped().items()
        if (why := _recognize(shipped.marks, command, program, names))
    }
    if len(reasons) > 1:
        both = " and ".join(reasons)
        return AppliedRecipe(f"no recipe: {both} know this command, name one of them as recipe", {})
    if not reasons:
        return None
    ((name, why),) = reasons.items()
    return _apply(name, load_shipped()[name], why, command, job_settings)


def _load_named(recipe: str, folder: Path) -> Recipe:
    if "/" in recipe or recipe.endswith((".yaml", ".yml")):
        return load(folder / Path(recipe).expanduser())
    if recipe not in load_shipped():
        raise SettingError(
            f"recipe is {recipe}: {NONE}, {', '.join(load_shipped())}, or a file such as "
            "./mine.yaml is allowed"
        )
    return load_shipped()[recipe]


def _recognize(
    marks: Marks, command: Sequence[str], program: Path | None, names: Sequence[str]
) -> str:
    """Returns by what the command is one of the stack; empty: it is none."""
    mark = command_line.compile_pattern(marks.command).search(" ".join(command))
    if mark is None or not set(marks.files) <= set(names):
        return ""
    why = f"the command has {mark[0].strip()!r}"
    if marks.files:
        why += f", the program's folder {', '.join(marks.files)}"
    if marks.script is not None:
        try:
            script = command_line.script(command)
            text = (program / script).read_text(errors="replace") if script and program else None
        except (OSError, ValueError):
            return ""
        if text is None or not command_line.compile_pattern(marks.script).search(text):
            return ""
        why += f", {script} what it looks for"
    return why


def _apply(
    name: str, recipe: Recipe, why: str, command: Sequence[str], job_settings: Mapping[str, Any]
) -> AppliedRecipe:
    text = " ".join(command)
    mark = command_line.compile_pattern(recipe.marks.command).search(text)
    # `arguments` are handed on as they are: braces in them are no placeholders.
    arguments = [
        word.replace("{", "{{").replace("}", "}}") for word in job_settings.get("arguments", ())
    ]
    begin = _words_after(command, text[: mark.end()]) if mark else 1
    line = OptionLine([*command, *arguments], begin, recipe.options)
    sentences = [f"recipe {name} ({recipe.source.name}): {why}"]
    folder = _OUTPUT
    if recipe.output is not None:
        folder, sentence = _choose_output(name, recipe.output, line.value(recipe.output.option))
        if sentence:
            line.set(recipe.output.option, folder)
            sentences.append(sentence)
    settings: dict[str, Any] = {"command": line.words, "arguments": ()}
    for setting in ("progress", "success"):
        path = getattr(recipe, setting)
        if setting not in job_settings and path is not None:
            settings[setting] = path.replace(_MARKS[0], folder)
    settings["metrics"] = {**recipe.metrics, **job_settings.get("metrics", {})}
    overrides = [
        setting for setting in ("progress", "success", "metrics") if setting in job_settings
    ]
    model = "" if recipe.model is None or "success" in job_settings else recipe.model
    model = model.replace(_MARKS[0], folder)
    if "resume" in job_settings:
        sentences.append("job.yaml's own: " + ", ".join(["resume", *overrides]))
        return AppliedRecipe("; ".join(sentences), settings, model=model)
    glob = recipe.checkpoint.path.replace(_MARKS[0], folder)
    for key in recipe.resume.drop:
        line.drop(key)
    for key, value in recipe.resume.set.items():
        value = value.replace(_MARKS[1], f"{{newest:{glob}}}")
        line.set(key, value.replace(_MARKS[2], f"{{newest_stem:{glob}}}"))
    sentences.append(f"resumes the newest complete {glob} by {', '.join(recipe.resume.set)}")
    if overrides:
        sentences.append("job.yaml's own: " + ", ".join(overrides))
    return AppliedRecipe(
        "; ".join(sentences),
        settings,
        line.words,
        tuple(recipe.checkpoint.files),
        recipe.checkpoint.last or "",
        model,
    )


def _words_after(command: Sequence[str], marked: str) -> int:
    """Returns the index of the first word after `marked`, the line's beginning."""
    end, length = len(marked.rstrip()), 0
    for number, word in enumerate(command, start=1):
        length += len(word)
        if length >= end:
            return number
        length += 1
    return len(command)


def _choose_output(name: str, output: Output, value: str | None) -> tuple[str, str]:
    """Returns the output folder, and what to say if the command's own option has to change."""
    if value is None:
        return output.default, f"{output.option} is {output.default}"
    path = PurePosixPath(value.replace("{output}", _OUTPUT))
    if path.is_absolute() or ".." in path.parts:
        raise SettingError(
            f"command has {output.option}={value}: what lies outside of output/ is lost with the "
            f"pod; a path below output/ is allowed, or recipe: {NONE} ({name} was taken)"
        )
    if path.parts[:1] == (_OUTPUT,):
        return str(path), ""
    path_below = str(PurePosixPath(_OUTPUT, path))
    return path_below, f"{output.option}={value} is led to {path_below}"
