"""The report on fine-tuning: figures of other pages."""

import re

from docs.parts.methods import read_rows
from tests.architecture.test_house import ROOT

PAGE = (ROOT / "docs" / "npc_finetuning_report.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    level = re.search(rf"^(#+) {re.escape(heading)}$", PROSE, re.MULTILINE)
    assert level is not None, heading
    return re.split(rf"^#{{1,{len(level[1])}}} ", PROSE[level.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def cells(text: str) -> list[list[str]]:
    """Rows of the tables in a text, their heads left out."""
    rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")] for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    ruled = [number for number, row in enumerate(rows) if set("".join(row)) <= set("-| ")]
    return [row for number, row in enumerate(rows) if number not in ruled and number + 1 not in ruled]


def test_what_was_measured_is_what_its_pages_say() -> None:
    docs = {
        name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("characters", "judging", "judge_reference", "results", "train_tutorial")
    }
    judging = cells(docs["judging"] + docs["judge_reference"])
    figures = {row[0]: [row[1], row[2], row[4]] for row in judging if len(row) == 6}
    kinds = {row[0]: [row[3], row[6]] for row in judging if len(row) == 7}
    ours = [row for row in cells(section("Measured with this project")) if row[0] in figures | kinds]
    assert ([row[1:] for row in ours], len(ours)) == ([(figures | kinds)[row[0]] for row in ours], 9)
    gates = re.findall(r"^\| (\w+), \w+ \| ([\d,]+) \| (\d+) \(", docs["characters"], re.MULTILINE)
    ((four, one),) = re.findall(r"r is ([\d.]+) with at most four readings, ([\d.]+) with one", docs["results"])
    distinct = re.findall(r"ship, ([\d,]+) are distinct", docs["results"])
    assert [row["figure"] for row in read_rows("Measured with this project", "question")] == [
        ", ".join(f"{name} {gated} of {count}" for name, count, gated in gates if name != "ships"),
        *distinct,
        f"r {four} over {one}",
    ]
    (told,) = re.findall(r"\*\*A tiny model's learning curve\*\*.*?\n\n", PROSE, re.DOTALL)
    known = re.findall(r"\d+(?:\.\d+)?", docs["train_tutorial"])
    assert [figure for figure in re.findall(r"\d+(?:\.\d+)?", told) if figure not in known] == []
