"""`judges check` and `judges list` from the terminal, against judges on the other side of a socket."""

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from threading import Event

import pytest
from fastapi.testclient import TestClient
from pydantic import JsonValue, TypeAdapter
from typer.testing import CliRunner

from app.cli.judges import JudgeLine, build_packaged_questions, load_packaged_specimens
from app.cli.main import cli
from app.envs.npc_arena.environment import DEFAULT_RUBRIC, NpcArena
from app.judges.meta_evaluation import CheckReport
from app.judges.prompts import render_lines
from app.main.application import create_app
from app.settings import read_settings
from app.terminal.consoles import RESUME
from tests.support.chat_server import Received, Reply, serving
from tests.support.forked_programs import ROOT, ForkedProgram
from tests.support.preferring import complete, write_verdict
from tests.support.shown_prompts import shown_to

RUN = CliRunner()
CRITERIA = [criterion.name for criterion in NpcArena.rubric.criteria] if NpcArena.rubric else []
Levels = Callable[[str, Mapping[str, str]], Mapping[str, float]]
"""Of the scene and the candidates as shown, by letter: a level of 0 to 4 for each."""


@cache
def find_clean() -> dict[str, str]:
    """The good reply, by what a judge is shown of its scene."""
    return {"\n".join(render_lines(specimen.document)): specimen.clean for specimen in load_packaged_specimens()}


def good(scene: str, texts: Mapping[str, str]) -> Mapping[str, float]:
    return {letter: 4 if text == find_clean()[scene] else 1 for letter, text in texts.items()}


def always_first(scene: str, texts: Mapping[str, str]) -> Mapping[str, float]:
    return {letter: 0 if place else 4 for place, letter in enumerate(texts)}


SHORT = 10
"""Tokens of the shorter text whose words are read back."""


def judging(levels: Levels) -> Callable[[int, Received], Reply]:
    def script(number: int, received: Received) -> Reply:
        if (words := find_words(received)) is not None:
            return complete(json.dumps(words), 1000 if len(received.messages[-1]["content"]) > 1000 else SHORT, 100)
        shown = shown_to(received)
        return answer(write_verdict(shown, levels(shown.context, shown.texts)))

    return script


def answer(content: str) -> Reply:
    return complete(content, 1000, 100)


def find_words(received: Received) -> list[str] | None:
    """Those that the judge is told to read back; None in any other question."""
    asked = received.messages[-1]["content"]
    return re.findall(r"word to remember is (\S+)\.\n", asked) if "word to remember" in asked else None


def configure(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> None:
    for name, value in {"base_url": url, "model": "stern-1", **more}.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__STERN__{name.upper()}", value)


def check(*more: str, yes: bool = True) -> tuple[int, CheckReport | None, str]:
    agreed = ["--yes"] if yes else []
    ran = RUN.invoke(cli, ["judges", "check", "stern", "--sheets", "4", "--json", "out.json", *agreed, *more])
    out = Path("out.json")
    found = CheckReport.model_validate_json(out.read_text(encoding="utf-8")) if out.exists() else None
    return ran.exit_code, found, ran.output


def missed(found: CheckReport | None) -> list[str]:
    return [] if found is None else [figure.name for figure in found.figures if not figure.passed]


def test_a_good_judge_passes_and_every_call_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(judging(good)) as server:
        configure(monkeypatch, server.url)
        code, found, output = check()
        assert found is not None
        # Before the questions the judge reads back two words, twice.
        assert (code, missed(found), 2 + found.calls) == (0, [], len(server.received)), output
    characters = {pair.specimen.cast.sheet.id for pair in build_packaged_questions(4, 1, 0).pairs}
    assert (found.judge, found.model, found.characters) == ("stern", "stern-1", len(characters))
    assert f"{found.questions} calls to stern" in output


@pytest.mark.parametrize(
    ("read", "unread", "cause"),
    [
        ([], slice(0), "the model does not do as it is told"),
        ([False], slice(1, None), "it does not read back a word from the beginning of a prompt of"),
        ([False], slice(1), "it does not read back a word from the end of a prompt of"),
    ],
)
def test_a_judge_that_does_not_read_back_two_words_is_asked_nothing_else(
    monkeypatch: pytest.MonkeyPatch, read: list[bool], unread: slice, cause: str
) -> None:
    """`read`: whether each prompt that it reads whole is long."""

    def script(number: int, received: Received) -> Reply:
        words = find_words(received) or []
        return answer(json.dumps(words if number < len(read) else words[unread]))

    with serving(script) as server:
        configure(monkeypatch, server.url)
        code, found, output = check()
        asked = [len(one.messages[-1]["content"]) > 5_000 for one in server.received]
    assert found is not None
    assert (code, found.passed, found.questions, asked) == (1, False, 0, [*read, bool(read)]), output
    verdict = "stern (stern-1): below target: do not train on this judge failed: "
    assert f"{verdict}{cause}" in " ".join(output.split())


def test_values_are_shown_by_criterion_of_the_rubric_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back first has as many bytes as the longest question, in whatever script the rubric is."""
    text = DEFAULT_RUBRIC.read_text(encoding="utf-8").replace("name: responsiveness", "name: answers")
    text = text.replace("Does the reply answer this line,", f"Does the reply, {'ответ ' * 300}answer this line,")
    Path("mine.yaml").write_text(text, encoding="utf-8")
    with serving(judging(good)) as server:
        configure(monkeypatch, server.url)
        found = check("--rubric", "mine.yaml", "--sheets", "2")[1]
        _, first, *others = (sum(len(one["content"].encode()) for one in asked.messages) for asked in server.received)
    assert found is not None
    assert first >= max(others)
    names = [*CRITERIA[:-1], "answers"]
    assert [(one.criterion, one.clean, one.spoilt, one.higher.value) for one in found.criteria] == [
        (name, 1.0, 0.25, 1.0) for name in names
    ]


def test_a_judge_that_answers_nonsense_is_caught_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda number, received: Reply(b'{"error": {"message": "no such model"}}', status=404)) as server:
        configure(monkeypatch, server.url, breaker_failures="1000")
        code, found, output = check("--sheets", "1")
        words = (
            "stern (stern-1): below target: do not train on this judge\nfailed: 3 of 3 questions: the judge's server "
        )
        # Each of them once more without a format of the answer, and so are the words that are read back.
        assert (code, len(server.received), words + "answered 404: no such model" in output) == (1, 8, True), output
        assert found is not None
        assert found.settled == "3 of 3 questions got no usable answer"
        code, found, _ = check("--sheets", "1", "--whole")
    assert found is not None
    assert (code, found.settled, found.questions) == (1, None, build_packaged_questions(1, 1, 0).count)


def test_the_check_says_what_the_server_refuses_and_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b'{"error": {"message": "Unsupported value", "param": "temperature", "code": "unsupported_value"}}'

    def script(number: int, received: Received) -> Reply:
        return Reply(refusal, status=400) if "temperature" in received.body else judging(good)(number, received)

    with serving(script) as server:
        configure(monkeypatch, server.url, expected_scores="true")
        code, _, output = check("--sheets", "1")
    assert code == 0
    assert "stern: temperature is left out, since the server refuses what is configured" in output
    assert "stern: the server ignores logprobs" in output


def test_a_reward_model_is_checked_like_any_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    def reward(number: int, received: Received) -> Reply:
        prompt, reply = (received.messages[place]["content"] for place in (0, -1))
        value = 2.5 if (prompt, reply) in good_pairs else -1.5
        return Reply(json.dumps({"data": [{"index": 0, "label": "LABEL_0", "probs": [value]}]}).encode())

    good_pairs = {(specimen.prompt, specimen.clean) for specimen in load_packaged_specimens()}
    with serving(reward) as server:
        chosen = {"kind": "reward_model", "route": "vllm_classify", "chat_template": "server"}
        configure(monkeypatch, server.url.removesuffix("/v1"), **chosen)
        _, found, output = check("--sheets", "2")
    assert found is not None, output
    figures = {figure.name: figure.value for figure in found.figures}
    names = ("pair accuracy, hard", "pair accuracy, subtle", "swap consistency", "answered")
    assert [figures[name] for name in names] == [1.0, 1.0, 1.0, 1.0]
    assert {one.higher.trials for one in found.criteria} == {0}


PRICES = {"input_price_per_million": "2.5", "output_price_per_million": "10"}


def test_money_is_spent_only_when_that_is_agreed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(judging(good)) as server:
        configure(monkeypatch, server.url, **PRICES)
        code, found, output = check(yes=False)
        assert (code, found, len(server.received), "--yes" in output) == (2, None, 0, True)
        code, found, output = check("--sheets", "1")
        assert found is not None
        spent = (len(server.received) - 2) * (1000 * 2.5 + 100 * 10) / 1e6  # without the words that it reads back
    assert (code, "US dollars" in output) == (0, True)
    assert found.cost_usd == pytest.approx(spent)


def shown() -> dict[str, JsonValue]:
    """What a service over the same database says of the judge."""
    with TestClient(create_app(read_settings(), environments={}), base_url="http://127.0.0.1") as client:
        judges = client.get("/judges").json()["judges"]
    report: dict[str, JsonValue] = next(judge["report"] for judge in judges if judge["name"] == "stern")
    return report


def test_a_check_stops_before_a_budget_is_exceeded_and_shows_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(judging(good)) as server:
        configure(monkeypatch, server.url, **PRICES, budget_usd="0.2", max_concurrency="4")
        code, found, output = check()
        calls = len(server.received)
        report = shown()
    assert found is not None
    assert (code, 2 + found.calls, 2 + found.questions, 0 < found.pairs < calls) == (2, calls, calls, True)
    assert "this judge's budget is exhausted" in " ".join(output.split())
    assert "meets all targets" not in output
    assert found.stopped is not None
    each = (1000 * 2.5 + 100 * 10) / 1e6
    short = (SHORT * 2.5 + 100 * 10) / 1e6
    spent = (calls - 1) * each + short
    assert found.cost_usd == pytest.approx(spent - each - short)
    assert report["budget_left_usd"] == pytest.approx(0.2 - spent)
    assert spent <= 0.2


def test_a_check_goes_on_after_ctrl_c_with_the_answers_that_are_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count, asked, stopped = build_packaged_questions(4, 1, 0).count, Event(), Event()

    def script(number: int, received: Received) -> Reply:
        if number == 20:
            asked.set()
        if number >= 20:
            stopped.wait(60)
        return judging(good)(number, received)

    with serving(script) as server:
        configure(monkeypatch, server.url)
        log, arguments = tmp_path / "told", ("judges", "check", "stern", "--sheets", "4", "--yes")
        program = ForkedProgram("app.cli", arguments, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)}, log)
        assert asked.wait(60), log.read_text()
        program.send_signal(signal.SIGINT)
        stopped.set()
        assert (program.wait(60), RESUME in log.read_text()) == (130, True), log.read_text()
        before = len(server.received)
        code, found, output = check()
        assert found is not None
        # Words are read back before each part.
        assert (code, 0 < found.stored < before) == (0, True), output
        assert (found.questions, len(server.received) - before) == (count, 2 + count - found.stored)
        assert f"{found.stored} of {count} answers are stored from an earlier check" in output
        assert f"{count - found.stored} calls to stern" in output
        before = len(server.received)
        assert (check()[1], len(server.received)) == (found.model_copy(update={"stored": count}), before)
        fresh = check("--fresh")[1]
        assert fresh is not None
        assert (fresh.stored, fresh.questions, len(server.received)) == (0, count, before + 2 + count)


def test_a_judge_is_listed_with_what_came_of_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def list_check() -> str:
        ran = RUN.invoke(cli, ["judges", "list", "--json"])
        (line,) = [line for line in TypeAdapter(tuple[JudgeLine, ...]).validate_json(ran.stdout) if line.for_training]
        return line.check

    found = []
    for levels, more, forms in ((good, {}, (["--short"], [])), (always_first, {"model": "stern-2"}, ([],))):
        with serving(judging(levels)) as server:
            configure(monkeypatch, server.url, **more)
            found.append(list_check())
            for form in forms:
                RUN.invoke(cli, ["judges", "check", "stern", "--yes", *form])
                found.append(list_check())
    assert found == ["not checked", "not checked", "passed", "not checked", "failed"]


def test_the_offline_judge_is_named_as_what_it_is() -> None:
    ran = RUN.invoke(cli, ["judges", "check", "--sheets", "4", "--json", "-"])
    assert ran.exit_code == 1
    found = CheckReport.model_validate_json(ran.stdout)
    assert (found.judge, found.calls, "no model" in ran.stderr) == ("offline", 0, True)


def test_a_short_check_asks_fifty_questions_and_fails_for_what_is_beyond_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name, levels in (("good", good), ("first", always_first)):
        with serving(judging(levels)) as server:
            configure(monkeypatch, server.url)
            code, report, _ = check("--short", "--whole")
            assert report is not None
            found[name] = (code, len(server.received), set(missed(report)) - {"test-retest, ICC(1,1)"})
    assert found == {"good": (0, 52, set()), "first": (1, 52, {"pair accuracy, hard", "swap consistency", "ties"})}


def test_an_unknown_judge_is_named_with_those_there_are() -> None:
    ran = RUN.invoke(cli, ["judges", "check", "nobody"])
    assert (ran.exit_code, "unknown judge 'nobody'; known judges: offline" in ran.output) == (2, True)


def test_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES", '["stern"]')
    ran = RUN.invoke(cli, ["judges", "list", "--json"])
    lines = TypeAdapter(tuple[JudgeLine, ...]).validate_json(ran.stdout)
    assert {line.name: (line.model, "npc_arena" in line.environments, line.for_training) for line in lines} == {
        "offline": ("offline-words-5", False, False),
        "stern": ("stern-1", True, True),
    }
    assert "stern-1" in RUN.invoke(cli, ["judges", "list"]).output


def prefers_letter_a(scene: str, texts: Mapping[str, str]) -> Mapping[str, float]:
    return {letter: 4 if letter == "A" else 1 for letter in texts}


def test_equal_replies_show_a_preference_for_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(judging(prefers_letter_a)) as server:
        configure(monkeypatch, server.url)
        _, found, output = check("--whole")
    assert found is not None, output
    assert [(each.letter, each.first.value, each.score.value) for each in found.letters] == [
        ("A", 1.0, 1.0),
        ("B", 0.0, 0.2),
        ("C", 0.0, 0.2),
        ("D", 0.0, 0.2),
    ]
    low, high = found.letters[0].first.low, found.letters[0].first.high
    assert (low is not None and low > 0.25, high) == (True, 1.0)
