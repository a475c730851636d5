"""Two checkpoints on the same tasks, over the whole service: figures, judges, bounds, and what a model wrote."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest

from app.domain.access import KeyBounds
from app.domain.groups import FoundGroups, GroupFilter, GroupSummary
from app.domain.runs import StepRange
from app.evaluation.comparison import compare_evaluations
from app.http.viewer.compare_pages import (
    Checkpoint,
    CompareQuestion,
    CompareWords,
    find_shared_tasks,
    parse_checkpoints,
    warn_of_offline_judges,
)
from app.http.viewer.sentences import tell_comparison
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from tests.support.evaluations import evaluation, rewarded, scored
from tests.support.playground import World, contrary, gateway, panels
from tests.support.sample_views import MemoryViews, gsm8k_group
from tests.support.viewing import answer, look

EVIL = "</pre><script>alert(1)</script>"


@pytest.fixture
async def client(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    """With a judge of another model."""
    stranger, own = ScriptedJudge(contrary, "stranger"), World().judge
    stranger.model = "stranger-9"
    judges = {**panels(own).judges, "stranger": stranger}
    async with gateway(World(), database, ConfiguredPanels(judges, {}, fallback=(own,))) as client:
        yield client


FIRST = (("0.1", "0.3"), ("0.5", "0.5"), ("0.9", "0.7"), ("0.2",))
SECOND = (("0.6", "0.8"), ("0.5",), ("0.6", "0.6"), ("0.9", EVIL))


async def test_two_runs_are_compared_task_by_task(client: httpx.AsyncClient) -> None:
    await answer(client, "a", 1, FIRST)
    await answer(client, "b", 7, SECOND)
    path = "/view/compare?first=a&second=b"
    found = (await client.get(f"{path}&format=json")).json()["compared"]
    figures = found["comparison"]
    assert (found["names"], found["groups"], found["tasks"], found["scored_by"]["used"]) == (
        ["a", "b"],
        [4, 4],
        4,
        [],
    )
    assert (figures["improved"], figures["declined"], figures["tasks"]) == (2, 1, 4)
    assert figures["overall"]["difference"]["value"] == pytest.approx((0.5 + 0.0 - 0.2 + 0.25) / 4)
    assert [round(pair["change"]["after"] - pair["change"]["before"], 3) for pair in found["pairs"]] == [
        0.5,
        0.25,
        -0.2,
        0.0,
    ]
    best = found["pairs"][0]
    assert (best["first"]["text"], best["second"]["text"], best["second"]["slot"]) == ("0.3", "0.8", 2)
    assert {piece["kind"] for piece in best["diff"]["pieces"]} == {"both", "first", "second"}
    page = await look(client, path)
    assert "Second ahead 2 First ahead 1 Alike 1 Tasks 4 Groups 4 and 4" in page.words()
    assert {f"/view/groups/{best['second']['group']['group_id']}#completion-2"} <= set(page.links())
    assert page.elements.count("script") == 1


async def test_the_runs_own_judge_is_used_with_a_warning_until_another_one_scored(client: httpx.AsyncClient) -> None:
    groups = [
        *await answer(client, "a", 1, (("0.1", "0.2"),), "arena"),
        *await answer(client, "b", 1, (("0.8", "0.9"),), "arena"),
    ]
    path = "/view/compare?first=a&second=b"
    own = (await client.get(f"{path}&format=json")).json()["compared"]
    assert (own["tasks"], own["scored_by"], own["comparison"]["improved"]) == (
        1,
        {"own": ["critic"], "others": [], "used": ["critic"]},
        1,
    )
    assert "Scored by critic, as when the groups were sent: a model that was" in (await look(client, path)).words()
    assert (await client.get(f"{path}&judge=own&format=json")).json()["compared"] == own
    nobody = await look(client, f"{path}&judge=stranger")
    assert "The judge that was asked for has not scored groups of both a and b." in nobody.words()
    for group in groups:
        (await client.post(f"/groups/{group}/rescore", json={"judges": ["contrarian"]})).raise_for_status()
    # Its model has the same name: another name alone is no other judge.
    same = (await client.get(f"{path}&format=json")).json()["compared"]
    assert same["scored_by"]["others"] == []
    for group in groups:
        (await client.post(f"/groups/{group}/rescore", json={"judges": ["stranger"]})).raise_for_status()
    other = (await client.get(f"{path}&format=json")).json()["compared"]
    assert (other["scored_by"]["used"], other["notice"], other["comparison"]["declined"]) == (["stranger"], "", 1)
    assert other["pairs"][0]["first"]["text"] == "0.1"


async def test_runs_that_are_not_there_are_said(client: httpx.AsyncClient) -> None:
    await answer(client, "a", 1, FIRST)
    missing = await client.get("/view/compare?first=a&second=nobody")
    same = await look(client, "/view/compare?first=a&second=a")
    wrong = await look(client, "/view/compare?first=a&first_steps=ten&second_steps=1")
    empty = await look(client, "/view/compare")
    gone = await look(client, "/view/compare?first=a&first_steps=11")
    await answer(client, "b", 1, (("0.4", "0.5"),), "arena")
    apart = await look(client, "/view/compare?first=a&second=b")
    assert (missing.status_code, "nobody" in missing.text) == (404, True)
    assert "Both sides are the same" in same.words()
    assert "'ten' is neither a step" in wrong.words()
    assert "Step 11 has no group with a score." in gone.words()
    assert "a and b share no task (4 and 1 scored groups)." in apart.words()
    assert "Choose a run: its first and its last step are compared" in empty.words()


async def test_a_run_alone_is_compared_by_its_first_and_last_step(client: httpx.AsyncClient) -> None:
    for step, said in ((1, FIRST[:2]), (5, (("0.1",), ("0.1",))), (7, SECOND[:2])):
        await answer(client, "a", step, said)
    page = await look(client, "/view/compare?first=a")
    undecided = "Which of step 1 and step 7 is better is not decided: too few tasks, +0.25 on 2 tasks."
    last = await look(client, "/view/compare?first=a&first_steps=7")
    assert undecided in page.words()
    assert {"first_steps": "7", "second_steps": "1"}.items() <= dict(last.inputs).items()
    assert {"first_steps": "1", "second_steps": "7"}.items() <= dict(page.inputs).items()
    steps = [value for tag, name, value in page.attributes if (tag, name) == ("option", "value") and value.isdigit()]
    assert steps == ["1", "5", "7"] * 2


def test_steps_are_read() -> None:
    chosen, problems = parse_checkpoints(CompareWords(first="a", first_steps="3", second_steps="4-9", second_model="m"))
    assert ([str(each.steps) for each in chosen], chosen[1].name, problems) == (
        ["step 3", "steps 4 to 9"],
        "a, m, steps 4 to 9",
        [],
    )
    with pytest.raises(ValueError, match="ends before it begins"):
        StepRange.parse("9-4")


def test_what_is_searched_for_has_no_nul() -> None:
    """PostgreSQL refuses it."""
    words = CompareWords(first="a\0b", first_model="m\0", second="b", environment=" e\0", label="\0 ")
    chosen, _ = parse_checkpoints(words)
    where = CompareQuestion((chosen[0], chosen[1]), words, KeyBounds(), 0).where
    assert (chosen[0], chosen[1], where.environment, where.label) == (
        Checkpoint("a\N{REPLACEMENT CHARACTER}b", None, "m\N{REPLACEMENT CHARACTER}"),
        Checkpoint("b"),
        "e\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}",
    )


class ManyTasks(MemoryViews):
    """Every run has a group for each of a thousand tasks."""

    def __init__(self) -> None:
        super().__init__([gsm8k_group(2)])
        self.asked: list[int] = []

    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        self.asked.append(len(where.task_ids))
        (one,) = (await super().find_groups(GroupFilter())).groups
        tasks = where.task_ids or [f"task_{number}" for number in range(1000)]
        groups = tuple(
            one.model_copy(update={"task_id": task, "sequence": int(task.removeprefix("task_"))}) for task in tasks
        )
        return FoundGroups(groups=groups, next_before=None, looked_at=len(groups), matched=len(groups))

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        (one,) = (await super().find_groups(GroupFilter())).groups
        return [one.model_copy(update={"task_id": f"task_{number}", "sequence": number}) for number in sequences]


def test_no_more_is_asked_than_is_compared() -> None:
    views = ManyTasks()
    shared = asyncio.run(find_shared_tasks(views, Checkpoint("a"), Checkpoint("b"), GroupFilter()))
    assert (views.asked, len(shared.tasks), shared.left_out) == ([0, 400], 400, 600)


def test_either_side_may_have_the_offline_judge() -> None:
    verified, judged, mixed = (
        evaluation(
            [scored(place, 0, 0.5, judges=judges) for place, judges in enumerate(panels)], offline_judges=("offline",)
        )
        for panels in (((), ()), (("offline",), ("offline",)), ((), ("offline",)))
    )
    sides = [(verified, verified), (judged, verified), (verified, mixed), (mixed, mixed), (judged, judged)]
    told = [warn_of_offline_judges(*side).partition(" by offline, which has no model") for side in sides]
    assert [(begun, "their figures" in end) for begun, _, end in told] == [
        ("", False),
        ("First: Scored", False),
        ("Second: 1 of 2 tasks were scored", True),
        ("1 of 2 tasks were scored", True),
        ("Scored", False),
    ]


def test_of_several_environments_those_that_moved_are_named() -> None:
    before = rewarded({place: (0.1,) for place in range(8)})
    after = rewarded({place: (0.2 + place / 20,) for place in range(8)})
    comparison = compare_evaluations(before, after)
    both = tell_comparison(("a", "b"), comparison, (8, 8), 8, {"gsm8k": 0.0, "npc_arena": 0.3})
    assert re.sub(r" \(95 .*?\)", "", both) == "b is better: +0.28 on 8 tasks, most in npc_arena."
