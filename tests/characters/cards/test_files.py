"""Files that hold cards, honest and hostile: what counts, and what is refused by the name of the file and its part."""

import base64
import json
import stat
import zipfile
import zlib
from functools import cache
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.characters.archives import MAX_DIRECTORY
from app.characters.cards.files import (
    MAX_BYTES,
    MAX_CHUNKS,
    MAX_JSON_BYTES,
    MAX_TEXT,
    CardFile,
    embed_card,
    extract_card_from_image,
    iter_chunks,
    read_bytes,
    read_file,
)
from app.characters.loading import MAX_FILES
from app.domain.errors import GatewayError
from tests.support.cards import V2, V3, archive, chunk, image, text_chunk

CARD = json.dumps(V3).encode()


def refusal(content: bytes) -> str:
    with pytest.raises(GatewayError) as caught:
        read_bytes(content, "card.bin")
    return caught.value.detail


def itxt(keyword: str, text: bytes, *, compressed: bool) -> bytes:
    head = keyword.encode() + b"\0" + (b"\1" if compressed else b"\0") + b"\0en\0\0"
    return chunk(b"iTXt", head + (zlib.compress(text) if compressed else text))


BASE64 = base64.b64encode(CARD)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (CARD, CardFile(V3, "JSON")),
        (b"\xef\xbb\xbf" + CARD, CardFile(V3, "JSON")),
        (image(text_chunk("chara", V2)), CardFile(V2, "PNG", ("the image itself",))),
        (image(text_chunk("Chara", V2)), CardFile(V2, "PNG", ("the image itself",))),
        (image(text_chunk("ccv3", V3)), CardFile(V3, "PNG", ("the image itself",))),
        (
            image(text_chunk("chara", V2), text_chunk("ccv3", V3)),
            CardFile(V3, "PNG", ("the image itself", "the other card in the chunk chara")),
        ),
        (
            image(text_chunk("ccv3", V3), text_chunk("chara-ext-asset_:1", "x"), chunk(b"fcTL", b"animated")),
            CardFile(V3, "PNG", ("the image itself", "1 assets in other chunks")),
        ),
        (image(chunk(b"zTXt", b"ccv3\0\0" + zlib.compress(BASE64))), CardFile(V3, "PNG", ("the image itself",))),
        (image(itxt("ccv3", BASE64, compressed=True)), CardFile(V3, "PNG", ("the image itself",))),
        (image(itxt("ccv3", BASE64, compressed=False)), CardFile(V3, "PNG", ("the image itself",))),
        (image(text_chunk("ccv3", V3)) + b"what some tools put behind", CardFile(V3, "PNG", ("the image itself",))),
        (archive([("card.json", CARD)]), CardFile(V3, "CHARX")),
        (
            archive([("assets/icon/images/main.png", b"x"), ("card.json", CARD)]),
            CardFile(V3, "CHARX", ("1 more members of the archive",)),
        ),
    ],
)
def test_a_card_is_found_by_how_its_file_begins(content: bytes, expected: CardFile) -> None:
    assert read_bytes(content, "any.name") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not JSON"),
        (b'{"a": 1, "b": {"x": 1, "x": 2}}', "the key 'x' is repeated"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": [-Infinity]}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "not a finite number at .a"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b'{"a": "\\ud800"}', "a lone surrogate is not text"),
        (b'{"\\udfff": 1}', "a lone surrogate is not text"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ("{'a'}".encode("utf-16"), "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        (b"[" * 300 + b"]" * 300, "nested deeper than 32 levels"),
        (b"[" * 40 + b"]" * 40, "nested deeper than 32 levels"),
        (b'{"a": "' + b"x" * MAX_JSON_BYTES + b'"}', f"more than {MAX_JSON_BYTES} bytes of JSON"),
    ],
)
def test_json_that_no_sheet_could_hold_is_refused(text: bytes, says: str) -> None:
    detail = refusal(text)
    assert (detail.startswith("card.bin: "), says in detail) == (True, True), detail


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (image(), "holds no card: no text chunk is called ccv3 or chara"),
        (image(text_chunk("Comment", V2)), "holds no card"),
        (image(ends=False), "ends early, at byte"),
        (image(text_chunk("ccv3", V3))[:-30], "is truncated"),
        (image(chunk(b"tEXt", b"ccv3\0" + BASE64, checksum=7)), "has a wrong checksum"),
        (image(b"\x7f\xff\xff\xfftEXtccv3\0"), "is truncated: it declares 2147483647 bytes"),
        (image(b"\xff\xff\xff\xfftEXt" + b"x" * 60), "it declares 4294967295 bytes"),
        (image(chunk(b"tEXt", b"ccv3\0" + b"A" * (MAX_TEXT + 1))), f"the chunk 'ccv3' has more than {MAX_TEXT} bytes"),
        (image(chunk(b"zTXt", b"ccv3\0\0nonsense")), "the chunk 'ccv3' cannot be decompressed"),
        (image(chunk(b"tEXt", b"chara\0not base64!")), "the chunk 'chara' is not base64"),
        (image(chunk(b"tEXt", b"chara\0" + base64.b64encode(b"{"))), "card.bin: chara: not JSON"),
        (image(chunk(b"tEXt", b"chara\0" + base64.b64encode(b'"\xff"'))), "card.bin: chara: not UTF-8"),
        (image(*[chunk(b"fcTL", b"")] * MAX_CHUNKS), f"more than {MAX_CHUNKS} chunks"),
    ],
)
def test_images_that_lie_are_refused(content: bytes, says: str) -> None:
    detail = refusal(content)
    assert (detail.startswith("card.bin: "), says in detail) == (True, True), detail


@cache
def packed(size: int) -> bytes:
    return zlib.compress(b"A" * size, 1)


@pytest.mark.parametrize("head", [b"zTXtccv3\0\0", b"iTXtchara\0\1\0\0\0"])
def test_a_chunk_that_unpacks_to_much_is_refused(head: bytes) -> None:
    content = image(chunk(head[:4], head[4:] + packed(64 * MAX_TEXT)))
    detail = refusal(content)
    assert (detail.startswith("card.bin: "), f"unpacks to more than {MAX_TEXT} bytes" in detail) == (True, True), detail


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def encrypted(content: bytes) -> bytes:
    """The flag set in both of the member's headers."""
    at, central = content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8
    return content[:at] + b"\1\0" + content[at + 2 : central] + b"\1\0" + content[central + 2 :]


def of_many(count: int) -> bytes:
    return archive([("card.json", CARD), *((f"{number}", b"") for number in range(count))])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (archive([("other.json", CARD)]), "holds 0 members called card.json"),
        (archive([("card.json", CARD), ("../card.json", b"")]), "'../card.json' points outside the archive"),
        (archive([("card.json", CARD), ("a/../../b", b"")]), "points outside the archive"),
        (archive([("card.json", CARD), ("/etc/passwd", b"")]), "'/etc/passwd' points outside the archive"),
        (archive([("card.json", CARD), ("..\\a", b"")]), "points outside the archive"),
        (archive([("card.json", CARD), ("C:/a", b"")]), "points outside the archive"),
        (archive([("card.json", CARD), (link("assets/a"), b"/etc/passwd")]), "'assets/a' is a link"),
        (archive([(link("card.json"), b"/etc/passwd")]), "'card.json' is a link"),
        (encrypted(archive([("card.json", CARD)])), "'card.json' is encrypted"),
        (archive([("card.json", b" " * (MAX_JSON_BYTES + 1))]), f"unpacks to more than {MAX_JSON_BYTES} bytes"),
        (archive([("card.json", CARD)], zipfile.ZIP_BZIP2), "uses an unsupported compression method"),
        (archive([("card.json", b"{")]), "card.bin: card.json: not JSON"),
        (archive([("card.json", CARD)])[:-40], "not a readable ZIP archive"),
        (b"PK\x03\x04" + b"\0" * 100, "not a readable ZIP archive: the end record is missing"),
        (of_many(MAX_FILES), f"more than {MAX_FILES} members"),
        (b"PK\x03\x04PK\x05\x06" + b"\0" * 8 + (MAX_DIRECTORY + 1).to_bytes(4, "little") + b"\0" * 6, "more than 2000"),
    ],
)
def test_archives_that_lie_are_refused(content: bytes, says: str) -> None:
    detail = refusal(content)
    assert (detail.startswith("card.bin: "), says in detail) == (True, True), detail


def test_an_archive_that_hides_its_members_is_refused() -> None:
    content = of_many(MAX_FILES)
    at = content.rindex(b"PK\x05\x06") + 8
    assert refusal(content[:at] + b"\1\0\1\0" + content[at + 4 :]) == f"card.bin: more than {MAX_FILES} members"


def test_a_damaged_member_is_refused() -> None:
    whole = archive([("card.json", CARD)], zipfile.ZIP_STORED)
    assert "not a readable ZIP archive: Bad CRC-32" in refusal(whole.replace(b"Quill", b"Quilt", 1))


def test_an_archive_that_promises_more_than_a_disk_holds_is_refused() -> None:
    content = archive([("card.json", CARD), ("bomb", b"x")])
    central = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4) + 24
    assert "unpacks to more than 1073741824 bytes" in refusal(
        content[:central] + (0x7FFFFFFF).to_bytes(4, "little") + content[central + 4 :]
    )


def test_a_file_is_read_up_to_its_limit_and_named(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(GatewayError, match=r"^card\.json: larger than 33554432 bytes$"):
        read_file(path)
    path.write_bytes(CARD)
    assert read_file(path) == CardFile(V3, "JSON")


def test_an_image_takes_a_new_card_in_place_of_its_old_ones() -> None:
    before = image(text_chunk("chara", V2), text_chunk("Comment", "kept"), text_chunk("ccv3", V3))
    after = embed_card(before, "a.png", "chara", b"new")
    kinds: list[JsonValue] = [one.kind.decode() for one in iter_chunks(after, "a.png")]
    assert (extract_card_from_image(after, "a.png"), kinds) == (
        ("chara", b"new", ()),
        ["IHDR", "IDAT", "tEXt", "tEXt", "IEND"],
    )


def test_an_image_takes_no_card_that_could_not_be_read_again() -> None:
    with pytest.raises(GatewayError, match="the card would exceed 4194304 bytes"):
        embed_card(image(), "a.png", "chara", b" " * (MAX_JSON_BYTES + 1))


@pytest.mark.parametrize("content", [b"\xff\xd8\xff\xe0 a photograph", b"<html>", b"name: Maelis"])
def test_a_file_of_another_kind_is_told_what_cards_are(content: bytes) -> None:
    with pytest.raises(GatewayError, match="neither a PNG image, a CHARX archive nor JSON"):
        read_bytes(content, "broken.png")
