"""Keys and headers that go to one server alone."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.inference.connection import Credentials, KeyFile, clean_key
from tests.support.tables import read_table


def swap(link: Path, folder: Path, name: str, text: str) -> None:
    """As orchestrators renew mounted secrets: another file behind the same link."""
    (folder / name).write_text(text, encoding="utf-8")
    (folder / "new").symlink_to(folder / name)
    (folder / "new").replace(link)


def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    link = tmp_path / "key"
    swap(link, tmp_path, "1", "first-key\n")
    file = KeyFile(link)
    credentials = Credentials(file)
    seen = [credentials.build_headers()]
    swap(link, tmp_path, "2", "second-key\n")
    seen.append(credentials.build_headers("api-key"))
    link.unlink()
    seen.append(credentials.build_headers())
    link.write_text("\n", encoding="utf-8")
    seen.append(credentials.build_headers())
    link.write_text("third-key", encoding="utf-8")
    seen.append(credentials.build_headers())
    assert [list(headers.values()) for headers in seen] == [
        ["Bearer first-key"],
        ["second-key"],
        ["Bearer second-key"],
        ["Bearer second-key"],
        ["Bearer third-key"],
    ]
    assert credentials.redact("first-key, second-key, third-key") == "…, …, …"


def test_a_key_is_written_over_in_place(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a-key", encoding="utf-8")
    credentials = Credentials(KeyFile(path))
    path.write_text("b-key", encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert credentials.build_headers() == {"authorization": "Bearer b-key"}


def test_headers_are_sent_and_hidden() -> None:
    credentials = Credentials(SecretStr("the-key"), {"X-Token": SecretStr("the-key-and-more"), "X-N": SecretStr("1")})
    assert credentials.build_headers() == {"authorization": "Bearer the-key", "x-token": "the-key-and-more", "x-n": "1"}
    assert credentials.redact("at 1: the-key-and-more, the-key") == "at 1: …, …"
    assert "the-key" not in repr(credentials)


@pytest.mark.parametrize(("key", "problem"), read_table(__file__, "wrong_keys.yaml", list[tuple[str, str]]))
def test_a_key_that_no_header_can_hold(key: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        clean_key(SecretStr(key))
    assert str(caught.value) == problem
    assert clean_key(SecretStr(" key\r\n")).get_secret_value() == "key"


@pytest.mark.parametrize(
    "spell",
    [
        json.dumps,
        lambda key: json.dumps(json.dumps(key)),
        lambda key: json.dumps(key).replace("/", "\\/"),
        lambda key: f"\\u{ord(key[0]):04X}{key[1:]}",
        lambda key: json.dumps("".join(f"\\u{ord(letter):04x}" for letter in key)),
    ],
    ids=["quoted", "quoted twice", "slashes escaped", "one letter as its number", "all letters, quoted"],
)
def test_a_key_is_hidden_however_json_spells_it(spell: Callable[[str], str]) -> None:
    key = 'sk-u/a+"\\b'
    assert Credentials(SecretStr(key)).redact(f"before {spell(key)} after").strip('\\"') in (
        "before … after",
        'before "…" after',
        'before "\\"…\\"" after',
    )


@pytest.mark.parametrize("text", ["\\" * 400_000, "sk-\\" * 100_000, ("sk-" + "\\" * 50) * 8000])
def test_hiding_takes_linear_time(text: str) -> None:
    began = time.process_time()
    assert Credentials(SecretStr("sk-\\-key")).redact(text) == text
    assert time.process_time() - began < 1.0


def test_what_was_asked_is_no_secret() -> None:
    credentials = Credentials(SecretStr("the-key"), {"X-Title": SecretStr("dragon")})
    assert credentials.redact("the dragon has the-key", ["a dragon"]) == "the dragon has …"
