"""Asks one judge everything that it is asked about a group, and once more what failed."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from app.domain.judging import Judgement, JudgeRequest, Mode
from app.judges.aggregation import (
    CandidateGroup,
    GroupResult,
    JudgedGroup,
    UsableJudgement,
    build_failed_result,
    build_result,
    build_view,
    to_usable,
)
from app.judges.deadline import DeadlineJudge
from app.ports.judges import Judge, get_pace
from app.toolkit.large_texts import run_in_turn

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_MOST_READ_ON_LOOP: Final = 50_000
"""Largest group, in characters, whose judgements are read on the event loop."""
_FINAL_FAILURES: Final = frozenset(("refused", "budget", "language"))
"""Failures that asking again does not change."""


@dataclass(frozen=True)
class Question:
    """A request about a group or part of one."""

    part: CandidateGroup
    request: JudgeRequest


@dataclass(frozen=True)
class Answer:
    """All judgements of a question: one, or two where the first could not be used. `reading` is null where neither
    could."""

    part: CandidateGroup
    judgements: tuple[Judgement, ...]
    reading: UsableJudgement | None


async def ask_questions(
    judge: Judge, questions: Sequence[Question], *, has_answered: bool = False
) -> tuple[Answer, ...]:
    """The first goes ahead where it warms the provider's cache, unless the judge `has_answered` about this group.
    Failed questions are asked once more, but only if the judge answers others, and there is time."""
    ahead = 1 if get_pace(judge).warms_cache and not has_answered else 0
    first = [await _ask_question(judge, question) for question in questions[:ahead]]
    answers = [*first, *await await_all([_ask_question(judge, question) for question in questions[ahead:]])]
    works = has_answered or any(answer.reading is not None for answer in answers)
    failed = any(answer.reading is None for answer in answers)
    if not failed or not works or (isinstance(judge, DeadlineJudge) and judge.expired):
        return tuple(answers)
    return tuple(
        await await_all(
            [_ask_again(judge, question, answer) for question, answer in zip(questions, answers, strict=True)]
        )
    )


async def await_all(work: Sequence[Coroutine[None, None, ResultT]]) -> list[ResultT]:
    """As `asyncio.gather`. What is alone is awaited in place: a task of its own takes two more passes of the loop."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)


async def ask_judge(judge: Judge, request: JudgeRequest) -> Judgement:
    """Asks `judge`. An exception becomes a failed judgement."""
    try:
        return await judge.judge(request)
    except Exception:
        log.exception("judge raised an exception: judge=%s", judge.name)
        return Judgement(
            judge=judge.name,
            model=judge.model,
            order=tuple(candidate.id for candidate in request.candidates),
            error="the judge raised an exception; see the log",
            failure="unavailable",
        )


async def _ask_question(judge: Judge, question: Question) -> Answer:
    judgement = await ask_judge(judge, question.request)
    large = sum(map(len, question.part.texts)) > _MOST_READ_ON_LOOP
    read = run_in_turn("judges", to_usable, question.part, judgement) if large else None
    return Answer(question.part, (judgement,), to_usable(question.part, judgement) if read is None else await read)


async def _ask_again(judge: Judge, question: Question, first: Answer) -> Answer:
    if first.reading is not None or first.judgements[0].failure in _FINAL_FAILURES:
        return first
    second = await _ask_question(judge, question)
    return Answer(question.part, first.judgements + second.judgements, second.reading)


def list_judgements(answers: Sequence[Answer]) -> tuple[JudgedGroup, ...]:
    """The judgements with what they are about, in the order of the questions."""
    return tuple((answer.part, judgement) for answer in answers for judgement in answer.judgements)


async def read_lone_text(judge: Judge, group: CandidateGroup, mode: Mode, votes: int = 1) -> GroupResult:
    """For a single text, without comparison."""
    questions = [Question(group, group.build_request(group.texts, mode, vote)) for vote in range(votes)]
    answers = await ask_questions(judge, questions)
    readings = [answer.reading for answer in answers if answer.reading is not None]
    asked = list_judgements(answers)
    if not readings:
        return build_failed_result(judge, asked)
    return build_result(judge, [made for _, made in asked], build_view(group, [(group, readings)], None))
