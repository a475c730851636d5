"""What pages name is there, and of what they list nothing is missing."""

import json
import re
import shlex
from collections.abc import Iterator, Set
from pathlib import Path
from typing import get_args

import pytest
import yaml

from app.cli.main import DeferredCommand, list_commands
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError, ScoringFailed
from app.domain.judging import Bound, ClaimRule, Judgement, JudgeReport, OwnCriterion, OwnDefect, OwnRubric, Requirement
from app.domain.scores import Reason
from app.domain.tasks import Context, ContextQuery
from app.domain.values import Split
from app.domain.worlds import Event, Obstacle
from app.envs.rlaif.environment import ConversationRow, Rlaif, RlaifParams, Speaker
from app.envs.tool_calling.environment import APIS
from app.envs.tool_calling.requests import MOST_CHARACTERS, ApiBook, Category
from app.envs.tool_calling.rows import ToolRow
from app.features.exports.rows import MULTI_TURN_TRAINERS, PROMPT_ROW_TYPES, TRAINERS_WITH_TOOLS, Trainer
from app.http.compat.openenv.sessions import Reset
from app.http.web.problems import CODES
from app.judges.gold_cases import MUTATIONS
from app.main.components import build_panels
from app.rag.remote import RetrieverAnswer, parse_answer
from app.settings import PREFIX, read_settings
from app.toolkit.tool_calls.calls import MOST_DIGITS
from tests.architecture.test_house import ROOT
from tests.support.shell_blocks import list_blocks

ON_TRAINERS = ("trainers", "agent_loops", "nemo_gym", "process", "reward_endpoints", "trl")
WITH_COMMANDS = (*ON_TRAINERS, "judging", "rlaif", "first_steps", "evaluating", "comparing", "exports", "labels")


def read(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def list_first_cells(page: str, marker: str) -> list[str]:
    """The codes in the first column of the first table behind the marker."""
    lines = page.split(f"{marker}\n", 1)[1].lstrip("\n").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = lines[start:]
    end = next((number for number, line in enumerate(rows) if not line.startswith("|")), len(rows))
    return [name for line in rows[:end] for name in re.findall(r"`([\w.\[\]]+)`", line.split("|")[1])]


JUDGES = f"{read('judging')}\n{read('judge_reference')}"


@pytest.mark.parametrize(
    ("page", "marker", "names"),
    [
        (JUDGES, "<!-- judgement: read by the tests -->", {*Judgement.model_fields} - {"instead_of"}),
        (JUDGES, "<!-- report: read by the tests -->", {*JudgeReport.model_fields}),
        (read("worlds"), "## Telling what happens", {*Event.model_fields}),
        (read("worlds"), "## Why a character knows, or does not", {*get_args(Obstacle)}),
        (read("openenv"), "## Reset: choose a task", {*Reset.model_fields}),
    ],
)
def test_a_table_has_every_name(page: str, marker: str, names: Set[str]) -> None:
    assert {*list_first_cells(page, marker)} == names


def test_the_kinds_of_spoiling_are_ours_in_their_order() -> None:
    shown = list_first_cells(JUDGES, "<!-- generated: judge-check-kinds -->")
    assert shown == [mutation.name for mutation in MUTATIONS if mutation.name in shown] != []


def test_every_key_of_a_rubric_is_told() -> None:
    page, models = read("rubrics"), (OwnRubric, OwnCriterion, OwnDefect, Requirement, Bound, ClaimRule)
    keys = {name for model in models[:3] for name in model.model_fields}
    assert sorted(key for key in keys if not re.search(rf"`[\w\[\]., `]*\b{key}\b", page)) == []


def iterate_commands(page: str) -> Iterator[list[str]]:
    text = re.sub(r"\\\n", " ", read(page))
    for line in re.findall(r"^(?:\$ |\.venv/bin/)?atropos-envs (.*)$", text, re.MULTILINE):
        yield shlex.split(line, comments=True)


def list_options(*words: str) -> set[str]:
    command = DeferredCommand(words[0], list_commands()[words[0]]).load()
    within = getattr(command, "commands", {})
    command = within[words[1]] if within else command
    return {option for one in command.params for option in one.opts if option.startswith("--")}


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_know_their_options(page: str) -> None:
    commands = [*iterate_commands(page)]
    unknown = [words for words in commands if not {one for one in words if one[:2] == "--"} <= list_options(*words)]
    assert (unknown, commands != []) == ([], True)


def test_examples_that_are_named_are_there() -> None:
    named = {name for page in ON_TRAINERS for name in re.findall(r"examples/\w+\.\w+", read(page))}
    assert ({name for name in named if not (ROOT / name).is_file()}, named != set()) == (set(), True)


def test_columns_turns_and_tools_are_those_of_the_rows() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \| (yes|no) \| (yes|no) \|", read("trainers"), re.MULTILINE)
    told = {name: (sorted(re.findall(r"`(\w+)`", columns)), turns, tools) for name, columns, turns, tools in rows}
    words = {True: "yes", False: "no"}
    assert told == {
        name: (sorted(PROMPT_ROW_TYPES[name].model_fields), words[name in MULTI_TURN_TRAINERS], words[tooled])
        for name in get_args(Trainer)
        for tooled in [name in TRAINERS_WITH_TOOLS]
    }


def list_errors(error: type[GatewayError] = GatewayError) -> Iterator[type[GatewayError]]:
    yield error
    for one in error.__subclasses__():
        yield from list_errors(one)


def test_every_reason_and_code_has_its_symptom() -> None:
    page = read("troubleshooting")
    known = {(one.status, one.code) for one in list_errors() if not issubclass(one, ScoringFailed)} | set(CODES.items())
    assert [reason for reason in get_args(Reason) if f"\n| `{reason}` |" not in page] == []
    assert sorted(row for row in known if f"\n| {row[0]} | `{row[1]}`" not in page) == []


def test_quoted_words_are_those_of_the_service() -> None:
    """Of the page of symptoms: the parts between what differs from case to case."""
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))
    said = re.sub(r"[`{}]", "", re.sub(r'"\s*f?"', "", source))
    rows = "\n".join(line for line in read("troubleshooting").splitlines() if line.startswith("| "))
    quoted = [text for text in re.findall(r"`([^`]+)`", rows) if len(text.split()) > 4 and "atropos-envs" not in text]
    parts = [part.strip(" :;.") for text in quoted for part in text.split("…") if len(part.split()) > 2]
    ours = [one for one in parts if "8000" not in one and "different Python" not in one]
    assert ([one for one in ours if one not in said], ours != []) == ([], True)


def test_each_word_of_the_glossary_is_there_once_with_a_place_that_exists() -> None:
    page = read("glossary")
    words = re.findall(r"^\| (?!word \||---)([^|]+) \|", page, re.MULTILINE)
    places = re.findall(r"\| `((?:app|docs|tests)/[\w/.]+)` \|$", page, re.MULTILINE)
    missing = [place for place in places if not (ROOT / place).exists()]
    assert (missing, len(places), sorted(words)) == ([], len(words), sorted({*words}))


def test_each_promise_names_a_test_that_exists() -> None:
    table = read("operating").split("<!-- promises: read by the tests -->\n")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines() if "| the test" not in line]
    missing = [
        line
        for line in rows[1:]
        for found in [re.search(r"`(tests/[\w/.]+)::(test_\w+)`", line)]
        if found is None or f"def {found[2]}(" not in (ROOT / found[1]).read_text(encoding="utf-8")
    ]
    assert (missing, rows != []) == ([], True)


def test_what_make_is_told_it_can_do() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    shown = set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE))
    assert {"run", "check", "test", "test-long"} <= shown <= targets


@pytest.mark.parametrize("page", ["first_steps", "judging", "rlaif"])
def test_shown_settings_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    (shown,) = list_blocks(read(page), "yaml")
    (tmp_path / "gateway.yaml").write_text(shown, encoding="utf-8")
    monkeypatch.setenv(PREFIX + "SETTINGS", str(tmp_path / "gateway.yaml"))
    monkeypatch.setenv("JUDGE_API_KEY", "a-key")
    read_back, wanted = read_settings(), yaml.safe_load(shown)
    named = {name: {"default": {"source": source}} for name, source in wanted.get("datasets", {}).items()}
    found = read_back.model_dump(mode="json", exclude_unset=True)
    assert found == wanted | ({"datasets": named} if named else {})
    assert {*build_panels(read_back).judges} == {"offline", *wanted.get("judges", {})}


def test_a_preference_is_shown_as_it_is_taken() -> None:
    """Params, columns and roles, the selection, and how many prompts there are."""
    page, environment = read("rlaif"), Rlaif.open(ConfiguredDatasets({}))
    rubric = RlaifParams.model_validate_json(list_blocks(page, "json")[0]).rubric
    tasks = [
        environment.task(split, index, RlaifParams())
        for split in get_args(Split)
        for index in range(environment.size(split, RlaifParams()) or 0)
    ]
    wanted = json.loads(re.findall(r'`(\{"select": .*?\})`', page)[0])["select"]
    chosen = [task for task in tasks if all(task.metadata[key] in values for key, values in wanted.items())]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    roles = {role for _, told in rows for role in re.findall(r"`(\w+)`", told)}
    read_roles = {
        ConversationRow.model_validate({"messages": [{"role": role, "content": "a"}, {"role": "user", "content": "b"}]})
        .conversation[0]
        .role
        for role in roles | {"human"}
    }
    assert [(one.name, one.weight) for one in rubric] == [("brevity", 3.0), ("warmth", 1.0)]
    assert {task.metadata["topic"] for task in chosen} == set(wanted["topic"])
    assert ({name for name, _ in rows}, read_roles) == (
        {*ConversationRow.model_fields} - {"topic"},
        {*get_args(Speaker)},
    )
    languages = {task.metadata["language"] for task in tasks}
    several = sum(len(task.messages) > 1 for task in tasks)
    assert (round(len(tasks), -1), len(languages), round(len(tasks) / several)) == (320, 8, 7)


def test_categories_columns_and_limits_of_tool_calling() -> None:
    page = read("tool_calling")
    categories = re.findall(r"^\| `(\w+)` \| (?:one|several|some)", page, re.MULTILINE)
    columns = re.findall(r"^\| `(\w+)` \| (?:as |tools by|`\[)", page, re.MULTILINE)
    assert (set(categories), set(columns)) == ({*get_args(Category)}, {*ToolRow.model_fields})
    assert len([*ApiBook.read(APIS).list_tools()]) > 60
    limits = (f"more than {MOST_DIGITS} digits", f"up to {MOST_CHARACTERS} characters")
    assert [words for words in limits if words not in page] == []


def test_the_contract_of_retrievers_is_the_one_shown() -> None:
    page = read("retrieval")
    asked, answered = map(json.loads, list_blocks(page, "json")[:2])
    query = ContextQuery.model_validate(asked["query"])
    context = parse_answer(json.dumps(answered).encode())
    tables = [re.findall(r"^\| `(\w+)` \|", table.split("\n\n")[0], re.MULTILINE) for table in page.split("| says |\n")]
    assert query.model_fields_set == {*tables[1]} == {*ContextQuery.model_fields}
    assert {*answered} == {*tables[2]} == {*RetrieverAnswer.model_fields}
    assert context.model_fields_set == {*Context.model_fields} - {"failure", "opening"}


def test_the_first_lines_of_every_example_say_what_one_will_see() -> None:
    ladder = (ROOT / "examples" / "README.md").read_text(encoding="utf-8").split("\n## Files", 1)[0]
    heads = {
        name: " ".join((ROOT / "examples" / name).read_text(encoding="utf-8")[:900].split())
        for name in re.findall(r"examples/([\w/]+\.(?:py|sh|yaml))", ladder)
    }
    assert ([name for name, head in heads.items() if "You will see" not in head], heads != {}) == ([], True)


def test_the_tutorial_on_judges_quotes_the_check() -> None:
    row = re.compile(r"^\| ([^|]+) \| (\d\.\d{3}) \|(?: .* \|)? \**(passed|missed)\** \|$", re.MULTILINE)
    quoted, checked = row.findall(read("judge_tutorial")), row.findall(JUDGES)
    assert ([one for one in quoted if one not in checked], quoted != []) == ([], True)
