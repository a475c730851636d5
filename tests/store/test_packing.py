"""What is long is packed, comes back exactly as it was on both databases, and is never taken for something else."""

import math
from array import array
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some
from sqlalchemy import Table, select, update

from app.domain.groups import GroupDetail, GroupFilter
from app.domain.judging import Judgement, Verdict
from app.domain.tasks import Completion, Message
from app.features.exports.store import ExportStore
from app.main.store import Store
from app.store.group_rows import GroupToStore
from app.store.statements import (
    NUMBERS_FROM,
    PACKED_FROM,
    decode,
    encode,
    encode_completion,
    encode_json,
    pack_completion,
    pack_text,
    unpack_completion,
    unpack_text,
)
from app.store.tables import judgements, prompts, rollouts
from tests.store.test_retention import asked
from tests.support.databases import connected
from tests.support.store_cases import group, record, using

HOSTILE = 'NUL \x00 lone \ud83d quote " back \\ ‏rtl 旅人 \x1f'
LONG = HOSTILE * PACKED_FROM
SINGLES = tuple(array("f", [-Random(1).expovariate(2) for _ in range(999)]))
LOGPROBS = some.floats(allow_nan=False, allow_infinity=False) | some.floats(
    width=32, allow_nan=False, allow_infinity=False
)
IDS = some.integers(0, 2**32 - 1)


def repeated(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """As many as are packed."""
    return numbers * math.ceil(NUMBERS_FROM / len(numbers))


@given(some.lists(some.tuples(IDS, LOGPROBS), min_size=1, max_size=20), some.text(max_size=20), some.booleans())
def test_numbers_come_back_to_the_last_bit(numbers: list[tuple[int, float]], text: str, with_logprobs: bool) -> None:
    ids, odds = (repeated(tuple(each)) for each in zip(*numbers, strict=True))
    said = Completion.model_validate({"text": text, "token_ids": ids, "logprobs": odds if with_logprobs else None})
    stored = pack_completion(said)
    found = unpack_completion(*stored)
    assert (repr(found), found, stored.text) == (repr(said), said, "")


@pytest.mark.parametrize(
    "odds",
    [
        SINGLES,
        (*SINGLES[:-1], -0.1),
        (-0.0, 0.0, 5e-324, -1e300, 1.401298464324817e-45) * 60,
        (-0.123456,) * 300,
        (0,) * 300,
    ],
    ids=["singles", "all but one", "extremes", "decimals", "integers"],
)
def test_every_kind_of_logprob_comes_back(odds: tuple[float, ...]) -> None:
    said = Completion(text=HOSTILE, token_ids=tuple(range(len(odds))), logprobs=odds, finish_reason="stop")
    assert repr(unpack_completion(*pack_completion(said))) == repr(said)


@pytest.mark.parametrize(
    "said",
    [
        Completion(text=LONG, extra={"mine": [1, None, 0.1]}),
        Completion(text="x" * 3_000_000, token_ids=(1, 2)),
        Completion(
            messages=(Message(role="assistant", content=LONG, reasoning_content=LONG), Message(role="tool")),
            token_ids=tuple(range(NUMBERS_FROM)),
        ),
    ],
    ids=["text", "huge", "messages"],
)
def test_long_completions_take_less_and_come_back(said: Completion) -> None:
    stored = pack_completion(said)
    assert unpack_completion(*stored) == said
    assert (stored.text, len(stored.packed or b"") < len(encode_completion(said)) / 2) == ("", True)


def test_what_is_short_stays_as_it_was() -> None:
    said = Completion(text="x" * 171, token_ids=(1, 2), logprobs=(-0.5, -0.25))
    texts = ["", "x" * (PACKED_FROM - 1), "x" * PACKED_FROM]
    assert pack_completion(said) == (encode(said), None)
    assert [pack_text(text).packed is None for text in texts] == [True, True, False]
    assert [unpack_text(*pack_text(text)) for text in texts] == texts


def test_the_empty_text_beside_what_is_packed_is_no_completion() -> None:
    """A service of the release before reads it: it must refuse, and must not score another text."""
    with pytest.raises(ValueError, match="Expecting value"):
        decode(Completion, pack_completion(Completion(text=LONG)).text)


def test_a_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="a form that this release does not know"):
        unpack_completion("", b"\x03")


SAID = (
    Completion(text=LONG, token_ids=tuple(range(999)), logprobs=SINGLES),
    Completion(messages=(Message(role="assistant", content=LONG),)),
)
JUDGED = (
    asked(LONG, raw=LONG, verdicts=(Verdict(candidate="a", scores={}, note=LONG),)),
    asked(LONG, judge="bob"),
    asked("short"),
)


def long_group(made: tuple[Judgement, ...] = JUDGED) -> GroupToStore:
    whole = group(judgements=made)
    members = [
        one.model_copy(update={"completion": said}) for one, said in zip(whole.group.rollouts, SAID, strict=True)
    ]
    return GroupToStore(whole.group.model_copy(update={"rollouts": tuple(members)}), made)


async def read(store: Store) -> tuple[GroupDetail, object]:
    """The group's page, and what is exported."""
    found = await store.views.get_group("group")
    assert found is not None
    last = await store.part(ExportStore).get_newest_group_sequence()
    pages = [page async for page in store.part(ExportStore).read_pages(GroupFilter(), 0, last, 10)]
    ((exported,),) = pages
    return found, exported.group


def look(url: str, *tables: tuple[Table, str]) -> list[set[tuple[bool, bool]]]:
    """Of each table's rows: whether the text is empty, and whether there are packed bytes."""
    with connected(url) as connection:
        rows = [[*connection.execute(select(table.c[name], table.c.packed))] for table, name in tables]
    return [{(not text, packed is not None) for text, packed in each} for each in rows]


@pytest.mark.dialects
async def test_long_groups_come_back_and_take_less_room(store: Store, store_url: str) -> None:
    await store.tasks.put([record(0, said=LONG.replace("\ud83d", ""))])
    await store.groups.add([long_group(JUDGED[:1])])
    await store.groups.finish([long_group(JUDGED[1:])])
    found, exported = await read(store)
    assert (found.group.rollouts, found.judgements, exported) == (long_group().group.rollouts, JUDGED, found.group)
    packed, plain = (True, True), (False, False)
    looked = look(store_url, (rollouts, "completion"), (judgements, "answer"), (prompts, "body"))
    assert looked == [{packed}, {packed, plain}, {packed, plain}]


def test_rows_from_before_are_read_as_they_are(store_url: str) -> None:
    async def store_plainly(store: Store) -> None:
        await store.tasks.put([record(0)])
        await store.groups.add([long_group()])

    using(store_url, store_plainly)
    with connected(store_url) as connection:
        for place, said in enumerate(SAID):
            here = update(rollouts).where(rollouts.c.position == place)
            connection.execute(here.values(completion=encode_completion(said), packed=None))
        here = update(prompts).where(prompts.c.packed.is_not(None))
        connection.execute(here.values(body=encode_json(LONG), packed=None))
        here = update(judgements).where(judgements.c.packed.is_not(None))
        connection.execute(here.values(answer=encode(JUDGED[0], exclude={"prompt"}), packed=None))
    found, _ = using(store_url, read)
    assert (found.group.rollouts, found.judgements) == (long_group().group.rollouts, JUDGED)
