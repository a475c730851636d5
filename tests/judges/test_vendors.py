"""Whole judgements by the servers that people have, each with the bodies that it is known to send."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.domain.judging import Judgement, JudgeReport
from app.inference.connection import ServerError
from app.judges import judge_client as line
from app.judges.chat_judge import CachingJudge, ChatJudge
from app.judges.configuration import CallFailed, ChatJudgeConfig
from app.judges.judge_client import ChatResponse, ServerTraits, parse_response
from app.judges.panel import build_chat_judges
from app.judges.verdicts import build_response_format, choose_mode
from tests.support.chat_server import ChatServer
from tests.support.event_loop import closed_after
from tests.support.judge_cases import GOOD, REQUEST, completion, config
from tests.support.tables import read_table
from tests.support.vendors import LIMIT, Vendor, read_vendors, serving_vendors

ALL = read_vendors()


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serving_vendors() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


def configure(server: ChatServer, vendor: Vendor, name: str = "big") -> ChatJudgeConfig:
    url = f"{server.url.removesuffix('/v1')}/{ALL.index(vendor)}{vendor.path}"
    chosen: dict[str, object] = {"json_mode": "schema", "expected_scores": True, "max_output_tokens": LIMIT}
    return config(url, name=name, **{**chosen, **vendor.settings})


async def judge_twice(settings: ChatJudgeConfig) -> tuple[Judgement, Judgement, JudgeReport]:
    async with closed_after(ChatJudge(settings)) as judge:
        return await judge.judge(REQUEST), await judge.judge(REQUEST), judge.report()


@pytest.mark.parametrize("vendor", ALL, ids=lambda vendor: f"{vendor.server}: {vendor.case}")
def test_a_judgement_by_it(server: ChatServer, vendor: Vendor) -> None:
    first, second, report = asyncio.run(judge_twice(configure(server, vendor)))
    assert (report.changes, report.ignored) == (vendor.changes, vendor.ignored)
    if vendor.error is not None:
        assert vendor.error in (first.error or "")
        assert first.calls == vendor.calls[0]
        return
    assert (first.error, second.error) == (None, None)
    assert (first.calls, second.calls) == vendor.calls
    assert first.verdicts[0].scores == {"likeness": 1.0, "charm": 0.5}
    assert first.ranking == second.ranking == (("A",), ("B", "C"))
    assert sum(sent.path.startswith(f"/{ALL.index(vendor)}/") for sent in server.received) == sum(vendor.calls)


async def test_what_one_judge_found_out_its_namesakes_know(server: ChatServer) -> None:
    vendor = next(each for each in ALL if len(each.changes) == 3)
    configs = [configure(server, vendor, name) for name in ("one", "other")]
    judges = build_chat_judges(configs, {}, None).values()
    assert all(isinstance(judge, CachingJudge) for judge in judges)
    try:
        assert [(await judge.judge(REQUEST)).calls for judge in judges] == [4, 1]
    finally:
        await asyncio.gather(*(judge.close() for judge in judges if isinstance(judge, CachingJudge)))


def test_a_call_that_began_before_goes_on_with_what_another_found_out() -> None:
    traits = ServerTraits(config("http://127.0.0.1:1/v1", seed=7))
    began = traits.form
    known = replace(began, temperature=None, seed=None)
    traits.record_answer(known, parse_response(completion(GOOD).body), changed=True)
    failed = CallFailed("", status=400, error=ServerError(fields=frozenset(("temperature",))))
    assert (traits.choose_next(began, failed), traits.choose_next(known, failed)) == (known, None)


ROOMS = read_table(__file__, "rooms.yaml", dict[str, tuple[str, int | None]])


@pytest.mark.parametrize(("words", "room"), ROOMS.values(), ids=ROOMS)
def test_a_limit_beside_a_long_prompt_is_that_calls_alone(words: str, room: int | None) -> None:
    """The judge's own comes back with the next call."""
    traits = ServerTraits(config("http://127.0.0.1:1/v1", max_output_tokens=4096))
    failed = CallFailed("", status=400, error=ServerError(message=words, fields=frozenset(("max_tokens",))))
    fitted = traits.choose_next(traits.form, failed)
    assert (fitted and fitted.most_tokens) == room
    if fitted is None:
        return
    traits.record_answer(fitted, parse_response(completion(GOOD).body), changed=True)
    assert (traits.form.most_tokens, traits.changes, traits.give_room(fitted)) == (4096, (), None)


def list_keywords(schema: JsonValue) -> Iterator[str]:
    """Of a schema and all within it, names of properties aside."""
    if isinstance(schema, list):
        for item in schema:
            yield from list_keywords(item)
    elif isinstance(schema, dict):
        yield from schema
        inner = schema.get("properties")
        yield from list_keywords(list(inner.values()) if isinstance(inner, dict) else [])
        yield from list_keywords([schema[name] for name in ("items", "anyOf") if name in schema])


def test_schemas_hold_what_all_servers_know() -> None:
    wanted = build_response_format("schema", REQUEST)
    assert isinstance(wanted, dict)
    described = wanted["json_schema"]
    assert isinstance(described, dict)
    assert set(list_keywords(described["schema"])) == {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "anyOf",  # an object or null, which strict modes know in this form
    }


SHORT = '{"defects": [], "scores": {"charm": {"A": 4}}, "ranking": [["A"]], "notes": {"A": ""}}'
OWN_FIELDS = '{"plain": "I keep the ferry."}'


@pytest.mark.parametrize(
    ("mode", "text", "follows_schema", "ignored"),
    [
        ("schema", GOOD, True, ()),
        ("schema", SHORT, True, ()),
        ("schema", OWN_FIELDS, True, ("response_format",)),
        ("schema", OWN_FIELDS, False, ()),
        ("schema", "The ferry is best.", False, ("response_format",)),
        ("object", OWN_FIELDS, True, ()),
        ("object", "[]", True, ("response_format",)),
        ("off", "The ferry is best.", True, ()),
    ],
)
def test_which_answers_prove_that_the_format_was_ignored(
    mode: str, text: str, follows_schema: bool, ignored: tuple[str, ...]
) -> None:
    traits = ServerTraits(config("", json_mode=mode))
    asked = choose_mode(traits.form.json_mode, REQUEST if follows_schema else None)
    traits.record_format(ChatResponse(text, cut_off=False, refused=False, asked=asked))
    assert traits.ignored == ignored


def test_the_page_tells_of_every_server() -> None:
    page = Path("docs/judge_reference.md").read_text(encoding="utf-8")
    table = page.partition("<!-- servers: read by the tests -->")[2].partition("\n\n")[0]
    told = [row.split("|")[1].strip() for row in table.strip().splitlines()[2:]]
    assert told == list(dict.fromkeys(vendor.server for vendor in ALL))
