"""Judging: rubrics, requests to judges and their answers, the facts of gates, and how a reward is made of all that.

An environment describes a group as a `Case`: a rubric, what the judge may know, and the candidates. A panel asks judges
about it in one of three modes, all candidates at once, in pairs, or one by one, and each answer is a `Judgement` with a
`Verdict` for every candidate. Gates check replies against `GateFacts` first, by code alone: a candidate that fails one
gets 0, whatever judges say.

reward = gate x min(cap, (1 - w) x absolute + w x relative). `absolute` is the weighted mean of the criteria, `relative`
the place within the group, and `cap` the lowest bound of the reported defects.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import not_
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, SkipValidation, StringConstraints

from app.domain.keeping import ReducedReading
from app.domain.making import GroupMaking
from app.domain.scores import Criterion, Outcome, ReferenceKind, Score, ScoreSummary, combine
from app.domain.tasks import Message
from app.domain.values import (
    MEBIBYTE,
    FiniteNumber,
    Frozen,
    SameObject,
    Unit,
    digest_of_model,
    is_absent,
    remember,
    require_encodable,
    suggest,
)

# Rubrics

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
        """Names must exist. This is no validator, which every model that holds a rubric would run again."""
        criteria = {criterion.name for criterion in self.criteria}
        references = {rule.bounds.criterion for rule in self.defects if rule.bounds is not None}
        if self.claims is not None:
            references.add(self.claims.criterion)
            if self.claims.unsupported not in {rule.code for rule in self.defects}:
                raise ValueError(f"claims: there is no defect {self.claims.unsupported!r}")
        if references - criteria:
            raise ValueError(f"there is no criterion {min(references - criteria)!r}")

    def extend(self, more: "Rubric") -> "Rubric":
        """This rubric with another one's instructions, criteria and defects behind its own, under the other's name. Its
        own criteria share the weight that the others leave."""
        left = 1.0 - math.fsum(criterion.weight for criterion in more.criteria)
        own = (one.model_copy(update={"weight": left * one.weight}) for one in self.criteria)
        return Rubric(
            name=more.name,
            version=f"{self.version}.{more.version}",
            instructions=f"{self.instructions} {more.instructions}",
            criteria=(*own, *more.criteria),
            defects=(*self.defects, *more.defects),
            claims=self.claims,
        )


class OwnCriterion(RubricCriterion):
    name: _Code
    description: _Text
    anchors: dict[Level, _Text]

    def __hash__(self) -> int:
        # Without the anchors: a dictionary has no hash, and options that hold a rubric are keys of caches.
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
    """What is wrong in a rubric that somebody wrote. `hints`: the flags of gates that a defect has to confirm before
    they close."""
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
            levels = ", ".join(map(str, missing))
            yield RubricProblem(at, "warning", f"no anchor for {levels}: judges must guess what lies between")


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
            yield from _require_existing(at, "criterion", criterion.requires.criterion, criteria)
    for number, rule in enumerate(rubric.defects):
        if rule.bounds is not None:
            at = ("defects", number, "bounds", "criterion")
            yield from _require_existing(at, "criterion", rule.bounds.criterion, criteria)
    if rubric.claims is not None:
        yield from _require_existing(("claims", "criterion"), "criterion", rubric.claims.criterion, criteria)
        yield from _require_existing(("claims", "unsupported"), "defect", rubric.claims.unsupported, codes)


def _require_existing(
    at: tuple[str | int, ...], what: str, name: str, names: Collection[str]
) -> Iterator[RubricProblem]:
    if name not in names:
        yield RubricProblem(at, "error", f"there is no {what} {name!r}{suggest(name, names)}")


def _find_unconfirmed_hints(rubric: OwnRubric, hints: Collection[str]) -> Iterator[RubricProblem]:
    confirmed = [(number, rule.confirms) for number, rule in enumerate(rubric.defects) if rule.confirms is not None]
    for number, hint in confirmed:
        yield from _require_existing(("defects", number, "confirms"), "hint of a gate", hint, hints)
    for hint in sorted(set(hints) - {hint for _, hint in confirmed}):
        message = f"no defect confirms the hint {hint!r}, so its gate could never close: give one `confirms: {hint}`"
        yield RubricProblem(("defects",), "error", message)


# Requests and judgements

Document = Annotated[dict[str, JsonValue], SkipValidation]
"""JSON made by the service. Never copied, since it can be large and all judge calls of a group share it."""
Mode = Literal["listwise", "pairwise", "pointwise"]
"""How a panel presents a group to a judge: all at once, in pairs, or one by one."""


class SourceEvent(Frozen):
    """An event that the speaker knows, as shown to judges. Claims cite it by id."""

    id: str
    text: str


class Candidate(Frozen):
    """One completion under an opaque id. Chat judges see a letter in its place."""

    id: str
    text: str
    own: str = ""
    """If `text` is a transcript of an episode: the lines that the model wrote. Empty means all of it."""
    hints: tuple[str, ...] = ()
    """Possible problems found by word checks, in words. They may be false alarms."""
    messages: tuple[Message, ...] = ()
    """If `text` is a transcript of an episode: the episode itself. Empty means one message with `text`."""


class Probes(Frozen):
    """Reference notes of a task, for judges only: what a reply should and should not contain."""

    must_mention: tuple[str, ...] = ()
    must_not_mention: tuple[str, ...] = ()
    voice: tuple[str, ...] = ()
    """Words and turns of phrase typical of the speaker."""
    facts: tuple[str, ...] = ()
    """True statements that the reply may draw on."""
    notes: str = ""
    """What the player's line is meant to test."""


class JudgeRequest(Frozen):
    """One call to a judge about one group. `candidates` are in presentation order."""

    rubric: Rubric
    document: Document
    """Everything the judge may know besides the candidates: sheet, scene, conversation, passages. Data only."""
    probes: Probes
    candidates: tuple[Candidate, ...]
    sources: tuple[SourceEvent, ...] = ()
    """Events in `document` that claims may rest on."""
    language: str = ""  # ISO 639-1 code of the language of the texts; empty if unknown
    mode: Mode = "listwise"
    mirrored: bool = True  # the reverse order is asked as well; without it letters are turned by a hash of the task
    vote: int = 0
    """Number of the repeat. It keeps repeats of a question from being answered from the cache."""
    conversation: tuple[Message, ...] = ()
    """What the model was asked. Only reward models read it: it is what they are trained on."""
    wanted: tuple[ReferenceKind, ...] = ()
    """Replies that the judge is to write itself, by `brief`. There are no candidates then, and no verdicts."""
    brief: str = ""
    fresh: bool = False
    """Ask the model even if the answer is cached, and cache nothing. It changes nothing that the model reads."""


class Defect(Frozen):
    code: str
    quote: str = ""
    """Verbatim from the candidate; empty when the fault is an omission."""


class Claim(Frozen):
    """A candidate's claim about an event."""

    quote: str
    """Verbatim from the candidate."""
    source: str | None
    """Id of the supporting event; null if no event supports the claim."""
    source_quote: str = ""
    """Verbatim from that event's text."""


class Verdict(Frozen):
    """The judge's verdict on one candidate. `scores` maps criteria to [0, 1]; null if a criterion does not apply."""

    candidate: str
    evidence: tuple[str, ...] = ()
    claims: Annotated[tuple[Claim, ...], Field(exclude_if=not_)] = ()
    """Claims, if the rubric asks for them. A claim without a source is also listed as a defect."""
    defects: tuple[Defect, ...] = ()
    scores: dict[str, Unit | None]
    note: str = ""
    reward: Annotated[FiniteNumber | None, Field(exclude_if=is_absent)] = None
    """What a reward model said, on a scale of its own. `scores` then has one entry, REWARD_CRITERION."""


REWARD_CRITERION: Final = "reward_model"
"""Name of the criterion of a reward model, which knows no rubric."""

JudgeFailure = Literal["unavailable", "unusable", "refused", "budget", "language"]
"""Why there are no verdicts: no answer, an unusable one, a refusal, a used-up budget, an unknown language."""


JudgingPurpose = Literal["score", "calibration", "references", "player"]
"""What a judgement is for: a score, the calibrated values of a group, or replies that calibration needs."""


def _is_score(purpose: str) -> bool:
    return purpose == "score"


class Judgement(Frozen):
    """One judge's answer to one request, as stored. `error` is set, and verdicts empty, when it could not be used."""

    judge: str
    model: str
    order: tuple[str, ...]
    """Candidate ids as presented."""
    verdicts: tuple[Verdict, ...] = ()
    ranking: tuple[tuple[str, ...], ...] = ()
    """Best first; ids in one tuple are tied."""
    prompt: str = ""
    prompt_digest: str = ""
    raw: str = ""
    error: str | None = None
    failure: JudgeFailure | None = None
    """Kind of `error`; null if the judge does not report it."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """How many of `input_tokens` the provider had in its prefix cache."""
    reasoning_tokens: int = 0
    """How many of `output_tokens` the model thought and did not say, where the server tells."""
    cost_usd: FiniteNumber | None = None
    """Null when no price is configured."""
    latency_seconds: FiniteNumber = 0.0
    calls: int = 0
    """Requests sent to the model, including the corrective retry; 0 for a judge without a model."""
    unanswered_calls: int = 0
    """How many of `calls` got no answer but may be charged, for example after a timeout."""
    unanswered_tokens: int = 0
    """Maximum tokens of the unanswered calls; not included in `input_tokens` and `output_tokens`."""
    unanswered_usd: FiniteNumber = 0.0
    """Maximum cost of the unanswered calls; not included in `cost_usd`. 0 when no price is configured."""
    cached: bool = False
    """Answered from the cache: nothing was sent and nothing was paid."""
    reading: str = ""
    """Digest of the request, used as the cache key. Empty for judges without a cache."""
    purpose: Annotated[JudgingPurpose, Field(exclude_if=_is_score)] = "score"
    served_model: Annotated[str, Field(exclude_if=not_)] = ""
    """The model that the server says answered; empty where it does not say."""
    system_fingerprint: Annotated[str, Field(exclude_if=not_)] = ""
    """The server's name for what ran behind the model; empty where it does not say."""
    instead_of: tuple["Judgement", ...] = ()
    """Unusable judgements of the judges asked before this one. They are stored as judgements of their own."""

    reduced: Annotated[ReducedReading | None, Field(exclude_if=is_absent)] = None
    """What is not kept of `prompt` and `raw`."""

    @property
    def attempts(self) -> tuple["Judgement", ...]:
        """The judgements that this one replaces, then this one."""
        if not self.instead_of:
            return (self,)
        return (*self.instead_of, self.model_copy(update={"instead_of": ()}))

    @property
    def without_cost(self) -> "Judgement":
        """The same for who gets it later: somebody else has accounted for it."""
        free = None if self.cost_usd is None else 0.0
        return self.model_copy(
            update={"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": free, "latency_seconds": 0.0}
            | {"cached_input_tokens": 0, "reasoning_tokens": 0}
            | {"unanswered_calls": 0, "unanswered_tokens": 0, "unanswered_usd": 0.0}
            | ({"cached": True} if self.error is None else {})
        )


class Spending(Frozen):
    """What a judge has used so far. The cost of unanswered calls is unknown; budgets count their maximum."""

    readings: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """How many of `input_tokens` providers had in their prefix caches."""
    reasoning_tokens: int = 0
    cost_usd: FiniteNumber = 0.0
    unanswered_calls: int = 0
    """How many of `calls` got no answer but may be charged."""
    unanswered_tokens: int = 0
    unanswered_usd: FiniteNumber = 0.0
    """Maximum cost of the unanswered calls."""

    def __add__(self, other: "Spending") -> "Spending":
        mine, theirs = dict(self), dict(other)
        return Spending.model_validate({name: value + theirs[name] for name, value in mine.items()})

    @classmethod
    def of_judgements(cls, judgements: Sequence[Judgement]) -> "Spending":
        names = [name for name in Spending.model_fields if name != "readings"]
        used = {name: sum(getattr(one, name) or 0 for one in judgements) for name in names}
        return cls(readings=len(judgements), **used)

    def add_judgement(self, judgement: Judgement) -> "Spending":
        return self + Spending.of_judgements([judgement])


class JudgeReport(Frozen):
    """Health and spending of a judge. Spending counts all processes on the database, the others' within seconds. The
    rest is since the service started. `changes` and `ignored`: what the server refuses and ignores."""

    health: Literal["ok", "probing", "out"]
    """The circuit breaker: `out` is open after repeated failures, `probing` half-open with one trial request."""
    last_error: str | None
    in_flight: int
    queued: int
    """Calls that wait for a rate or concurrency limit."""
    limit: int
    """Maximum number of concurrent calls of all processes on the same database; adapts to the server."""
    share: int = 0
    """How many of `limit` this process may make now."""
    spent: Spending
    spent_today: Spending
    budget_left_usd: FiniteNumber | None
    """What remains of the tightest money budget; null without one."""
    budget_left_tokens: int | None
    cache_hits: int
    changes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    prompts_cut: int = 0
    """Prompts of which the server counted less than half the tokens that it has counted for so many bytes. It may have
    cut them."""


# Cases, and the facts of gates


class SecretTerms(Frozen):
    id: str
    terms: tuple[str, ...]
    """Any of these terms in a reply reveals the secret, unless the player said it first."""


ASKED_SINCERELY: Final = "asked_sincerely"
"""In a document's `scene`: the player asks outside the story whether a program answers, and may be told."""


class GateFacts(Frozen):
    """What the gates check a reply against: the speaker and the situation."""

    speaker: str
    aliases: tuple[str, ...] = ()
    others: tuple[str, ...] = ("Player", "User")
    """Names that the reply must not speak or act for."""
    is_machine: bool = False
    """The character is a machine and may say so."""
    is_asked_sincerely: bool = False
    """The player asks outside the story whether a program answers, and may be told."""
    secrets: tuple[SecretTerms, ...] = ()
    withheld_terms: tuple[str, ...] = ()
    """Terms of events that this character cannot know."""
    unheard_terms: tuple[str, ...] = ()
    """Terms of lines of this scene that the character does not hear."""
    traps: tuple[str, ...] = ()
    """Words that a forged order asks the reply for. They count where the player has said them."""
    forbidden_words: tuple[str, ...] = ()
    prompt: str = ""
    """The system prompt, to detect replies that recite it."""
    player_said: str = ""
    history: tuple[str, ...] = ()
    """The speaker's own earlier lines."""
    examples: tuple[str, ...] = ()
    """The sheet's example lines, which replies must not copy."""
    max_words: int = 200
    language: str = "en"
    allowed_actions: tuple[str, ...] = ()
    """Actions that a reply may put in square brackets. Empty means the sheet sets no rule."""
    most_actions: int | None = None
    """Maximum number of actions in one reply; null for any number."""
    spoken_words_only: bool = False
    rubric: str = ""
    """The judges' rubric, to detect replies that recite it. A panel fills it in."""
    disabled: tuple[str, ...] = ()
    """Flags of gates that the sheet disables."""


class SpokenLine(Frozen):
    """One line that a model wrote in an episode, with the gate facts at that point."""

    text: str
    gates: GateFacts


class Case(Frozen):
    """A group to be judged by a panel. `key` seeds presentation orders and ids, so equal cases are judged alike."""

    key: str
    rubric: Rubric
    document: Document
    probes: Probes = Probes()
    gates: GateFacts | None = None
    sources: tuple[SourceEvent, ...] = ()
    language: str = ""
    """ISO 639-1 code; empty means the language of `gates`, if given."""
    candidates: tuple[str, ...]
    lines: tuple[tuple[SpokenLine, ...], ...] = ()
    """For transcripts of episodes: the model's lines per candidate, which gates check one by one."""
    conversation: tuple[Message, ...] = ()
    """What the model was asked, for reward models. Without it they cannot score."""
    episodes: tuple[tuple[Message, ...], ...] = ()
    """For transcripts of episodes: the messages per candidate."""


class PanelResult(Frozen):
    """One score per candidate, in request order, and all judgements, including failed ones. `making` says how the
    scores followed from the judgements; a panel that does not say is null, and so is one whose judges failed."""

    scores: tuple[Score, ...]
    judgements: tuple[Judgement, ...] = ()
    making: GroupMaking | None = None


# Rewards and statistics of groups

"""Added to the standard deviation, as TRL does (grpo_trainer, `scale_rewards="group"`)."""

LOW_SIGNAL_STD: Final = 0.01
"""Below this standard deviation of rewards, a group counts as having no training signal."""


def compute_own_reward(score: Score) -> float | None:
    """gate x absolute within the cap: what an evaluation would have paid, comparable across groups. None without a
    reward."""
    if score.reward is None or score.absolute is None:
        return score.reward
    gate, cap = (1.0 if part is None else part for part in (score.gate, score.cap))
    return combine(gate, score.absolute, 0.0, 0.0, cap)


def apply_bounds(rubric: Rubric, verdict: Verdict) -> Mapping[str, float | None]:
    """The scores of one judgement, limited by the defects that it reports."""
    if not verdict.defects:
        return verdict.scores
    reported = {defect.code for defect in verdict.defects}
    scores = dict(verdict.scores)
    for bound in (rule.bounds for rule in rubric.defects if rule.code in reported and rule.bounds is not None):
        score = scores.get(bound.criterion)
        if score is not None:
            scores[bound.criterion] = min(score, bound.at_most)
    return scores


def find_cap(rubric: Rubric, defects: Iterable[Defect]) -> float:
    """The lowest cap among the defects; 1 without any."""
    reported = {defect.code for defect in defects}
    if not reported:
        return 1.0
    return min((rule.cap for rule in rubric.defects if rule.code in reported and rule.cap is not None), default=1.0)


def build_criteria(rubric: Rubric, values: Mapping[str, float | None]) -> tuple[Criterion, ...]:
    """The rubric's criteria with their values. A criterion with an unmet requirement counts as 0, and its note says so.
    Weights of criteria that do not apply are distributed over the others in proportion."""
    (weighed,) = _weigh_criteria(rubric, (values,))
    return tuple(
        [
            _build_criterion(
                criterion.name,
                value,
                weight,
                _explain_unmet(criterion, values) if criterion.requires is not None else "",
            )
            for criterion, (value, weight) in zip(rubric.criteria, weighed, strict=True)
        ]
    )


@lru_cache(maxsize=4096)
def _build_criterion(name: str, value: float | None, weight: float, note: str) -> Criterion:
    """A criterion. It is cached, since judges give few different numbers."""
    return Criterion(name=name, value=value, weight=weight, note=note)


def compute_absolute_score(rubric: Rubric, values: Mapping[str, float | None]) -> float:
    """The same as `compute_absolute` of `build_criteria`, without making the criteria."""
    (score,) = compute_absolute_scores(rubric, (values,))
    return score


def compute_absolute_scores(rubric: Rubric, listed: Iterable[Mapping[str, float | None]]) -> tuple[float, ...]:
    """`compute_absolute_score` of each."""
    return tuple(
        [
            min(1.0, math.fsum([weight * value for value, weight in weighed if value is not None]))
            for weighed in _weigh_criteria(rubric, listed)
        ]
    )


def _weigh_criteria(
    rubric: Rubric, listed: Iterable[Mapping[str, float | None]]
) -> Iterator[list[tuple[float | None, float]]]:
    """For each of the listed values, by criterion the value that counts, and its weight. What they share is looked up
    once."""
    same = SameObject(rubric)
    names, requiring, weights = _list_criteria(same)
    for values in listed:
        counting = list(map(values.get, names))
        for position, criterion in requiring:
            if _is_unmet(criterion, values):
                counting[position] = 0.0
        shares = _share_weights(same, tuple([value is not None for value in counting])) if None in counting else weights
        yield list(zip(counting, shares, strict=True))


@remember(MEBIBYTE)
def _list_criteria(
    rubric: SameObject[Rubric],
) -> tuple[tuple[str, ...], tuple[tuple[int, RubricCriterion], ...], tuple[float, ...]]:
    """The names of all criteria, those that require another with their positions, and the weights where all apply."""
    criteria = rubric.value.criteria
    requiring = tuple((position, each) for position, each in enumerate(criteria) if each.requires is not None)
    return tuple(each.name for each in criteria), requiring, _share_weights(rubric, (True,) * len(criteria))


@remember(MEBIBYTE)
def _share_weights(rubric: SameObject[Rubric], applies: tuple[bool, ...]) -> tuple[float, ...]:
    """Weights of the criteria where some do not apply: the others share theirs in proportion."""
    applying = [(each.weight, applied) for each, applied in zip(rubric.value.criteria, applies, strict=True)]
    applicable = math.fsum([weight for weight, applied in applying if applied])
    return tuple(weight / applicable if applied and applicable else 0.0 for weight, applied in applying)


def _is_unmet(criterion: RubricCriterion, values: Mapping[str, float | None]) -> bool:
    """Whether the criterion counts as 0 although it has a value."""
    needed = criterion.requires
    if needed is None or values.get(criterion.name) is None:
        return False
    return (values.get(needed.criterion) or 0.0) < needed.at_least


def _explain_unmet(criterion: RubricCriterion, values: Mapping[str, float | None]) -> str:
    """Why the criterion counts as 0 although it has a value; empty if it does not."""
    value, needed = values.get(criterion.name), criterion.requires
    if value is None or needed is None or not _is_unmet(criterion, values):
        return ""
    reached = values.get(needed.criterion) or 0.0
    return (
        f"judged {value:.2f}, counts as 0: {needed.criterion} is {reached:.2f} and must be at least {needed.at_least:g}"
    )


def compute_absolute(criteria: Sequence[Criterion]) -> float:
    """The weighted mean of the criteria that apply; 0 if none does."""
    return min(1.0, math.fsum([c.weight * c.value for c in criteria if c.value is not None]))


def combine_outcomes(scores: Iterable[Score]) -> Outcome:
    """The outcome of a group: `pending` if any is, else `unscored` if any is, else `scored`."""
    outcomes = {score.outcome for score in scores}
    return "pending" if "pending" in outcomes else "unscored" if "unscored" in outcomes else "scored"


@lru_cache(maxsize=4096)
def _measure_spread(rewards: tuple[float, ...]) -> tuple[float | None, float | None]:
    """Mean and spread. They are cached: each group asks for them four times, and verifiers give few different
    rewards."""
    if len(rewards) < 2:
        return None, None
    mean = math.fsum(rewards) / len(rewards)
    return mean, math.sqrt(math.fsum([(reward - mean) ** 2 for reward in rewards]) / (len(rewards) - 1))


def summarise_scores(scores: Sequence[Score]) -> ScoreSummary:
    rewards = tuple([score.reward for score in scores])
    mean, std = _measure_spread(tuple([reward for reward in rewards if reward is not None]))
    outcomes, outcome = [score.outcome for score in scores], combine_outcomes(scores)
    says_little = std is not None and (std < LOW_SIGNAL_STD or any(["low_signal" in score.flags for score in scores]))
    absolutes = [
        score.absolute if score.gate is None else score.gate * score.absolute
        for score in scores
        if score.absolute is not None and score.outcome == "scored"
    ]
    return ScoreSummary(
        outcome=outcome,
        rewards=rewards,
        scored=outcomes.count("scored"),
        unscored=outcomes.count("unscored"),
        absolutes=tuple(absolutes),
        mean=mean,
        std=std,
        low_signal=says_little and outcome != "pending",
    )


class JudgeVersion(Frozen):
    """What a judge's server said answered, and when it first said so. Another version is another judge."""

    judge: str
    model: str
    system_fingerprint: str
    first_at: datetime
