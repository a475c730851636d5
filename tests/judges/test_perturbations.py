"""Spoilt replies are spoilt as they claim, the same each time, and figures follow from what a judge prefers."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

import pytest

from app.cli.judges import build_questions, load_packaged_specimens
from app.domain.judging import JudgeRequest, Rubric
from app.envs.npc_arena.environment import NpcArena
from app.judges.chat_judge import Script, ScriptedJudge, fail_requests, score_by_position, score_equally, score_randomly
from app.judges.gate_wordings import Reply
from app.judges.gates import find_failed_gates
from app.judges.gold_cases import (
    MUTATIONS,
    GoldCase,
    PerturbedPair,
    build_pairs,
    load_packaged_templates,
    sample_one_per_character,
    sample_seldom_pairs,
)
from app.judges.meta_evaluation import STEPS, CheckReport, build_ladders, build_report, measure_judge
from app.judges.offline import LANGUAGES
from tests.support.tables import read_table


@cache
def found() -> tuple[GoldCase, ...]:
    return load_packaged_specimens()


@cache
def suite() -> tuple[PerturbedPair, ...]:
    return build_pairs(found(), load_packaged_templates())


def rubric() -> Rubric:
    assert NpcArena.rubric is not None
    return NpcArena.rubric


def checked(script: Script, characters: int = 6, votes: int = 1) -> CheckReport:
    chosen = sample_one_per_character(found(), characters, 0)
    questions = build_questions(chosen, load_packaged_templates(), votes)
    judge = ScriptedJudge(script)
    evidence = asyncio.run(measure_judge(judge, questions))
    assert len(judge.requests) == questions.count == evidence.questions
    return build_report(judge.name, judge.model, evidence)


def missed(checked: CheckReport) -> list[str]:
    return [figure.name for figure in checked.figures if not figure.passed]


def knowing(request: JudgeRequest, count: int) -> Mapping[str, float]:
    """Knows this scene's own good reply from anything else, of which the longer is the worse."""
    own = {specimen.clean for specimen in found() if specimen.document == request.document}
    return {
        candidate.id: 0.9 if candidate.text in own else 0.4 - min(len(candidate.text), 3000) / 10_000
        for candidate in request.candidates
    }


def obedient(request: JudgeRequest, count: int) -> Mapping[str, float]:
    """As `knowing`, but gives whoever asks for it the best score."""
    asked = ("highest score", "perfect score", "höchste", "volle Punkt", "más alta", "máxima", '"ranking"')
    obeyed = {one.id: 1.0 for one in request.candidates if any(words in one.text for words in asked)}
    return {**knowing(request, count), **obeyed}


def longwinded(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {candidate.id: min(1.0, len(candidate.text) / 1000) for candidate in request.candidates}


def test_every_mutation_is_made_of_the_packaged_sheets_in_every_language() -> None:
    made = {(pair.specimen.language, pair.mutation) for pair in suite()}
    every = {(language, mutation.name) for language in LANGUAGES for mutation in MUTATIONS}
    seldom = {(language, kind) for language in LANGUAGES for kind in ("ignored_event", "absent_event", "future_event")}
    assert every - made <= seldom | {("es", "wrong_fact")}
    assert {mutation.name for mutation in MUTATIONS} - {mutation for _, mutation in made} == set()


def test_the_same_seed_spoils_alike_and_another_otherwise() -> None:
    again, other = ([p.spoilt for p in build_pairs(found(), load_packaged_templates(), seed=seed)] for seed in (0, 1))
    assert (again, other != again) == ([p.spoilt for p in suite()], True)


def test_kinds_that_few_scenes_allow_are_drawn_from_all_characters() -> None:
    chosen = sample_one_per_character(found(), 4, 0)
    drawn = sample_seldom_pairs(found(), chosen, load_packaged_templates(), 4)
    assert (
        Counter(pair.mutation for pair in drawn),
        {pair.specimen.cast.scene.id for pair in drawn} & {specimen.cast.scene.id for specimen in chosen},
        drawn == sample_seldom_pairs(found(), chosen, load_packaged_templates(), 4),
    ) == ({"future_event": 4, "ignored_event": 4, "absent_event": 4}, set(), True)


def test_what_is_right_without_the_event_ignores_it_and_what_is_right_with_it_tells_of_one_that_is_absent() -> None:
    clean = {specimen.cast.scene.id: specimen.clean for specimen in found()}
    wrong = {
        pair.specimen.cast.scene.id: pair.spoilt
        for pair in suite()
        if pair.mutation == "absent_event" or (pair.mutation == "ignored_event" and pair.specimen.otherwise)
    }
    pairs_of_scenes = {
        specimen.cast.scene.id: specimen.cast.scene.counterfactual_of
        for specimen in found()
        if specimen.cast.scene.counterfactual_of is not None
    }
    facing = {**pairs_of_scenes, **{factual: scene for scene, factual in pairs_of_scenes.items()}}
    assert wrong == {scene: clean[other] for scene, other in facing.items()}


def test_clean_replies_pass_every_gate_and_are_never_the_spoilt_ones() -> None:
    gated = [pair.clean for pair in suite() if find_failed_gates(Reply(pair.clean), pair.specimen.gates)]
    assert (gated, [pair for pair in suite() if pair.spoilt == pair.clean]) == ([], [])


def test_what_gates_are_there_for_they_catch_in_what_is_spoilt_for_them() -> None:
    """In every language, all of which they claim; a real machine may say that it is one."""
    expected = read_table(__file__, "caught_by_gates.yaml", dict[str, str])
    missed = [
        (pair.mutation, pair.spoilt)
        for pair in suite()
        if pair.mutation in expected
        and not (pair.mutation == "ai_disclosure" and pair.specimen.gates.is_machine)
        and expected[pair.mutation]
        not in {gate.flag for gate in find_failed_gates(Reply(pair.spoilt), pair.specimen.gates)}
    ]
    assert missed == []


def test_pairs_and_ladders_are_shown_from_both_ends_under_the_same_ids() -> None:
    """A ladder leads down from the good reply one fault at a time."""
    pair, ladders = suite()[0], build_ladders(found(), load_packaged_templates())
    forth, back = (pair.build_request(rubric(), clean_first=first) for first in (True, False))
    down, up = (ladders[0].build_request(rubric(), downwards=downwards) for downwards in (True, False))
    assert (forth.candidates, down.candidates) == (back.candidates[::-1], up.candidates[::-1])
    assert [candidate.text for candidate in forth.candidates] == [pair.clean, pair.spoilt]
    assert [candidate.text for candidate in down.candidates] == list(ladders[0].rungs)
    assert {ladder.rungs[0] for ladder in ladders} == {specimen.clean for specimen in found()}
    assert {len(set(ladder.rungs)) for ladder in ladders} == {STEPS + 1}
    assert all(better in worse for ladder in ladders for better, worse in pairwise(ladder.rungs))
    assert ladders == build_ladders(found(), load_packaged_templates())


def test_one_reply_of_each_character() -> None:
    chosen = sample_one_per_character(found(), 5, 0)
    assert len({specimen.cast.sheet.id for specimen in chosen}) == len(chosen) == 5
    assert sample_one_per_character(found(), 5, 0) == chosen
    assert len(sample_one_per_character(found(), 10_000, 0)) == len({specimen.cast.sheet.id for specimen in found()})


def test_votes_are_as_many_questions_more() -> None:
    once, thrice = checked(knowing, 2), checked(knowing, 2, votes=3)
    assert thrice.questions - once.questions == 4 * once.pairs


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (score_by_position, {"swap consistency", "first of two equal replies", "pair accuracy, hard", "ties"}),
        (score_equally, {"pair accuracy, hard", "pair accuracy, subtle", "ties", "test-retest, ICC(1,1)"}),
        (
            score_randomly(3),
            {"swap consistency", "no more for one fault more", "test-retest, ICC(1,1)", "pair accuracy, hard"},
        ),
        (longwinded, {"padding is better", "pair accuracy, subtle", "no more for one fault more"}),
        (fail_requests(), {"answered", "no more for one fault more", "pair accuracy, hard", "injection succeeds"}),
    ],
)
def test_a_judge_that_does_not_is_caught(script: Script, names: set[str]) -> None:
    result = checked(script)
    assert (result.passed, names - set(missed(result))) == (False, set())


def test_a_judge_that_knows_passes_and_an_obedient_one_fails_for_obedience_alone() -> None:
    result = checked(knowing)
    assert (result.passed, missed(result), missed(checked(obedient))) == (True, [], ["injection succeeds"])
    assert all(figure.judge.value == 1.0 for figure in result.mutations)


def test_one_failure_in_many_is_counted_and_the_rest_measured() -> None:
    def script(request: JudgeRequest, count: int) -> Mapping[str, float] | str:
        return "out for a moment" if count == 0 else knowing(request, count)

    result = checked(script)
    answered = next(figure for figure in result.figures if figure.name == "answered")
    assert (result.failures, answered.trials - round((answered.value or 0) * answered.trials), result.passed) == (
        (f"1 of {result.questions} questions: out for a moment",),
        1,
        True,
    )
