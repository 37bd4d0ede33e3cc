"""The folders of one pod: a copy of the image for each of its containers, and its volumes."""

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from paddle_node import contract

from paddle_aws.operations.errors import BadInput
from paddle_aws.rehearsal.pods.manifests import Container, Manifests, Mount, PodTemplate


@dataclass(frozen=True)
class PodFolders:
    """The folders of one pod, below `root`."""

    root: Path
    template: PodTemplate
    manifests: Manifests
    image_files: Path
    """The image laid out once."""
    volume: Path
    """It stands for every claim."""

    @property
    def volumes(self) -> Path:
        """The folder with the pod's own volumes, by name."""
        return self.root / "volumes"

    def container_root(self, container: str) -> Path:
        """Returns where a container's paths begin."""
        return self.root / container

    def lay_out(self, container: Container) -> None:
        """Copies the image for a container, and leads its mounts to the pod's volumes. Raises
        BadInput.
        """
        root = self.container_root(container.name)
        shutil.copytree(self.image_files, root)
        for path in ("tmp", contract.HOME):
            path_inside(root, path).mkdir(parents=True, exist_ok=True)
        for mount in sorted(container.mounts, key=_depth):
            source, place = self._mount_source(mount), path_inside(root, mount.path)
            if any(parent.is_symlink() for parent in place.parents if parent.is_relative_to(root)):
                continue  # Within another mount: visible through that one.
            if place.is_dir():
                shutil.rmtree(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)

    def _mount_source(self, mount: Mount) -> Path:
        volume = self.template.volumes[mount.volume]
        if volume.claim is not None:
            folder = self.volume
        else:
            folder = self.volumes / volume.name
            if not folder.exists():
                folder.mkdir(parents=True)
                if volume.config_map is not None:
                    data = self.manifests.config_maps.get(volume.config_map, {})
                    for key, text in data.items():
                        (folder / key).write_text(text)
        if mount.sub_path:
            folder = path_inside(folder, mount.sub_path)
            if not folder.exists():
                if volume.claim is not None and not self.manifests.claims.get(volume.claim):
                    raise BadInput(
                        f"pod {self.root.name}: {mount.sub_path} is not on the volume: the "
                        "kubelet would make it as root, and user 1000 could not write there; an "
                        "init container has to make it before"
                    )
                folder.mkdir(parents=True)
        return folder

    def remove(self) -> None:
        """Removes all of them."""
        shutil.rmtree(self.root, ignore_errors=True)


def path_inside(root: Path, container_path: str) -> Path:
    """A container's path below `root`. Raises BadInput for a path with `..`, which could lead out
    of it.
    """
    parts = PurePosixPath("/", container_path).parts[1:]
    if ".." in parts:
        raise BadInput(f"{container_path}: a path with .. is refused")
    return root.joinpath(*parts)


def map_word(word: str, root: Path) -> str:
    """A command's word as it runs here: the image's own file if the word names one, else the word
    itself (/bin/sh).
    """
    if word.startswith("/") and ".." not in PurePosixPath(word).parts:
        inside = path_inside(root, word)
        return str(inside) if inside.exists() else word
    return word


def _depth(mount: Mount) -> int:
    return len(PurePosixPath(mount.path).parts)
