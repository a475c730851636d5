"""`atropos-envs graders check` names the defect of a grader of any kind, and nothing of a sound one."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from app.evaluation.comparison import render_html
from app.evaluation.graders import GraderReport
from tests.cli import small_graders
from tests.support.commands import ended
from tests.support.openenv_server import Behaviour
from tests.support.openenv_server import start as serving_openenv
from tests.support.resources_server import Object, ResourcesServer
from tests.support.resources_server import serving as serving_resources
from tests.support.small_servers import Handler, Server, running
from tests.support.tables import read_table

GRADERS = Path(small_graders.__file__)
DEFECTS = read_table(__file__, "graders.yaml", dict[str, dict[str, list[str]]])


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    listed = [{"question": f"How much is {n} + {n * n}?", "answer": str(n + n * n)} for n in range(3, 23)]
    file.write_text("\n".join(map(json.dumps, listed)), encoding="utf-8")
    return file


def check(target: str, rows: Path, *more: object) -> GraderReport:
    told = ended("graders", "check", target, "--rows", rows, "--json", *more)
    assert told.returncode in (0, 1), told.stderr
    return GraderReport.model_validate_json(told.stdout)


def name_defects(report: GraderReport) -> dict[str, list[str]]:
    found = {
        "paid": sorted({one.strategy for one in report.paid}),
        "refused": sorted({one.strategy for one in report.refused}),
        "trouble": sorted({f"{one.how}: {one.kind}" for one in report.broken if one.how != "slow"}),
        "other": [name for name in ("unsteady", "out_of_order", "row_faults", "unpaid") if getattr(report, name)],
    }
    return {name: listed for name, listed in found.items() if listed}


@pytest.mark.parametrize("grader", DEFECTS)
def test_a_defect_is_named(grader: str, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_KEY", "of the user")
    report = check(f"{GRADERS}:{grader}", rows, "--deadline", 2, "--seconds", 600)
    assert name_defects(report) == DEFECTS[grader]
    assert "How to read this" in render_html(report)


def test_a_grader_that_forgets_what_it_paid_is_unsteady(rows: Path) -> None:
    report = check(f"{GRADERS}:wavers", rows)
    assert {len(set(one.rewards)) for one in report.unsteady if one.reply == "right"} == {3}


def test_when_the_time_is_up_no_further_row_is_probed(rows: Path) -> None:
    report = check(f"{GRADERS}:takes_any", rows, "--seconds", 0)
    assert (report.right_paid, report.probed, name_defects(report)) == (20, 5, DEFECTS["takes_any"])


def test_what_is_found_ends_with_1_and_is_written_as_a_page(rows: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    asked = ["graders", "check", f"{GRADERS}:pays_the_form", "--rows", rows, "--tasks", 5]
    told = ended(*asked, "--html", page)
    by = {fail_on: ended(*asked, "--fail-on", fail_on).returncode for fail_on in ("paid", "refused", "any")}
    assert (told.returncode, by) == (1, {"paid": 1, "refused": 0, "any": 1})
    assert "cheapest reward: 0.1 for `<answer></answer>` (empty_value, the form alone)" in told.stdout
    text = page.read_text(encoding="utf-8")
    assert "&lt;answer&gt;&lt;/answer&gt;" in text
    assert "<script" not in text


def test_a_column_of_the_signature_does_not_pass_for_the_answer(tmp_path: Path) -> None:
    """The function asks for `task_id`, which no row's answer is."""
    file = tmp_path / "rows.jsonl"
    listed = [{"task_id": n, "question": f"{n} + {n}?", "ground_truth": f"So it is\n#### {2 * n}"} for n in range(12)]
    file.write_text("\n".join(map(json.dumps, listed)), encoding="utf-8")
    report = check(f"{GRADERS}:by_task", file)
    assert (report.prompt_column, report.answer_column, report.reference, name_defects(report)) == (
        "question",
        "ground_truth",
        "its value alone",
        {},
    )


def test_rows_that_contradict_each_other_are_named(rows: Path) -> None:
    first = json.loads(rows.read_text(encoding="utf-8").splitlines()[0])
    more = [
        first,
        {**first, "answer": "13"},
        {**first, "question": first["question"].upper()},
        {"question": "", "answer": " "},
    ]
    with rows.open("a", encoding="utf-8") as file:
        file.write("".join(f"\n{json.dumps(row)}" for row in more))
    report = check(f"{GRADERS}:sound", rows, "--tasks", 5)
    assert {one.fault: one.count for one in report.row_faults} == {
        "the same prompt is there twice": 1,
        "the same prompt has another answer elsewhere": 1,
        "the prompt differs from another in case and punctuation only": 1,
        "the answer is empty": 1,
        "the prompt is empty": 1,
    }


# Servers


def find_said(row: Object) -> str:
    (item,) = row["response"]["output"]
    return str(item["content"][0]["text"])


def verify(_: ResourcesServer, session: str, row: Object) -> Object:
    return {"reward": small_graders.takes_any(find_said(row), row["expected_answer"])}


def write_nemo_rows(rows: Path) -> Path:
    listed = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    made = [{"responses_create_params": {"input": row["question"]}, "expected_answer": row["answer"]} for row in listed]
    rows.write_text("\n".join(map(json.dumps, made)), encoding="utf-8")
    return rows


@pytest.mark.parametrize(("mode", "more"), [("stateless", []), ("unknown", ["--force"])])
async def test_a_resources_server_is_checked_where_it_keeps_nothing(mode: str, more: list[str], rows: Path) -> None:
    server = ResourcesServer({"verify": verify}, {"verify": ["expected_answer"]}, mode=mode)
    async with serving_resources(server):
        asked = (f"nemo_gym+{server.url}", write_nemo_rows(rows), "--tasks", 5)
        refused = await asyncio.to_thread(ended, "graders", "check", asked[0], "--rows", *asked[1:])
        report = await asyncio.to_thread(check, *asked, *more)
    assert (refused.returncode, "--force" in refused.stderr) == ((1, False) if mode == "stateless" else (2, True))
    assert name_defects(report) == DEFECTS["takes_any"]


def test_an_openenv_server_is_reset_with_the_columns_of_a_row(rows: Path) -> None:
    listed = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    rows.write_text("\n".join(json.dumps({**row, "expected": row["answer"]}) for row in listed), encoding="utf-8")

    def pay(reset: Mapping[str, Any], text: str) -> float:
        assert set(reset) == {"expected"}
        return small_graders.takes_any(text, reset["expected"])

    with serving_openenv(Behaviour(pays=pay)) as server:
        report = check(f"openenv+{server.url}", rows, "--tasks", 5)
    assert name_defects(report) == DEFECTS["takes_any"]


class Rewarding(Handler):
    """As OpenRLHF's trainers ask."""

    grade: Callable[[str, str], float] = staticmethod(small_graders.takes_any)

    def do_POST(self) -> None:
        asked = json.loads(self.read_body())
        texts = [text.removeprefix(prompt) for text, prompt in zip(asked["query"], asked["prompts"], strict=True)]
        rewards = [self.grade(text, label.strip("$")) for text, label in zip(texts, asked["labels"], strict=True)]
        self.answer(json.dumps({"rewards": rewards, "scores": rewards, "extra_logs": {}}).encode())


class Failing(Handler):
    def do_POST(self) -> None:
        self.answer(b"<b>down</b>", status=503)


def test_a_url_is_asked_as_trainers_ask_it_and_its_key_is_not_shown(rows: Path) -> None:
    with running(Server(Rewarding)) as server:
        report = check(f"openrlhf+{server.url.replace('//', '//anyone:secret@')}/get_reward", rows, "--tasks", 5)
    assert (name_defects(report), report.target) == (DEFECTS["takes_any"], f"openrlhf+{server.url}/get_reward")


def test_a_url_that_fails_says_how(rows: Path) -> None:
    with running(Server(Failing)) as server:
        told = ended("graders", "check", f"openrlhf+{server.url}", "--rows", rows)
    down = ended("graders", "check", f"openrlhf+{server.url}", "--rows", rows)
    assert (told.returncode, "the last: it answered 503: <b>down</b>" in told.stderr) == (2, True)
    assert (down.returncode, "nothing listens there" in down.stderr) == (2, True)


# What cannot be checked

WRONG: Mapping[str, tuple[Sequence[str], str]] = {
    "no target": (["gsm8k"], "'gsm8k' names no grader"),
    "no rows": ([f"{GRADERS}:sound"], "--rows"),
    "no such file": ([f"{GRADERS}:sound", "--rows", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
    "no such module": (["nowhere.rewards:sound", "--rows", "{rows}"], "No module named 'nowhere'"),
    "no such function": ([f"{GRADERS}:sounds", "--rows", "{rows}"], "has no sounds; it has"),
    "no such column": ([f"{GRADERS}:sound", "--rows", "{rows}", "--answer", "answers"], "did you mean 'answer'?"),
    "no slot": ([f"{GRADERS}:sound", "--rows", "{rows}", "--form", "<answer>"], "--form has no {answer}"),
    "a parameter without a column": (
        [f"{GRADERS}:needs_a_column", "--rows", "{rows}"],
        "no column for its parameter difficulty; the rows have question, answer",
    ),
    "the same for every text": (
        [f"{GRADERS}:pays_everything", "--rows", "{rows}"],
        "no right answer is paid more than an empty reply, which earns 1",
    ),
    "a wrong form": ([f"{GRADERS}:sound", "--rows", "{rows}", "--form", "is {answer}"], "0 'is {answer}'"),
    "a package that is not there": (
        ["verifiers:nowhere", "--trusted", "--python", sys.executable],
        "No package metadata was found for verifiers",
    ),
    "no interpreter": ([f"{GRADERS}:sound", "--rows", "{rows}", "--python", "nowhere"], "no interpreter nowhere"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_checked_says_why(case: str, rows: Path) -> None:
    arguments, words = WRONG[case]
    told = ended("graders", "check", *(one.replace("{rows}", str(rows)) for one in arguments))
    assert (told.returncode, words in " ".join(told.stderr.split())) == (2, True), told.stderr


def test_it_needs_no_gateway(rows: Path) -> None:
    program = (
        "import sys; from app.cli.main import cli\n"
        "try: cli()\n"
        "finally: print(sorted({'fastapi', 'sqlmodel', 'sqlalchemy', 'uvicorn', 'starlette'} & {*sys.modules}))"
    )
    arguments = ["graders", "check", f"{GRADERS}:sound", "--rows", str(rows), "--tasks", "2"]
    told = run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "[]"
