"""One more reading of a group, beside replies of known level; and those replies, where a judge writes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.calibration import (
    CALIBRATION_SECONDS,
    LEVELS,
    CalibratedValue,
    CalibrationGap,
    ReferenceKind,
    ReferencePlan,
    References,
    fit_reference_line,
)
from app.domain.digests import digest
from app.domain.judging import Case, JudgeRequest, Probes, Rubric, RubricCriterion
from app.domain.model_names import is_same_model
from app.domain.rewards import apply_bounds
from app.judges.aggregation import CandidateGroup, UsableJudgement, drop_uneven_criteria
from app.judges.deadline import DeadlineJudge
from app.judges.gates.group_check import GateResult, group_passed, run_gates_on_case
from app.judges.presentation_order import arrange_circle, build_mirrored_orders, choose_first
from app.judges.questions import Question, ask_judge, ask_questions
from app.judges.text_normalisation import strip_thoughts
from app.ports.judges import BackedJudge, CalibrationReading, Judge, WrittenReferences, can_write, get_pace

_NO_RUBRIC: Final = Rubric(
    name="references",
    version="1",
    instructions="",
    criteria=(RubricCriterion(name="none", weight=1.0, description="", anchors={}),),
)
_LONGEST_REPLY: Final = 4_000
"""Characters of a reference."""


@dataclass(frozen=True)
class _ShownGroup:
    """The candidates and references of one question, and the text of each candidate that is among them."""

    group: CandidateGroup
    texts: tuple[str | None, ...]
    """By candidate; null for gated ones."""
    references: Mapping[ReferenceKind, str]


async def read_beside_references(
    judges: Sequence[Judge], case: Case, references: References, seconds: float
) -> CalibrationReading:
    """One judge reads, chosen by the task. Candidates and references are shown alike, in an order by a keyed hash."""
    shown = await _show_together(case, references)
    judge = judges[choose_first(case.key, shown.group.texts, len(judges))]
    group = _select_shown(shown, get_pace(judge).largest_group)
    order, _ = build_mirrored_orders(case.key, group.texts, 0)
    question = Question(group, group.build_request(order, "listwise", mirrored=False))
    (answer,) = await ask_questions(DeadlineJudge(judge, seconds), [question], has_answered=True)
    marked = tuple(made.model_copy(update={"purpose": "calibration"}) for made in answer.judgements)
    if answer.reading is None:
        gap: CalibrationGap = "budget" if marked[-1].failure == "budget" else "judge_failed"
        return CalibrationReading(tuple(None if text is None else gap for text in shown.texts), marked)
    return CalibrationReading(_place_on_line(shown, group, answer.reading), marked)


async def _show_together(case: Case, references: References) -> _ShownGroup:
    """References get the hints of word checks that candidates get; gates do not stop them."""
    replies = {kind: strip_thoughts(text) for kind, text in references.replies.items()}
    seen = tuple(strip_thoughts(text) for text in case.candidates)
    noticed = await run_gates_on_case(case.model_copy(update={"candidates": (*case.candidates, *replies.values())}))
    own = noticed[: len(seen)]
    beside = [each if not each.failed else GateResult((), ()) for each in noticed[len(seen) :]]
    passed = group_passed((*seen, *replies.values()), (*own, *beside))
    hints = {text: tuple(hint.notices for hint in each.hints) for text, each in passed.items()}
    group = CandidateGroup.from_texts(case, passed, hints=hints)
    texts = tuple(None if each.failed else text for text, each in zip(seen, own, strict=True))
    return _ShownGroup(group, texts, replies)


def _select_shown(shown: _ShownGroup, largest: int) -> CandidateGroup:
    """All references, and as many candidates as one question has room for, chosen by a keyed hash."""
    beside = set(shown.references.values())
    room = max(1, largest - len(beside))
    circle = arrange_circle(shown.group.case.key, shown.group.texts)
    return shown.group.select_texts([*beside, *[text for text in circle if text not in beside][:room]])


def _place_on_line(
    shown: _ShownGroup, group: CandidateGroup, reading: UsableJudgement
) -> tuple[CalibratedValue | CalibrationGap | None, ...]:
    bounded = drop_uneven_criteria([apply_bounds(group.case.rubric, verdict) for verdict in reading.verdicts])
    scores = dict(zip(group.texts, group.compute_absolutes(bounded), strict=True))
    line = fit_reference_line([(LEVELS[kind], scores[text]) for kind, text in sorted(shown.references.items())])
    known: dict[str, CalibratedValue | CalibrationGap] = {
        text: "flat_line" if line is None else line.calibrate(score) for text, score in scores.items()
    }
    return tuple(None if text is None else known.get(text, "not_read") for text in shown.texts)


async def ask_for_references(
    judges: Sequence[Judge], plan: ReferencePlan, case: Case, policy: str | None
) -> WrittenReferences | None:
    """A judge that can writes the replies that `plan` does not give; they must pass the gates of `case`. None where
    none can, but for the model `policy`: a policy would be compared with itself."""
    writers = [judge for judge in judges if can_write(judge) and not _may_be_policy(judge, policy)]
    if not writers:
        return None
    wanted = tuple(kind for kind in sorted(LEVELS) if kind not in plan.given)
    judge = writers[_choose_writer(plan.scene, len(writers))]
    request = JudgeRequest(
        rubric=_NO_RUBRIC, document={}, probes=Probes(), candidates=(), wanted=wanted, brief=plan.brief
    )
    made = (await ask_judge(DeadlineJudge(judge, CALIBRATION_SECONDS), request)).model_copy(
        update={"purpose": "references"}
    )
    replies = None if made.error is not None else parse_references(made.raw, wanted)
    if replies is None or isinstance(replies, str) or not await _are_usable(replies, plan, case):
        return WrittenReferences(None, made)
    return WrittenReferences(replies, made)


async def _are_usable(written: Mapping[ReferenceKind, str], plan: ReferencePlan, case: Case) -> bool:
    """Written replies are frozen: each must pass the gates of candidates, and equal no other. What people wrote is
    exempt from the gates."""
    texts = [*written.values(), *map(strip_thoughts, plan.given.values())]
    if len({" ".join(text.casefold().split()) for text in texts}) < len(texts):
        return False
    alone = case.model_copy(update={"candidates": tuple(written.values()), "lines": (), "episodes": ()})
    return not any(each.failed for each in await run_gates_on_case(alone))


def _may_be_policy(judge: Judge, policy: str | None) -> bool:
    asked = (judge, judge.fallback) if isinstance(judge, BackedJudge) else (judge,)
    return policy is not None and any(is_same_model(one.model, policy) for one in asked)


def _choose_writer(key: str, count: int) -> int:
    return int(digest(["writer", key]), 16) % count


def parse_references(answer: str, wanted: Sequence[ReferenceKind]) -> dict[ReferenceKind, str] | str:
    """The replies by kind, or what is wrong with the answer. Text around the JSON object is ignored."""
    text = strip_thoughts(answer)
    start, end = text.find("{"), text.rfind("}")
    try:
        found: object = json.loads(text[start : end + 1]) if start >= 0 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return "there is no complete JSON object in the answer"
    written: dict[ReferenceKind, str] = {}
    for kind in wanted:
        reply: object = found.get(kind)
        written[kind] = strip_thoughts(reply).strip() if isinstance(reply, str) else ""
        if not 0 < len(written[kind]) <= _LONGEST_REPLY:
            return f'"{kind}" must be a text of 1 to {_LONGEST_REPLY} characters'
    if len(set(written.values())) < len(written):
        return "two of the replies are the same"
    return written
