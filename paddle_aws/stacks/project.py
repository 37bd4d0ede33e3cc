"""The folder of the cdk app: cdk.json, the locks, downloaded files. Imports no aws_cdk."""

import json
from pathlib import Path
from typing import Any

from paddle_settings.errors import SettingError


def project_folder() -> Path:
    """Returns the current folder if it has a cdk.json, as cdk itself looks for one; else the clone
    that this code lies in; from a wheel, the current folder.
    """
    clone = Path(__file__).resolve().parents[2]
    here = (Path(), clone)
    return next((folder for folder in here if (folder / "cdk.json").is_file()), Path())


def read_context(folder: Path) -> dict[str, Any]:
    """Returns the context in the folder's cdk.json; empty: there is none. Raises SettingError."""
    file = folder / "cdk.json"
    try:
        return {**json.loads(file.read_text(encoding="utf-8")).get("context", {})}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise SettingError(f"{file.absolute()} is not JSON that cdk can read") from None
