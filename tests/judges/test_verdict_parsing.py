"""Reading judges' answers: whatever comes, either the whole answer or words about what is wrong with it."""

import json
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Candidate, Defect, DefectRule, JudgeRequest, Probes, Rubric, RubricCriterion, Verdict
from app.judges.verdict_parsing import JudgeAnswer, UnusableAnswer, parse_answer

TEXTS = {"aaa": "The ferry sank at the fair.\nNine “good” oxen drowned.", "bbb": "As you wish,  my lord."}
REQUEST = JudgeRequest(
    rubric=Rubric(
        name="test",
        version="1",
        instructions="",
        criteria=tuple(
            RubricCriterion(name=name, weight=0.5, description="", anchors={}) for name in ("likeness", "charm")
        ),
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


def answer(*entries: object, ranking: object = (("aaa",), ("bbb",)), **more: object) -> Json:
    return {"verdicts": list(entries), "ranking": ranking, **more}


GOOD = answer(entry("aaa", 4, None), entry("bbb", 0, None))
READ = JudgeAnswer(
    verdicts=(
        Verdict(candidate="aaa", scores={"likeness": 1.0, "charm": None}),
        Verdict(candidate="bbb", scores={"likeness": 0.0, "charm": None}),
    ),
    ranking=(("aaa",), ("bbb",)),
)


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


PLAIN = json.dumps(GOOD)
OTHER = json.dumps(answer(entry("aaa", 0, 0), entry("bbb", 4, 4), ranking=[["bbb"], ["aaa"]]))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        json.dumps(GOOD, indent=2),
        f"```json\n{PLAIN}\n```",
        f"Here you are: {PLAIN} I hope that is right {{really}}.",
        f"<think>First {OTHER} but no.</think>{PLAIN}",
        f"First {OTHER} but no.</think>{PLAIN}",
        f"A draft: {OTHER}\nFinal: {PLAIN}",
        f'{PLAIN} and the reply says {{"verdicts": [], "ranking": []}}',
        f'One reply holds {{"verdicts": [{{"candidate": "aaa"}}]}} as text. {PLAIN}',
        f'{{"unclosed": [ {PLAIN}',
        '{"unclosed": ' * 200 + PLAIN,
        '{"small": 1} ' * 9_000 + PLAIN,
        '{"long": "' * 9_000 + "\n" + PLAIN,
        json.dumps({"answer": GOOD}),
        json.dumps(answer(entry("aaa", 4, None), entry("bbb", 0, None), ranking=["aaa", ["bbb"], []])),
        json.dumps(answer(entry("bbb", 0, None), entry("aaa", 4, None), reasoning="why not")),
        json.dumps(answer(entry("aaa", 4.0, None), entry("bbb", 0.0, None))),
        json.dumps(answer(entry("aaa", "4", None), entry("bbb", " 0.0 ", None))),
        json.dumps(answer(entry("aaa", 4, None, claims=None), entry("bbb", 0, None))),
        PLAIN.replace("}", ",}").replace("]]", "] ,\n ]"),
        f'He said: "no {OTHER} "{PLAIN.replace("}", " , }")} behind',
    ],
)
def test_the_last_whole_answer_counts_whatever_surrounds_it(text: str) -> None:
    assert read(text) == READ


def test_a_closing_tag_in_a_note_does_not_cut_the_answer() -> None:
    text = json.dumps(answer(entry("aaa", note="it wrote </think>"), entry("bbb")))
    assert usable(text).verdicts[0].note == "it wrote </think>"


def test_an_endless_thought_is_no_answer() -> None:
    assert problems(f"<think>{PLAIN}") == ("there is no complete JSON object in the answer",)


def test_what_is_no_criterion_is_left_out_and_said() -> None:
    scores = {"likeness": 1, "charm": 2, "wit": 3}
    found = usable(answer({"candidate": "aaa", "scores": scores}, entry("bbb"))).verdicts[0]
    assert (found.scores, found.note) == ({"likeness": 0.25, "charm": 0.5}, '(Not counted: "wit" is no criterion.)')


def test_a_comma_in_a_quote_stays() -> None:
    text = json.dumps(answer(entry("aaa", note="so, ] he said,}"), entry("bbb"))).replace("]}", "],}")
    assert usable(text).verdicts[0].note == "so, ] he said,}"


def test_ties() -> None:
    assert usable(answer(entry("aaa"), entry("bbb"), ranking=[["bbb", "aaa"]])).ranking == (("bbb", "aaa"),)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "there is no complete JSON object in the answer"),
        ("I cannot judge that.", "there is no complete JSON object in the answer"),
        (PLAIN[:-1], '"verdicts" is missing or not a list'),
        ({"ranking": [["aaa"], ["bbb"]]}, '"verdicts" is missing or not a list'),
        (answer(entry("aaa")), 'candidate bbb is missing from "verdicts"'),
        (answer(entry("aaa"), entry("bbb"), entry("aaa")), 'candidate aaa occurs more than once in "verdicts"'),
        (answer(entry("aaa"), entry("bbb"), entry("ccc")), 'there is no candidate "ccc"'),
        (answer(entry("aaa"), entry("bbb"), {}), 'an item of "verdicts" has no "candidate"'),
        (answer(entry("aaa"), entry("bbb"), 7), 'an item of "verdicts" has no "candidate"'),
        (answer(entry("aaa", 5), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", -1), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", True), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", "5"), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", "4/4"), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", "n/a"), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", ""), entry("bbb")), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (PLAIN.replace('"likeness": 4', '"likeness": ,'), '"verdicts" is missing or not a list'),
        (PLAIN.replace("4", "NaN"), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (PLAIN.replace("4", "1e999"), "candidate aaa: likeness must be a number from 0 to 4, or null"),
        (answer(entry("aaa", None, None), entry("bbb")), "candidate aaa has no score but null"),
        (
            answer(entry("aaa", None), entry("bbb")),
            "likeness is null for aaa and a number for others: null is for a criterion that applies to none",
        ),
        (answer(entry("aaa", 3, None), entry("bbb", None, 2)), "likeness is null for bbb and a number for others"),
        (answer(entry("aaa", 3, None), entry("bbb", None, 2)), "charm is null for aaa and a number for others"),
        (answer({"candidate": "aaa"}, entry("bbb")), 'candidate aaa has no "scores" object'),
        (
            answer({"candidate": "aaa", "scores": {"likeness": 1}}, entry("bbb")),
            "candidate aaa has no score for charm",
        ),
        (
            answer({"candidate": "aaa", "scores": {"likeness": 1, "wit": 1}}, entry("bbb")),
            'candidate aaa: "wit" is no criterion',
        ),
        (PLAIN.replace('"likeness": 4', '"likeness": 0, "likeness": 4'), 'candidate aaa has "likeness" more than once'),
        (PLAIN.replace('"scores"', '"defects": ["leak"], "defects": [], "scores"'), 'aaa has "defects" more than once'),
        (PLAIN.replace('"candidate": "aaa"', '"candidate": "bbb", "candidate": "aaa"'), 'has no "candidate"'),
        (PLAIN.replace('"ranking"', '"ranking": [["bbb"], ["aaa"]], "ranking"'), 'answer has "ranking" more than once'),
        (PLAIN.replace('"verdicts"', '"verdicts": [], "verdicts"'), 'the answer has "verdicts" more than once'),
        (answer(entry("aaa"), entry("bbb"), ranking=None), '"ranking" is missing or not a list'),
        (answer(entry("aaa"), entry("bbb"), ranking=[["aaa"]]), 'candidate bbb occurs 0 times in "ranking"'),
        (
            answer(entry("aaa"), entry("bbb"), ranking=[["aaa"], ["bbb", "aaa"]]),
            'candidate aaa occurs 2 times in "ranking"',
        ),
        (
            answer(entry("aaa"), entry("bbb"), ranking=[["aaa"], ["zzz"]]),
            '"ranking" holds something that is not the id of a candidate',
        ),
        (
            answer(entry("aaa"), entry("bbb"), ranking=[[["aaa"]], ["bbb"]]),
            '"ranking" holds something that is not the id of a candidate',
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(value: object, told: str) -> None:
    assert told in "\n".join(problems(value))


@pytest.mark.parametrize("name", ["\u0430aa", "ａaa", "AAA", "a\u200baa", "aaa ", "aa", "\ud835\udc1aaa", ""])
def test_a_name_that_looks_like_an_id_is_none(name: str) -> None:
    assert f"there is no candidate {json.dumps(name)}" in problems(answer(entry(name), entry("bbb")))


def test_a_score_that_is_no_number_is_not_taken_for_null() -> None:
    assert problems(answer(entry("aaa", 9), entry("bbb"))) == (
        "candidate aaa: likeness must be a number from 0 to 4, or null",
    )


def test_many_mistakes_are_not_all_listed() -> None:
    assert len(problems(answer(*({} for _ in range(50)), ranking=3))) == 6


def test_the_words_are_about_the_answer_that_was_meant() -> None:
    assert problems(f'{json.dumps(answer(entry("aaa", 9), entry("bbb")))} {{"ok": true}}') == (
        "candidate aaa: likeness must be a number from 0 to 4, or null",
    )


def noted(**more: object) -> Verdict:
    return usable(answer(entry("aaa", **more), entry("bbb"))).verdicts[0]


@pytest.mark.parametrize(
    "quote",
    [
        "The ferry sank",
        "the FERRY sank",
        "at the fair. Nine",
        'Nine "good" oxen',
        '"The ferry sank"',
        "…oxen drowned.",
        "The ferry sank...",
    ],
)
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
    request = REQUEST.model_copy(update={"candidates": (Candidate(id="aaa", text="他喝了毒酒, 독약. 毒。"),)})
    found = parse_answer(json.dumps({"verdicts": [entry("aaa", defects=[{"code": "leak", "quote": quote}])]}), request)
    assert isinstance(found, JudgeAnswer)
    assert found.verdicts[0].defects == ((Defect(code="leak", quote=quote),) if kept else ())


@pytest.mark.parametrize(
    ("listed", "kept"),
    [
        ([{"code": "gap", "quote": ""}], (Defect(code="gap"),)),
        ([{"code": "gap"}, "gap", {"code": "gap", "quote": " "}], (Defect(code="gap"),)),
        ([{"code": "dull", "quote": ""}, {"code": "dull"}, "dull"], ()),
        (
            [{"code": "leak", "quote": "sank"}, {"code": "gap"}],
            (Defect(code="leak", quote="sank"), Defect(code="gap")),
        ),
        ([{"code": "ugly", "quote": "sank"}], ()),
        ([{"code": 3}, 3, None, {"code": "leak", "quote": 3}], ()),
        ("leak", ()),
        (None, ()),
    ],
)
def test_defects_are_the_rubrics(listed: object, kept: tuple[Defect, ...]) -> None:
    assert noted(defects=listed).defects == kept


def test_lone_surrogates_do_not_survive() -> None:
    verdict = usable(PLAIN.replace('"scores"', '"note": "\\ud800 well", "scores"')).verdicts[0]
    assert verdict.note == "\ufffd well"
    assert problems(answer(entry("aaa"), entry("bbb"), entry("\ud800"))) == ('there is no candidate "\\ud800"',)


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
    "long quotes": json.dumps(answer(entry("aaa", evidence=["x" * 20_000] * 15), entry("bbb"), ranking=3)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_are_refused_in_time(name: str) -> None:
    began = time.perf_counter()
    assert isinstance(read(HOSTILE[name]), UnusableAnswer)
    assert time.perf_counter() - began < 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["aaa", "bbb"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "candidate": st.sampled_from(["aaa", "bbb"]) | JSON,
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
    assert [verdict.candidate for verdict in found.verdicts] == ["aaa", "bbb"]
    assert sorted(name for tier in found.ranking for name in tier) == ["aaa", "bbb"]
    assert all(any(value is not None for value in verdict.scores.values()) for verdict in found.verdicts)
    assert len({tuple(value is None for value in verdict.scores.values()) for verdict in found.verdicts}) == 1
