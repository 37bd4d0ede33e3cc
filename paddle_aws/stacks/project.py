"""The folder of the cdk app: cdk.json, the locks, downloaded files. Imports no aws_cdk."""

from pathlib import Path


def project_folder() -> Path:
    """Returns the current folder if it has a cdk.json, as cdk itself looks for one; else the clone
    that this code lies in; from a wheel, the current folder.
    """
    clone = Path(__file__).resolve().parents[2]
    here = (Path(), clone)
    return next((folder for folder in here if (folder / "cdk.json").is_file()), Path())
