"""Which files of a folder are the program: those that git would take, and none that looks like a
secret.

In a checkout git lists them; what git refuses to read is a SettingError. Elsewhere, and without
git, the folder's .gitignore files hold all the same.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from paddle_settings.errors import SettingError

LEFT_BEHIND = {".git", ".rehearsal", ".storm", "__pycache__"}
"""Names that are not part of a program: history, a rehearsal or a storm of it, compiled code."""
_MANIFESTS = re.compile(r"(.*/)?dist/[^/]*\.k8s\.yaml")
"""What `paddle-aws manifests` writes: each time it would be another program."""
_SECRET_FOLDERS = {".aws", ".azure", ".gnupg", ".huggingface", ".kube", ".ssh", "gcloud"}
_SECRETS = """
    .env .env.* .env~ *.env .envrc
    *.pem *.key *.p12 *.pfx *.jks *.keystore *.ppk id_rsa id_dsa id_ecdsa id_ed25519
    .netrc _netrc .pypirc .npmrc .pgpass .htpasswd .git-credentials .dockercfg .s3cfg .boto
    .vault-token .my.cnf *.tfstate *.tfstate.*
    credentials *credentials.json credentials.ini credentials.y*ml *credentials.csv rootkey.csv
    *accesskeys.csv client_secret*.json service*account*.json secrets.json secrets.toml
    secrets.y*ml secret.y*ml kaggle.json kubeconfig *.kubeconfig
"""
"""Names of files that hold passwords and keys, in small letters."""
_NO_SECRET = re.compile(r"\.env\.(example|sample|template|dist)")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY")
_LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""Variables of a git hook's shell, which name another repository than the folder's."""


def git(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[bytes]:
    """Runs git in the folder on `text`, with its messages in English, and without programs that the
    folder's own settings name. Raises FileNotFoundError without git.
    """
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments],
        env={name: value for name, value in os.environ.items() if name not in _LOCAL}
        | {"LC_ALL": "C"},
        input=os.fsencode(text),
        capture_output=True,
        check=False,
    )


def list_files(root: Path, setting: str) -> Iterator[str]:
    """Yields the names of files and links of the folder that `setting` names. Raises SettingError
    for a checkout that git refuses to read, and for an empty submodule.
    """
    listed = _list_by_git(root, setting)
    if listed is None:
        yield from _list_alone(root, setting)
        return
    for name in listed:
        path = root / name
        if _is_no_part(name):
            continue
        if path.is_dir() and not path.is_symlink():  # A submodule, or another checkout.
            inner = list_files if (path / ".git").exists() else _list_alone
            below = list(inner(path, setting))
            if not below and not name.endswith("/"):
                raise SettingError(
                    f"{setting} has the submodule {path}, which is empty: run `git submodule "
                    "update --init --recursive` in a clone, and name that as `program.folder`"
                )
            yield from (f"{name.rstrip('/')}/{name_}" for name_ in below)
        elif path.exists():
            yield name


def _list_by_git(root: Path, setting: str) -> set[str] | None:
    """Returns the names that git lists. None: no checkout, no git, or a folder that the repository
    around it ignores.
    """
    try:
        done = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if done.returncode == 0:
            names = {*os.fsdecode(done.stdout).split("\0")} - {""}
            ignored = not names and git(root, "check-ignore", "--quiet", ".").returncode == 0
            return None if ignored else names
    except FileNotFoundError:
        return None
    said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
    if said.startswith("not a git repository (or any"):
        return None
    first, *rest = said.splitlines() or [f"it ended with {done.returncode}"]
    remedy = next((line.strip() for line in rest if "git config" in line), "")
    raise SettingError(
        f"{setting} is {root}: git refuses to read it ({first}): "
        + (f"run `{remedy}` if you trust it" if remedy else "mend the checkout")
    )


def find_left_out(root: Path, setting: str) -> dict[str, str]:
    """Returns the files, and the folders as `name/`, that list_files leaves out of the folder for a
    .gitignore, each with the rule that does.
    """
    if _list_by_git(root, setting) is None:
        return dict(sorted((name, why) for name, why in _walk_alone(root, setting) if why))
    listed = git(
        root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    names = [name for name in os.fsdecode(listed.stdout).split("\0") if not _is_no_part(name)]
    rules = git(root, "check-ignore", "-v", "-z", "--stdin", text="\0".join(filter(None, names)))
    fields = iter(os.fsdecode(rules.stdout).split("\0"))
    return {
        name: f"{rule} in {source}, line {line}"
        for source, line, rule, name in zip(fields, fields, fields, fields, strict=False)
    }


def _is_no_part(name: str) -> bool:
    return bool(LEFT_BEHIND.intersection(PurePosixPath(name).parts) or _MANIFESTS.fullmatch(name))


def _list_alone(root: Path, setting: str) -> Iterator[str]:
    return (name for name, why in _walk_alone(root, setting) if not why)


def _walk_alone(root: Path, setting: str) -> Iterator[tuple[str, str]]:
    """Yields the names in a folder without git, each with the rule that leaves it out; empty: none
    does. If it lies in a checkout, because this machine has no git, the rules of the folders above
    it hold as well.
    """
    checkouts = (at for at in (root, *root.parents) if (at / ".git").exists())
    top = root if shutil.which("git") else next(checkouts, root)
    below = root.relative_to(top)
    places = (
        [top, *(top / parent for parent in reversed(below.parents[:-1]))] if below.parts else []
    )
    for name, why in _walk(top, root, setting, tuple(_rules(at) for at in places)):
        yield name.removeprefix(f"{below.as_posix()}/"), why


def _walk(
    root: Path,
    folder: Path,
    setting: str,
    above: tuple[GitIgnoreSpec | None, ...] = (),
) -> Iterator[tuple[str, str]]:
    """Yields the names below `folder`, each with the rule of a .gitignore up to `root` that leaves
    it out; `above` are those of the folders above it, the outermost first. Names begin at `root`.
    """
    rules = (*above, _rules(folder))
    with os.scandir(folder) as entries:
        for entry in entries:
            path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
            name = path.relative_to(root).as_posix()
            if _is_no_part(name):
                continue
            if why := _find_rule(shown := name + "/" * is_folder, rules):
                yield shown, why
            elif not is_folder:
                if path.exists():
                    yield name, ""
            elif (path / ".git").exists():
                yield from ((f"{name}/{below}", "") for below in list_files(path, setting))
            else:
                yield from _walk(root, path, setting, rules)


def _find_rule(name: str, rules: tuple[GitIgnoreSpec | None, ...]) -> str:
    """Returns the rule that leaves the name out, of the nearest .gitignore that has a word on it;
    empty: none does.
    """
    for depth, spec in reversed(list(enumerate(rules))):
        above, below = name.split("/")[:depth], name.split("/", depth)[-1]
        if spec is None or (verdict := spec.check_file(below)).include is None:
            continue
        if not verdict.include:
            return ""
        source = "/".join([*above, ".gitignore"])
        line = verdict.index or 0
        return f"{spec.patterns[line].pattern!s} in {source}, line {line + 1}"
    return ""


def _rules(folder: Path) -> GitIgnoreSpec | None:
    file = folder / ".gitignore"
    try:
        lines = file.read_text("utf-8-sig").splitlines() if file.is_file() else []
        exclude = folder / ".git/info/exclude"
        lines += exclude.read_text("utf-8-sig").splitlines() if exclude.is_file() else []
    except UnicodeDecodeError:
        raise SettingError(
            f"{file} is not UTF-8 text: git could not read it, save it as UTF-8"
        ) from None
    if not lines:
        return None
    # pathspec counts no empty lines, and git takes no rule from these.
    lines = [line if line.strip() not in ("", "!", "\\") else "#" for line in lines]
    try:
        return GitIgnoreSpec.from_lines(lines, backend="simple")
    except ValueError as error:
        raise SettingError(f"{file} has a rule that git would not read: {error}") from None


def add_named(root: Path, names: Iterable[str], named: Iterable[str], setting: str) -> set[str]:
    """Returns the program's names, with what `program.include` names, whatever git ignores. Raises
    SettingError for a name that is not there, and for what looks like a secret and is not named.
    """
    found, chosen = set(names), set()
    for name in named:
        path = root / name
        inside = path.exists() and path.resolve().is_relative_to(root) and path != root
        if not inside or ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise SettingError(
                f"program.include has {name}: {root} has no such file or folder; a path relative "
                "to it is allowed"
            )
        chosen.add(path.relative_to(root).as_posix())
        files = [path] if not path.is_dir() else (file for file in path.rglob("*"))
        found |= {
            relative.as_posix()
            for file in files
            if (file.is_symlink() or file.is_file())
            and not LEFT_BEHIND.intersection((relative := file.relative_to(root)).parts)
        }
    if secrets := sorted(name for name in found - chosen if _looks_secret(root, name)):
        more = f" and {len(secrets) - 3} more files" if len(secrets) > 3 else ""
        be, them = ("look like secrets", "them") if secrets[1:] else ("looks like a secret", "it")
        raise SettingError(
            f"{setting} has {', '.join(secrets[:3])}{more}: that {be}, which everybody who reads "
            f"the volume could read; let .gitignore leave {them} out, or name {them} in "
            f"`program.include: [{', '.join(secrets[:3])}]`"
        )
    return found


def _looks_secret(root: Path, name: str) -> bool:
    *folders, last = PurePosixPath(name.lower()).parts
    if _SECRET_FOLDERS.intersection(folders) or (".docker" in folders and last == "config.json"):
        return True
    if _NO_SECRET.fullmatch(last):
        return False
    if any(fnmatchcase(last, pattern) for pattern in _SECRETS.split()):
        return True
    file = root / name
    if file.is_symlink() or file.lstat().st_size > 65_536:
        return False
    # A pipe would wait for a writer; whatever is no file is refused later.
    return file.is_file() and _PRIVATE_KEY.search(file.read_bytes()) is not None
