"""The job's folder on the volume as a tree, in the order of CONTRACT.md; long rows of files are counted, not listed."""

from __future__ import annotations

from pathlib import Path

from paddle_node.contract import JobFolder
from rich.filesize import decimal
from rich.markup import escape
from rich.tree import Tree


def output_tree(folder: JobFolder, program: str, trainers: int, title: str) -> Tree:
    """A tree to print; `title` is its root's name."""
    tree = Tree(f"[bold]{escape(title)}/[/]", guide_style="dim")
    root = folder.root
    _folder(tree, root / program, "the training program")
    for trainer in range(trainers):
        _folder(tree, folder.shard(trainer), f"shard {trainer}", name=f"{trainer}/data")
    if folder.held_out.exists():
        _folder(tree, folder.held_out, "kept from training", name="held-out/data")
    if folder.splits.exists():
        _folder(tree, folder.splits, "where the shards lie; the folders above are links")
    _file(tree, folder.data_manifest, "the newest complete split")
    output = tree.add("[bold]output/[/]")
    for trainer in range(trainers):
        node = folder.node(trainer)
        names = " ".join(sorted(file.name for file in node.glob("*") if file.is_file()))
        output.add(f"[bold]{node.name}/[/] {escape(names)}")
    if attempts := sorted(folder.output.glob("attempts/*")):
        count = f"{len(attempts)} attempt{'s' if len(attempts) != 1 else ''}"
        output.add(f"[bold]attempts/[/] [dim]{count}:[/] where the passes lie, each in its attempt's folder")
    passes = sorted(entry for entry in folder.output.glob("pass-*") if entry.is_dir())
    for one in passes:
        complete = "complete" if (one / "done").exists() else "[red]incomplete[/]"
        _folder(output, one, complete)
    return tree


def _folder(tree: Tree, folder: Path, meaning: str, name: str = "") -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    size = decimal(sum(file.stat().st_size for file in files))
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    tree.add(f"[bold]{escape(name or folder.name)}/[/] [dim]{count}, {size}:[/] {meaning}")


def _file(tree: Tree, file: Path, meaning: str) -> None:
    size = decimal(file.stat().st_size) if file.exists() else "missing"
    tree.add(f"{escape(file.name)} [dim]{size}:[/] {meaning}")
