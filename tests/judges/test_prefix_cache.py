"""A provider with a prefix cache: what it charges is what we say that we spent, and half of what it reads it knows."""

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from threading import Lock

import pytest

from app.cli.judges import load_packaged_specimens
from app.domain.judging import Case, JudgeReport, PanelResult
from app.envs.npc_arena.environment import NpcArena
from app.judges.configuration import TokenPrices, TokenUsage, parse_usage
from app.judges.panel import JudgePanel, build_chat_judges
from app.ports.environment import ManagedResource
from app.ports.judges import ReadingPace, ReportingJudge
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import config
from tests.support.preferring import preferring
from tests.support.tables import read_table

PRICES = TokenPrices(2.0, 10.0, 0.5)
STEP = 128
"""Tokens. Providers cache whole blocks, from 1,024 tokens on."""


@dataclass
class Provider:
    """Takes four characters for a token. Knows what it answered, not what it is still reading."""

    known: list[str] = field(default_factory=list)
    usages: list[dict[str, int]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def answer(self, number: int, received: Received) -> Reply:
        prompt = "".join(said["content"] for said in received.messages)
        with self.lock:
            cached = max((self.count_common(prompt, each) for each in self.known), default=0)
        time.sleep(0.1)
        reply = preferring(number, received)
        body = json.loads(reply.body)
        written, thought = len(body["choices"][0]["message"]["content"]) // 4 + 100, 100
        body["usage"] = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": written,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
        with self.lock:
            self.known.append(prompt)
            self.usages.append({"read": len(prompt) // 4, "cached": cached, "written": written, "thought": thought})
        return replace(reply, body=json.dumps(body).encode())

    @staticmethod
    def count_common(one: str, other: str) -> int:
        length = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        return length // 4 // STEP * STEP if length // 4 >= 1024 else 0

    def sum(self, name: str) -> int:
        return sum(usage[name] for usage in self.usages)

    @property
    def invoice(self) -> float:
        plain = self.sum("read") - self.sum("cached")
        return (2.0 * plain + 0.5 * self.sum("cached") + 10.0 * self.sum("written")) / 1e6


def arena_case(number: int = 0, character: int = 0) -> Case:
    """Eight replies to a scene that ships, before NPC Arena's own rubric."""
    first = {gold.cast.sheet.id: gold for gold in reversed(load_packaged_specimens())}
    gold = [*first.values()][character]
    assert NpcArena.rubric is not None
    texts = tuple(f"{number}.{place}: {gold.clean}" for place in range(8))
    return Case(
        key=f"task {number}", rubric=NpcArena.rubric, document=gold.document, probes=gold.probes, candidates=texts
    )


async def read(url: str, pace: ReadingPace, *cases: Case) -> tuple[list[PanelResult], JudgeReport]:
    judges = build_chat_judges([config(url, prices=PRICES, pace=pace)], {}, None)
    judge = next(iter(judges.values()))
    try:
        panel = JudgePanel([judge], 0.5, readings=2)
        results = [await panel.judge(case) for case in cases]
        assert isinstance(judge, ReportingJudge)
        return results, judge.report()
    finally:
        assert isinstance(judge, ManagedResource)
        await judge.close()


GROUPS = [(0, 0), (1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("warms", "cases", "least", "most"),
    [
        *((False, GROUPS[:1], 0.0, 0.0), (True, GROUPS[:1], 0.42, 0.46), (True, GROUPS[:2], 0.64, 0.68)),
        *((True, GROUPS, 0.75, 0.79), (True, [(0, 0), (1, 1)], 0.45, 0.64)),
    ],
    ids=["not warmed", "one group", "two groups", "four groups", "two characters"],
)
def test_readings_find_their_prompts_in_the_cache(
    warms: bool, cases: list[tuple[int, int]], least: float, most: float
) -> None:
    """The second reading of a group does, and the first one of the next group of the same character. That of another
    character finds rules and rubric."""
    provider = Provider()
    with serving(provider.answer) as server:
        asyncio.run(read(server.url, ReadingPace(warms_cache=warms), *(arena_case(*case) for case in cases)))
    share = provider.sum("cached") / provider.sum("read")
    assert (len(provider.usages), least <= share <= most) == (2 * len(cases), True), share


def test_our_spend_is_the_providers_invoice() -> None:
    provider = Provider()
    with serving(provider.answer) as server:
        results, report = asyncio.run(read(server.url, ReadingPace(), *map(arena_case, range(3))))
    spent = report.spent
    assert spent.cost_usd == pytest.approx(provider.invoice, rel=1e-12)
    assert sum(made.cost_usd or 0.0 for each in results for made in each.judgements) == pytest.approx(provider.invoice)
    assert (spent.input_tokens, spent.cached_input_tokens, spent.output_tokens, spent.reasoning_tokens) == tuple(
        map(provider.sum, ("read", "cached", "written", "thought"))
    )


TABLES = read_table(__file__, "prefix_cache.yaml", tuple[tuple[object, TokenUsage], ...])


@pytest.mark.parametrize(("sent", "usage"), TABLES)
def test_the_forms_in_which_servers_count(sent: object, usage: TokenUsage) -> None:
    assert parse_usage(sent) == usage
