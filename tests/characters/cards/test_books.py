"""Lorebooks of other tools: what each field becomes, what is only kept, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import JsonValue

from app.characters.cards.fields import ImportReport
from app.characters.cards.formats import MOST_ENTRIES, is_foreign_book
from app.characters.cards.lorebooks import ORIGINAL, read_lorebook, write_lorebook
from app.domain.errors import GatewayError
from app.domain.values import Frozen
from app.domain.worlds import Lorebook, LoreEntry
from tests.support.cards import Fields
from tests.support.tables import read_table

BOOKS, ODD, FOREIGN = (
    yaml.load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    for name in ("books", "odd_entries", "foreign")
)
ENTRY: dict[str, JsonValue] = read_table(__file__, "entry.yaml", dict[str, JsonValue])


def entry_of(**changes: JsonValue) -> LoreEntry:
    (entry,) = read({"entries": [{**ENTRY, **changes}]})[0].entries
    return entry


def read(value: JsonValue) -> tuple[Lorebook, ImportReport]:
    return read_lorebook(value)


def kept(value: JsonValue) -> list[tuple[str, str]]:
    return [(one.field, one.why) for one in read(value)[1].kept]


def refusal(value: JsonValue) -> tuple[str, str | None]:
    with pytest.raises(GatewayError) as caught:
        read_lorebook(value)
    return caught.value.detail, caught.value.field


def test_every_field_of_the_third_specification_is_read() -> None:
    value = BOOKS["third specification"]
    book, report = read(value)
    assert book == Lorebook.model_validate({**BOOKS["read"]["third specification"], "extensions": {ORIGINAL: value}})
    assert (report.source, [(one.field, one.why) for one in report.kept]) == (
        "lorebook V3",
        [("entries[].comment", "the entry has a name"), ("extensions", "not a lorebook field")],
    )


def test_world_info_is_read_by_its_own_names() -> None:
    value = BOOKS["world info"]
    book, report = read(value)
    assert book.entries == Lorebook.model_validate(BOOKS["read"]["world info"]).entries
    assert (report.source, {one.field for one in report.kept}) == (
        "world info",
        {"entries[].extensions.vectorized", "entries[].extensions.sticky"},
    )


@pytest.mark.parametrize("case", ODD, ids=lambda case: str(case["given"]))
def test_an_odd_value_is_read_as_what_it_means_or_left_out(case: dict[str, Any]) -> None:
    plain: Fields = {"keys": ["ferry"], "secondary_keys": ["ox"], "selective": True, "content": "No oxen."}
    place = {"enabled", "disable", "constant", "insertion_order", "order", "content", "name", "keys", "secondary_keys"}
    own = {name: value for name, value in case["given"].items() if name in place}
    settings = {name: value for name, value in case["given"].items() if name not in place}
    becomes = LoreEntry.model_validate({**read({"entries": [plain]})[0].entries[0].model_dump(), **case["becomes"]})
    field = str(case.get("field", next(iter(case["given"]))))
    # beside the card's fields, and among the extensions
    for given in ({**plain, **own, **settings}, {**plain, **own, "extensions": settings}):
        book, report = read({"entries": [given]})
        said = ([one.how for one in report.mended], [one.why for one in report.dropped])
        expected = ([case["mended"]] if "mended" in case else [], [case["dropped"]] if "dropped" in case else [])
        assert (book.entries[0], set(said[0]), said[1]) == (becomes, set(expected[0]), expected[1]), field


class Tables(Frozen):
    """The tables of lorebooks.yaml, which says what each holds."""

    nulls: tuple[tuple[dict[str, JsonValue], dict[str, object]], ...]
    decorators: tuple[tuple[str, dict[str, object]], ...]
    patterns: tuple[tuple[str, str | None], ...]
    refused: tuple[tuple[JsonValue, str], ...]
    foreign: tuple[tuple[dict[str, JsonValue], bool], ...]


TABLES = read_table(__file__, "lorebooks.yaml", Tables)


@pytest.mark.parametrize(("given", "becomes"), TABLES.nulls)
@pytest.mark.parametrize("keys", ["keys", "key"])  # in the card's form, and in that of world info
def test_a_setting_that_is_null_hides_none_elsewhere(
    keys: str, given: dict[str, JsonValue], becomes: dict[str, object]
) -> None:
    plain: dict[str, JsonValue] = {keys: ["ferry"], "content": "No oxen."}
    (entry,), (wanted,) = (read({"entries": [{**plain, **more}]})[0].entries for more in (given, {}))
    assert entry == wanted.model_copy(update=becomes)


@pytest.mark.parametrize("name", FOREIGN["lorebooks"])
def test_lorebooks_of_other_tools_are_read_by_their_names(name: str) -> None:
    case = FOREIGN["lorebooks"][name]
    book, report = read(case["file"])
    dropped = [f"{one.field}: {one.why}" for one in report.dropped]
    entries = tuple(map(LoreEntry.model_validate, case["entries"]))
    assert (book.entries, report.source, dropped) == (entries, name.partition(",")[0], case.get("dropped", []))
    assert read(write_lorebook(book))[0] == book


@pytest.mark.parametrize(
    ("book", "foreign"),
    [
        *((case["file"], True) for case in FOREIGN["lorebooks"].values() if isinstance(case["file"], dict)),
        *TABLES.foreign,
    ],
)
def test_what_is_no_book_of_ours_but_can_be_read_is_foreign(book: dict[str, JsonValue], foreign: bool) -> None:
    assert is_foreign_book(book) is foreign


def test_a_book_of_ours_is_taken_as_it_is() -> None:
    book = Lorebook(name="Ours", entries=(LoreEntry(id="a", content="b", keys=("c",)),))
    assert read(book.model_dump(mode="json")) == (book, ImportReport(source="lorebook"))


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        *TABLES.decorators,
        ("@@additional_keys mud, tide", {"secondary_keys": ("mud", "tide"), "logic": "and_any"}),
        ("@@exclude_keys mud,tide", {"secondary_keys": ("mud", "tide"), "logic": "not_any"}),
        ("@@additional_keys mud\n@@exclude_keys tide", {"secondary_keys": ("mud",)}),
    ],
)
def test_decorators_are_followed_where_an_entry_has_a_place_for_them(head: str, changes: dict[str, object]) -> None:
    plain = entry_of()
    assert entry_of(content=f"{head}\n\n{plain.content}") == plain.model_copy(update=changes)


def test_decorators_without_a_place_are_named() -> None:
    value: JsonValue = {"entries": [{**ENTRY, "content": "@@depth 4\n@@activate_only_after 3\n@@activate\nText"}] * 2}
    assert [(one.field, one.why, one.times) for one in read(value)[1].kept] == [
        ("entries[].content @@depth", "unsupported decorator", 2),
        ("entries[].content @@activate_only_after", "unsupported decorator", 2),
    ]


@pytest.mark.parametrize(
    "content", ["Text\n@@depth 4", "@ @depth", "@@", "@@1 x", "user@@example", "\n\nTwo lines down", ""]
)
def test_what_only_looks_like_a_decorator_is_content(content: str) -> None:
    assert entry_of(content=content).content == content


def test_patterns_between_slashes_make_patterns_of_their_neighbours() -> None:
    entry = entry_of(keys=["/fer+y/i", "a.b", ""], selective=True, secondary_keys=["c+"])
    assert (entry.regex, entry.keys, entry.secondary_keys) == (True, ("/fer+y/i", r"(?i)a\.b"), (r"(?i)c\+",))


def test_keys_of_decorators_are_patterns_among_patterns() -> None:
    entry = entry_of(keys=["/fer+y/"], content="@@additional_keys a.b, /c/\nText", case_sensitive=True)
    assert (entry.keys, entry.secondary_keys, entry.logic) == (("/fer+y/",), (r"a\.b", "/c/"), "and_any")


@pytest.mark.parametrize("switch", ["enabled", "disable"])
def test_an_entry_is_said_to_be_off_whose_switch_cannot_be_read(switch: str) -> None:
    value: JsonValue = {"entries": [{"keys": ["ferry"], "content": "No oxen.", switch: "maybe"}]}
    assert kept(value) == [(f"entries[].{switch}", "the entry is switched off: its switch is unclear")]


def test_what_an_entry_has_no_field_for_is_named() -> None:
    value: JsonValue = {"entries": [{**ENTRY, "unheard_of": 1, "extensions": {"position": 4, "role": 1, "group": ""}}]}
    assert kept(value) == read_table(__file__, "named_fields.yaml", list[tuple[str, str]])


@pytest.mark.parametrize(("key", "words"), [*TABLES.patterns, ("x" * 201, "longer than 200 characters")])
def test_patterns_run_in_linear_time_or_not_at_all(key: str, words: str | None) -> None:
    value: JsonValue = {"entries": [{**ENTRY, "keys": [key, "ox"], "use_regex": True, "constant": True}]}
    book, report = read(value)
    said = [one.why for one in report.kept if one.field == "entries[].keys"]
    assert (book.entries[0].keys, book.entries[0].constant) == ((key, "ox") if words is None else ("ox",), False)
    assert [words in why for why in said if words] == ([] if words is None else [True])


def test_a_book_belongs_to_nobody_so_that_a_name_stays_open() -> None:
    value: JsonValue = {"entries": [{**ENTRY, "content": "{{char}} owes {{user}} an ox. {{user}}'s ox. {{// note}}"}]}
    assert (read(value)[0].entries[0].content, kept(value)) == (
        "{{char}} owes the one before you an ox. their ox. ",
        [("entries[].content", "{{char}} is left unchanged")],
    )


def test_ids_are_told_apart_and_numbers_kept_within_bounds() -> None:
    given: list[JsonValue] = [
        {**ENTRY, "id": "a"},
        {**ENTRY, "id": "a"},
        {**ENTRY, "insertion_order": 1e300},
        {**ENTRY, "id": 3, "insertion_order": -2.5, "extensions": {"probability": 900, "scan_depth": -4}},
    ]
    book, _ = read({"entries": given, "scan_depth": 1e9, "token_budget": -1})
    assert [(one.id, one.order, one.probability, one.scan_depth) for one in book.entries] == [
        ("a", 7, 1.0, None),
        ("a-2", 7, 1.0, None),
        ("3", 1_000_000, 1.0, None),
        ("3-4", -2, 1.0, 0),
    ]
    assert (book.scan_depth, book.token_budget) == (1000, 0)


def test_an_entry_too_long_to_hold_is_named_and_kept() -> None:
    value: JsonValue = {"entries": [{**ENTRY, "content": "x" * 20_001}, ENTRY]}
    book, report = read(value)
    assert ([one.id for one in book.entries], book.extensions[ORIGINAL] == value) == (["2"], True)
    assert [one.why for one in report.kept] == ["the content is longer than 20000 characters"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        *TABLES.refused,
        ([{"uid": 1}] * (MOST_ENTRIES + 1), "the document"),
        ({"type": "risu", "data": [{}] * (MOST_ENTRIES + 1)}, "data"),
        ({"lorebook": {"entries": [{}] * (MOST_ENTRIES + 1)}}, "entries"),
        ({"entries": [{}] * (MOST_ENTRIES + 1)}, "entries"),
        ({"entries": {str(number): {} for number in range(MOST_ENTRIES + 1)}}, "entries"),
        ({"entries": {str(number): {} for number in range(20_001)}}, "entries"),
    ],
)
def test_what_is_no_lorebook_is_refused_by_its_field(value: JsonValue, field: str) -> None:
    detail, named = refusal(value)
    assert (named, detail.startswith(f"{field}: ")) == (field, True)


@pytest.mark.parametrize(("form", "used", "left"), [("a{{{}}}(?=", 0, 3900), ("a{}+", 1000, 3000)])
def test_patterns_without_end_are_not_even_compiled(form: str, used: int, left: int) -> None:
    keys: list[JsonValue] = [form.format(number) for number in range(4000)]
    book, report = read({"entries": [{**ENTRY, "keys": keys, "use_regex": True}]})
    said = {one.why: one.times for one in report.kept if one.field == "entries[].keys"}
    assert (
        len(book.entries[0].keys),
        said["a lorebook has at most 1000 keys that are patterns, and 100 of them broken"],
    ) == (used, left)
