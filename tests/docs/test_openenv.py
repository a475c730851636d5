"""The page on OpenEnv names what there is."""

import re
from pathlib import Path

from app.http.compat.openenv.sessions import Reset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "openenv.md"


def test_every_field_of_a_reset_is_explained() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == set(Reset.model_fields)
