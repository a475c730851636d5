"""The journal of `process`: whatever happened is there after a kill, once, and nothing of another setup."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.process.atropos import SampledCompletion
from app.cli.process.journal import (
    PROCESS_EVENT,
    AtroposRegistered,
    GroupSampled,
    ProcessBegan,
    ProcessEvent,
    ProcessLedger,
    TakenTask,
    TaskSettled,
    TasksTaken,
    assign_keys,
    open_journal,
)
from app.cli.process.plan import ProcessSetup
from app.domain.tasks import Completion
from app.inference.policies import TokenSequence
from app.service.requests import HandedOutTask, MixMember
from tests.support.playground import handed_out

SETUP = ProcessSetup(mix=(MixMember(env="gsm8k"),), run="r", by_cursor=False, model="small", group_size=2, to="jsonl")
SAMPLE = SampledCompletion(completion=Completion(text="Hi"), sequence=TokenSequence((1, 2), (-100, 2), (1.0, -0.5)))


def leased(number: int, lease: int = 0) -> HandedOutTask:
    return handed_out(number, environment="gsm8k", lease_id=f"lease_{lease:032x}")


def taken(*keys: str) -> TasksTaken:
    return TasksTaken(tasks=tuple(TakenTask(key=key, task=leased(int(key))) for key in keys))


@st.composite
def histories(draw: st.DrawFn) -> list[ProcessEvent]:
    """Anything that may happen, in an order in which it may happen."""
    luck = random.Random(draw(st.integers(0, 10**6)))
    happened: list[ProcessEvent] = [ProcessBegan(setup=SETUP)]
    open_keys: list[str] = []
    for number in range(draw(st.integers(0, 25))):
        chance = luck.random()
        if chance < 0.1:
            happened.append(AtroposRegistered(env_id=number))
        elif chance < 0.5 or not open_keys:
            open_keys.append(str(number))
            happened.append(taken(str(number)).model_copy(update={"next_cursor": luck.choice([None, number])}))
        elif chance < 0.75:
            happened.append(GroupSampled(key=luck.choice(open_keys), samples=(SAMPLE, SAMPLE)))
        else:
            outcome, never = luck.choice([("written", False), ("unscored", False), ("policy_refused", True)])
            key = open_keys.pop(luck.randrange(len(open_keys)))
            happened.append(TaskSettled(key=key, outcome=outcome, never_again=never))
    return happened


def ledger_of(happened: Sequence[ProcessEvent]) -> ProcessLedger:
    ledger = ProcessLedger()
    for one in happened:
        ledger.apply(one)
    return ledger


@given(histories())
def test_the_shortest_history_comes_to_the_same(happened: list[ProcessEvent]) -> None:
    ledger = ledger_of(happened)
    written = [PROCESS_EVENT.dump_json(one) for one in ledger.iter_compacted()]
    assert ledger_of([PROCESS_EVENT.validate_json(line) for line in written]) == ledger


def write(path: Path, happened: Sequence[ProcessEvent], shorten_after: int = 1 << 20) -> ProcessLedger:
    async def add() -> ProcessLedger:
        for one in happened:
            await journal.add(one)
        return journal.ledger

    with open_journal(path, SETUP, shorten_after) as journal:
        return asyncio.run(add())


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.journal"
    first = write(path, [taken("1", "2"), GroupSampled(key="1", samples=(SAMPLE,))])
    second = write(path, [TaskSettled(key="1", outcome="written")])
    again = write(path, [])
    assert (first.open["1"].samples, list(second.open), again) == ((SAMPLE,), ["2"], second)


def test_a_line_that_a_kill_cut_off_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    before = write(path, [taken("1")])
    with path.open("ab") as file:
        file.write(PROCESS_EVENT.dump_json(TaskSettled(key="1", outcome="written"))[:-5])
    assert (write(path, []), list(write(path, [taken("2")]).open)) == (before, ["1", "2"])


def test_it_is_shortened_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    happened: list[ProcessEvent] = []
    for number in range(50):
        key = str(number)
        happened += [taken(key), GroupSampled(key=key, samples=(SAMPLE,)), TaskSettled(key=key, outcome="written")]
    ledger = write(path, happened, shorten_after=2_000)
    assert (ledger.written_count, path.stat().st_size < 4_000, write(path, []).written_count) == (50, True, 50)


def test_only_one_process_is_at_work_on_it(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    with open_journal(path, SETUP), pytest.raises(ValueError, match="in use by another process"):
        write(path, [])


def test_a_start_that_came_to_nothing_binds_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    write(path, [])
    other = SETUP.model_copy(update={"model": "large"})
    with open_journal(path, other) as journal:
        setup = journal.ledger.setup
    assert setup == other


def test_another_setup_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "out.journal"
    write(path, [taken("1")])
    other = SETUP.model_copy(update={"model": "large", "group_size": 4})
    with pytest.raises(ValueError, match=r"\(model was small, group_size was 2\)"), open_journal(path, other):
        pass


@pytest.mark.parametrize("line", ["hello", '{"kind": "unheard"}', '{"kind": "settled", "key": "7", "outcome": "w"}'])
def test_what_is_no_journal_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "out.journal"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"out.journal:1: not a journal"):
        write(path, [])


def test_a_task_in_hand_that_is_leased_anew_is_the_same_with_a_newer_lease() -> None:
    ledger = ProcessLedger()
    ledger.apply(TasksTaken(tasks=assign_keys(ledger, [leased(1, 1), leased(2, 2)], None)))
    ledger.apply(GroupSampled(key=f"lease_{1:032x}", samples=(SAMPLE,)))
    ledger.apply(TasksTaken(tasks=assign_keys(ledger, [leased(1, 3)], None)))
    leases = {key: (item.task.lease_id, item.samples) for key, item in ledger.open.items()}
    assert leases == {f"lease_{1:032x}": (f"lease_{3:032x}", (SAMPLE,)), f"lease_{2:032x}": (f"lease_{2:032x}", None)}


def test_what_the_policy_refuses_is_not_taken_again_unless_by_its_place() -> None:
    ledger = ledger_of([taken("1"), TaskSettled(key="1", outcome="policy_refused", never_again=True)])
    kept = [one.key for one in assign_keys(ledger, [leased(1, 7), leased(2, 8)], None)]
    by_place = [one.key for one in assign_keys(ledger, [handed_out(1), handed_out(2)], 40)]
    assert (kept, by_place, ledger.left_out) == ([f"lease_{8:032x}"], ["40+0", "40+1"], {"policy_refused": 1})
