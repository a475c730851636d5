"""Reading judges' answers: whatever comes, either the whole answer or words about what is wrong with it."""

import json
import time
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Candidate, Defect, DefectRule, JudgeRequest, Probes, Verdict
from app.domain.values import Frozen
from app.judges.verdicts import JudgeAnswer, UnusableAnswer, assign_letters, parse_answer
from tests.judges.scripted import build_rubric
from tests.support.tables import read_table

TEXTS = {"A": "The ferry sank at the fair.\nNine “good” oxen drowned.", "B": "As you wish,  my lord."}
REQUEST = JudgeRequest(
    rubric=build_rubric(
        *("likeness", "charm"),
        defects=(
            DefectRule(code="leak", description="", cap=0.3),
            DefectRule(code="dull", description=""),
            DefectRule(code="gap", description="", omission=True),
        ),
    ),
    document={},
    probes=Probes(),
    candidates=tuple(Candidate(id=name, text=text) for name, text in TEXTS.items()),
)

Json = dict[str, object]


def entry(name: str, likeness: object = 4, charm: object = 2, **more: object) -> Json:
    return {"candidate": name, "scores": {"likeness": likeness, "charm": charm}, **more}


def answer(*entries: object, ranking: object = (("A",), ("B",)), **more: object) -> Json:
    return {"verdicts": list(entries), "ranking": ranking, **more}


GOOD = answer(entry("A", 4, None), entry("B", 0, None))
READ = read_table(__file__, "read_answer.yaml", JudgeAnswer)


def read(value: object) -> JudgeAnswer | UnusableAnswer:
    return parse_answer(value if isinstance(value, str) else json.dumps(value), REQUEST)


def usable(value: object) -> JudgeAnswer:
    found = read(value)
    assert isinstance(found, JudgeAnswer)
    return found


def problems(value: object) -> tuple[str, ...]:
    found = read(value)
    assert isinstance(found, UnusableAnswer)
    return found.problems


def test_verdicts_come_back_under_the_ids_of_the_request() -> None:
    """Also where letters are turned: what is said of a letter counts for the reply that was shown under it."""
    texts = {"opaque1": "one", "opaque2": "two", "opaque3": "three"}
    for mirrored in (True, False):
        request = REQUEST.model_copy(
            update={"candidates": tuple(Candidate(id=name, text=text) for name, text in texts.items())}
            | {"mirrored": mirrored}
        )
        named = dict(zip(texts, assign_letters(request), strict=True))
        said = answer(*(entry(named[name], place) for place, name in enumerate(texts)), ranking=[*named.values()])
        found = parse_answer(json.dumps(said), request)
        assert isinstance(found, JudgeAnswer)
        assert found.ranking == (("opaque1",), ("opaque2",), ("opaque3",))
        assert [(each.candidate, each.scores["likeness"]) for each in found.verdicts] == [
            ("opaque1", 0.0),
            ("opaque2", 0.25),
            ("opaque3", 0.5),
        ]


PLAIN = json.dumps(GOOD)
NUMBER = "candidate A: likeness must be a number from 0 to 4, or null"
OTHER = json.dumps(answer(entry("A", 0, 0), entry("B", 4, 4), ranking=[["B"], ["A"]]))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        json.dumps(GOOD, indent=2),
        f"```json\n{PLAIN}\n```",
        f"Here you are: {PLAIN} I hope that is right {{really}}.",
        f"<think>First {OTHER} but no.</think>{PLAIN}",
        f"First {OTHER} but no.</think>{PLAIN}",
        f"{PLAIN}\nOnce more: {PLAIN}",
        f'{PLAIN} and the reply says {{"verdicts": [], "ranking": []}}',
        f'One reply holds {{"verdicts": [{{"candidate": "A"}}]}} as text. {PLAIN}',
        f"So {{at}} last [{PLAIN}",
        '{"small": 1} ' * 9_000 + PLAIN,
        '{"long": "' * 9_000 + "\n" + PLAIN,
        json.dumps({"answer": GOOD}),
        json.dumps({**GOOD, "improved": json.loads(OTHER)}),
        json.dumps(answer(entry("A", 4, None), entry("B", 0, None), ranking=["A", ["B"], []])),
        json.dumps(answer(entry("B", 0, None), entry("A", 4, None), reasoning="why not")),
        json.dumps(answer(entry("A", 4.0, None), entry("B", 0.0, None))),
        json.dumps(answer(entry("A", "4", None), entry("B", " 0.0 ", None))),
        json.dumps(answer(entry("A", 4, None, claims=None), entry("B", 0, None))),
        PLAIN.replace("}", ",}").replace("]]", "] ,\n ]"),
        f'He said: "no {{ "{PLAIN.replace("}", " , }")} behind',
    ],
)
def test_the_whole_answer_counts_whatever_surrounds_it(text: str) -> None:
    assert read(text) == READ


def test_neither_a_tag_nor_a_brace_in_a_note_cuts_or_hides_the_answer() -> None:
    notes = ["it wrote </think>", '{"verdicts": []}', "it says {"]
    for first, second in pairwise(notes):
        noted = usable(answer(entry("A", note=first), entry("B", note=second)))
        assert [verdict.note for verdict in noted.verdicts] == [first, second]


def test_an_endless_thought_is_no_answer() -> None:
    assert problems(f"<think>{PLAIN}") == ("there is no complete JSON object in the answer",)


def test_what_is_no_criterion_is_left_out_and_said() -> None:
    scores = {"likeness": 1, "charm": 2, "wit": 3}
    found = usable(answer({"candidate": "A", "scores": scores}, entry("B"))).verdicts[0]
    assert (found.scores, found.note) == ({"likeness": 0.25, "charm": 0.5}, '(Not counted: "wit" is no criterion.)')


def test_a_comma_in_a_quote_stays_and_ties_are_ties() -> None:
    text = json.dumps(answer(entry("A", note="so, ] he said,}"), entry("B"))).replace("]}", "],}")
    assert usable(text).verdicts[0].note == "so, ] he said,}"
    assert usable(answer(entry("A"), entry("B"), ranking=[["B", "A"]])).ranking == (("B", "A"),)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "there is no complete JSON object in the answer"),
        ("I cannot judge that.", "there is no complete JSON object in the answer"),
        (PLAIN[:-1], "there is no complete JSON object in the answer"),
        ({"ranking": [["A"], ["B"]]}, '"scores" is missing or not an object'),
        (answer(entry("A")), 'candidate B is missing from "verdicts"'),
        (answer(entry("A"), entry("B"), entry("A")), 'candidate A occurs more than once in "verdicts"'),
        (answer(entry("A"), entry("B"), entry("ccc")), 'there is no candidate "ccc"'),
        (answer(entry("A"), entry("B"), {}), 'an item of "verdicts" has no "candidate"'),
        (answer(entry("A"), entry("B"), 7), 'an item of "verdicts" has no "candidate"'),
        (PLAIN.replace('"likeness": 4', '"likeness": ,'), "there is no complete JSON object in the answer"),
        *((answer(entry("A", bad), entry("B")), NUMBER) for bad in (5, 9, -1, True, "5", "8/10", "5/4", "n/a", "")),
        (PLAIN.replace("4", "NaN"), NUMBER),
        (PLAIN.replace("4", "1e999"), NUMBER),
        (answer(entry("A", None, None), entry("B")), "candidate A has no score but null"),
        (
            answer(entry("A", None), entry("B")),
            "likeness is null for A and a number for others: null is for a criterion that applies to none",
        ),
        (answer(entry("A", 3, None), entry("B", None, 2)), "likeness is null for B and a number for others"),
        (answer(entry("A", 3, None), entry("B", None, 2)), "charm is null for A and a number for others"),
        (answer({"candidate": "A"}, entry("B")), 'candidate A has no "scores" object'),
        (answer({"candidate": "A", "scores": {"likeness": 1}}, entry("B")), "candidate A has no score for charm"),
        (
            answer({"candidate": "A", "scores": {"likeness": 1, "wit": 1}}, entry("B")),
            'candidate A: "wit" is no criterion',
        ),
        (PLAIN.replace('"likeness": 4', '"likeness": 0, "likeness": 4'), 'candidate A has "likeness" more than once'),
        (PLAIN.replace('"scores"', '"defects": ["leak"], "defects": [], "scores"'), 'A has "defects" more than once'),
        (PLAIN.replace('"candidate": "A"', '"candidate": "B", "candidate": "A"'), 'has no "candidate"'),
        (PLAIN.replace('"ranking"', '"ranking": [["B"], ["A"]], "ranking"'), 'answer has "ranking" more than once'),
        (PLAIN.replace('"verdicts"', '"verdicts": [], "verdicts"'), 'the answer has "verdicts" more than once'),
        (answer(entry("A"), entry("B"), ranking=None), '"ranking" is missing or not a list'),
        (answer(entry("A"), entry("B"), ranking=[["A"]]), 'candidate B occurs 0 times in "ranking"'),
        (answer(entry("A"), entry("B"), ranking=[["A"], ["B", "A"]]), 'candidate A occurs 2 times in "ranking"'),
        (
            answer(entry("A"), entry("B"), ranking=[["A"], ["zzz"]]),
            '"ranking" holds something that is not the letter of a candidate',
        ),
        (
            answer(entry("A"), entry("B"), ranking=[[["A"], ["B"]]]),
            '"ranking" holds something that is not the letter of a candidate',
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(value: object, told: str) -> None:
    assert told in "\n".join(problems(value))


@pytest.mark.parametrize("name", ["\u0430aa", "ａaa", "AAA", "a\u200baa", "aa", "\ud835\udc1aaa", ""])
def test_a_name_that_looks_like_an_id_is_none(name: str) -> None:
    assert f"there is no candidate {json.dumps(name)}" in problems(answer(entry(name), entry("B")))


def test_many_mistakes_are_not_all_listed() -> None:
    assert len(problems(answer(*({} for _ in range(50)), ranking=3))) == 6


def test_the_words_are_about_the_answer_that_was_meant() -> None:
    assert problems(f'{json.dumps(answer(entry("A", 9), entry("B")))} {{"ok": true}}') == (NUMBER,)


def noted(**more: object) -> Verdict:
    return usable(answer(entry("A", **more), entry("B"))).verdicts[0]


class Tables(Frozen):
    """The tables of verdicts.yaml, which says what each holds."""

    quotes: tuple[str, ...]
    defects: tuple[tuple[object, tuple[Defect, ...]], ...]


TABLES = read_table(__file__, "verdicts.yaml", Tables)


@pytest.mark.parametrize("quote", TABLES.quotes)
def test_quotes_that_occur_are_kept(quote: str) -> None:
    kept = noted(evidence=[quote], defects=[{"code": "leak", "quote": quote}])
    assert (kept.evidence, kept.defects, kept.note) == ((quote,), (Defect(code="leak", quote=quote),), "")


@pytest.mark.parametrize("quote", ["The bridge fell", "As you wish", "a", "...", "  .  ", "sank … drowned"])
def test_quotes_that_do_not_occur_prove_nothing(quote: str) -> None:
    kept = noted(evidence=[quote], defects=[{"code": "leak", "quote": quote}], note="Bad.")
    assert (kept.evidence, kept.defects) == ((), ())
    assert kept.note.startswith("Bad. (Not counted: the reply does not say ")
    assert "leak, since the reply does not say" in kept.note


@pytest.mark.parametrize(("quote", "kept"), [("毒酒", True), ("독약", True), ("酒", False), ("毒。", False)])
def test_two_letters_of_a_wide_script_prove_something(quote: str, kept: bool) -> None:
    request = REQUEST.model_copy(update={"candidates": (Candidate(id="A", text="他喝了毒酒, 독약. 毒。"),)})
    found = parse_answer(json.dumps({"verdicts": [entry("A", defects=[{"code": "leak", "quote": quote}])]}), request)
    assert isinstance(found, JudgeAnswer)
    assert found.verdicts[0].defects == ((Defect(code="leak", quote=quote),) if kept else ())


@pytest.mark.parametrize(("listed", "kept"), TABLES.defects)
def test_defects_are_the_rubrics(listed: object, kept: tuple[Defect, ...]) -> None:
    assert noted(defects=listed).defects == kept


def test_lone_surrogates_do_not_survive() -> None:
    verdict = usable(PLAIN.replace('"scores"', '"note": "\\ud800 well", "scores"')).verdicts[0]
    assert verdict.note == "\ufffd well"
    assert problems(answer(entry("A"), entry("B"), entry("\ud800"))) == ('there is no candidate "\\ud800"',)


HOSTILE: Mapping[str, str] = {
    "braces": "{" * 300_000,
    "quoted braces": '{"' * 150_000,
    "nested": '{"a":' * 60_000,
    "nested lists": "[" * 300_000,
    "deep inside": '{"verdicts":' + "[" * 300_000,
    "digits": '{"a":' + "9" * 300_000,
    "small objects": '{"a":1}' * 40_000,
    "strings": '{"a":"' * 50_000,
    "spaces": "{ " * 100_000,
    "thoughts": "<think>" * 50_000,
    "ends": "</think>" * 50_000,
    "trailing commas": '{"a":1,}' * 40_000,
    "nested trailing commas": '{"a":' * 300 + "1" + ",}" * 300 + '{"b":' * 20_000,
    "trailing commas without an end": '{"a":[1,],' * 30_000,
    "escaped quotes": '{"a":[1,],"' + '\\"' * 150_000,
    "gaps": '{"a":1,' + " " * 300_000,
    "not a number": '{"a":NaN' * 40_000,
    "long quotes": json.dumps(answer(entry("A", evidence=["x" * 20_000] * 15), entry("B"), ranking=3)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_are_refused_in_time(name: str) -> None:
    began = time.process_time()
    assert isinstance(read(HOSTILE[name]), UnusableAnswer)
    assert time.process_time() - began < 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["A", "B"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "candidate": st.sampled_from(["A", "B"]) | JSON,
        "scores": st.fixed_dictionaries({"likeness": st.integers(-1, 5) | JSON, "charm": st.none() | JSON}) | JSON,
        "evidence": JSON,
        "defects": st.lists(st.fixed_dictionaries({"code": st.sampled_from(["leak", "dull"]), "quote": JSON})) | JSON,
        "note": JSON,
    },
)
ANSWERS = st.fixed_dictionaries(
    {}, optional={"verdicts": st.lists(ENTRIES, max_size=3) | JSON, "ranking": st.lists(JSON, max_size=3) | JSON}
)


@given(ANSWERS | JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    check(read(json.dumps(value)))


@given(st.text(alphabet=st.characters(codec=None)) | st.text(alphabet='{}[]":,a1 \n'), st.integers(0, 200))
def test_any_text_is_read_or_refused(text: str, cut: int) -> None:
    check(read(text + PLAIN[cut:]))
    check(read(PLAIN[: len(PLAIN) - cut] + text))


def check(found: JudgeAnswer | UnusableAnswer) -> None:
    if isinstance(found, UnusableAnswer):
        assert found.problems
        assert all(found.problems)
        return
    assert [verdict.candidate for verdict in found.verdicts] == ["A", "B"]
    assert sorted(name for tier in found.ranking for name in tier) == ["A", "B"]
    assert all(any(value is not None for value in verdict.scores.values()) for verdict in found.verdicts)
    assert len({tuple(value is None for value in verdict.scores.values()) for verdict in found.verdicts}) == 1
