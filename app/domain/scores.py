"""Scores: a reward, or the reason why there is none, and its parts; and the scale of calibrated values.

A reward is null only where the service failed or a setting says so: a completion's own fault is a low reward.

Calibration turns a judge's scores into levels. Replies of known level are read beside a group, a line is fitted through
their scores, and the line gives the level of every other score. That scale holds across judges and steps; no reward
depends on it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import not_
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from app.domain.errors import ScoringFailed
from app.domain.values import FiniteNumber, Frozen, Reward, Unit, digest, is_absent

# Calibration

ReferenceKind = Literal["generic", "plain", "exemplar"]
"""A reply that anybody could have given, one that answers and no more, and one that is known to be good."""

LEVELS: Final[Mapping[ReferenceKind, float]] = {"generic": 0.2, "plain": 0.5, "exemplar": 0.8}
"""What each is worth, on the scale of `absolute`."""
_SPAN: Final = LEVELS["exemplar"] - LEVELS["generic"]
LOWEST: Final = LEVELS["generic"] - _SPAN
HIGHEST: Final = LEVELS["exemplar"] + _SPAN
"""A value is cut off one span beyond the references."""
CALIBRATION_SECONDS: Final = 140.0
"""For references and the further reading together: with the group's own readings less than runs' budgets hold."""
_FLATTEST: Final = 0.2
"""A line that rises less says nothing: an honest judge on its own scale gives 1."""
USUAL_NOISE: Final = 0.14
"""Standard deviation of one score around the line, in levels: what simulated judges of middling quality have
(`docs/results.md`)."""
_USUAL_READINGS: Final = 4
"""Residuals that `USUAL_NOISE` counts for, beside the one that three references leave."""

CalibrationGap = Literal[
    "no_references",
    "opted_out",
    "made_by_policy",
    "references_failed",
    "judge_failed",
    "budget",
    "no_judge",
    "not_read",
    "flat_line",
    "internal",
]
"""Why a rollout of a drawn group has no calibrated value. See `docs/judging.md`."""


class ReferencePlan(Frozen):
    """What an environment knows about the references of a task."""

    scene: str
    """Digest of all that the references depend on. Those that a judge makes are frozen under it."""
    given: dict[ReferenceKind, str] = {}
    """Replies that people wrote. A judge makes the others."""
    brief: str = ""
    """The situation, for a judge that makes references. Empty: none may be made."""
    opted_out: bool = False
    """The task's author wants no calibration."""


class References(Frozen):
    """Replies of all kinds to one line."""

    replies: dict[ReferenceKind, str]
    judge: str = ""
    """Who made some of them; empty where people wrote all."""
    model: str = ""


@dataclass(frozen=True)
class CalibratedValue:
    value: float
    error: float
    is_bounded: bool = False
    """It was cut off, since it lay too far beyond the references."""


@dataclass(frozen=True)
class ReferenceLine:
    """angle = `middle_angle` + `slope` x (level - `middle_level`), fitted to `count` references."""

    slope: float
    middle_level: float
    middle_angle: float
    variance: float
    """Of one angle around the line."""
    spread: float
    """Sum of squares of the levels around their mean."""
    count: int

    def calibrate(self, score: float) -> CalibratedValue:
        """The level at which the line has the angle of this score, x = x0 + (y - y0) / b: the classical estimator of a
        calibration line (Eisenhart, Annals of Mathematical Statistics 10, 1939; Osborne, International Statistical
        Review 59, 1991). Its standard error is s / b x sqrt(1 + 1 / n + (x - x0)^2 / Sxx)."""
        level = self.middle_level + (_stretch_score(score) - self.middle_angle) / self.slope
        away = (level - self.middle_level) ** 2 / self.spread
        error = math.sqrt(self.variance * (1.0 + 1.0 / self.count + away)) / self.slope
        bounded = min(HIGHEST, max(LOWEST, level))
        return CalibratedValue(bounded, error, is_bounded=bounded != level)


def _stretch_score(score: Unit) -> float:
    """The angular transformation (Bartlett, Journal of the Royal Statistical Society, Supplement 3, 1936), with slope
    1 in the middle: near its ends a scale squeezes what would lie beyond them."""
    return 0.5 + 0.5 * math.asin(2.0 * min(1.0, max(0.0, score)) - 1.0)


def fit_reference_line(points: Sequence[tuple[float, Unit]]) -> ReferenceLine | None:
    """The line of least squares through (level, score). None where it does not rise enough to say anything. The
    variance pools the residuals with what is usual, since three points leave one residual."""
    if len({level for level, _ in points}) < len(LEVELS):
        return None
    count = len(points)
    angles = [(level, _stretch_score(score)) for level, score in points]
    middle_level = math.fsum(level for level, _ in angles) / count
    middle_angle = math.fsum(angle for _, angle in angles) / count
    spread = math.fsum((level - middle_level) ** 2 for level, _ in angles)
    slope = math.fsum((level - middle_level) * (angle - middle_angle) for level, angle in angles) / spread
    if slope < _FLATTEST:
        return None
    residuals = math.fsum((angle - middle_angle - slope * (level - middle_level)) ** 2 for level, angle in angles)
    pooled = (_USUAL_READINGS * (USUAL_NOISE * slope) ** 2 + residuals) / (_USUAL_READINGS + count - 2)
    return ReferenceLine(slope, middle_level, middle_angle, pooled, spread, count)


def is_drawn(key: str, share: Unit) -> bool:
    """Whether the group of the task with this key is read once more. The same for every group, replica and run."""
    return int(digest(["calibration", key])[:13], 16) < share * 16**13


# Scores

Outcome = Literal["scored", "pending", "unscored"]

Reason = Literal[
    "judge_failed",
    "budget",
    "language_unknown",
    "self_judge",
    "verifier_killed",
    "verifier_failed",
    "version_changed",
    "stale",
    "environment_unavailable",
    "player_failed",
    "environment_failed",
    "reward_missing",
    "replay_diverged",
    "broken_off",
    "internal",
]
"""Why a rollout is unscored. Each reason is a failure or setting of the service, or of the server that sampled the
completion (`broken_off`), never the completion's fault."""

REASON_WORDS: Final[Mapping[Reason, str]] = {
    "judge_failed": "No judge gave a usable verdict in time, even after a corrective retry.",
    "budget": "The judge's budget is used up.",
    "language_unknown": "The judge does not know the language, or the reply is too short to tell the language.",
    "self_judge": "The judge uses the policy's own model, and its settings do not allow that.",
    "verifier_killed": "The check of the completion exceeded its limit on time or memory.",
    "verifier_failed": "The verifier itself failed.",
    "version_changed": "The task came from another version of the environment, or from another version of its data.",
    "stale": "The group's lag is above its run's `max_lag`, and the run drops such groups. This is final.",
    "environment_unavailable": "The environment's data cannot be read at the moment.",
    "player_failed": "The model that plays the player gave no usable line, or a line of the transcript is not stored.",
    "environment_failed": "The server that the environment runs on gave no answer. Asking again may help.",
    "reward_missing": "The environment raised, or gave no reward that is a number. This is final.",
    "replay_diverged": "The episode's session was lost, and it could not be played again with the same answers.",
    "broken_off": "The server that sampled the completion broke off: it is no sample.",
    "internal": "The service had a fault. Its log has the details.",
}

LASTING_REASONS: Final[frozenset[Reason]] = frozenset(
    {"broken_off", "player_failed", "reward_missing", "replay_diverged"}
)
"""Those that are the episode's own: asked again, it would be unscored for the same."""

ACTION: Final = "action"
"""Name of the criterion for what a character does beside its words."""
RECALL: Final = "recall"
"""Name of the criterion for what a character remembers of earlier conversations."""
TURN_TAKING: Final = "turn_taking"
"""Name of the criterion for whether a character speaks where it should and is silent where it should."""
VERIFIED: Final[Mapping[str, str]] = {ACTION: "Its action", RECALL: "Its memory", TURN_TAKING: "Its taking turns"}
"""Criteria that code verifies in a judged score, and how sentences about a score call them."""
FORBIDDEN_CAP: Final = 0.2
OUT_OF_TURN_CAP: Final = 0.2
SILENCE_CAP: Final = 0.5
_CAPPED: Final[Mapping[str, tuple[float, str]]] = {
    "forbidden_action": (FORBIDDEN_CAP, "An action that is forbidden here"),
    "out_of_turn": (OUT_OF_TURN_CAP, "A line where somebody else was asked"),
    "passes_when_asked": (SILENCE_CAP, "Silence where the character was asked"),
}
"""Flags of verified parts with the most that the whole completion earns, and how sentences call the cause."""


class Criterion(Frozen):
    """One named part of a score. If the criterion does not apply, `value` is null and its weight goes to the others."""

    name: str
    value: Unit | None
    weight: Unit
    note: str = ""


class Score(Frozen):
    """`reward` = gate x cap((1 - w) x absolute + w x relative), null unless `outcome` is `scored`. It lies in [0, 1].
    Of an environment that runs on another's server it is what that gave, and `absolute` is its place in the range that
    the settings state, or null beyond it."""

    outcome: Outcome
    reason: Reason | None = None
    reward: Reward | None = None
    gate: Unit | None = None
    """0 when a gate failed, else 1."""
    absolute: Unit | None = None
    """Quality on an absolute scale, comparable across groups and steps. Curves and evaluation use it times `gate`."""
    relative: Unit | None = None
    """Quality relative to the rest of the group; null if nothing was compared."""
    relative_weight: Annotated[Unit | None, Field(exclude_if=is_absent)] = None
    """The share w of `relative` in a judged reward."""
    cap: Annotated[Unit | None, Field(exclude_if=is_absent)] = None
    """The bound that a reported defect sets to the reward; null without one."""
    calibrated: FiniteNumber | None = None
    """Quality on the scale of replies of known level that were read beside the group; null if the group was not drawn
    for that. No reward depends on it."""
    calibrated_error: FiniteNumber | None = None
    """Standard error of `calibrated`."""
    uncalibrated: Annotated[CalibrationGap | None, Field(exclude_if=is_absent)] = None
    """Why a drawn group has no `calibrated`."""
    turn_rewards: Annotated[tuple[FiniteNumber, ...], Field(exclude_if=is_absent)] = ()
    """The reward in parts, one for each message of the model, in a run with `turn_rewards`. Added in order they are
    exactly `reward`."""
    criteria: tuple[Criterion, ...] = ()
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    """Names of the judges; empty for verified environments."""
    candidate: Annotated[str, Field(exclude_if=not_)] = ""
    """Id of this completion in the judgements. Equal completions share one id."""
    scoring_digest: str = ""
    """Digest of everything that affects rewards: environment version, data, rubric, judges, templates, options."""

    @property
    def last_reward(self) -> float | None:
        """What a wire that reports rewards of steps gives for the last one: the rest, or all where it gave nothing
        before."""
        return self.turn_rewards[-1] if self.turn_rewards else self.reward

    @property
    def is_final(self) -> bool:
        """Whether asking again gives the same. What is stale stays so."""
        return self.outcome == "scored" or self.reason == "stale"

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("a score has a reward exactly when its outcome is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("a score has a reason exactly when its outcome is unscored")
        return self

    @classmethod
    def exact(cls, correct: bool, criterion: str = "correct", rationale: str = "") -> "Score":
        """A verifier's score: 1 or 0 under one criterion."""
        return _build_exact(correct, criterion, rationale)

    @classmethod
    def gated(cls, *flags: str, rationale: str = "") -> Self:
        """The score of a completion that failed a deterministic gate: 0, whatever judges say."""
        return cls(outcome="scored", reward=0.0, gate=0.0, absolute=0.0, flags=flags, rationale=rationale)

    @classmethod
    def unscored(cls, reason: Reason, rationale: str = "") -> Self:
        return cls(outcome="unscored", reason=reason, rationale=rationale)

    @classmethod
    def from_error(cls, error: ScoringFailed) -> Self:
        """The unscored result for a failure of the service, with its reason."""
        reasons: dict[str, Reason] = {reason: reason for reason in get_args(Reason)}
        return cls.unscored(reasons.get(error.reason, "internal"), error.detail)

    @staticmethod
    @cache
    def pending() -> "Score":
        return Score(outcome="pending")


@lru_cache(maxsize=4096)
def _build_exact(correct: bool, criterion: str, rationale: str) -> Score:
    """A verifier's score. It is shared, since many completions are scored alike."""
    value = 1.0 if correct else 0.0
    return Score(
        outcome="scored",
        reward=value,
        gate=1.0,
        absolute=value,
        criteria=(Criterion(name=criterion, value=value, weight=1.0),),
        rationale=rationale,
    )


@dataclass(frozen=True)
class VerifiedPart:
    """A part of a judged score that code verifies: what a character does beside its words, what it recalls, or whether
    it takes its turns."""

    name: str
    """Name of its criterion, one of `VERIFIED`."""
    share: Unit
    """Its share of the reward; judges decide the rest."""
    value: Unit
    note: str
    """What is right, or what is wrong in words that do not tell the right answer."""
    flags: tuple[str, ...] = ()
    cap: Unit | None = None
    """The most that the whole completion earns."""


def add_part(score: Score, part: VerifiedPart) -> Score:
    """The judges' score and a verified part together. Each part of the score is mixed with the verified one by one
    share, so that `Score`'s formula still holds; caps bound the whole. A completion that failed a gate and one without
    a score stay what they are."""
    flags = tuple(dict.fromkeys((*score.flags, *part.flags)))
    if score.reward is None or not score.gate:
        return score.model_copy(update={"flags": flags})
    absolute = _mix(score.reward if score.absolute is None else score.absolute, part)
    relative = None if score.relative is None else _mix(score.relative, part)
    weight = 0.0 if relative is None else score.relative_weight or 0.0
    cap = min((one for one in (score.cap, part.cap) if one is not None), default=None)
    own = Criterion(name=part.name, value=part.value, weight=part.share, note=part.note)
    return score.model_copy(
        update={
            "reward": combine(score.gate, absolute, relative or 0.0, weight, 1.0 if cap is None else cap),
            "absolute": absolute,
            "relative": relative,
            "cap": cap,
            "criteria": (*_shrink_weights(score.criteria, part.share), own),
            "flags": flags,
        }
    )


def _mix(judged: Unit, part: VerifiedPart) -> Unit:
    return (1 - part.share) * judged + part.share * part.value


def _shrink_weights(criteria: Sequence[Criterion], share: Unit) -> Iterator[Criterion]:
    """Those that apply share what the verified part leaves, so that weights still sum to 1."""
    applying = math.fsum(one.weight for one in criteria if one.value is not None) or 1.0
    for one in criteria:
        weight = 0.0 if one.value is None else (1 - share) * one.weight / applying
        yield one.model_copy(update={"weight": weight})


# Rewards by turn

_TURN_STEPS: Final = 2**20
"""A part that is given before the end is a multiple of 1 / 2**20: sums of such parts are exact."""


def round_turn_reward(part: float | None) -> float | None:
    """A part as it is given. ScoringFailed for what is no number from -1 to 1."""
    if part is None:
        return None
    if not -1.0 <= part <= 1.0:  # nor NaN
        raise ScoringFailed(f"the reward of a turn is {part}, not a number from -1 to 1")
    return round(part * _TURN_STEPS) / _TURN_STEPS


def split_by_turn(score: Score, known: Sequence[float | None]) -> Score:
    """The score with a part for each turn. `known` are the parts that were known when each turn was played, as
    `round_turn_reward` gives them; one that was not known is 0. The last turn has the rest, whatever was known of it. A
    completion without a reward has no parts."""
    if score.reward is None or not known:
        return score
    earlier = tuple([part or 0.0 for part in known[:-1]])
    given = math.fsum(earlier)
    last = score.reward - given
    # The difference is rounded only where more than twice the reward was given before. The reward follows it, by less
    # than 1e-12: parts and reward agree, and parts that were given cannot change.
    return score.model_copy(update={"turn_rewards": (*earlier, last), "reward": given + last})


ADVANTAGE_EPSILON: Final = 1e-4


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """What the scores of a group come to: the same for its reply, its row, statistics, metrics and pages."""

    outcome: Outcome
    rewards: tuple[float | None, ...]
    """In the order of the completions."""
    scored: int
    unscored: int
    absolutes: tuple[float, ...]
    """gate x absolute of the scored ones that have an absolute part."""
    mean: float | None
    """Over the rewards that are not null, as `std`; null for fewer than two."""
    std: float | None
    """Sample standard deviation (n - 1), as TRL and verl compute it."""
    low_signal: bool
    """The group has little to teach: its rewards hardly differ, or the judges disagree. False for fewer than two
    rewards, which nobody can compare, and while scores are still to come."""

    def compute_advantages(self) -> tuple[float | None, ...]:
        """(reward - mean) / (std + epsilon); null for null, all null for fewer than two rewards."""
        if self.mean is None or self.std is None:
            return (None,) * len(self.rewards)
        mean, scale = self.mean, self.std + ADVANTAGE_EPSILON
        return tuple([None if reward is None else (reward - mean) / scale for reward in self.rewards])


def explain_score(score: Score) -> str:
    """Why a completion earned what it did, in a sentence or two for people. The words of judges and verifiers in it are
    untrusted."""
    if score.outcome == "pending":
        return "Not scored yet."
    if score.reason is not None:
        return f"No score: {REASON_WORDS[score.reason]}"
    if score.judges and score.gate:
        return " ".join(_explain_judged(score))
    named = ", ".join(f"{one.name} {one.value:.2f}" for one in score.criteria if one.value is not None)
    said = score.rationale or (f"A check failed: {', '.join(score.flags)}" if score.gate == 0 else named)
    return f"{said[:1].upper()}{said[1:]}{'' if said[-1:] in {*'.!?'} else '.'}"


def _explain_judged(score: Score) -> Iterator[str]:
    verified = find_verified(score)
    read = [one for one in score.criteria if one.value is not None and one not in verified]
    values = [(one.value, one.name.replace("_", " ")) for one in read if one.value is not None]
    best, worst = max(values, default=None), min(values, default=None)
    words = f"Judged {_take_out(score.absolute, verified):.2f} by itself"
    if best is not None and worst is not None and best[0] > worst[0]:
        words += f": most for {best[1]} ({best[0]:.2f}), least for {worst[1]} ({worst[0]:.2f})"
    yield f"{words}."
    if score.relative is not None and score.relative_weight and "no_comparison" not in score.flags:
        relative = _take_out(score.relative, verified)
        place = "above" if relative > 0.5 else "below" if relative < 0.5 else "in"
        yield f"Beside the other replies it stands {place} the middle ({relative:.2f})."
    yield from filter(None, [explain_verified(score)])
    if score.cap is not None and score.reward == score.cap:
        yield f"{_explain_cap(score)} caps the reward at {score.cap:.2f}."


def find_verified(score: Score) -> tuple[Criterion, ...]:
    """What code verified beside judges, which alone has a note; a rubric may have a criterion of that name, too."""
    return tuple(one for one in score.criteria if one.name in VERIFIED and one.note)


def explain_verified(score: Score) -> str:
    """What the calls of a reply and its memory were worth, and why; empty where code verified neither."""
    return " ".join(
        f"{VERIFIED[one.name]} scores {one.value or 0.0:.2f} ({one.weight:.0%} of the reward): {one.note}."
        for one in find_verified(score)
    )


def _take_out(part: float | None, verified: Sequence[Criterion]) -> float:
    """What judges gave: without what code verified, which is mixed into a part of the score."""
    left = 1.0 - math.fsum(one.weight for one in verified)
    mixed_in = math.fsum(one.weight * (one.value or 0.0) for one in verified)
    return min(1.0, max(0.0, ((part or 0.0) - mixed_in) / left))


def _explain_cap(score: Score) -> str:
    """Of several caps the lowest holds. Where it is none of code's, it is one of the judges'."""
    by_code = (words for flag, (most, words) in _CAPPED.items() if flag in score.flags and most == score.cap)
    return next(by_code, "A defect that the judges reported")


def combine(gate: float, absolute: float, relative: float, relative_weight: float, cap: float = 1.0) -> float:
    """gate x min(cap, (1 - w) x absolute + w x relative)."""
    return gate * min(cap, (1.0 - relative_weight) * absolute + relative_weight * relative)
