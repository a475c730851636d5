"""`sheets check` names file, line and field of what is wrong with a sheet."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue
from typer.testing import CliRunner

from app.characters.loading import BrokenYaml, parse_document, parse_model, read_sheet
from app.characters.lorebooks import mentions, normalise_spelling, split_words
from app.characters.scenes import SceneSet
from app.characters.sheet_checks import SheetCheckContext, build_check_context, build_surroundings, check_sheets
from app.cli.main import cli
from app.toolkit.templates import find_packaged_folder
from tests.support.packaged_arena import packaged_arena
from tests.support.tables import read_table

TEXT = (find_packaged_folder("character_sheets") / "hob_tarrant.yaml").read_text(encoding="utf-8")
OTHERS = [sheet for sheet in packaged_arena().sheets if sheet.id != "hob_tarrant"]
RUN = CliRunner()


def line(fragment: str, text: str = TEXT) -> int:
    return next(number for number, one in enumerate(text.splitlines(), start=1) if fragment in one)


def found(
    folder: Path, text: str, scenes: Sequence[SceneSet] = (), gates: frozenset[str] = frozenset()
) -> list[tuple[int, str, str, str]]:
    path = folder / "hob_tarrant.yaml"
    path.write_text(text, encoding="utf-8")
    checked = check_sheets([path], build_check_context(scenes, gates, OTHERS))
    assert {finding.file for finding in checked.findings} <= {str(path)}
    return [(one.line, one.field, one.level, one.message) for one in checked.findings]


def test_what_ships_is_without_fault() -> None:
    ran = RUN.invoke(cli, ["sheets", "check", "--strict"])
    assert (ran.exit_code, "0 errors, 0 warnings" in ran.output) == (0, True), ran.output


TABLES = read_table(__file__, "broken_sheets.yaml", tuple[tuple[str, str, str, str, str], ...])


@pytest.mark.parametrize(("old", "new", "place", "field", "says"), TABLES)
def test_a_broken_sheet_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, place: str, field: str, says: str
) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    where, named, level, message = found(tmp_path, text)[0]
    assert (named, level, says in message, where > 0) == (field, "error", True, True), message
    assert not place or where == line(place, text)


def test_at_most_fifty_findings_are_told_of_a_file(tmp_path: Path) -> None:
    told = found(tmp_path, TEXT + "".join(f"unknown_{number}: 1\n" for number in range(3000)))
    assert [len(told), *(one[2:] for one in told if not one[1])] == [50, ("error", "2951 more, which are not listed")]


def test_times_of_day_are_texts() -> None:
    """YAML 1.1 reads `12:30` as 750, and works at a long one for hours."""
    document = parse_document(f"[12:30, 1:59:59, 3:20.5, {'1:' * 20_000}1, 12, 1_000, 0x1f, 1.5, -.inf0]", "times.yaml")
    assert document.value == ["12:30", "1:59:59", "3:20.5", f"{'1:' * 20_000}1", 12, 1000, 31, 1.5, "-.inf0"]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = TEXT.replace("stance: good", "stance: odd").replace("max_words: 40", "max_words: 4")
    assert [one[:3] for one in found(tmp_path, text)] == [
        (line("stance: odd", text), "core.stance", "error"),
        (line("max_words: 4", text), "output.max_words", "error"),
    ]


def test_a_leak_term_that_the_prompt_says_anyway_is_an_error(tmp_path: Path) -> None:
    first = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml").secrets[0].leak_terms[0]
    text = TEXT.replace(f"leak_terms: [{first}", f"leak_terms: [TARRED hands, {first}", 1)
    assert found(tmp_path, text) == [
        (
            line("leak_terms:", text),
            "secrets.0.leak_terms.0",
            "error",
            "'TARRED hands' occurs in identity.appearance, which the policy sees",
        )
    ]


def test_lines_of_the_sheet_keep_its_rules(tmp_path: Path) -> None:
    text = TEXT.replace('reply: "Pays late."', 'reply: "Certainly. ' + "mud " * 60 + '"')
    at = line("Certainly.", text)
    assert found(tmp_path, text) == [
        (at, "voice.examples.2.reply", "error", "uses 'certainly', which is in voice.forbidden_words"),
        (at, "voice.examples.2.reply", "warning", "has 61 words, output.max_words allows 40"),
    ]


def test_what_is_doubtful_is_a_warning(tmp_path: Path) -> None:
    head, rest = TEXT.split("  counter_examples:\n")
    text = head + rest[rest.index("knowledge:\n") :]
    text = text.replace("leak_terms: [", "leak_terms: [ox, ", 1)
    text = text.replace("leak_terms: [ox, ", "leak_terms: [ox, trams, if ye, if ye drowned, ", 1)
    scenes = parse_model(
        "character: hob_tarrant\nscenes:\n - {id: a, kind: voice, split: train, player: Hello}", "x.yaml", SceneSet
    )
    warned = found(tmp_path, text, [scenes])
    assert sorted((field, level, message.partition(":")[0][:40]) for _, field, level, message in warned) == read_table(
        __file__, "doubtful_findings.yaml", list[tuple[str, ...]]
    )


def test_pointers_lead_to_the_same_world_and_to_gates_that_exist(tmp_path: Path) -> None:
    text = TEXT.replace("relationships:\n", (
        "relationships:\n"
        "  - {target: Nobody, target_id: nobody, type: t, attitude: a, trust: 0}\n"
        "  - {target: Ruth, target_id: ruth_kesel, type: t, attitude: a, trust: 0}\n"
        "  - {target: Ruth, target_id: ruth_kessel, type: t, attitude: a, trust: 0}\n"
    ))  # fmt: skip
    text += "gates:\n  disabled: [overlong, too_loud]\n"
    assert [one[1:] for one in found(tmp_path, text, gates=frozenset({"overlong"}))] == [
        ("relationships.0.target_id", "warning", "there is no sheet 'nobody'"),
        ("relationships.1.target_id", "warning", "there is no sheet 'ruth_kesel'; did you mean 'ruth_kessel'?"),
        ("relationships.2.target_id", "error", "'ruth_kessel' lives in another world, 'port_lorne'"),
        ("gates.disabled.1", "error", "there is no gate 'too_loud'"),
    ]


def test_an_id_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = [tmp_path / "hob_tarrant.yaml", tmp_path / "other" / "hob_tarrant.yaml"]
    for path in paths:
        path.write_text(TEXT, encoding="utf-8")
    (finding,) = [one for one in check_sheets(paths, SheetCheckContext()).findings if one.level == "error"]
    shown = (finding.file, finding.field, finding.message)
    assert shown == (str(paths[1]), "meta.id", f"is already used by {paths[0]}")


def test_the_command_tells_programs_the_same(tmp_path: Path) -> None:
    path = tmp_path / "hob_tarrant.yaml"
    path.write_text(TEXT.replace("stance: good", "stance: odd"), encoding="utf-8")
    ran = RUN.invoke(cli, ["sheets", "check", "--json", str(path)])
    report: dict[str, JsonValue] = json.loads(ran.output)
    shown = RUN.invoke(cli, ["sheets", "check", str(tmp_path)])
    assert (ran.exit_code, shown.exit_code, report["sheets"], report["errors"]) == (1, 1, 0, 1)
    assert f"error, line {line('stance: good')}: core.stance: " in shown.output
    nothing = tmp_path / "empty"
    nothing.mkdir()
    assert RUN.invoke(cli, ["sheets", "check", str(nothing)]).exit_code == 2


@pytest.mark.parametrize(
    ("path", "expected"),
    [(("a",), 1), (("a", 1), 3), (("a", 1, "b"), 4), (("a", 1, "c"), 3), (("d",), 1), (("a", 9), 1)],
)
def test_a_missing_part_is_where_what_would_hold_it_is(path: tuple[int | str, ...], expected: int) -> None:
    assert parse_document("a:\n  - 1\n  - x: 2\n    b: 3\n", "x.yaml").find_line(path) == expected


@pytest.mark.parametrize(("text", "where"), [("a: 1\nb: [\n", 3), ("a: *b\n", 1), ("a: 1\nb: .nan\n", None)])
def test_broken_yaml_says_where(text: str, where: int | None) -> None:
    with pytest.raises(BrokenYaml) as caught:
        parse_document(text, "x.yaml")
    assert caught.value.line == where


def test_terms_are_found_as_whole_words() -> None:
    text = normalise_spelling("Don’t touch — the ﬁrst Bridge!")
    assert [mentions(text, term) for term in ("don't touch", "FIRST bridge", "bridg", "", "—")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert len(split_words("Don't touch—it.")) == 3


BARE = """
meta: {schema_version: 1, id: hob_tarrant, licence: MIT, genre: fantasy, world: marsh, summary: A ferryman.}
identity: {name: Hob}
"""


def test_a_sheet_that_says_nothing_cannot_be_judged_and_one_that_says_little_is_only_doubtful(tmp_path: Path) -> None:
    bare = [(field, level) for _, field, level, _ in found(tmp_path, BARE)]
    told = [(field, level) for _, field, level, _ in found(tmp_path, BARE + "core: {description: A ferryman.}\n")]
    doubts = read_table(__file__, "sparse_findings.yaml", list[tuple[str, str]])
    assert (sorted(bare), sorted(told)) == (sorted([("core", "error"), *doubts]), sorted(doubts))


def test_a_leak_term_in_the_characters_own_lorebook_is_an_error(tmp_path: Path) -> None:
    term = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml").secrets[0].leak_terms[0]
    book = f"lorebook: {{entries: [{{id: a, keys: [mud], content: 'They say {term}.'}}]}}\n"
    assert [(field, level, message) for _, field, level, message in found(tmp_path, TEXT + book)] == [
        ("secrets.0.leak_terms.0", "error", f"{term!r} occurs in lorebook.entries.0.content, which the policy sees")
    ]


def test_a_lorebook_that_cannot_be_searched_is_an_error(tmp_path: Path) -> None:
    text = TEXT + "lorebook: {entries: [{id: a, keys: ['(?=x)'], regex: true, content: x}]}\n"
    ((_, field, level, message),) = found(tmp_path, text)
    assert (field, level, "lorebook.entries[0].keys[0]: RE2 cannot use this pattern" in message) == ("", "error", True)


def test_a_sheet_is_checked_beside_the_words_of_all_others_and_not_of_its_former_self() -> None:
    """Each once, however many characters say it."""

    def show(context: SheetCheckContext) -> tuple[set[str], dict[str, list[str]]]:
        return {*context.worlds}, {language: sorted(words.split()) for language, words in context.words.items()}

    surroundings = build_surroundings((), (), packaged_arena().sheets)
    assert show(surroundings.leave_out({"hob_tarrant", "nobody"})) == show(build_check_context((), (), OTHERS))
