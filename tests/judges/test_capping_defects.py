"""Which reported defects count, who is read once more, and what becomes of terms that were withheld: a check of words
notices them, judges decide, and nobody else does."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest

from app.domain.judging import Case, Defect, DefectRule, GateFacts, Judgement, PanelResult, Verdict
from app.domain.scores import Score
from app.judges.chat_judge import ScriptedJudge, fail_requests, score_by_text
from app.judges.panel import JudgePanel
from app.ports.judges import Judge
from tests.judges.scripted import ChangedJudge, Update, build_rubric
from tests.support.tables import read_table

RUBRIC = build_rubric(
    "likeness",
    defects=(
        DefectRule(code="leak", description="", cap=0.3),
        DefectRule(code="gap", description="", cap=0.3, omission=True),
    ),
)
FIVE = ("alpha one", "beta two", "gamma three", "delta four", "epsilon five")
QUALITIES = dict(zip(FIVE, (1.0, 0.8, 0.6, 0.4, 0.2), strict=True))


def case(*candidates: str) -> Case:
    return Case(key="k", rubric=RUBRIC, document={}, candidates=candidates)


def judged(judge: Judge, asked: Case) -> PanelResult:
    return asyncio.run(JudgePanel((judge,), 0.5).judge(asked))


def defective(
    defects: Mapping[str, tuple[Defect, ...]],
    when: Sequence[int],
    whole: Callable[[Judgement, int], Update] = lambda made, number: {},
) -> ChangedJudge:
    """Reports defects, by text, in those of its requests that `when` names."""

    def each(verdict: Verdict, text: str, number: int) -> Update:
        return {"defects": defects.get(text, ()) if number in when else (), "note": f"note {number}"}

    return ChangedJudge(score_by_text(QUALITIES), each=each, whole=whole, name="strict")


LEAK = {"alpha one": (Defect(code="leak", quote="one"),)}


@pytest.mark.parametrize(
    ("when", "asked", "reward", "flags"),
    [((), 2, 1.0, ()), ((0, 1), 2, 0.3, ("leak",)), ((0,), 3, 1.0, ()), ((1, 2), 3, 0.3, ("leak",))],
)
def test_more_than_half_of_the_readings_make_a_cap_and_a_third_decides_between_two(
    when: Sequence[int], asked: int, reward: float, flags: tuple[str, ...]
) -> None:
    judge = defective(LEAK, when)
    result = judged(judge, case(*FIVE))
    score = result.scores[0]
    assert (len(judge.requests), score.reward, score.flags, score.absolute) == (asked, reward, flags, 1.0)
    assert score.rationale == ('note 0 — leak: "one"' if flags else "note 0")
    assert len(result.judgements) == asked
    assert [[each.text for each in request.candidates] for request in judge.requests[2:]] == [["alpha one"]] * (
        asked - 2
    )


def test_divided_replies_are_read_together() -> None:
    leak = {text: (Defect(code="leak", quote=text),) for text in FIVE}

    def shown(texts: Sequence[str], size: int) -> list[list[str]]:
        judge = defective({text: leak[text] for text in texts}, (0,))
        judged(judge, case(*FIVE[:size]))
        return [sorted(each.text for each in request.candidates) for request in judge.requests[2:]]

    assert shown(FIVE[:2], 5) == [sorted(FIVE[:2])]
    assert shown(FIVE[:2], 2) == [sorted(FIVE[:2])]
    assert shown(FIVE[:3], 3) == [sorted(FIVE[:3])]


def test_a_divided_reading_that_fails_leaves_the_reply_without_the_cap() -> None:
    def fade(made: Judgement, number: int) -> Update:
        return {"error": "out", "verdicts": (), "ranking": ()} if number >= 2 else {}

    score = judged(defective(LEAK, (0,), fade), case(*FIVE)).scores[0]
    assert (score.reward, score.flags) == (1.0, ())


@pytest.mark.parametrize(("defect", "counts"), read_table(__file__, "quoted_defects.yaml", list[tuple[Defect, bool]]))
def test_a_defect_needs_a_verbatim_quote_unless_it_is_an_omission(defect: Defect, counts: bool) -> None:
    score = judged(defective({"alpha one": (defect,)}, (0, 1)), case(*FIVE)).scores[0]
    assert (score.reward, score.flags) == ((0.3, (defect.code,)) if counts else (1.0, ()))


@pytest.mark.parametrize(("when", "flags"), [((3,), ()), ((0, 3), ()), ((0, 1, 3), ("leak",))])
def test_of_four_readings_three_make_a_cap(when: Sequence[int], flags: tuple[str, ...]) -> None:
    """Nobody is asked a fifth time."""

    judge = defective(LEAK, when, lambda made, number: {"ranking": made.ranking[::-1]} if number == 1 else {})
    score = judged(judge, case(*FIVE)).scores[0]
    assert (len(judge.requests), score.flags, score.absolute) == (4, flags, 1.0)


WITHHOLDING = build_rubric(
    "likeness",
    defects=(
        DefectRule(code="knows_withheld", description="", cap=0.3, confirms="may_know_withheld"),
        DefectRule(code="future_knowledge", description="", cap=0.3),
    ),
)
FACTS = GateFacts(
    speaker="Hob",
    withheld_terms=("silver key", "muster book"),
    prompt="You are Hob. The muster book lies open.",
    player_said="Who has the silver keys?",
)
NOBODY_SAID = FACTS.model_copy(update={"player_said": "Who came?"})
TERM, NONE = "Aldous has the silver key's twin.", "Nobody came."


def suspicious(defect: Defect, readings: int = 2) -> ChangedJudge:
    """Reports the same of every reply that says Aldous, in as many of its readings as it is told."""

    def each(verdict: Verdict, text: str, number: int) -> Update:
        return {"defects": (defect,)} if number < readings and "Aldous" in text else {}

    return ChangedJudge(score_by_text({}, otherwise=0.8), each=each)


def scored(judge: ScriptedJudge, facts: GateFacts, texts: Sequence[str] = (TERM, NONE)) -> tuple[Score, ...]:
    asked = Case(key="k", rubric=WITHHOLDING, document={}, gates=facts, candidates=tuple(texts))
    return asyncio.run(JudgePanel((judge,), 0.0).judge(asked)).scores


KNOWS = Defect(code="knows_withheld", quote="Aldous has the silver key")


@pytest.mark.parametrize(
    ("judge", "facts", "expected"),
    [
        (suspicious(KNOWS), NOBODY_SAID, (0.0, 0.0, ("leaks_withheld", "knows_withheld", "may_know_withheld"))),
        (suspicious(KNOWS, 1), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (suspicious(KNOWS, 0), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (suspicious(KNOWS), FACTS, (1.0, 0.3, ("knows_withheld",))),
        (suspicious(Defect(code="knows_withheld")), NOBODY_SAID, (1.0, 0.8, ("may_know_withheld",))),
        (
            suspicious(Defect(code="future_knowledge", quote="Aldous")),
            NOBODY_SAID,
            (1.0, 0.3, ("future_knowledge", "may_know_withheld")),
        ),
    ],
    ids=["confirmed", "by half", "not confirmed", "the player said it", "without a quote", "another defect"],
)
def test_a_term_costs_the_reward_only_where_judges_confirm_it(
    judge: ScriptedJudge, facts: GateFacts, expected: tuple[float, float, tuple[str, ...]]
) -> None:
    leak, plain = scored(judge, facts)
    shown = tuple(flag for flag in leak.flags if flag not in ("low_signal", "position_dominated"))
    assert ((leak.gate, leak.reward, shown), plain.gate) == (expected, 1.0)


def test_where_the_judge_fails_there_is_no_score_and_no_zero() -> None:
    leak, _ = scored(ScriptedJudge(fail_requests()), NOBODY_SAID)
    assert (leak.outcome, leak.reason, leak.reward, leak.flags) == (
        "unscored",
        "judge_failed",
        None,
        ("may_know_withheld",),
    )
