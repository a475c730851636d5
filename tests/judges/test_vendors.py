"""Whole judgements by the servers that people have, each with the bodies that it is known to send."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.judging import Judgement, JudgeReport
from app.judges import judge_client as line
from app.judges.chat import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from tests.support.chat_server import ChatServer
from tests.support.judge_cases import REQUEST, config
from tests.support.vendor_table import VENDORS
from tests.support.vendor_table_open import OPEN_VENDORS
from tests.support.vendors import LIMIT, Vendor, build_url, select_received, serving_vendors

ALL = (*VENDORS, *OPEN_VENDORS)


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serving_vendors(ALL) as running:
        yield running


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


async def judge_twice(settings: ChatJudgeConfig) -> tuple[Judgement, Judgement, JudgeReport]:
    judge = ChatJudge(settings)
    try:
        return await judge.judge(REQUEST), await judge.judge(REQUEST), judge.report()
    finally:
        await judge.close()


@pytest.mark.parametrize("vendor", ALL, ids=lambda vendor: vendor.name)
def test_a_judgement_by_it(server: ChatServer, vendor: Vendor) -> None:
    chosen: dict[str, object] = {
        "json_mode": "schema",
        "expected_scores": True,
        "max_output_tokens": LIMIT,
        **vendor.settings,
    }
    settings = config(build_url(server, ALL, vendor), **chosen)
    first, second, report = asyncio.run(judge_twice(settings))
    assert (report.changes, report.ignored) == (vendor.changes, vendor.ignored)
    if vendor.error is not None:
        assert vendor.error in (first.error or "")
        assert first.calls == vendor.calls[0]
        return
    assert (first.error, second.error) == (None, None)
    assert (first.calls, second.calls) == vendor.calls
    assert first.verdicts[0].scores == {"likeness": 1.0, "charm": 0.5}
    assert first.ranking == second.ranking == (("q7",), ("k2", "z9"))
    assert len(select_received(server, ALL, vendor)) == sum(vendor.calls)


def test_every_body_has_its_source() -> None:
    sources = [source for vendor in ALL for source in (vendor.source, *(each.source for each in vendor.refusals))]
    assert [source for source in sources if not re.match(r"https://|[a-z]+ [0-9.]+, ", source)] == []


def test_the_page_tells_of_every_server() -> None:
    page = Path("docs/judging.md").read_text(encoding="utf-8")
    table = page.partition("<!-- servers: read by the tests -->")[2].partition("\n\n")[0]
    told = [row.split("|")[1].strip() for row in table.strip().splitlines()[2:]]
    assert told == list(dict.fromkeys(vendor.server for vendor in ALL))
