"""What a group's scores are made of, as the panel wrote it down, with the quotes of its judgements.

Nothing is worked out here: which readings counted, how far a judge's order was shrunk and which defects were counted
stands in the record (`GroupMaking`), which the scores were made from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.judging import Judgement
from app.domain.making import CandidateMaking, CountedDefect, GroupMaking, JudgeShare, WhyLeftOut


@dataclass(frozen=True)
class DefectReport:
    """How many of the readings of a candidate report a defect, and what they quote. `counts` when it bounds the
    reward."""

    code: str
    reported: int
    readings: int
    quotes: tuple[str, ...]
    counts: bool
    cap: float | None


@dataclass(frozen=True)
class ShareExplanation:
    """What one judge, or several that share their orders, say of the order. By candidate: `standings` as they were
    before they were shrunk, `relatives` after."""

    judges: tuple[str, ...]
    readings: tuple[int, ...]
    """Places among the judgements."""
    grades: bool
    """False for a reward model."""
    reliability: float
    standings: Mapping[str, float]
    relatives: Mapping[str, float]


@dataclass(frozen=True)
class GroupExplanation:
    """`values` are the means that criteria were built from, by candidate. `used` are the judgements that make them,
    `left_out` others that could be read."""

    shares: tuple[ShareExplanation, ...]
    values: Mapping[str, Mapping[str, float | None]]
    used: frozenset[int]
    left_out: Mapping[int, WhyLeftOut]
    defects: Mapping[str, tuple[DefectReport, ...]]


def explain_group(making: GroupMaking, judgements: Sequence[Judgement]) -> GroupExplanation:
    """What was written down, with the quotes of the judgements."""
    names = [made.candidate for made in making.candidates]
    return GroupExplanation(
        shares=tuple(_explain_share(share, names) for share in making.shares),
        values={made.candidate: dict(zip(making.criteria, made.means, strict=True)) for made in making.candidates},
        used=frozenset(place for share in making.shares for place in share.readings),
        left_out=making.left_out,
        defects={
            made.candidate: tuple(_report_defect(made, defect, judgements) for defect in made.defects)
            for made in making.candidates
        },
    )


def _explain_share(share: JudgeShare, names: Sequence[str]) -> ShareExplanation:
    return ShareExplanation(
        judges=share.judges,
        readings=share.readings,
        grades=share.grades,
        reliability=share.reliability,
        standings=dict(zip(names, share.standings, strict=False)),
        relatives=dict(zip(names, share.list_relatives(), strict=False)),
    )


def _report_defect(made: CandidateMaking, defect: CountedDefect, judgements: Sequence[Judgement]) -> DefectReport:
    said = [
        each.quote
        for place in defect.reported
        if place < len(judgements)
        for verdict in judgements[place].verdicts
        if verdict.candidate == made.candidate
        for each in verdict.defects
        if each.code == defect.code and each.quote
    ]
    return DefectReport(
        code=defect.code,
        reported=len(defect.reported),
        readings=made.readings,
        quotes=tuple(dict.fromkeys(said)),
        counts=defect.counts,
        cap=defect.cap,
    )
