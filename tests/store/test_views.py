"""What pages and dashboards read."""

from dataclasses import replace

import pytest

from app.domain.groups import GroupFilter, GroupSummary, StatisticsRow
from app.domain.judging import Judgement
from app.domain.runs import Policy
from app.domain.scores import Criterion, Score
from app.main.store import Store
from app.store import search
from app.store.views import GroupOutline
from tests.support.store_cases import START, group, record
from tests.support.tables import read_table

UNSCORED = Score.unscored("judge_failed")


async def ids(store: Store, where: GroupFilter) -> list[str]:
    return [one.group_id for one in (await store.views.find_groups(where)).groups]


def judged(reward: float, gate: float | None, absolute: float | None, **criteria: float | None) -> Score:
    parts = tuple(Criterion(name=name, value=value, weight=0.5) for name, value in criteria.items())
    return Score(outcome="scored", reward=reward, gate=gate, absolute=absolute, criteria=parts)


async def test_a_listing_says_what_a_group_is(store: Store) -> None:
    item = group(
        scores=[Score.exact(True), UNSCORED, Score.exact(False)],
        policy=Policy(model="m", step=3),
        purpose="eval",
        flags=("low_signal",),
    )
    await store.tasks.put([record(0, "  Who \x00 are\nyou? " + "x" * 200)])
    await store.groups.add([item])
    assert (await store.views.find_groups(GroupFilter())).groups == (
        GroupSummary(
            sequence=1,
            group_id="group",
            task_id="task_0",
            environment="gsm8k",
            run="run",
            policy=Policy(model="m", step=3),
            purpose="eval",
            outcome="unscored",
            flags=("low_signal",),
            size=3,
            mean=0.5,
            std=0.5**0.5,
            rewards=(1.0, None, 0.0),
            title=("Who \x00 are you? " + "x" * 200)[:119] + "…",
            created_at=START,
        ),
    )


async def test_outlines_are_of_the_groups_of_a_listing(store: Store) -> None:
    """However they are found: along an index, group by group, by their tasks, or in some runs."""
    wheres = [
        GroupFilter(run="run", limit=2),
        GroupFilter(run="run", outcome="scored", before=4),
        GroupFilter(run="run", task_ids=("task_0", "task_1"), outcome="scored"),
        GroupFilter(runs=("run",), limit=3),
    ]
    await store.tasks.put([record(number) for number in range(3)])
    for number in range(6):
        scores = [Score.exact(True), UNSCORED] if number % 2 else [Score.exact(True), Score.exact(False)]
        await store.groups.add([group(f"g{number}", scores, task_id=f"task_{number % 3}")])
    told: list[bool] = []
    for where in wheres:
        listed, found = await store.views.find_groups(where), await store.views.find_outlines(where)
        outlines = [
            GroupOutline(one.sequence, one.task_id, sum(value is not None for value in one.rewards), one.created_at)
            for one in listed.groups
        ]
        told.append(
            (outlines, listed.next_before, listed.looked_at) == ([*found.outlines], found.next_before, found.looked_at)
        )
        assert listed.groups == (*await store.views.load_summaries([one.sequence for one in found.outlines]),)
    assert told == [True] * 4


async def test_a_listing_goes_backwards_in_pages(store: Store) -> None:
    await store.tasks.put([record(0)])
    for number in range(5):
        await store.groups.add([group(f"g{number}")])
    pages, before = list[list[str]](), None
    while len(pages) < 5 and (page := (await store.views.find_groups(GroupFilter(limit=2, before=before))).groups):
        pages.append([one.group_id for one in page])
        before = page[-1].sequence
    assert pages == [["g4", "g3"], ["g2", "g1"], ["g0"]]


NARROWED = read_table(__file__, "narrowed.yaml", list[tuple[GroupFilter, list[str]]])


@pytest.mark.dialects
async def test_every_field_of_a_filter_narrows(store: Store) -> None:
    await store.tasks.put([record(0), record(1)])
    await store.groups.add(
        [
            group("npc", environment="npc_arena"),
            group("other", run="other"),
            group("unscored", [UNSCORED]),
            group("pending", [Score.pending()]),
            group("eval", purpose="eval"),
            group("task", task_id="task_1"),
        ]
    )
    assert [(where, await ids(store, where)) for where, _ in NARROWED] == NARROWED


async def fill_for_finding(store: Store) -> None:
    hob = record(1).model_copy(update={"label": "hob"})
    await store.tasks.put([record(0), hob])
    step = [Policy(model="small", step=number) for number in range(3)]
    flagged = Score.exact(False).model_copy(update={"flags": ("breaks_character",), "rationale": "truncated"})
    await store.groups.add(
        [
            group("plain", [Score.exact(True), Score.exact(True)], policy=step[0]),
            group("flagged", [flagged, Score.exact(True)], policy=step[1], flags=("low_signal",)),
            group("failed", [UNSCORED, Score.exact(True)], policy=Policy(model="small-2", step=2)),
            group("hob", [Score.exact(False)] * 2, task_id="task_1", run="other"),
        ]
    )
    judgement = Judgement(judge="ann", model="m", order=("a",))
    await store.groups.add([group("judged", [Score.exact(True)] * 2, judgements=(judgement,))])


FOUND = read_table(__file__, "found.yaml", list[tuple[GroupFilter, list[str]]])


@pytest.mark.dialects
async def test_groups_are_found_by_what_has_no_index(store: Store) -> None:
    await fill_for_finding(store)
    found = [(where, await store.views.find_groups(where)) for where, _ in FOUND]
    assert all(page.next_before is None or where.limit < 50 for where, page in found)
    assert [(where, [one.group_id for one in page.groups]) for where, page in found] == FOUND


async def test_a_search_ends_and_says_where_to_go_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PAGES", replace(search.PAGES, groups=3))
    monkeypatch.setattr(search, "FEW_TASKS", 0)
    await fill_for_finding(store)
    pages, before, begun = [], None, True
    while begun or before is not None:
        found = await store.views.find_groups(GroupFilter(label="hob", before=before))
        pages.append(([one.group_id for one in found.groups], found.next_before, found.looked_at, found.matched))
        before, begun = found.next_before, False
    assert pages == [(["hob"], 3, 3, 1), ([], None, 2, 0)]


async def test_there_is_no_detail_of_what_does_not_exist(store: Store) -> None:
    assert (
        await store.views.get_group("none"),
        await store.views.get_group("\x00"),
        await store.views.get_group("\ud83d"),
    ) == (None, None, None)


STATISTICS = read_table(__file__, "statistics.yaml", list[StatisticsRow])
STEPS = ((1, None), (1, 1), (2, None), (None, 0))


async def test_statistics_are_by_environment_run_and_step_and_of_training_alone(store: Store) -> None:
    first = [judged(0.5, 1.0, 0.75, voice=0.5, lore=None), judged(0.0, 0.0, 1.0, voice=0.0, lore=1.0)]
    second = [judged(1.0, None, 0.25, voice=1.0), judged(1.0, 1.0, None), UNSCORED, Score.pending()]
    second[1] = second[1].model_copy(update={"flags": ("truncated",)})
    step = Policy(model="m", step=1)
    await store.tasks.put([record(0)])
    await store.groups.add(
        [
            group("a", first, policy=step, environment="npc_arena"),
            group("b", second, policy=step, environment="npc_arena"),
            group("c", [Score.exact(True)], policy=step, environment="npc_arena", purpose="eval"),
            group("d", [UNSCORED], policy=Policy(model="m"), environment="npc_arena"),
            group("e", [Score.exact(True)], run=None),
        ]
    )
    views = store.views
    everything = await views.get_statistics(None, None)
    of_steps = [await views.get_statistics(None, "run", min_step=first, max_step=last) for first, last in STEPS]
    assert (everything, await views.get_statistics("npc_arena", "run"), await views.get_statistics("gsm8k", "run")) == (
        STATISTICS,
        STATISTICS[1:],
        [],
    )
    assert of_steps == [STATISTICS[2:], STATISTICS[2:], [], []]


async def test_groups_that_teach_nothing_are_counted(store: Store) -> None:
    right, wrong = Score.exact(True), Score.exact(False)
    disagreed = [score.model_copy(update={"relative": 0.5, "flags": ("low_signal",)}) for score in (right, wrong)]
    await store.tasks.put([record(0)])
    await store.groups.add(
        [
            group("told apart", [right, wrong]),
            group("alike", [wrong, wrong]),
            group("alike, one without a score", [right, right, UNSCORED]),
            group("disagreed", disagreed),
            group("one alone", [right]),
            group("no score", [UNSCORED, UNSCORED]),
            group("not known yet", [right, right, Score.pending()]),
            group("alike when finished", [Score.pending(), Score.pending()]),
        ]
    )
    before = await store.views.get_statistics(None, None)
    await store.groups.finish([group("alike when finished", [wrong, wrong])])
    after = await store.views.get_statistics(None, None)
    assert [(row.groups, row.low_signal) for row in before + after] == [(8, 3), (8, 4)]
