"""Groups are found by words of their prompts, completions and rationales, once the index has taken them in."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from app.domain.groups import GroupFilter, parse_text_query
from app.domain.retention import PruneRule, ReduceRule
from app.domain.scores import Score
from app.domain.tasks import Completion, Message
from app.main.store import Store
from app.service.background import Pruner, TextIndexer
from app.store import search as group_search
from app.store import text_index
from app.store.group_rows import GroupToStore
from app.store.retention import prepare_batch, remove_batch
from app.store.statements import PACKED_FROM
from app.store.tables import groups
from tests.support.databases import Postgres, connected
from tests.support.store_cases import START, MovableClock, group, opened, record
from tests.support.tables import read_table

TABLE = read_table(__file__, "text_search.yaml", tuple[tuple[str, dict[str, object], list[str]], ...])

LATE = START + timedelta(days=9)
NUL = Completion(text="the \x00 ferryman \ud83d waits")
TRACE = Completion(messages=(Message(role="assistant", content="Pay the toll.", reasoning_content="A riddle."),))
LONG = Completion(text="lantern " + "filler " * PACKED_FROM)


def saying(group_id: str, completions: Sequence[Completion | str], **given: object) -> GroupToStore:
    given = {"scores": [Score.exact(True)] * len(completions), **given}
    made = group(group_id, **given)  # type: ignore[arg-type]
    said = [Completion(text=one) if isinstance(one, str) else one for one in completions]
    members = (one.model_copy(update={"completion": c}) for one, c in zip(made.group.rollouts, said, strict=True))
    return GroupToStore(made.group.model_copy(update={"rollouts": tuple(members)}), made.judgements)


async def index(store: Store) -> int:
    indexer = TextIndexer(store.texts, store.claims)
    return await indexer.catch_up()


async def search(store: Store, typed: str, **where: object) -> list[str]:
    wanted = GroupFilter.model_validate({"text": parse_text_query(typed), **where})
    return [one.group_id for one in (await store.views.find_groups(wanted)).groups]


async def fill(store: Store) -> None:
    await store.tasks.put([record(0, "Who keeps the bridge?"), record(1, "Where is the caf\u00e9?")])
    rationale = Score.exact(True).model_copy(update={"rationale": "It breaks character twice."})
    await store.groups.add(
        [
            saying("toll", ["Pay the toll, traveller.", "The ferry is late."]),
            saying("odd", [NUL, TRACE], run="other"),
            saying("long", [LONG, "x"], environment="npc_arena"),
            saying("judged", ["no", "yes"], scores=[rationale, Score.exact(False)], task_id="task_1"),
        ]
    )


FOUND: Sequence[tuple[str, dict[str, object], list[str]]] = [*TABLE, ("bridge", {"until": START}, [])]


@pytest.mark.dialects
async def test_groups_are_found_by_their_words(store: Store) -> None:
    await fill(store)
    await index(store)
    assert [(typed, where, await search(store, typed, **where)) for typed, where, _ in FOUND] == FOUND


async def test_the_index_says_how_far_it_is_and_passes_what_has_no_scores(store: Store) -> None:
    pending = [Score.pending(), Score.pending()]

    async def look() -> tuple[int | None, list[str], bool]:
        found = await store.views.find_groups(GroupFilter(text=parse_text_query("count")))
        return found.not_indexed, [one.group_id for one in found.groups], await store.texts.is_behind()

    await store.tasks.put([record(0)])
    seen: list[object] = [await look()]
    await store.groups.add([saying("one", ["a", "b"]), saying("two", ["c", "d"], scores=pending)])
    seen.append(await look())
    await index(store)
    seen.append(await look())
    await store.groups.finish([saying("two", ["c", "d"])])
    seen.append(await look())
    await index(store)
    seen.append(await look())
    assert seen == [(0, [], False), (2, [], True), (0, ["one"], False), (0, ["one"], True), (0, ["two", "one"], False)]


async def test_the_index_begins_with_the_first_search_that_needs_it(store: Store) -> None:
    """Most groups are never searched by their words, and to take one in costs as much as to score it."""
    await fill(store)
    indexing = asyncio.create_task(
        TextIndexer(store.texts, store.claims, lambda: store.views.last_text_search, look_seconds=0.01).run()
    )
    await store.views.find_groups(GroupFilter(environment="npc_arena"))
    await asyncio.sleep(0.1)
    begun = await store.texts.is_begun()
    while not await search(store, "toll"):  # noqa: ASYNC110  # only searches tell
        await asyncio.sleep(0.01)
    indexing.cancel()
    assert (begun, await store.texts.is_begun()) == (False, True)


@pytest.mark.dialects
async def test_what_is_scored_later_pruned_or_reduced_is_searched_as_it_is_then(
    store: Store, clock: MovableClock
) -> None:
    told = Score.exact(True).model_copy(update={"rationale": "secret handshake"})
    failed = Score.unscored("judge_failed", rationale="silence")

    async def look() -> list[list[str]]:
        return [await search(store, word) for word in ("count", "handshake", "silence", "ferry")]

    await store.tasks.put([record(0)])
    await store.groups.add(
        [
            saying("old", ["ferry", "ferry"]),
            saying("late", ["ferry", "toll"], scores=[failed, Score.exact(False)], run="keeps"),
        ]
    )
    await index(store)
    seen: list[object] = [await look()]
    await store.groups.finish([saying("late", ["ferry", "toll"], scores=[told, Score.exact(False)], run="keeps")])
    seen.append(await look())
    await index(store)
    seen.append(await look())
    pruner = Pruner(store.retention, store.claims, pauses=0)
    rule = ReduceRule(before=LATE, keep="texts", runs=("keeps",))
    done = await pruner.reduce(await pruner.plan_reduction(rule), lambda _: None)
    seen.append((done.groups, await look()))
    await pruner.prune(await pruner.plan(PruneRule(before=LATE)), lambda _: None)
    seen.append((await look(), await store.texts.is_behind()))
    assert seen == [
        [["late", "old"], [], ["late"], ["late", "old"]],
        [["old"], [], [], ["old"]],
        [["late", "old"], ["late"], [], ["late", "old"]],
        (1, [["late", "old"], ["late"], [], ["late", "old"]]),
        ([[], [], [], []], False),
    ]


def count_words(url: str) -> int:
    """What is left of words in the index itself, whatever groups there are."""
    with connected(url) as connection:
        if connection.dialect.name == "postgresql":
            left = connection.execute(text("SELECT count(*) FROM group_words")).scalar_one()
        else:
            connection.execute(text("INSERT INTO group_words(group_words) VALUES ('optimize')"))
            connection.execute(text("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, group_words, row)"))
            left = connection.execute(text("SELECT count(*) FROM temp.terms")).scalar_one()
    return int(left)


@pytest.mark.dialects
async def test_nothing_of_what_is_pruned_stays_in_the_index(store: Store, clock: MovableClock, store_url: str) -> None:
    await fill(store)
    await index(store)
    pruner = Pruner(store.retention, store.claims, pauses=0)
    await pruner.prune(await pruner.plan(PruneRule(before=LATE)), lambda _: None)
    assert count_words(store_url) == 0


async def test_what_the_index_takes_in_while_it_is_pruned_goes_and_leaves_it(
    store: Store, clock: MovableClock, store_url: str
) -> None:
    await fill(store)
    await index(store)
    await store.groups.add([saying("new", ["a lantern", "the ferry"])])
    plan = await store.retention.plan(PruneRule(before=LATE))
    database = store.retention.database  # between its read and its write
    batch = await database.read(lambda connection: prepare_batch(connection, plan, 0, 10))
    await index(store)
    pruned = await database.write(lambda connection: remove_batch(connection, database, batch), "groups")
    assert (int(pruned.groups), count_words(store_url)) == (5, 0)


async def test_an_index_of_another_form_is_made_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(store)
    seen: list[object] = [await index(store), await search(store, "ferry")]
    monkeypatch.setattr(text_index, "FORM", text_index.FORM + 1)
    assert [*seen, await search(store, "ferry"), await index(store), await search(store, "ferry")] == [
        4,
        ["toll"],
        [],
        4,
        ["toll"],
    ]


@pytest.mark.dialects
async def test_a_search_goes_on_where_it_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SPAN", 2), ("AT_ONCE", 2)):
        monkeypatch.setattr(text_index, name, value)
    monkeypatch.setattr(group_search, "PAGES", replace(group_search.PAGES, candidates=3))

    async def page(store: Store, before: int | None) -> tuple[list[str], int | None, int, int]:
        found = await store.views.find_groups(
            GroupFilter(text=parse_text_query("ferry"), max_step=0, outcome="scored", before=before)
        )
        return [one.group_id for one in found.groups], found.next_before, found.looked_at, found.matched

    await store.tasks.put([record(0)])
    await store.groups.add([saying(f"g{n}", ["ferry" if n % 2 else "toll"]) for n in range(10)])
    await index(store)
    pages, before = [await page(store, None)], None
    while (before := pages[-1][1]) is not None:
        pages.append(await page(store, before))
    assert [*pages] == [([], 5, 3, 0), ([], None, 2, 0)]


async def test_a_group_that_is_seen_after_one_of_a_higher_sequence_is_indexed_too(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.migrated()
    columns = ", ".join(one.name for one in groups.columns if one.name not in {"sequence", "group_id"})
    copied = f"INSERT INTO groups (group_id, {columns}) SELECT 'held', {columns} FROM groups"  # noqa: S608
    async with opened(url) as store:
        await store.tasks.put([record(0)])
        await store.groups.add([saying("first", ["a", "b"])])
        with connected(url) as slow:
            slow.execute(text(copied))
            await store.groups.add([saying("last", ["c", "d"])])
            indexing = asyncio.create_task(TextIndexer(store.texts, store.claims, patience_seconds=0).catch_up())
            async with asyncio.timeout(60):
                while "has been open for over 0 s" not in caplog.text:  # noqa: ASYNC110  # a log tells nobody
                    await asyncio.sleep(0.01)
            seen: list[object] = [indexing.done(), await search(store, "count")]
            slow.commit()
        seen += [await indexing, await search(store, "count")]
    warned = [one.getMessage() for one in caplog.records if "has been open for over 0 s" in one.getMessage()]
    assert (seen, len(warned)) == ([False, [], 3, ["last", "held", "first"]], 1)
