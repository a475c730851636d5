"""Files that hold cards, honest and hostile: what counts, and what is refused by the name of the file and its part."""

import base64
import json
import stat
import time
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
    iter_chunks,
    read_bytes,
    read_file,
)
from app.domain.errors import GatewayError
from tests.support.cards import V1, V2, V3, archive, chunk, image, text_chunk
from tests.support.tables import read_table

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


JSON = read_table(__file__, "json.yaml", tuple[tuple[str, JsonValue, list[str]], ...])


@pytest.mark.parametrize(
    ("text", "value", "mended"),
    [
        *((text.encode("latin-1"), *more) for text, *more in JSON),
        (b'{"a": ' + b"9" * 5000 + b"}", {"a": None}, ["a number of many digits is not a number and is read as null"]),
        ('{"a": "é"}'.encode("utf-16"), {"a": "é"}, []),
        (
            r"""{"a": "it\'s \v\q, \
not \\", größe: 'a \
"b" \\', имя: "\u00e9\n", $_1: 1}""".encode(),
            {"a": "it's \x0bq, not \\", "größe": 'a "b" \\', "имя": "é\n", "$_1": 1},
            ["it is JSON5 and no JSON"],
        ),
        (
            b"{a: [-Infinity, +Infinity, -NaN]}",
            {"a": [None, None, None]},
            [
                *(f"{name} is not a number and is read as null" for name in ("-Infinity", "Infinity", "NaN")),
                "it is JSON5 and no JSON",
            ],
        ),
    ],
)
def test_json_that_can_mean_one_thing_is_read_and_said(text: bytes, value: JsonValue, mended: list[str]) -> None:
    assert read_bytes(text, "card.bin") == CardFile(value, "JSON", (), tuple(mended))


def test_what_is_nested_too_deep_is_left_out() -> None:
    read = read_bytes(b'{"a": 1, "b": ' + b"[" * 300 + b"]" * 300 + b"}", "card.bin")
    assert (isinstance(read.value, dict) and read.value["a"], read.mended) == (
        1,
        ("what is nested deeper than 32 levels is read as null",),
    )


@pytest.mark.parametrize("unit", ['"\\"', "'\\'", ",/*", ", ", "/*", "//", "a", "1.e", '"\\x41', ",//\n"])
def test_what_is_no_json_is_looked_at_in_linear_time(unit: str) -> None:
    text = unit.encode() * (MAX_JSON_BYTES // 2 // len(unit))
    began = time.process_time()
    refusal(b"[{" + text)
    assert time.process_time() - began < 5


PLAIN = BASE64.rstrip(b"=")
ANY_LENGTH = [base64.b64encode(json.dumps({**V1, "tags": ["~~~???" * 3 + "x" * more]}).encode()) for more in range(3)]
PHOTOGRAPH = b"\xff\xd8\xff\xe0\0\x10JFIF\0 a photograph \xff\xd9"
PACKED = archive([("card.json", CARD)])
STORED = archive([("card.json", CARD)], zipfile.ZIP_STORED)


@pytest.mark.parametrize(
    ("content", "container", "mended"),
    [
        (PHOTOGRAPH + PACKED, "CHARX", []),
        (b"MZ a program that unpacks what follows" + PACKED, "CHARX", []),
        (b"#!/bin/sh\n" + PACKED, "CHARX", []),
        (image() + PACKED, "CHARX", []),
        (archive([("Mara/Card.JSON", CARD), ("Mara/assets/a.png", image())]), "CHARX", []),
        (archive([("notes.txt", b"x"), ("mara.png", image(text_chunk("ccv3", V3)))]), "PNG", []),
        (archive([("mara.json", CARD)]), "CHARX", []),
        (
            archive([("a.png", image()), ("mara.png", image(text_chunk("ccv3", V3)))]),
            "PNG",
            ["a.png is passed over: card.bin: a.png: holds no card: no text chunk is called ccv3 or chara"],
        ),
        (PACKED[:-40], "CHARX", ["the archive is damaged: not a readable ZIP archive: the end record is missing"]),
        (
            PHOTOGRAPH + PACKED[:-40],
            "CHARX",
            ["the archive is damaged: not a readable ZIP archive: the end record is missing"],
        ),
        (
            STORED[:14] + b"\0\0\0\0" + STORED[18:].replace(zlib.crc32(CARD).to_bytes(4, "little"), b"\0\0\0\0"),
            "CHARX",
            ["the archive is damaged: not a readable ZIP archive: Bad CRC-32 for file 'card.json'"],
        ),
        (image(chunk(b"tEXt", b"ccv3\0" + PLAIN)), "PNG", []),
        (image(chunk(b"tEXt", b"ccv3\0" + BASE64.translate(bytes.maketrans(b"+/", b"-_")))), "PNG", []),
        (image(chunk(b"tEXt", b"ccv3\0" + CARD)), "PNG", []),
        (
            image(chunk(b"tEXt", b"ccv3\0" + BASE64, checksum=7)),
            "PNG",
            ["the chunk at byte 55 has a wrong checksum"],
        ),
        (
            image(text_chunk("ccv3", V3), chunk(b"IDAT", b"pixels", checksum=7)),
            "PNG",
            [f"the chunk at byte {55 + len(text_chunk('ccv3', V3))} has a wrong checksum"],
        ),
        (
            image(text_chunk("ccv3", V3), ends=False),
            "PNG",
            [f"the image ends early, at byte {55 + len(text_chunk('ccv3', V3))}"],
        ),
        (
            image(text_chunk("chara", V3), chunk(b"tEXt", b"ccv3\0!!!")),
            "PNG",
            ["the card in the chunk ccv3 is passed over: card.bin: the chunk 'ccv3' is not base64"],
        ),
        (
            image(text_chunk("ccv3", {}), text_chunk("chara", V3)),
            "PNG",
            ["the card in the chunk ccv3 is passed over: it holds no named card"],
        ),
        (
            image(chunk(b"zTXt", b"ccv3\0\0nonsense"), text_chunk("chara", V3)),
            "PNG",
            ["the card in the chunk ccv3 is passed over: card.bin: the chunk 'ccv3' cannot be decompressed"],
        ),
    ],
)
def test_damage_and_wrappings_refuse_no_card(content: bytes, container: str, mended: list[str]) -> None:
    read = read_bytes(content, "card.bin")
    assert (read.value, read.container, list(read.mended)) == (V3, container, mended)


@pytest.mark.parametrize("text", [one.rstrip(b"=") for one in ANY_LENGTH])
def test_base64_is_read_at_any_length_without_padding(text: bytes) -> None:
    read = read_bytes(image(chunk(b"tEXt", b"chara\0" + text.replace(b"/", b"_"))), "card.bin")
    assert isinstance(read.value, dict)
    assert (read.value["name"], read.mended) == ("Mara Quill", ())


def test_a_thousand_pictures_hide_no_card() -> None:
    assert read_bytes(of_many(5000), "card.bin") == CardFile(V3, "CHARX", ("5000 more members of the archive",), ())


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
        # No sheet could hold this JSON.
        (b"", "not JSON"),
        (b'{"a": ', "not JSON: line 1, column"),
        (b"[1] 2", "not JSON: line 1, column"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        (b"{a:" + b"[" * 5000, "nested deeper than 32 levels"),
        (b"{a: 1.2.3}", "not JSON: line 1, column 2"),
        (rb"""{a: 'b\'}""", "not JSON: line 1, column"),
        (b'{"a": "' + b"x" * MAX_JSON_BYTES + b'"}', f"more than {MAX_JSON_BYTES} bytes of JSON"),
        # These images lie.
        (image(), "holds no card: no text chunk is called ccv3 or chara"),
        (image(text_chunk("Comment", V2)), "holds no card"),
        (image(ends=False), "ends early, at byte"),
        (image(text_chunk("ccv3", V3))[:-30], "is truncated"),
        (image(b"\x7f\xff\xff\xfftEXtccv3\0"), "is truncated: it declares 2147483647 bytes"),
        (image(b"\xff\xff\xff\xfftEXt" + b"x" * 60), "it declares 4294967295 bytes"),
        (image(chunk(b"tEXt", b"ccv3\0" + b"A" * (MAX_TEXT + 1))), f"the chunk 'ccv3' has more than {MAX_TEXT} bytes"),
        (image(chunk(b"zTXt", b"ccv3\0\0nonsense")), "the chunk 'ccv3' cannot be decompressed"),
        (image(chunk(b"tEXt", b"chara\0not base64!")), "the chunk 'chara' is not base64"),
        (image(chunk(b"tEXt", b"chara\0" + base64.b64encode(b"{"))), "card.bin: chara: not JSON"),
        (image(chunk(b"tEXt", b"chara\0A")), "the chunk 'chara' is not base64"),
        (image(chunk(b"tEXt", b"chara\0rcc||rccv1||x")), "the chunk 'chara' is an encrypted card of RisuAI"),
        (image(*[chunk(b"fcTL", b"")] * MAX_CHUNKS), f"more than {MAX_CHUNKS} chunks"),
        # These archives lie.
        (archive([("other.txt", CARD)]), "holds no member called card.json, and no PNG image or JSON file"),
        (archive([("module.risum", b"o")]), "a module of RisuAI is not read"),
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
        (archive([("other.json", CARD)])[:-40], "not a readable ZIP archive"),
        (b"PK\x03\x04" + b"\0" * 100, "not a readable ZIP archive: the end record is missing"),
        (of_many(10_000), "more than 10000 members"),
        (
            b"PK\x03\x04PK\x05\x06" + b"\0" * 8 + (MAX_DIRECTORY + 1).to_bytes(4, "little") + b"\0" * 6,
            "more than 10000",
        ),
    ],
)
def test_what_holds_no_card_is_refused_by_its_part(content: bytes, says: str) -> None:
    detail = refusal(content)
    assert (detail.startswith("card.bin: "), says in detail) == (True, True), detail


def test_an_archive_that_hides_its_members_is_refused() -> None:
    content = of_many(10_000)
    at = content.rindex(b"PK\x05\x06") + 8
    assert refusal(content[:at] + b"\1\0\1\0" + content[at + 4 :]) == "card.bin: more than 10000 members"


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
    after = embed_card(before, "a.png", "chara", b'{"name": "new"}')
    kinds: list[JsonValue] = [one.kind.decode() for one in iter_chunks(after, "a.png")]
    assert (read_bytes(after, "a.png"), kinds) == (
        CardFile({"name": "new"}, "PNG", ("the image itself",)),
        ["IHDR", "IDAT", "tEXt", "tEXt", "IEND"],
    )


def test_an_image_takes_no_card_that_could_not_be_read_again() -> None:
    with pytest.raises(GatewayError, match="the card would exceed 4194304 bytes"):
        embed_card(image(), "a.png", "chara", b" " * (MAX_JSON_BYTES + 1))


@pytest.mark.parametrize("content", [b"\xff\xd8\xff\xe0 a photograph", b"<html>", b"name: Maelis"])
def test_a_file_of_another_kind_is_told_what_cards_are(content: bytes) -> None:
    with pytest.raises(GatewayError, match="neither a PNG image, a CHARX archive nor JSON"):
        read_bytes(content, "broken.png")
