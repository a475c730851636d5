"""What a run's groups say of how hard its tasks are."""

from app.domain.rollups import TaskOutcome
from app.domain.scores import Score
from app.main.store import Store
from tests.support.store_cases import group, opened, record, stream

RIGHT, WRONG = Score.exact(True), Score.exact(False)
HALF = Score(outcome="scored", reward=1.0, gate=0.5, absolute=0.8)
UNSCORED = Score.unscored("judge_failed")


def outcome(sequence: int, index: int = 0, tried: int = 2, passed: float = 1.0, **more: object) -> TaskOutcome:
    return TaskOutcome.model_validate({"sequence": sequence, "index": index, "tried": tried, "passed": passed, **more})


async def test_a_group_says_how_many_were_tried_and_what_they_passed(store: Store) -> None:
    labelled = record(3).model_copy(update={"label": "voice \x00"})
    await store.tasks.put([record(0), labelled])
    await store.groups.add(
        [
            group("a", [RIGHT, WRONG, RIGHT]),
            group("b", [HALF, UNSCORED], task_id="task_3"),
            group("c", [RIGHT, Score.pending()]),
            group("d", [UNSCORED]),
        ]
    )
    assert await store.outcomes.list_since(stream(), 0, 100) == [
        outcome(1, tried=3, passed=2.0),
        outcome(2, index=3, tried=1, passed=0.4, label="voice \x00"),
        outcome(3, tried=1, passed=1.0, pending=True),
        outcome(4, tried=0, passed=0.0),
    ]


async def test_it_is_of_the_runs_own_training_groups_of_like_tasks_whichever_stream_they_came_from(
    store: Store,
) -> None:
    base = record(0)
    others: dict[str, dict[str, object]] = {
        "elsewhere": {"environment": "npc_arena"},
        "later": {"split": "test"},
        "differently": {"params": {"level": 2}},
        "newer": {"version": "2"},
    }
    tasks = [
        base.model_copy(update={"task_id": name, "key": base.key.model_copy(update=changed)})
        for name, changed in others.items()
    ]
    await store.tasks.put([base, *tasks])
    await store.groups.add(
        [
            group("1", task_id="elsewhere", environment="npc_arena"),
            group("2", task_id="later"),
            group("3", task_id="differently"),
            group("4", run="another"),
            group("5", run=None),
            group("6", purpose="eval"),
            group("7", task_id="newer"),
            group("8"),
        ]
    )
    assert [await store.outcomes.list_since(stream(digest=name), 0, 100) for name in ("one", "two")] == [
        [outcome(7), outcome(8)]
    ] * 2


async def test_the_newest_after_a_place_come_first_to_last_with_others_asked_for(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"g{number}", run="other" if number == 3 else "run") for number in range(1, 9)])
    asked = [(0, 100, ()), (0, 2, ()), (5, 100, ()), (5, 100, (2, 7)), (8, 5, (4, 1, 99)), (8, 5, ())]
    assert [
        [one.sequence for one in await store.outcomes.list_since(stream(), after, limit, others)]
        for after, limit, others in asked
    ] == [[1, 2, 4, 5, 6, 7, 8], [7, 8], [6, 7, 8], [2, 6, 7, 8], [1, 4], []]


async def test_a_group_that_is_finished_elsewhere_tells_what_it_came_to(store: Store, store_url: str) -> None:
    await store.tasks.put([record(0)])
    await store.groups.add([group("g", [RIGHT, Score.pending()])])
    async with opened(store_url) as other:
        pending = await other.outcomes.list_since(stream(), 0, 100)
        await store.groups.finish([group("g", [RIGHT, WRONG])])
        finished = await other.outcomes.list_since(stream(), 1, 100, [1])
    assert (pending, finished) == ([outcome(1, tried=1, pending=True)], [outcome(1)])
