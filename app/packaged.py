"""Where the folders are that ship with the service beside its code."""

from pathlib import Path

_APP = Path(__file__).resolve().parent


def packaged_folder(name: str) -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    packaged = _APP / "_packaged" / name
    return packaged if packaged.is_dir() else _APP.parent / name
