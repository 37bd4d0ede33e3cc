"""Add-on versions as `paddle-aws lock add-ons` read them at EKS, for stacks that should deploy the same ones every time.

Promises: without a lock no version, so that EKS picks its own default. Imports no aws_cdk.
"""

from __future__ import annotations

import json
from pathlib import Path

from stacks.settings import SettingError

NAME = "add-ons.json"


def locked_versions(folder: Path, kubernetes_version: str) -> dict[str, str]:
    """Add-on: version, for one Kubernetes version; none where the lock in `folder` is missing or does not know it."""
    file = folder / NAME
    try:
        versions = json.loads(file.read_text(encoding="utf-8"))["versions"].get(kubernetes_version, {})
        return {str(name): str(version) for name, version in versions.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SettingError(f"{file} is no lock of add-ons: `paddle-aws lock add-ons` writes one") from None
