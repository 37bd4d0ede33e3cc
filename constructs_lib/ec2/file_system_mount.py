"""A folder of a machine where it mounts a file system at boot, over TLS, before the kubelet starts.

On EKS and on k3s alike: the machine gets three files (mount/), and systemd does the rest.
"""

from pathlib import Path
from string import Template

from constructs_lib.ec2.machine import strip_comments
from constructs_lib.storage.file_system import MountableFileSystem

FILES = Path(__file__).with_name("mount")
SERVICE = "paddle-file-system.service"


def mount_files(file_system: MountableFileSystem, folder: str, kubelet: str) -> dict[str, str]:
    """Returns the files of a machine by their paths on it.

    Args:
        file_system: mounted through its access point; the machine needs its
            `client_security_group`.
        folder: where.
        kubelet: systemd's unit that waits for the mount, such as kubelet.service.
    """
    service = Template(strip_comments(FILES / SERVICE)).substitute(
        file_system=file_system.file_system.file_system_id,
        access_point=file_system.access_point.access_point_id,
        folder=folder,
    )
    units = "/etc/systemd/system"
    return {
        f"{units}/{kubelet}.d/file-system.conf": strip_comments(FILES / "kubelet.conf"),
        f"{units}/{SERVICE}": service,
        "/opt/paddle-cluster/mount-file-system.sh": strip_comments(FILES / "mount-file-system.sh"),
    }
