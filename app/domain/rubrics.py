"""Rubrics: those of environments, those that people give in their place, and what is wrong in these."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import not_
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints

from app.domain.digests import digest_of_model
from app.domain.suggestions import suggest
from app.domain.values import Frozen, Unit, require_encodable

LEVELS: Final = range(5)
"""The scale on which a judge marks a criterion."""
_WEIGHT_TOLERANCE: Final = 1e-6

Level = Annotated[int, Field(ge=LEVELS[0], le=LEVELS[-1])]
_Code = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000), AfterValidator(require_encodable)
]
_Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class Requirement(Frozen):
    criterion: str
    at_least: Unit


class RubricCriterion(Frozen):
    """One criterion, judged on a scale of 0 to 4. `anchors` describes a reply of each level."""

    name: str
    weight: Unit
    description: str
    anchors: dict[int, str]
    requires: Requirement | None = None
    """The criterion counts as 0 unless the named criterion reaches this value."""


class Bound(Frozen):
    criterion: str
    at_most: Unit


class DefectRule(Frozen):
    """A defect that the judge may report. `cap` limits the final reward of a completion that has it."""

    code: str
    description: str
    cap: Unit | None = None
    bounds: Annotated[Bound | None, Field(exclude_if=not_)] = None
    """Limits a criterion's value in every judgement that reports the defect."""
    confirms: Annotated[str | None, Field(exclude_if=not_)] = None
    """Flag of a hint. If the defect is reported, with a quote, for a completion with this hint, the gate fails."""
    omission: Annotated[bool, Field(exclude_if=not_)] = False
    """Something is left out: the only kind of defect that needs no quote."""


class ClaimRule(Frozen):
    """Verdicts list the completion's claims about events, and code matches them to the events."""

    criterion: str
    """The criterion that applies once any completion makes a claim."""
    unsupported: str
    """Code of the defect for a claim that no event supports."""


class Rubric(Frozen):
    name: str
    version: str
    instructions: str
    criteria: tuple[RubricCriterion, ...]
    defects: tuple[DefectRule, ...] = ()
    claims: Annotated[ClaimRule | None, Field(exclude_if=not_)] = None
    """None: verdicts list no claims."""

    def model_post_init(self, _: object) -> None:
        """Names must be known. No validator, which every model that holds a rubric would run again."""
        criteria = {criterion.name for criterion in self.criteria}
        named = {rule.bounds.criterion for rule in self.defects if rule.bounds is not None}
        if self.claims is not None:
            named.add(self.claims.criterion)
            if self.claims.unsupported not in {rule.code for rule in self.defects}:
                raise ValueError(f"claims: there is no defect {self.claims.unsupported!r}")
        if named - criteria:
            raise ValueError(f"there is no criterion {min(named - criteria)!r}")


class OwnCriterion(RubricCriterion):
    name: _Code
    description: _Text
    anchors: dict[Level, _Text]

    def __hash__(self) -> int:
        return hash((self.name, self.weight, self.description, self.requires))


class OwnDefect(DefectRule):
    code: _Code
    description: _Text


class OwnRubric(Frozen):
    """A rubric in place of the environment's own: criteria with weights and anchors, and defects with caps."""

    name: _Label
    version: _Label
    """Change it whenever the rubric changes. Rewards follow the content, whatever the version says."""
    instructions: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=16_000),
        AfterValidator(require_encodable),
    ]
    """What judges are told before the criteria."""
    criteria: Annotated[tuple[OwnCriterion, ...], Field(min_length=1, max_length=24)]
    """Only the proportions of the weights count."""
    defects: Annotated[tuple[OwnDefect, ...], Field(max_length=64)] = ()
    claims: ClaimRule | None = None
    """Null: verdicts list no claims."""

    def build_rubric(self) -> Rubric:
        """ValueError for names that do not exist; `find_rubric_problems` says where."""
        return Rubric.model_validate(self.model_dump(exclude_none=True))


class RubricLabel(Frozen):
    """Which rubric judged."""

    name: str
    version: str
    digest: str

    @classmethod
    def from_rubric(cls, rubric: Rubric) -> "RubricLabel":
        return cls(name=rubric.name, version=rubric.version, digest=digest_of_model(rubric))


@dataclass(frozen=True)
class RubricProblem:
    """`at` is the path of the field."""

    at: tuple[str | int, ...]
    level: Literal["error", "warning"]
    message: str


def find_rubric_problems(rubric: OwnRubric, hints: Collection[str] = ()) -> tuple[RubricProblem, ...]:
    """`hints`: the flags of gates that a defect has to confirm before they close."""
    return (
        *_find_repeated(rubric),
        *_find_broken_scales(rubric),
        *_find_broken_weights(rubric),
        *_find_unknown_names(rubric),
        *_find_unconfirmed_hints(rubric, hints),
    )


def _find_repeated(rubric: OwnRubric) -> Iterator[RubricProblem]:
    for part, field, names in (
        ("criteria", "name", [criterion.name for criterion in rubric.criteria]),
        ("defects", "code", [rule.code for rule in rubric.defects]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                last = len(names) - 1 - names[::-1].index(name)
                yield RubricProblem((part, last, field), "error", f"{name!r} is there more than once")


def _find_broken_scales(rubric: OwnRubric) -> Iterator[RubricProblem]:
    for number, criterion in enumerate(rubric.criteria):
        at = ("criteria", number, "anchors")
        missing = [level for level in LEVELS if level not in criterion.anchors]
        ends = [level for level in missing if level in (LEVELS[0], LEVELS[-1])]
        if ends:
            message = f"there is no anchor {ends[0]}: judges mark from {LEVELS[0]} to {LEVELS[-1]} and need both ends"
            yield RubricProblem(at, "error", message)
        elif missing:
            named = ", ".join(map(str, missing))
            yield RubricProblem(at, "warning", f"no anchor for {named}: judges must guess what lies between")


def _find_broken_weights(rubric: OwnRubric) -> Iterator[RubricProblem]:
    total = sum(criterion.weight for criterion in rubric.criteria)
    if total == 0:
        yield RubricProblem(("criteria", 0, "weight"), "error", "all weights are 0: every reward would be 0")
        return
    for number, criterion in enumerate(rubric.criteria):
        if criterion.weight == 0:
            message = "is 0: judges mark the criterion, and it does not count"
            yield RubricProblem(("criteria", number, "weight"), "warning", message)
    if abs(total - 1.0) > _WEIGHT_TOLERANCE:
        message = f"the weights add up to {total:g}, not 1: only their proportions count"
        yield RubricProblem(("criteria",), "warning", message)


def _find_unknown_names(rubric: OwnRubric) -> Iterator[RubricProblem]:
    criteria, codes = [one.name for one in rubric.criteria], [rule.code for rule in rubric.defects]
    for number, criterion in enumerate(rubric.criteria):
        if criterion.requires is None:
            continue
        at = ("criteria", number, "requires", "criterion")
        if criterion.requires.criterion == criterion.name:
            yield RubricProblem(at, "error", "a criterion cannot require itself")
        else:
            yield from _require_known(at, "criterion", criterion.requires.criterion, criteria)
    for number, rule in enumerate(rubric.defects):
        if rule.bounds is not None:
            at = ("defects", number, "bounds", "criterion")
            yield from _require_known(at, "criterion", rule.bounds.criterion, criteria)
    if rubric.claims is not None:
        yield from _require_known(("claims", "criterion"), "criterion", rubric.claims.criterion, criteria)
        yield from _require_known(("claims", "unsupported"), "defect", rubric.claims.unsupported, codes)


def _require_known(at: tuple[str | int, ...], what: str, name: str, known: Collection[str]) -> Iterator[RubricProblem]:
    if name not in known:
        yield RubricProblem(at, "error", f"there is no {what} {name!r}{suggest(name, known)}")


def _find_unconfirmed_hints(rubric: OwnRubric, hints: Collection[str]) -> Iterator[RubricProblem]:
    confirmed = [(number, rule.confirms) for number, rule in enumerate(rubric.defects) if rule.confirms is not None]
    for number, hint in confirmed:
        yield from _require_known(("defects", number, "confirms"), "hint of a gate", hint, hints)
    for hint in sorted(set(hints) - {hint for _, hint in confirmed}):
        message = f"no defect confirms the hint {hint!r}, so its gate could never close: give one `confirms: {hint}`"
        yield RubricProblem(("defects",), "error", message)
