"""A preference becomes a rubric: the judge's server is asked once, its answer is checked, and params are printed."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from app.cli.main import cli
from app.domain.budgets import BudgetState
from app.domain.errors import JudgeFailed
from app.envs.rlaif.environment import GivenCriterion, RlaifParams
from app.judges import judge_client as line
from app.judges.chat_judge import InProcessMemory
from app.judges.configuration import ChatJudgeConfig
from app.judges.prompts import WrittenCriterion, WrittenRubric, write_rubric
from tests.support.chat_server import ChatServer, Received, Reply, serving
from tests.support.preferring import said
from tests.support.store_cases import using
from tests.support.tables import read_table

PRICES = {"input_price_per_million": 2.0, "output_price_per_million": 10.0}
PREFERENCE = "Prefer the reply that a tired person would thank you for."
CRITERIA = (
    {"name": "brevity", "description": "Says what is needed and stops.", "weight": 3},
    {"name": "warmth", "description": "Sounds like somebody who cares.", "weight": 1},
)
GOOD = json.dumps({"criteria": CRITERIA})
ASKED = ["--preference", PREFERENCE, "--judge", "writer"]
RUBRIC = WrittenRubric(criteria=tuple(WrittenCriterion.model_validate(one) for one in CRITERIA))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


def written(judge: ChatServer, seconds: float = 20.0) -> WrittenRubric:
    config = ChatJudgeConfig(
        name="writer", base_url=judge.url, model="pen", api_key=SecretStr("sk-secret"), deadline_seconds=seconds
    )
    return asyncio.run(write_rubric(config, PREFERENCE, InProcessMemory(lambda: datetime.now(UTC))))


def with_criteria(*criteria: object) -> str:
    return json.dumps({"criteria": criteria})


def test_the_server_is_asked_once_with_the_preference_as_data() -> None:
    with serving(lambda number, received: said(GOOD)) as judge:
        assert written(judge) == RUBRIC
        (received,) = judge.received
    assert (received.path, received.authorization) == ("/v1/chat/completions", "Bearer sk-secret")
    assert {name: received.body[name] for name in received.body if name != "messages"} == {
        "model": "pen",
        "max_tokens": 4096,
        "temperature": 0.0,
        "response_format": {"type": "json_object"},
    }
    system, user = received.messages
    assert PREFERENCE not in system["content"]
    assert (user["role"], json.loads(user["content"])) == ("user", {"preference": PREFERENCE})


UNUSABLE = {
    "no object": "Brevity and warmth.",
    "a list": json.dumps(CRITERIA),
    "one criterion": with_criteria(CRITERIA[0]),
    "seven criteria": with_criteria(*({**CRITERIA[0], "name": f"name_{number}"} for number in range(7))),
    "a name twice": with_criteria(CRITERIA[0], CRITERIA[0]),
    "a name of its own taste": with_criteria(CRITERIA[0], {**CRITERIA[1], "name": "Warm & kind"}),
    "no weight": with_criteria(CRITERIA[0], {"name": "warmth", "description": "Sounds like a friend."}),
    "a weight of nothing": with_criteria(CRITERIA[0], {**CRITERIA[1], "weight": 0}),
    "something beside": json.dumps({"criteria": CRITERIA, "note": "as you wished"}),
    "a pit": '{"a":' * 50_000 + "}",
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
def test_an_answer_that_cannot_be_used_is_sent_back_once(answer: str) -> None:
    def script(number: int, received: Received) -> Reply:
        return said(answer if number == 0 else GOOD)

    with serving(script) as judge:
        assert written(judge) == RUBRIC
        _, second = judge.received
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]


def test_the_second_time_it_is_an_error() -> None:
    with serving(lambda number, received: said(UNUSABLE["a name twice"])) as judge:
        with pytest.raises(JudgeFailed, match=r"after the corrective retry: .*two criteria have the same name"):
            written(judge)
        assert len(judge.received) == 2


FAILED_RUBRICS = read_table(__file__, "failed_rubrics.yaml", dict[str, tuple[Reply, str]])


@pytest.mark.parametrize(("reply", "words"), FAILED_RUBRICS.values(), ids=FAILED_RUBRICS)
def test_what_goes_wrong_is_told_in_words_without_the_key(reply: Reply, words: str) -> None:
    with serving(lambda number, received: reply) as judge, pytest.raises(JudgeFailed, match=words) as caught:
        written(judge, seconds=0.3 if reply.seconds else 3.0)
    assert "sk-secret" not in caught.value.detail


def commanded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, arguments: Sequence[str]
) -> tuple[int, str, str]:
    file = folder / "gateway.yaml"
    file.write_text(
        json.dumps({"judges": {"writer": {"base_url": url, "model": "pen", "deadline_seconds": 6, **PRICES}}}),
        encoding="utf-8",
    )
    monkeypatch.setenv("ATROPOS_ENVS_SETTINGS", str(file))
    done = CliRunner().invoke(cli, ["rlaif", "rubric", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_prints_params_that_requests_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda number, received: said(GOOD)) as judge:
        code, printed, told = commanded(tmp_path, monkeypatch, judge.url, ASKED)
    rubric = tuple(GivenCriterion.model_validate(one) for one in CRITERIA)
    assert (code, RlaifParams.model_validate_json(printed)) == (0, RlaifParams(preference=PREFERENCE, rubric=rubric))
    assert "written by pen" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preference", PREFERENCE, "--judge", "nobody"], "unknown judge 'nobody'; judges in the settings"),
        (["--preference", " ", "--judge", "writer"], "preference"),
        (ASKED, "could not be reached"),
    ],
)
def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], words: str
) -> None:
    code, printed, told = commanded(tmp_path, monkeypatch, "http://127.0.0.1:1/v1", arguments)
    assert (code, printed, words in told.replace("\n", " ")) == (2, "", True)


def paid(tmp_path: Path) -> BudgetState:
    """What the database beside the settings knows."""
    return using(f"sqlite:///{tmp_path / 'spent.db'}", lambda store: store.judge_cache.get_budget_state("writer"))


def test_what_it_costs_counts_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is unusable, so two calls are paid."""
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", f"sqlite:///{tmp_path / 'spent.db'}")
    answers = ["Brevity and warmth.", GOOD]
    with serving(lambda number, received: said(answers[number])) as judge:
        code, _, _ = commanded(tmp_path, monkeypatch, judge.url, ASKED)
        calls = len(judge.received)
    total = paid(tmp_path).total
    cost = (2 * total.input_tokens + 10 * total.output_tokens) / 1e6
    assert (code, calls, total.readings, total.calls, total.cost_usd > 0) == (0, 2, 1, 2, True)
    assert total.cost_usd == pytest.approx(cost)


def test_its_budget_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", f"sqlite:///{tmp_path / 'spent.db'}")
    monkeypatch.setenv("ATROPOS_ENVS_JUDGES__WRITER__BUDGET_USD", "0.001")
    with serving(lambda number, received: said(GOOD)) as judge:
        code, _, told = commanded(tmp_path, monkeypatch, judge.url, ASKED)
        calls = len(judge.received)
    assert (code, calls, "this judge's budget is exhausted" in " ".join(told.split())) == (2, 0, True)
    assert paid(tmp_path) == BudgetState()
