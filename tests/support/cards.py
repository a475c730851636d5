"""Character cards with every field that their specifications list, and files that hold them."""

import base64
import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO

from pydantic import JsonValue

Fields = dict[str, JsonValue]

V1: Fields = {
    "name": "Mara Quill",
    "description": '[character("{{char}}") {Job("keeps the lamp")}]\n<BOT> knows {{user}}\'s father.',
    "personality": "dry, {{random:brave,meek}} {{// never shown}}",
    "scenario": "{{char}} stands at the lamp with <USER>.",
    "first_mes": "*She looks up.* You again, {{user}}.",
    "mes_example": "<START>\n{{user}}: Who are you?\n{{char}}: Nobody that you owe.\n<START>\nMara Quill: *sighs*",
}

_ENTRY_V2: Fields = {
    "keys": ["lamp", "light"],
    "content": "{{char}}'s lamp is green.",
    "extensions": {"depth": 4, "probability": 80, "useProbability": True, "of_another": {"deep": [1, None, 2.5]}},
    "enabled": True,
    "insertion_order": 10,
    "case_sensitive": True,
    "name": "The lamp",
    "priority": 5,
    "id": 1,
    "comment": "from the old book",
    "selective": True,
    "secondary_keys": ["green"],
    "constant": False,
    "position": "before_char",
}

BOOK_V2: Fields = {
    "name": "Lamps",
    "description": "All about lamps.",
    "scan_depth": 5,
    "token_budget": 300,
    "recursive_scanning": True,
    "extensions": {"of_another": 1},
    "entries": [_ENTRY_V2, {**_ENTRY_V2, "id": 2, "enabled": False, "position": "after_char"}],
}

BOOK_V3: Fields = {
    **BOOK_V2,
    "entries": [
        {**_ENTRY_V2, "id": "one", "use_regex": False, "content": "@@depth 4\n@@scan_depth 2\n\nThe lamp is green."},
        {**_ENTRY_V2, "id": 2, "use_regex": True, "keys": ["l(amp|ight)s?"]},
    ],
}

_DATA_V2: Fields = {
    **V1,
    "creator_notes": "NOTES-FOR-PEOPLE",
    "system_prompt": "ORDERS-BEFORE {{original}}",
    "post_history_instructions": "ORDERS-AFTER",
    "alternate_greetings": ["Hm.", "{{user}}? Sit."],
    "character_book": BOOK_V2,
    "tags": ["Lighthouse", "dry"],
    "creator": "Somebody",
    "character_version": "main",
    "extensions": {"talkativeness": "0.5", "fav": False, "depth_prompt": {"prompt": "ORDERS-AT-DEPTH", "depth": 4}},
    "unheard_of": [{"of": None}],
}

V2: Fields = {"spec": "chara_card_v2", "spec_version": "2.0", "data": _DATA_V2, "beside": True}

V3: Fields = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **_DATA_V2,
        "character_book": BOOK_V3,
        "assets": [
            {"type": "icon", "uri": "https://example.org/a.png", "name": "main", "ext": "png"},
            {"type": "x_of_another", "uri": "embeded://assets/other/a.bin", "name": "a", "ext": "unknown"},
        ],
        "nickname": "Mara",
        "creator_notes_multilingual": {"en": "NOTES-FOR-PEOPLE", "fr": "NOTES-FOR-PEOPLE"},
        "source": ["https://example.org/cards/1"],
        "group_only_greetings": ["All of you?"],
        "creation_date": 1700000000,
        "modification_date": 0,
    },
    "beside": {"of": "another tool"},
}


def chunk(kind: bytes, data: bytes, checksum: int | None = None) -> bytes:
    made = zlib.crc32(kind + data) if checksum is None else checksum
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", made)


def text_chunk(keyword: str, card: JsonValue) -> bytes:
    return chunk(b"tEXt", keyword.encode() + b"\0" + base64.b64encode(json.dumps(card).encode()))


def image(*between: bytes, ends: bool = True) -> bytes:
    """One grey pixel, with these chunks before its end."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\x80"))
    return b"\x89PNG\r\n\x1a\n" + b"".join([head, pixel, *between, chunk(b"IEND", b"") if ends else b""])


def archive(members: Sequence[tuple[zipfile.ZipInfo | str, bytes]], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", packing) as opened:
        for name, content in members:
            opened.writestr(name, content, packing)
    return file.getvalue()
