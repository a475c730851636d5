"""Models of what is measured of a judge against people."""

from typing import Final

from app.domain.values import FiniteNumber, Frozen
from app.evaluation.label_agreement import AgreementFigure

_CONSTANT_PAIRS: Final = 0.5
"""What a judge that finds all replies equal would get."""


class PairAgreement(Frozen):
    """Of two replies that a person ordered: how often the judge gives the better one more. A tie of the judge counts
    half."""

    groups: int
    pairs: int
    effective: FiniteNumber
    judge: AgreementFigure = AgreementFigure()
    shared_pairs: int = 0
    """Pairs that two people ordered, blind to each other."""
    people: AgreementFigure = AgreementFigure()
    """How often these two agree: no judge can be shown to be better by these labels."""
    judge_on_shared: AgreementFigure = AgreementFigure()
    """The judge's figure on the same pairs, against both."""
    people_ties: FiniteNumber | None = None
    judge_ties: FiniteNumber | None = None
    constant: FiniteNumber = _CONSTANT_PAIRS


class CriterionAgreement(Frozen):
    """Levels from 0 to 4. Kappa depends on how often each level occurs, so the base rates stand beside it."""

    criterion: str
    groups: int
    replies: int
    effective: FiniteNumber
    kappa: AgreementFigure = AgreementFigure()
    """With quadratic weights; null where it is not defined."""
    agreement: AgreementFigure = AgreementFigure()
    """The share of equal levels."""
    pabak: FiniteNumber | None = None
    ac1: FiniteNumber | None = None
    bias: FiniteNumber | None = None
    """The judge's level less the person's."""
    people: tuple[FiniteNumber, ...] = ()
    """Base rates of the levels."""
    judge: tuple[FiniteNumber, ...] = ()
    constant: FiniteNumber | None = None
    """The agreement of a judge that always gives the people's most frequent level."""


class DefectAgreement(Frozen):
    """Whether a reply has a defect, against gates, caps and the absolute score."""

    groups: int
    replies: int
    effective: FiniteNumber
    base_rate: FiniteNumber | None = None
    auc: AgreementFigure = AgreementFigure()
    """How often a sound reply has the higher absolute score; a tie counts half."""
    gate_precision: AgreementFigure = AgreementFigure()
    gate_recall: AgreementFigure = AgreementFigure()
    cap_precision: AgreementFigure = AgreementFigure()
    cap_recall: AgreementFigure = AgreementFigure()
    constant: FiniteNumber | None = None
    """The share of right answers of a judge that always says the more frequent one."""


class AgreementSlice(Frozen):
    """All labels, or those of one language or rubric version."""

    name: str
    pairs: PairAgreement
    criteria: tuple[CriterionAgreement, ...]
    defects: DefectAgreement
