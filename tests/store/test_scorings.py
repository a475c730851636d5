"""Storing groups scored anew: beside the original, which they never touch."""

import asyncio

import pytest

from app.domain.errors import NotFound
from app.domain.groups import GroupDetail, GroupFilter, Scoring
from app.domain.judging import Judgement
from app.domain.runs import ScoringOptions
from app.domain.scores import Outcome, Score
from app.main.store import Store
from tests.support.store_cases import START, group, opened, record
from tests.support.tables import read_table

HOSTILE = "NUL \x00, emoji \U0001f9d9, quote ' and \\u0000, a lone \ud83d surrogate"
ORIGINAL = (Score.exact(True), Score.unscored("judge_failed"))
TOLD = Judgement(judge="told", model="m", order=("x",), prompt="told")
LOW = read_table(__file__, "low_score.yaml", Score)


def scoring(
    scores: tuple[Score, ...] = (LOW, Score.exact(False)),
    *,
    scoring_id: str = "scoring",
    group_id: str = "group",
    judgements: tuple[Judgement, ...] = (),
) -> Scoring:
    outcome: Outcome = "scored" if all(score.outcome == "scored" for score in scores) else "unscored"
    return Scoring(
        scoring_id=scoring_id,
        group_id=group_id,
        scoring_digest="d",
        options=ScoringOptions(judges=("careful",), relative_weight=0.25),
        judges=("careful",),
        mode="pairwise",
        outcome=outcome,
        flags=("task_remade",),
        scores=scores,
        judgements=judgements,
        created_at=START,
    )


def read(judge: str, text: str = HOSTILE) -> Judgement:
    return Judgement(judge=judge, model=HOSTILE, order=("x",), prompt=text, raw=text, cost_usd=0.25)


async def fill(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group(scores=ORIGINAL, judgements=(TOLD,)), group("other")])


async def test_a_scoring_comes_back_as_it_was_given_beside_the_original(store: Store) -> None:
    given = scoring(judgements=(read("a"), read("b", "")))
    bare = given.model_copy(update={"judgements": ()})
    detail = GroupDetail(group=group(scores=ORIGINAL).group, task=record(0), judgements=(TOLD,), scorings=(given,))
    other = GroupDetail(group=group("other").group, task=record(0), judgements=())
    await fill(store)
    stored = await store.scorings.put(given)
    found = await store.scorings.find(["scoring", "none", "\x00", "\ud83d"])
    assert (stored, found, await store.views.get_group("group"), await store.views.get_group("other")) == (
        bare,
        {"scoring": bare},
        detail,
        other,
    )


async def test_only_what_is_unscored_is_replaced_and_judgements_are_added(store: Store) -> None:
    failed = scoring((LOW, Score.unscored("judge_failed")), judgements=(read("first"),))
    again = scoring((Score.exact(True), Score.exact(False)), judgements=(read("second"),))
    late = scoring((Score.unscored("budget"), Score.unscored("budget")))
    whole = scoring(judgements=(read("first"), read("second")))
    expected = [("unscored", failed.scores), ("scored", whole.scores), ("scored", whole.scores)]
    await fill(store)
    stored = [await store.scorings.put(one) for one in (failed, again, late)]
    detail = await store.views.get_group("group")
    assert ([(one.outcome, one.scores) for one in stored], detail.scorings if detail else None) == (expected, (whole,))


async def test_scorings_stand_oldest_first_each_with_its_own_judgements(store: Store) -> None:
    ids = ("scoring_b", "scoring_a", "scoring_c")
    given = tuple(scoring(scoring_id=name, judgements=(read(name),)) for name in ids)
    await fill(store)
    for one in given:
        await store.scorings.put(one)
    detail = await store.views.get_group("group")
    assert (detail.scorings if detail else None) == given


async def test_listings_statistics_and_groups_do_not_see_scorings(store: Store) -> None:
    async def looked(store: Store) -> object:
        return (
            (await store.views.find_groups(GroupFilter())).groups,
            await store.views.get_statistics(None, None),
            await store.groups.find(["group", "other"]),
            await store.groups.list_unfinished(9),
            await store.runs.get_activity("run"),
        )

    await fill(store)
    before = await looked(store)
    await store.scorings.put(scoring(judgements=(read("a"),)))
    await store.scorings.put(scoring((Score.unscored("budget"),) * 2, scoring_id="failed"))
    assert (before == await looked(store)) is True


async def test_a_scoring_of_no_group_is_refused(store: Store) -> None:
    await fill(store)
    with pytest.raises(NotFound):
        await store.scorings.put(scoring(group_id="none"))
    assert await store.scorings.find(["scoring"]) == {}


@pytest.mark.dialects
async def test_scorings_outlive_a_restart_and_repeats_at_once_are_one(store: Store, store_url: str) -> None:
    await fill(store)
    assert await asyncio.gather(*(store.scorings.put(scoring()) for _ in range(5))) == [scoring()] * 5
    async with opened(store_url) as later:
        detail = await later.views.get_group("group")
    assert detail is not None
    assert detail.scorings == (scoring(),)
