"""Documentation that is generated is up to date, and complete."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from app.domain.scores import REASON_WORDS, Reason
from app.http.viewer.rendering import DOCS
from app.settings import PREFIX, Settings, read_settings
from docs.generate import PARTS, ROOT, main, pages
from docs.markdown import fenced, filled, names_in, table
from docs.parts.commands import iterate_commands
from docs.parts.flags import GROUP_FLAGS, SCORE_FLAGS
from docs.parts.http import METHODS, openapi
from docs.parts.settings import gateway_yaml

pytestmark = pytest.mark.xdist_group("generated")

WORD = re.compile(r"[a-z]+(_[a-z]+)*")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def leads_somewhere(page: Path, link: str, anchor: str) -> bool:
    target = page.parent / link if link else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


def anchors(page: str) -> set[str]:
    """Of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {link for link, _ in LINK.findall(index) if "/" not in link and link.endswith(".md")}
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_links_lead_somewhere() -> None:
    """Also those into the repository, which the site leaves alone."""
    found = {(path, *link) for path, page in pages().items() for link in LINK.findall(page) if "://" not in link[0]}
    assert [one for one in sorted(found) if not leads_somewhere(ROOT / one[0], *one[1:])] == []


def test_pages_of_the_viewer_lead_to_documentation_that_is_there() -> None:
    templates = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("app/**/templates/*.html"))]
    named = re.findall(
        r"\{% set docs = (.*?) %\}|\{\{ docs_at \}\}/([^\"{]+)|docs \| default\((.*?)\)", "".join(templates)
    )
    links = {link for part in named for link in re.findall(r"([\w-]+\.md)(?:#([\w-]+))?", " ".join(part))}
    assert [one for one in sorted(links) if not leads_somewhere(ROOT / "docs" / "README.md", *one)] == []
    assert {("talk.md", "name-the-policies"), ("viewer.md", "")} <= links
    assert (
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"] == DOCS
    )


def test_what_is_generated_is_up_to_date_and_each_part_is_on_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    """`make format` writes it."""
    assert (main(["--check"]), capsys.readouterr().out) == (0, "")
    assert sorted(name for page in pages().values() for name in names_in(page)) == sorted(PARTS)


def test_what_is_stale_is_shown_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.generate.FILES", {})
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# Reasons\n<!-- generated: reasons -->\nold\n<!-- end -->\n", encoding="utf-8")
    codes = [main(["--check"], tmp_path), main([], tmp_path), main(["--check"], tmp_path)]
    assert (codes, "-old" in capsys.readouterr().out, "judge_failed" in page.read_text(encoding="utf-8")) == (
        [1, 0, 0],
        True,
        True,
    )


def test_only_what_is_marked_is_replaced() -> None:
    page = "a\n<!-- generated: one -->\nold\n<!-- end -->\nb\n<!-- generated: two -->\n<!-- end -->\n"
    assert filled(page, {"one": "1\n", "two": r"\1"}) == (
        "a\n<!-- generated: one -->\n1\n<!-- end -->\nb\n<!-- generated: two -->\n\\1\n<!-- end -->\n"
    )
    with pytest.raises(KeyError, match="two"):
        filled(page, {"one": ""})
    assert table(("a", "b"), [("x|y", "two\nlines")]) == "| a | b |\n| --- | --- |\n| x\\|y | two lines |"
    assert fenced("```sh\nls\n```") == "````text\n```sh\nls\n```\n````"


def test_the_example_sets_every_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(gateway_yaml(), encoding="utf-8")
    monkeypatch.setenv(PREFIX + "SETTINGS", str(file))
    read = read_settings()
    members: list[BaseModel] = [*read.judges.values(), *read.environments.values()]
    assert read.model_fields_set == set(Settings.model_fields)
    assert [one.model_fields_set for one in members] == [set(type(one).model_fields) for one in members]
    assert [Settings.model_fields[name].default for name in ("host", "port")] == [read.host, read.port]


def test_every_reason_is_explained() -> None:
    assert sorted(REASON_WORDS) == sorted(get_args(Reason))


def flags_in(module: ast.Module) -> Iterator[str]:
    """Words that the module gives or looks for as flags."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=words) if "flags" in name:
                yield from _words(words)
            case ast.Call(func=ast.Attribute(attr="gated"), args=words):
                yield from _words(words)
            case (
                ast.keyword(arg="flags" | "confirmed", value=value)
                | ast.Dict(keys=[ast.Constant(value="flags")], values=[value])
            ):
                yield from _words([value])
            case ast.Compare(left=left, comparators=[ast.Attribute(attr="flags")]):
                yield from _words([left])
            case ast.Assign(targets=[ast.Name(id="flags")], value=ast.Dict(keys=keys)):
                yield from _words([key for key in keys if key is not None])
            case (
                ast.Assign(targets=[ast.Name(id="flags" | "own")], value=value)
                | ast.AnnAssign(target=ast.Name(id="flags"), value=ast.expr() as value)
                | ast.Call(func=ast.Name(id="Reading"), args=[_, _, value])
                | ast.Call(func=ast.Name(id="Committed"), args=[_, value])
            ):
                yield from _words([value])
            case ast.Return(value=ast.Tuple(elts=[ast.Starred(value=ast.Name(id="flags")), *words])):
                yield from _words(words)


def _words(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(word)) if WORD.fullmatch(word):
                yield word
            case ast.Tuple(elts=inner) | ast.List(elts=inner):
                yield from _words(inner)
            case ast.IfExp(body=body, orelse=orelse):
                yield from _words([body, orelse])


def test_the_flags_that_the_code_sets_are_the_flags_that_are_explained() -> None:
    modules = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "app").rglob("*.py")]
    assert {flag for module in modules for flag in flags_in(module)} == {*GROUP_FLAGS, *SCORE_FLAGS}


def test_the_stored_surface_has_no_examples_and_no_ids() -> None:
    text = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert re.findall(r'"(?:task|lease|group)_[0-9a-f]{32}"', text) == []


def test_every_operation_has_a_summary_and_a_problem_for_every_refusal() -> None:
    paths = openapi()["paths"]
    assert isinstance(paths, dict)
    operations = [
        (f"{method} {path}", operation)
        for path, item in paths.items()
        if isinstance(item, dict)
        for method, operation in item.items()
        if method in METHODS and isinstance(operation, dict)
    ]
    silent = [name for name, operation in operations if not operation.get("summary")]
    plain = [
        f"{name}: {status}"
        for name, operation in operations
        if isinstance(responses := operation["responses"], dict)
        for status, response in responses.items()
        if status >= "400"
        and not any(shape in str(response) for shape in ("application/problem+json", "schemas/RewardRefusal"))
    ]
    assert (silent, plain) == ([], [])


def test_every_command_and_option_says_what_it_is_for() -> None:
    page = pages()["docs/commands.md"]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    shown = [one.name for one in iterate_commands()]
    assert {f"### {name}" for name in shown} <= set(page.splitlines())
    assert [row for row in rows if not row[-1].strip(" |")] == []
