"""What a remote retriever may answer, and which addresses its name may stand for."""

import json
import socket
from datetime import UTC, datetime, timedelta, timezone

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import JsonValue

from app.domain.errors import RetrieverFailed
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.values import Frozen
from app.main.components import build_retriever
from app.rag.remote import (
    MOST_CHARACTERS,
    MOST_PASSAGES,
    CheckedResolver,
    encode_query,
    is_public,
    is_unknown_world,
    parse_answer,
)
from app.settings import RagSettings, Settings
from tests.support.tables import read_table, unfold


class Tables(Frozen):
    bodies: dict[str, str]
    passages: tuple[tuple[dict[str, object], str], ...]
    settings: dict[str, tuple[dict[str, JsonValue], ...]]


TABLES = read_table(__file__, "remote_answers.yaml", Tables)

PASSAGE = {"id": "p", "text": "It rained."}


def answering(**changed: object) -> bytes:
    return json.dumps({"passages": [PASSAGE | changed]}).encode()


def test_a_whole_answer_is_a_context() -> None:
    body = {
        "passages": [
            PASSAGE | {"time": "1312-04-03T10:00:00+01:00", "kind": "lore", "source": "s"},
            {**PASSAGE, "id": "q"},
        ],
        "withheld": [{"id": "w", "reason": "future", "leak_terms": ["a bridge"]}],
        "as_of": "1312-04-03T09:00:00Z",
    }
    nine = datetime(1312, 4, 3, 9, tzinfo=UTC)
    assert parse_answer(json.dumps(body).encode()) == Context(
        passages=(
            Passage(id="p", text="It rained.", source="s", time=nine, kind="lore"),
            Passage(id="q", text="It rained.", source="remote"),
        ),
        withheld=(Withheld(id="w", reason="future", leak_terms=("a bridge",)),),
        as_of=nine,
    )


@pytest.mark.parametrize("text", ["two\nlines\tand\r\na tab", "👩‍👩‍👧 ‏שלום", "x" * 8000])
def test_texts_of_all_kinds_are_passages(text: str) -> None:
    assert parse_answer(answering(text=text)).passages == (Passage(id="p", text=text, source="remote"),)


TWISTED = "the retriever's answer violates the contract: "
WRONG = {
    **{body.encode(): told for body, told in TABLES.bodies.items()},
    **{answering(**changed): told for changed, told in TABLES.passages},
    answering(text="?").replace(b"?", b"\xff"): "not JSON: line 1, column 36",
    b"[" * 100_000: "not JSON: line 1, column 202",
    answering(secret="s" * 1000): "`passages[0]`: it has an unknown field",
    answering(id="x" * 201): "`passages[0].id`: wanted is text of at most 200 characters",
}


@pytest.mark.parametrize("body", WRONG)
def test_what_is_wrong_is_said_without_a_word_of_the_answer(body: bytes) -> None:
    with pytest.raises(RetrieverFailed) as refused:
        parse_answer(body)
    assert refused.value.detail == TWISTED + WRONG[body]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"passages": [PASSAGE, PASSAGE]}, TWISTED + "two items have the same id"),
        ({"passages": [PASSAGE], "withheld": [{"id": "p", "reason": "r"}]}, TWISTED + "two items have the same id"),
        (
            {"passages": [{"id": str(one), "text": "x"} for one in range(MOST_PASSAGES + 1)]},
            "the retriever's answer is too large: more than 64 passages",
        ),
        (
            {"passages": [], "withheld": [{"id": "w", "reason": "r", "text": "x" * (MOST_CHARACTERS + 1)}]},
            "the retriever's answer is too large: withheld[0].text has more than 8000 characters",
        ),
    ],
)
def test_answers_have_bounds_and_differing_ids(body: object, words: str) -> None:
    with pytest.raises(RetrieverFailed) as refused:
        parse_answer(json.dumps(body).encode())
    assert refused.value.detail == words


def test_a_question_is_in_utc_and_plain_ascii() -> None:
    asked = ContextQuery(
        text="¿Qué?", character="hob", world="w", as_of=datetime(1312, 4, 3, 10, tzinfo=timezone(timedelta(hours=1)))
    )
    sent = json.loads(encode_query(asked).decode("ascii"))
    assert (sent["version"], sent["query"]["text"], sent["query"]["as_of"], set(sent["query"])) == (
        1,
        "¿Qué?",
        "1312-04-03T09:00:00Z",
        set(ContextQuery.model_fields),
    )


def test_a_404_may_name_the_world() -> None:
    bodies = [b'{"error": "unknown_world"}', b'{"error": "other"}', b"<html>", b'{"error": ["unknown_world"]}']
    assert [is_unknown_world(body) for body in bodies] == [True, False, False, False]


PUBLIC = ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8")
PRIVATE = (
    *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8"),
    *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "fec0::1", "ff0e::1"),
    *("::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:7f00:1::"),
)


def test_which_addresses_are_the_internets() -> None:
    assert [address for address in (*PUBLIC, *PRIVATE) if is_public(address)] == list(PUBLIC)


class Changing(AbstractResolver):
    """Another answer each time, as who rebinds a name gives."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in self._answers.pop(0)
        ]

    async def close(self) -> None:
        pass


async def test_every_answer_of_a_resolver_is_checked() -> None:
    resolver = CheckedResolver(Changing(["8.8.8.8"], ["127.0.0.1"], ["8.8.8.8", "10.0.0.1"]), allow_private=False)
    met: list[list[str] | str] = []
    for _ in range(3):
        try:
            met.append([one["host"] for one in await resolver.resolve("lore.example", 80)])
        except RetrieverFailed:
            met.append("refused")
    await resolver.close()
    assert met == [["8.8.8.8"], "refused", "refused"]


@pytest.mark.parametrize(("rag", "words"), unfold(TABLES.settings))
def test_settings_that_cannot_be_right_stop_the_start(rag: dict[str, object], words: str) -> None:
    settings = Settings(rag=RagSettings.model_validate({"retriever": "remote"} | rag))
    with pytest.raises(ValueError, match="rag") as refused:
        build_retriever(settings, {})
    assert str(refused.value) == words


def test_a_host_in_the_list_may_be_asked() -> None:
    remote = {"url": "http://Lore.Example/", "allow_hosts": ["LORE.example"]}
    settings = Settings(rag=RagSettings.model_validate({"retriever": "remote", "remote": remote}))
    assert type(build_retriever(settings, {})).__name__ == "RemoteRetriever"
