"""Pointwise mode: one judge reads each text by itself, once per vote."""

from app.judges.aggregation import CandidateGroup, GroupResult, build_failed_result, build_result, build_view
from app.judges.questions import Question, ask_questions, list_judgements, read_lone_text
from app.judges.ranks import rank_by_value
from app.ports.judges import Judge


async def read_pointwise(judge: Judge, group: CandidateGroup, votes: int = 1) -> GroupResult:
    """Ranks follow the texts' mean scores. Each text needs at least one usable judgement."""
    if len(group.texts) == 1:
        return await read_lone_text(judge, group, "pointwise", votes)
    parts = [group.select_texts((text,)) for text in group.texts]
    questions = [
        Question(part, part.build_request(part.texts, "pointwise", vote)) for part in parts for vote in range(votes)
    ]
    answers = await ask_questions(judge, questions)
    readings = [
        (part, [answer.reading for answer in answers[n * votes : (n + 1) * votes] if answer.reading is not None])
        for n, part in enumerate(parts)
    ]
    asked = list_judgements(answers)
    if not all(listed for _, listed in readings):
        return build_failed_result(judge, asked)
    scored = build_view(group, readings, None)
    view = None if scored is None else build_view(group, readings, rank_by_value(scored.absolutes))
    return build_result(judge, [judgement for _, judgement in asked], view)
