"""The report on fine-tuning: sources that are used, and figures of other pages."""

import re

from docs.parts.methods import read_rows
from tests.architecture.test_house import ROOT

PAGE = (ROOT / "docs" / "npc_finetuning_report.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"arXiv:\d{4}\.\d{5}|github:[\w.-]+/[\w.-]+ [\w./-]+\.md|card:[\w./-]+[\w-]")


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


def test_every_source_is_used_and_every_used_one_is_listed_and_leads_where_it_says() -> None:
    hosts = {"arXiv": "https://arxiv.org/abs/", "github": "https://github.com/", "card": "https://build.nvidia.com/"}
    listed = [re.fullmatch(r"\[(\w+):(\S+)(?: \S+)?\]\((https://\S+)\)", row[0]) for row in cells(section("Sources"))]
    used = SOURCE.findall(PROSE.split("\n## Sources\n")[0])
    assert [found[3] for found in listed if found] == [hosts[found[1]] + found[2] for found in listed if found]
    assert {SOURCE.findall(row[0])[0] for row in cells(section("Sources"))} == {*used}


def test_what_was_measured_is_what_its_pages_say() -> None:
    docs = {
        name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("characters", "judging", "judging_tradeoff", "train_tutorial")
    }
    judging = cells(docs["judging"])
    figures = {row[0]: [row[1], row[2], row[4]] for row in judging if len(row) == 6}
    kinds = {row[0]: [row[3], row[6]] for row in judging if len(row) == 7}
    ours = [row for row in cells(section("Measured with this project")) if row[0] in figures | kinds]
    assert ([row[1:] for row in ours], len(ours)) == ([(figures | kinds)[row[0]] for row in ours], 9)
    gates = re.findall(r"^\| (\w+), \w+ \| ([\d,]+) \| (\d+) \(", docs["characters"], re.MULTILINE)
    eights = docs["judging_tradeoff"].split("\n## Groups of 8:", 1)[1].split("\n## ", 1)[0]
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
    (told,) = re.findall(r"\*\*A tiny model's learning curve\*\*.*?\n\n", PROSE, re.DOTALL)
    known = re.findall(r"\d+(?:\.\d+)?", docs["train_tutorial"])
    assert [figure for figure in re.findall(r"\d+(?:\.\d+)?", told) if figure not in known] == []
