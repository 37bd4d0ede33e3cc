"""Runs uv with what pip's configuration says of indexes, links, certificates and constraints, and
tells every few seconds what it does.

Standard library only: make runs this file before anything else is installed:

    python trainer_image/paddle_node/requirements/install.py NAME install|compile [OPTIONS ...]
    python trainer_image/paddle_node/requirements/install.py NAME run COMMAND ...
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from configparser import Error, RawConfigParser
from contextlib import contextmanager
from pathlib import Path

REPORT_INTERVAL = 5.0
"""Seconds between two reports."""
_RETRIES, _TIMEOUT = "5", "60"
"""Of one request to an index; the seconds are those without a byte."""


def find_uv() -> str:
    """Returns uv's path: that of this Python's environment, of the image's agent, or of PATH.
    Raises FileNotFoundError.
    """
    for folder in (Path(sys.prefix, "bin"), Path(sys.prefix, "agent", "bin")):
        if (folder / "uv").is_file():
            return str(folder / "uv")
    if (found := shutil.which("uv")) is None:
        raise FileNotFoundError(2, "uv is not installed", "uv")
    return found


@contextmanager
def reports(say: Callable[[str], object], doing: Callable[[], str]) -> Iterator[None]:
    """Tells `say` every few seconds what is being done, until the block ends."""
    began, ended = time.monotonic(), threading.Event()

    def report() -> None:
        while not ended.wait(REPORT_INTERVAL):
            say(f"{time.monotonic() - began:.0f} s: {doing()}")

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()


def run(
    words: Sequence[str | Path],
    say: Callable[[str], object],
    environ: Mapping[str, str] = os.environ,
    source: bytes = b"",
) -> tuple[int, str, str]:
    """Runs `uv pip` with these words, and `source` on its standard input. `say` gets a report every
    few seconds. Returns uv's exit code, its output and its messages.
    """
    messages = list[str]()
    options, variables = translate(environ, locked="--require-hashes" in words)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile() as given:
        given.write(source)
        given.seek(0)
        process = subprocess.Popen(
            [find_uv(), "pip", *words, *options],
            stdin=given,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**environ, **variables},
            text=True,
            errors="replace",
        )
        with reports(say, lambda: next(filter(str.strip, reversed(messages)), "resolving").strip()):
            try:
                for line in process.stderr or ():
                    messages.append(line)
                code = process.wait()
            except BaseException:
                process.kill()
                process.wait()
                raise
        output.seek(0)
        return code, output.read(), "".join(messages)


def translate(
    environ: Mapping[str, str], *, locked: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Returns the options and variables by which uv does what pip's configuration files and PIP_*
    say; uv's own variables win. `locked`: every package has its hash, beside which uv takes no
    constraints. Raises SystemExit for a file that pip could not read either.
    """
    pip, options = _read_pip(environ), list[str]()
    for setting, option in (
        ("find-links", "--find-links"),
        ("trusted-host", "--allow-insecure-host"),
        ("constraint", "" if locked else "--constraints"),
    ):
        for value in pip.get(setting, "").split() if option else ():
            options += [option, _expand(value)]
    for setting in ("only-binary", "no-binary"):
        for value in pip.get(setting, "").replace(",", " ").split():
            options += [f"--{setting}", value]
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    extra = " ".join(pip.get("extra-index-url", "").split())
    variables = {
        # Addresses may hold a password, which options would show to everybody on this machine.
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": extra,
        # As pip: the best version of all indexes, whichever has it.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "SSL_CERT_FILE": _expand(pip.get("cert", "")),
        "SSL_CLIENT_CERT": _expand(pip.get("client-cert", "")),
        "ALL_PROXY": pip.get("proxy", ""),
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout", _TIMEOUT),
        "UV_HTTP_RETRIES": pip.get("retries", _RETRIES),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    return options, {
        name: value for name, value in variables.items() if value and name not in environ
    }


def _expand(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _read_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns pip's settings for `pip install`, in pip's own order: files of the machine, the user
    and the environment, PIP_CONFIG_FILE, variables; `[install]` counts more than `[global]`.
    """
    home = environ.get("HOME") or str(Path.home())
    named = environ.get("PIP_CONFIG_FILE", "")
    folders = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    files = [
        *[f"{folder}/pip/pip.conf" for folder in folders],
        "/etc/pip.conf",
        f"{home}/.pip/pip.conf",
        f"{environ.get('XDG_CONFIG_HOME') or home + '/.config'}/pip/pip.conf",
        f"{sys.prefix}/pip.conf",
        *([named] if named else []),
    ]
    parser = RawConfigParser()
    for file in files if named != os.devnull else []:
        try:
            parser.read(file)
        except (Error, UnicodeDecodeError) as error:
            raise SystemExit(f"{file} cannot be read as pip's configuration: {error}") from None
    items = [
        *(parser.items("global") if parser.has_section("global") else ()),
        *(parser.items("install") if parser.has_section("install") else ()),
        *((name[4:], value) for name, value in environ.items() if name.startswith("PIP_")),
    ]
    # Empty values count for nothing, as with pip.
    return {name.lower().replace("_", "-"): value for name, value in items if value}


def main() -> int:
    """Runs uv, or what follows `run`; tells at the beginning, every few seconds, and at the end."""
    what, *words = sys.argv[1:]
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"setup: {what}{text and ': '}{text}", flush=True)

    say("")
    if words[0] == "run":
        with reports(say, lambda: "not ready yet"):
            code = subprocess.run(words[1:], stdout=subprocess.DEVNULL, check=False).returncode
        messages = ""
    else:
        code, _, messages = run(words, say)
    if code:
        sys.stderr.write(messages)
        return code
    say(f"ready after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
