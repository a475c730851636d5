"""Three processes on one database and one run's budget, of which one is killed: they spend all of it, and no more."""

import asyncio
import subprocess
import sys

import pytest

from app.domain.judging import Judgement
from app.domain.runs import Run
from app.main.store import Store
from tests.support.serving import ROOT
from tests.support.store_cases import START, group, opened, record, using

BUDGET, PRICE, GROUPS = 8.0, 1.0, 8
HELD = 3
LONGEST_SECONDS = 60
"""Each process ends by then, whatever it waits for."""
PAID = Judgement(judge="j", model="m", order=("a",), calls=1, cost_usd=PRICE)


def tell(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


async def put_aside(store: Store, name: str) -> str:
    return await store.runs.reserve_cost("run", "gsm8k", name, PRICE, 1200)


async def hold(database: str) -> None:
    """Reserves what some groups may cost, and judges none of them."""
    async with opened(database) as store:
        tell(" ".join([await put_aside(store, f"held {number}") for number in range(HELD)]))
        await asyncio.Event().wait()


async def spend(database: str, name: str) -> None:
    """Judges groups as long as the budget has room. Says once that it waits, and at the end how many it judged."""
    judged, waited = 0, False
    async with opened(database) as store:
        while (answer := await put_aside(store, f"{name} {judged}")) != "never":
            if answer == "now":
                await store.groups.add([group(f"{name} {judged}", judgements=(PAID,))])
                judged += 1
            elif not waited:
                tell("waits")
                waited = True
            else:
                await asyncio.sleep(0.02)
    tell(str(judged))


def start(*arguments: str) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "tests.faults.test_shared_budgets", *arguments]
    return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def prepare(store: Store) -> None:
    await store.runs.create(Run(name="run", seed=1, budget_usd=BUDGET, created_at=START))
    await store.tasks.put([record(0)])


async def read_spent(store: Store) -> tuple[float, float]:
    ledger = await store.runs.get_ledger("run")
    return ledger.total.cost_usd, ledger.held_usd


@pytest.mark.slow
def test_processes_keep_within_one_budget_and_what_a_killed_one_held_is_free(store_url: str) -> None:
    using(store_url, prepare)
    processes = [start("hold", store_url)]
    try:
        told = [read_line(processes[0])]
        processes += [start("spend", store_url, name) for name in "ab"]
        told += [read_line(process) for process in processes[1:]]
        before = using(store_url, read_spent)
        processes[0].kill()
        judged = [int(read_line(process)) for process in processes[1:]]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert (told, before) == ([" ".join(["now"] * HELD), "waits", "waits"], (BUDGET - HELD * PRICE, HELD * PRICE))
    assert (sum(judged), using(store_url, read_spent)) == (GROUPS, (BUDGET, 0.0))


if __name__ == "__main__":
    work = hold(sys.argv[2]) if sys.argv[1] == "hold" else spend(*sys.argv[2:])
    asyncio.run(asyncio.wait_for(work, LONGEST_SECONDS))
