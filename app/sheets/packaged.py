"""Where the sheets that ship with the service are."""

from pathlib import Path

_APP = Path(__file__).resolve().parents[1]


def sheets_folder() -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    packaged = _APP / "_packaged" / "character_sheets"
    return packaged if packaged.is_dir() else _APP.parent / "character_sheets"
