"""A folder of characters and a gateway's archive: what is written, packed, and never overwritten by accident."""

from pathlib import Path

import pytest

from app.characters.archives import read_archive, write_archive
from app.domain.errors import Conflict
from app.features.authoring.commands import PulledFolder, pack_folder, save_folder

TEXTS = {"hob.yaml": "meta: {}\n", "scenes/hob.yaml": "scenes: []\n", "lorebooks/hob.yaml": "entries: []\n"}


def test_a_pulled_folder_is_pushed_with_the_revisions_that_it_holds(tmp_path: Path) -> None:
    content = write_archive(TEXTS, {"hob.yaml": 3})
    first, again = save_folder(tmp_path, content, force=False), save_folder(tmp_path, content, force=False)
    (tmp_path / "hob.yaml").write_text("meta: {id: hob}\n")
    with pytest.raises(Conflict, match="differs"):
        save_folder(tmp_path, content, force=False)
    packed = read_archive(pack_folder(tmp_path))
    assert (first, again) == (PulledFolder(files=3, changed=tuple(sorted(TEXTS))), PulledFolder(files=3, changed=()))
    assert packed.texts == {"hob.yaml": "meta: {id: hob}\n", "scenes/hob.yaml": "scenes: []\n"}
    assert (packed.numbers, packed.others) == ({"hob.yaml": 3}, {})
