"""Scenes whose author had not seen how replies are scored: how many of the wrong replies earn less than the right one.

`docs/characters.md` has these figures.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.characters.actions import write_reply
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.envs.npc_arena.environment import NpcArenaDraft
from app.toolkit.tool_calls.calls import ParsedCall
from tests.envs.npc_arena.test_ten_scenes import verify
from tests.envs.npc_arena.test_traps import TOOLS
from tests.support.packaged_arena import packaged_arena
from tests.support.tables import read_table


class SaidReply(Frozen):
    say: str
    calls: tuple[ParsedCall, ...] = ()
    why: str = ""

    def write(self) -> Completion:
        return write_reply(self.say, self.calls)

    def describe(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class BlindScene(Frozen):
    character: str
    good: SaidReply | str
    wrong: tuple[SaidReply, ...]
    player: str = ""
    others: list[Any] = []
    lines: list[dict[str, Any]] = []
    passing: str = "wrong"
    earlier: list[Any] = []
    state: str | None = None
    right: tuple[tuple[ParsedCall, ...], ...] = ()
    never: tuple[ParsedCall, ...] = ()
    must_recall: list[Any] = []
    must_not_recall: list[Any] = []
    never_told: list[Any] = []


def write_acts(one: BlindScene) -> dict[str, Any]:
    acts = {
        "state": one.state,
        "right": [[expect(call) for call in calls] for calls in one.right],
        "never": [expect(call) for call in one.never],
        "tempting": [wrong.describe() for wrong in one.wrong],
    }
    return {"kind": "action", "player": one.player, "acts": acts}


def expect(call: ParsedCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": {name: [value] for name, value in call.arguments.items()}}


def write_memory(one: BlindScene) -> dict[str, Any]:
    memory = {
        "must_recall": one.must_recall,
        "must_not_recall": one.must_not_recall,
        "never_told": one.never_told,
        "tempting": [wrong.describe() for wrong in one.wrong],
    }
    return {"kind": "memory", "player": one.player, "earlier": one.earlier, "memory": memory}


def write_company(one: BlindScene) -> dict[str, Any]:
    names = {other["name"] for other in one.others} | {"player"}
    lines = [{**line, "speaker": line["speaker"] if line["speaker"] in names else "npc"} for line in one.lines]
    tempting = [wrong.describe() for wrong in one.wrong]
    seat = {"lines": lines, "passing": one.passing, "exemplar": one.good, "tempting": tempting}
    return {"kind": "company", "others": one.others, "seat": seat}


def score(one: BlindScene, scene: Mapping[str, Any]) -> tuple[Score, tuple[Score, ...]]:
    """Of the right reply and of the wrong ones, by gates, code and the offline judge."""
    whole = {"id": "blind", "split": "train", **scene}
    drafted = packaged_arena().draft(NpcArenaDraft(character=one.character, scene=whole))
    good = one.good if isinstance(one.good, SaidReply) else SaidReply(say=one.good)
    replies = [reply.write() for reply in (good, *one.wrong)]
    right, *wrong = asyncio.run(drafted.environment.score(drafted.task, replies, TOOLS))
    return right, tuple(wrong)


@pytest.mark.parametrize(
    ("name", "write", "counts"),
    [
        ("actions", write_acts, {"right": 24, "paid in full": 24, "wrong": 72, "by code": 70, "by reward": 72}),
        ("memory", write_memory, {"right": 24, "paid in full": 24, "wrong": 48, "by code": 45, "by reward": 46}),
        ("company", write_company, {"right": 16, "paid in full": 15, "wrong": 48, "by code": 39, "by reward": 46}),
    ],
)
def test_wrong_replies_of_an_author_who_knew_no_rules_are_told_from_right_ones(
    name: str, write: Callable[[BlindScene], Mapping[str, Any]], counts: Mapping[str, int]
) -> None:
    told: Counter[str] = Counter()
    for one in read_table(__file__, f"blind_{name}.yaml", tuple[BlindScene, ...]):
        right, wrong = score(one, write(one))
        told += Counter({"right": 1, "wrong": len(wrong), "paid in full": verify(right) == 1.0})
        told["by code"] += sum(verify(other) < verify(right) for other in wrong)
        told["by reward"] += sum((other.reward or 0.0) < (right.reward or 0.0) for other in wrong)
    assert dict(told) == counts
