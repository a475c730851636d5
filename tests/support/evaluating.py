"""`atropos-envs evaluate` as tests call it, a policy that is right at known rates, and what was left in the folder."""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from typer.testing import CliRunner

from app.cli.campaigns import Campaign
from app.cli.evaluate.attempts import load_ledger, open_plan_file
from app.cli.main import cli
from app.domain.values import digest
from app.evaluation.report import Attempt, EvaluationReport
from app.terminal.client import GatewayClient, Retrier
from tests.support.chat_server import Received, Reply
from tests.support.policy_server import MODEL, Speech, script

ROWS = 10
SAMPLES = 4


@dataclass(frozen=True)
class Evaluated:
    """What was in the folder when the command had ended."""

    exit_code: int
    told: str
    out: Path
    attempts: list[Attempt]
    written: EvaluationReport | None

    @property
    def report(self) -> EvaluationReport:
        assert self.written is not None, self.told
        return self.written


def arguments(url: str, policy: str, out: Path, *more: str, yes: bool = True) -> list[str]:
    """Of numbered rows, under a run of this folder, unless `more` says otherwise."""
    run = () if "--run" in more else ("--run", f"run-{digest(str(out))[:16]}")
    ends = ("--url", url, "--policy", policy, "--model", MODEL, "--out", str(out))
    agreed = ["--yes"] if yes else []
    return ["evaluate", *ends, "--env", "gsm8k", "--samples", str(SAMPLES), *run, *agreed, *more]


def evaluate(url: str, policy: str, out: Path, *more: str, yes: bool = True) -> Evaluated:
    """In this process."""
    return invoked(out, *arguments(url, policy, out, *more, yes=yes))


def invoked(out: Path, *given: str) -> Evaluated:
    result = CliRunner().invoke(cli, list(given), env={"COLUMNS": "200"})
    failed = "" if result.exception is None or isinstance(result.exception, SystemExit) else repr(result.exception)
    return Evaluated(result.exit_code, result.output + failed, out, attempts_in(out), report_in(out))


def attempts_in(out: Path) -> list[Attempt]:
    path = out / "attempts.jsonl"
    return [Attempt.model_validate_json(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def report_in(out: Path) -> EvaluationReport | None:
    path = out / "report.json"
    return EvaluationReport.model_validate_json(path.read_bytes()) if path.exists() else None


class Policy:
    """Of its answers to `data_sets.numbered_rows` the first `rate(row)` of each row are right. `before` may answer in
    its place."""

    def __init__(
        self,
        rate: Callable[[int], int] = lambda row: row % 5,
        before: Callable[[int, Received], Reply | None] = lambda number, received: None,
    ) -> None:
        self.asked: Counter[int] = Counter()
        self._rate = rate
        self._before = before
        self._lock = threading.Lock()
        self._answer = script(self._speech)

    def __call__(self, number: int, received: Received) -> Reply:
        return self._before(number, received) or self._answer(number, received)

    def _speech(self, received: Received, place: int) -> Speech:
        row = row_of(received)
        if row is None:
            return Speech("Hello.")
        with self._lock:
            self.asked[row] += 1
            right = self.asked[row] <= self._rate(row)
        return Speech(f"I say #### {row if right else row + 1}")


def row_of(received: Received) -> int | None:
    """None for the question whether the server answers at all."""
    found = re.findall(r"What is (\d+)", received.messages[-1]["content"])
    return int(found[0]) if found else None


def seeds_of(received: list[Received]) -> Counter[int]:
    """Of all attempts that were asked for: each has its own."""
    return Counter(int(str(one.body["seed"])) for one in received if row_of(one) is not None)


def answered_in(url: str, out: Path) -> set[tuple[int, int]]:
    """Places and samples of the attempts that the gateway holds."""
    plan = open_plan_file(out).read()

    async def ask() -> set[tuple[int, int]]:
        if plan is None:
            return set()
        async with httpx.AsyncClient(base_url=url) as client:
            campaign = Campaign(GatewayClient(client), Retrier(), plan.options.run, "tasks", 1, "")
            ledger = await load_ledger(campaign, plan, 8, judges_cost=False)
        return {(item.index, sample) for item in ledger.items for sample in item.answered}

    return asyncio.run(ask())
