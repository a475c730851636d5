"""Archives of sheets, honest and damaged."""

import random
import zipfile

import pytest

from app.characters.archives import read_archive, write_archive
from app.characters.loading import MAX_FILES
from app.domain.errors import RequestRefused
from tests.support.cards import archive

HOB = ("hob.yaml", b"meta: 1\n" * 200)


def test_what_is_written_is_read_again() -> None:
    texts = {"hob.yaml": "meta: 1", "scenes/hob.yaml": "scenes: []"}
    assert read_archive(write_archive(texts, {"hob.yaml": 3})) == read_archive(
        archive(
            [(f"mine/{name}", text.encode()) for name, text in texts.items()]
            + [("mine/.revisions.json", b'{"hob.yaml": 3}')]
        )
    )


def place_far(content: bytes) -> bytes:
    """The directory says that the member begins beyond what a file can have."""
    at = content.index(b"PK\x01\x02")
    extra = b"\x01\x00\x08\x00" + b"\xff" * 8
    name = int.from_bytes(content[at + 28 : at + 30], "little")
    entry = content[at : at + 30] + len(extra).to_bytes(2, "little") + content[at + 32 : at + 42] + b"\xff" * 4
    end = content.index(b"PK\x05\x06")
    size = (end - at + len(extra)).to_bytes(4, "little")
    head = entry + content[at + 46 : at + 46 + name] + extra
    return content[:at] + head + content[end : end + 12] + size + content[end + 16 :]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no zip", "not a readable ZIP archive: the end record is missing"),
        (archive([HOB], zipfile.ZIP_LZMA), "hob.yaml uses an unsupported compression method"),
        (archive([HOB], zipfile.ZIP_BZIP2), "hob.yaml uses an unsupported compression method"),
        (place_far(archive([HOB])), "not a readable ZIP archive"),
        (archive([(f"{number}", b"") for number in range(MAX_FILES + 1)]), f"more than {MAX_FILES} members"),
        (archive([("readme.txt", b"hi")]), "has no sheet and no scenes"),
    ],
)
def test_archives_that_cannot_be_used_are_refused(content: bytes, says: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_archive(content)
    assert says in caught.value.detail


def test_damage_anywhere_raises_nothing_but_a_refusal() -> None:
    refused = 0
    whole, chance = archive([HOB, ("scenes/hob.yaml", b"scenes: []")]), random.Random(7)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
        try:
            read_archive(bytes(damaged))
        except RequestRefused:
            refused += 1
    assert 0 < refused < 2000
