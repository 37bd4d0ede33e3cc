"""What a person's pip.conf and PIP_* say, as uv gets it, and what the installer tells."""

import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paddle_node.requirements import build, install

from tests.image.test_program_packages import wheel


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a pip.conf as companies have it; the machine's own files are left out."""
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://mirror.example/simple\n"
        "extra-index-url =\n  https://one.example/simple\n  file:///opt/two\n"
        "find-links = /opt/wheels ~/wheels\ncert = /etc/company.pem\ntimeout = 7\n"
        "[install]\nfind-links = /opt/others\nconstraint = /etc/limits.txt\n"
        "trusted-host = mirror.example:8443\nno-index = false\n[list]\nformat = json\n"
    )
    return tmp_path


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "none"), **more}


@pytest.fixture(autouse=True)
def no_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leaves out what this machine's own /etc/pip.conf says."""
    real = install.RawConfigParser.read
    monkeypatch.setattr(
        install.RawConfigParser,
        "read",
        lambda self, file: real(self, file if str(file).startswith(str(tmp_path)) else []),
    )


def test_files_are_read_in_pips_order(home: Path) -> None:
    options, variables = install.translate(environ(home))
    assert options == [
        *("--find-links", "/opt/others"),
        *("--allow-insecure-host", "mirror.example:8443"),
        *("--constraints", "/etc/limits.txt"),
    ]
    assert variables == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://one.example/simple file:///opt/two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/company.pem",
        "UV_HTTP_TIMEOUT": "7",
        "UV_HTTP_RETRIES": "5",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    # uv takes no constraints beside hashes, which leave nothing to constrain.
    assert "--constraints" not in install.translate(environ(home), locked=True)[0]


def test_variables_count_more_than_files_and_uvs_own_most(home: Path) -> None:
    options, variables = install.translate(
        environ(
            home,
            PIP_INDEX_URL="https://bob:s3cret@mirror.example/simple",
            PIP_EXTRA_INDEX_URL="",
            PIP_FIND_LINKS="/a /b",
            PIP_NO_INDEX="1",
            PIP_ONLY_BINARY="numpy,pillow",
            UV_HTTP_TIMEOUT="90",
        )
    )
    assert variables["UV_DEFAULT_INDEX"] == "https://bob:s3cret@mirror.example/simple"
    assert variables["UV_INDEX"].startswith("https://one.example")  # pip passes empty ones over.
    assert "UV_HTTP_TIMEOUT" not in variables and "s3cret" not in " ".join(options)
    assert options[:4] == ["--find-links", "/a", "--find-links", "/b"]
    assert options[-5:] == ["--only-binary", "numpy", "--only-binary", "pillow", "--no-index"]


def test_no_file_counts_or_one_that_is_named(home: Path) -> None:
    assert install.translate(environ(home, PIP_CONFIG_FILE=os.devnull))[0] == []
    other = home / "other.conf"
    other.write_text("[global]\nfind-links = /named\n[install]\nfind-links = /more\n")
    options = install.translate(environ(home, PIP_CONFIG_FILE=str(other)))[0]
    assert options[:2] == ["--find-links", "/more"]
    other.write_text("no section\n")
    with pytest.raises(SystemExit, match=r"other.conf cannot be read as pip's configuration"):
        install.translate(environ(home, PIP_CONFIG_FILE=str(other)))


def test_uv_installs_what_pip_would(home: Path) -> None:
    """From the index and the folder that pip.conf names, within its constraints."""
    pages, wheels = home / "index/simple/tiny", home / "wheels"
    for folder in (pages, wheels):
        folder.mkdir(parents=True)
    for version in ("1.0", "2.0", "3.0"):
        wheel(pages, "tiny", version)
    names = "".join(f'<a href="{file.name}">{file.name}</a>' for file in pages.glob("*.whl"))
    (pages / "index.html").write_text(names)
    wheel(wheels, "other", "1.0")
    (home / "limits.txt").write_text("tiny<3\n")
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nindex-url = file://{home}/index/simple\nfind-links = {wheels}\n"
        f"constraint = {home}/limits.txt\n"
    )
    variables = environ(home, PATH=os.environ["PATH"])
    into = ["install", "--python", sys.executable, "--target", str(home / "target")]
    said: list[str] = []
    code, _, messages = install.run([*into, "tiny", "other"], said.append, variables)
    assert code == 0, messages
    found = {folder.name for folder in (home / "target").glob("*.dist-info")}
    assert found == {"tiny-2.0.dist-info", "other-1.0.dist-info"}
    digest = hashlib.sha256((pages / "tiny-3.0-py3-none-any.whl").read_bytes()).hexdigest()
    for name, hash_ in (("right", digest), ("wrong", "0" * 64)):
        lock = home / f"{name}.lock"
        lock.write_text(f"tiny==3.0 --hash=sha256:{hash_}\n")
        words = [
            *into[:-1],
            str(home / name),
            "--require-hashes",
            "--no-deps",
            "--requirements",
            str(lock),
        ]
        code, _, messages = install.run(words, said.append, variables)
        assert (code == 0) == (name == "right"), messages
    assert "Hash mismatch" in messages


def test_the_installer_is_never_silent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits: a script stands in for uv."""
    slow = home / "uv"
    slow.write_text("#!/bin/sh\necho 'Downloading paddle (600 MiB)' >&2\nsleep 1\necho done\n")
    slow.chmod(0o755)
    monkeypatch.setattr(install, "find_uv", lambda: str(slow))
    monkeypatch.setattr(install, "REPORT_INTERVAL", 0.2)
    said: list[str] = []
    began = time.monotonic()
    assert install.run(["install"], said.append)[:2] == (0, "done\n")
    assert time.monotonic() - began < 60 and said
    assert re.fullmatch(r"\d+ s: Downloading paddle \(600 MiB\)", said[-1])


def test_make_starts_it_with_any_python() -> None:
    file = Path(install.__file__)
    done = subprocess.run(
        [sys.executable, "-I", "-S", file, "a name", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("setup: a name\n")


def test_no_step_of_make_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also what uv does not do: uv itself, Node, and the byte code of Paddle."""
    recipes = (Path(__file__).parents[2] / "Makefile").read_text().splitlines()
    slow = [
        line for line in recipes if re.search(r"pip install|npm ci|import paddle|-m venv", line)
    ]
    slow = [line for line in slow if "--without-pip" not in line and line.startswith("\t")]
    assert len(slow) == 4 and all("INSTALL" in line for line in slow), slow
    monkeypatch.setattr(install, "REPORT_INTERVAL", 0.05)
    words = ["run", sys.executable, "-c", "import time; print('no'); time.sleep(0.5); exit(3)"]
    monkeypatch.setattr(sys, "argv", ["install.py", "a name", *words])
    assert install.main() == 3
    first, *reports = capsys.readouterr().out.splitlines()
    assert first == "setup: a name"
    assert reports and {*reports} <= {f"setup: a name: {n} s: not ready yet" for n in range(60)}


def test_compiling_an_environment_is_never_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Limits: the compiler sleeps, and nothing is installed."""
    monkeypatch.setattr(install, "REPORT_INTERVAL", 0.02)
    monkeypatch.setattr(build.Installer, "_run", lambda *words: "")
    monkeypatch.setattr(build, "_packages", lambda folder: [tmp_path])
    monkeypatch.setattr(build.compileall, "compile_dir", lambda *a, **more: time.sleep(0.5))
    said: list[str] = []
    python = tmp_path / "bin" / "python"
    build.Installer(tmp_path, {}, said.append).install([], python)
    assert said and {*said} <= {f"{second} s: compiling" for second in range(60)}
