"""The report on fine-tuning: every figure has its source, every judgement its mark, every method the same parts."""

import re
from collections.abc import Mapping

import pytest

from app.envs.npc_arena.environment import NpcArena
from docs.parts.methods import COSTS, add_grades, read_rows
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "npc_finetuning_report.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
MARK = "†"
METHODS = {
    "Prompting": "prompting",
    "Few-shot examples": "few-shot",
    "Retrieval": "retrieval",
    "Full supervised fine-tuning": "full fine-tuning",
    "Domain-specific data": "domain-specific data",
    "Distillation": "distillation",
    "Context distillation": "context distillation",
    "Rejection sampling": "rejection sampling",
    "LoRA and QLoRA": "LoRA, QLoRA",
    "Adapters": "adapters",
    "Prefix tuning": "prefix tuning",
    "Prompt tuning": "prompt tuning",
    "Retrieval with parameter-efficient tuning": "retrieval with tuning",
    "DPO, IPO, ORPO and SimPO": "DPO and kin",
    "KTO": "KTO",
    "RLHF": "RLHF",
    "GRPO and RLOO": "GRPO, RLOO",
    "RLAIF and constitutional methods": "RLAIF, constitutional",
    "Self-play": "self-play",
    "Persona vectors": "persona vectors",
}
"""Those that were asked for, with their names in the table."""

PARTS = ("Changes", "Needs", "Reported", "Does well", "Does badly")
UNMARKED = ("Changes",)
"""What a method is, is told without a source."""

SOURCE = re.compile(r"arXiv:\d{4}\.\d{5}|github:[\w.-]+/[\w.-]+ [\w./-]+\.md|card:[\w./-]+[\w-]")
OURS = re.compile(r"\]\((?:judging|environments|characters|worlds|trl)\.md[^)]*\)")
"""What is ours is told by a page of ours, whose figures are generated or tested."""

FIGURE = re.compile(
    r"(?<![\w.-])(?:\d+(?:\.\d+)? (?:%|GB|MB|BLEU|times|points|minutes|scenes|calls|bits|of \d+)"
    r"|\d+\.\d+(?![\w.])|\d{1,3}(?:,\d{3})+)"
)
SENTENCE = re.compile(r"(?<=[.:?]†)\s+|(?<=[.?])\s+(?=[A-Z*\[`])|;(?:†)?\s+(?=[a-z])")
LIMIT = 5_000


def section(heading: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    level = re.search(rf"^(#+) {re.escape(heading)}$", PROSE, re.MULTILINE)
    assert level is not None, heading
    return re.split(rf"^#{{1,{len(level[1])}}} ", PROSE[level.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def parts(heading: str) -> dict[str, str]:
    found = re.findall(r"^- \*\*(.+?)\*\*(.*?)(?=^- \*\*|^$|\Z)", section(heading), re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def sentences(text: str) -> list[str]:
    return [" ".join(one.split()) for one in SENTENCE.split(text) if one.strip()]


def cells(text: str) -> list[list[str]]:
    """Rows of the tables in a text, their heads left out."""
    rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    ruled = [number for number, row in enumerate(rows) if set("".join(row)) <= set("-| ")]
    return [row for number, row in enumerate(rows) if number not in ruled and number + 1 not in ruled]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_told_in_the_same_parts(method: str) -> None:
    assert tuple(parts(method)) == PARTS
    whole = PAGE.split(f"\n### {method}\n")[1].split("\n#")[0]
    assert whole.count("```sh\n") == 1


def test_the_methods_are_those_that_were_asked_for() -> None:
    assert re.findall(r"^### (.+)$", PROSE, re.MULTILINE) == list(METHODS)
    assert [row[0] for row in cells(section("Compared"))] == list(METHODS.values())


@pytest.mark.parametrize("method", METHODS)
def test_what_is_said_of_a_method_has_a_source_or_the_mark(method: str) -> None:
    said = {name: text for name, text in parts(method).items() if name not in UNMARKED}
    wholes = [one for text in said.values() for one in re.split(r"(?<=\.†)\s+|(?<=\.)\s+(?=[A-Z])", text)]
    assert [one for one in wholes if not SOURCE.search(one) and MARK not in one] == []


def test_every_figure_has_its_source_beside_it() -> None:
    """Outside the tables and what we measured ourselves; of a table it is the row that has to have it."""
    text = PROSE.split("\n## Measured with this project\n")[0].split("\n## ", 1)[1]
    running = sentences(re.sub(r"^\|.*$", "", text, flags=re.MULTILINE))
    tables = [" | ".join(row[1:]) for row in cells(text)]
    figures = [one for one in [*running, *tables] if FIGURE.search(SOURCE.sub("", one))]
    assert len(figures) > 25
    assert [one for one in figures if not (SOURCE.search(one) or OURS.search(one) or MARK in one)] == []


def test_a_figure_without_a_source_is_noticed() -> None:
    said = sentences(
        "It took 32 GB (github:a/b README.md). It rose by 55 %. Others by 1.5; one of 7B by 3.† GPT-4 fell."
    )
    assert [one for one in said if FIGURE.search(one)] == [
        "It took 32 GB (github:a/b README.md).",
        "It rose by 55 %.",
        "Others by 1.5",
    ]


def test_every_source_is_used_and_every_used_one_is_listed() -> None:
    listed = [SOURCE.findall(row[0])[0] for row in cells(section("Sources"))]
    used = SOURCE.findall(PROSE.split("\n## Sources\n")[0])
    assert listed == sorted(set(listed), key=lambda name: (not name.startswith("arXiv"), name.startswith("card"), name))
    assert set(used) == set(listed)


def test_sources_lead_to_what_they_name() -> None:
    for name, title, taken in cells(section("Sources")):
        found = re.fullmatch(r"\[(\S+)(?: \S+)?\]\((https://\S+)\)", name)
        assert found is not None, name
        kind, which = found[1].split(":")
        expected = {
            "arXiv": "https://arxiv.org/abs/",
            "github": "https://github.com/",
            "card": "https://build.nvidia.com/",
        }
        assert (found[2], bool(title), bool(taken)) == (expected[kind] + which, True, True)


def test_grades_are_those_of_the_legend() -> None:
    assert {grade for row in cells(section("Compared")) for grade in row[1:6]} == {"++", "+", "0", "-"}
    assert {len(row) for row in cells(section("Compared"))} == {8}


def test_advice_is_marked_as_ours() -> None:
    advice = [cell for row in cells(section("What to choose")) for cell in row[1:]]
    assert [cell for cell in advice if not cell.endswith(MARK)] == []


def test_what_was_measured_is_what_the_page_on_judging_shows() -> None:
    judging = cells((ROOT / "docs" / "judging.md").read_text(encoding="utf-8"))
    figures = {row[0]: [row[1], row[2], row[4]] for row in judging if len(row) == 6}
    kinds = {row[0]: [row[3], row[6]] for row in judging if len(row) == 7}
    ours = [row for row in cells(section("Measured with this project")) if row[0] in figures | kinds]
    assert [row[1:] for row in ours] == [(figures | kinds)[row[0]] for row in ours]
    assert len(ours) == 9


def test_every_criterion_has_its_reason() -> None:
    assert NpcArena.rubric is not None
    reasons = section("Why the criteria are these")
    assert [one.name for one in NpcArena.rubric.criteria if f"`{one.name}`" not in reasons] == []


def test_the_learning_curve_is_the_one_of_its_page() -> None:
    curve = (ROOT / "docs" / "train_tutorial.md").read_text(encoding="utf-8")
    (told,) = re.findall(
        r"\*\*A tiny model's learning curve\*\*.*?\n\n", section("Measured with this project"), re.DOTALL
    )
    figures = re.findall(r"\d+(?:\.\d+)?", told)
    assert len(figures) == 6
    assert [figure for figure in figures if figure not in re.findall(r"\d+(?:\.\d+)?", curve)] == []


def test_it_is_read_in_twenty_minutes() -> None:
    assert len(re.findall(r"\S*\w\S*", PROSE)) <= LIMIT


def test_the_catalogue_leads_to_it() -> None:
    catalogue = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    entry = catalogue.split("\n## npc_arena\n")[1].split("\n## ")[0]
    assert "](npc_finetuning_report.md)" in entry


def test_the_drawing_holds_every_method_of_the_table_once() -> None:
    drawn = re.findall(r">([^<]+)</text>", (ROOT / "docs" / "pictures" / "methods.svg").read_text(encoding="utf-8"))
    assert [name for name in drawn if not re.fullmatch(r"[+-]?\d", name) and name not in COSTS.values()] == [
        row["method"] for row in sorted(read_rows("Compared", "method"), key=order_in_drawing)
    ]


def order_in_drawing(row: Mapping[str, str]) -> tuple[int, int, str]:
    columns = list(dict.fromkeys(COSTS.values()))
    return -add_grades(row), columns.index(COSTS[row["hardware to train"]]), row["method"]


def test_what_else_was_measured_is_what_its_pages_say() -> None:
    docs = {
        name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("characters.md", "judging_tradeoff.md")
    }
    gates = re.findall(r"^\| (\w+), \w+ \| ([\d,]+) \| (\d+) \(", docs["characters.md"], re.MULTILINE)
    eights = docs["judging_tradeoff.md"].split("\n## Groups of 8:", 1)[1].split("\n## ", 1)[0]
    four, one = (
        re.findall(rf"^\| mild \| ours, {way} \| ([\d.]+) ", eights, re.MULTILINE)[0]
        for way in ("at most 4 readings", "1 reading")
    )
    distinct = re.findall(r"ship, ([\d,]+) are distinct", (ROOT / "docs" / "results.md").read_text("utf-8"))
    assert [row["figure"] for row in read_rows("Measured with this project", "question")] == [
        ", ".join(f"{name} {gated} of {count}" for name, count, gated in gates if name != "ships"),
        *distinct,
        f"r {four} over {one}",
    ]
