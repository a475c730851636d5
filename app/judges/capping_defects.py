"""Which reported defects count, and one more reading where the readings of a reply are divided about a cap."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.domain.judging import Defect, DefectRule, JudgeRequest, Mode, Rubric
from app.judges.aggregation import CandidateGroup, GroupResult, JudgeView
from app.judges.presentation_order import list_mirrored_orders
from app.judges.questions import Question, ask_questions, list_judgements
from app.ports.judges import Judge, get_pace

_ORDER: Final = 2
"""The number of the order in which divided replies are shown. The readings before have 0 and 1."""


def collect_defects(views: Sequence[JudgeView], place: int) -> Mapping[str, Defect]:
    """By code, with the first quote, the defects that more than half of all judgements report."""
    return count_reported([reported for view in views for reported in view.list_defect_reports(place)])


def count_reported(readings: Sequence[Sequence[Defect]]) -> Mapping[str, Defect]:
    if not any(readings):
        return {}
    counts = Counter(code for defects in readings for code in {defect.code for defect in defects})
    found: dict[str, Defect] = {}
    for defect in (defect for defects in readings for defect in defects):
        if 2 * counts[defect.code] > len(readings):
            found.setdefault(defect.code, defect)
    return found


async def settle_divided_caps(
    judge: Judge, group: CandidateGroup, report: GroupResult, mode: Mode, votes: int
) -> GroupResult:
    """The report with one more verdict on each reply of which exactly half of the readings report a defect that would
    lower its cap, unless all readings are used up."""
    view = report.view
    if view is None or view.is_complete:
        return report
    divided = [
        text for place, text in enumerate(group.texts) if is_divided(group.case.rubric, view.list_defect_reports(place))
    ]
    if not divided:
        return report
    parts = list(_split_divided(judge, group, divided, mode))
    questions = [Question(part, _build_request(part, group, mode, votes)) for part in parts]
    answers = await ask_questions(judge, questions, has_answered=True)
    decided = {
        place: verdict
        for answer in answers
        if answer.reading is not None
        for place, verdict in zip(group.locate_texts(answer.part), answer.reading.verdicts, strict=True)
    }
    made = [judgement for _, judgement in list_judgements(answers)]
    return replace(report, judgements=(*report.judgements, *made), view=replace(view, deciding_verdicts=decided))


def is_divided(rubric: Rubric, readings: Sequence[Sequence[Defect]]) -> bool:
    """Whether exactly half of the readings of a reply report a defect that would lower its cap."""
    if not any(readings):
        return False
    counts = Counter(code for defects in readings for code in {defect.code for defect in defects})
    counted = count_reported(readings)
    cap = min((_get_cap(rule) for rule in rubric.defects if rule.code in counted), default=1.0)
    return any(_get_cap(rule) < cap and 2 * counts[rule.code] == len(readings) for rule in rubric.defects)


def _get_cap(rule: DefectRule) -> float:
    """0 for a defect that may close a gate."""
    return 0.0 if rule.confirms is not None else 1.0 if rule.cap is None else rule.cap


def _split_divided(judge: Judge, group: CandidateGroup, texts: Sequence[str], mode: Mode) -> Iterator[CandidateGroup]:
    """Together where the mode reads several replies at once."""
    size = get_pace(judge).largest_group if mode == "listwise" else 1
    yield from (group.select_texts(texts[start : start + size]) for start in range(0, len(texts), size))


def _build_request(part: CandidateGroup, group: CandidateGroup, mode: Mode, votes: int) -> JudgeRequest:
    """What was not asked before: a whole group in an order of its own, and two replies, of which both orders are used
    up, in the form of a pair."""
    if len(part.texts) == 1:
        return part.build_request(part.texts, "pointwise", votes if mode == "pointwise" else 0)
    orders = list_mirrored_orders(part.case.key, part.texts, _ORDER + 1)
    whole_pair = len(orders) == 1 and len(part.texts) == len(group.texts)
    return part.build_request(orders[-1][0], "pairwise" if whole_pair else "listwise", mirrored=False)
