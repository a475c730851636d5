"""Scores of replies that commit to an answer in `\\boxed{…}`: exact, or by algebra in a worker."""

from pydantic import JsonValue

from app.domain.errors import ScoringFailed
from app.domain.scores import Score
from app.domain.tasks import LARGE_TEXT
from app.domain.work import Limits
from app.ports.sandbox import Workers
from app.toolkit.large_texts import run_in_turn
from app.toolkit.math_answers.boxed_answers import WHY, extract_committed_box
from app.toolkit.math_answers.grading import GoldAnswer, check_answer
from app.toolkit.math_answers.worker_functions import ALL_EQUAL

LIMITS = Limits(seconds=10, cpu_seconds=3, memory_mb=512)
"""Limits for one answer. Comparing an answer usually takes a tenth of a second of processor time."""


async def grade_boxed(reply: str, gold: GoldAnswer, workers: Workers) -> Score:
    """1 when the box that the reply commits to holds `gold`. Unscored where algebra could not be done."""
    large = len(reply) > LARGE_TEXT
    committed = await run_in_turn("answers", extract_committed_box, reply) if large else extract_committed_box(reply)
    if committed.text is None:
        score = Score.exact(False, rationale=WHY[committed.flags[-1]])
        return score.model_copy(update={"flags": committed.flags})
    checked = check_answer(committed.text, gold)
    fault = checked.fault
    if checked.pairs:
        pairs: list[JsonValue] = [list(pair) for pair in checked.pairs]
        try:
            equal = await workers.run(ALL_EQUAL, pairs, limits=LIMITS)
        except ScoringFailed as error:
            return Score.from_error(error)
        fault = "" if equal is True else "it is another answer"
    return Score.exact(not fault, rationale=fault or "correct")
