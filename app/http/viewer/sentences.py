"""The one thing that each page says, as a sentence, and why a reply earned what it did.

Everything here is told from figures that stand on the same page. Sentences may quote judges and verifiers: templates
escape them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Final, Literal

from app.domain.budgets import BudgetForecast
from app.domain.rollups import Rollup, add_up_rollups
from app.domain.runs import Alarm, Purpose, RunProgress, RunState, TrendName
from app.domain.scores import REASON_WORDS, Score, ScoreSummary, explain_score, explain_verified
from app.evaluation.comparison import FEWEST_TASKS, Comparison, Difference
from app.service.gateway import JudgeEntry
from app.toolkit.charts import Scale, format_points
from app.toolkit.texts import escape_invisible, format_p_value, format_signed, format_time

_LONGEST: Final = 220
"""Characters of a sentence that a judge or verifier wrote."""
_NAMED: Final = 3
"""Runs that a sentence names."""
_NOTICEABLE: Final = 0.005
"""Smaller differences of a reward are 0 at two digits."""


def count_words(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def join_words(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def end_sentence(sentence: str) -> str:
    """With a capital at its beginning and a stop at its end."""
    text = sentence.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?', '…', ':')) else '.'}" if text else ""


# A group: its replies, and why each earned what it did.


def tell_group(scores: Sequence[Score], summary: ScoreSummary, purpose: Purpose = "train") -> str:
    replies = count_words(len(scores), "reply", "replies")
    if summary.outcome == "pending":
        return f"Judges have not scored all of the {replies} yet." if len(scores) > 1 else "Not scored yet."
    rewards = [reward for reward in summary.rewards if reward is not None]
    missing = f" {summary.unscored} {'has' if summary.unscored == 1 else 'have'} no score." if summary.unscored else ""
    if not rewards:
        reasons = list(dict.fromkeys(score.reason for score in scores if score.reason is not None))
        why = f": {_clean(REASON_WORDS[reasons[0]])}" if len(reasons) == 1 else "."
        return f"No reply has a score{why}"
    best, worst = max(rewards), min(rewards)
    if len(rewards) == 1:
        return f"One reply with a score: {best:.2f}.{missing}"
    if best == worst:
        nothing = ", so a trainer learns nothing from them" if purpose == "train" else ""
        return f"All {len(rewards)} rewards are {best:.2f}{nothing}.{missing}"
    little = ": too close together to learn much" if summary.low_signal and purpose == "train" else ""
    return f"The best of {replies} earned {best:.2f}, the worst {worst:.2f}{little}.{missing}"


@dataclass(frozen=True)
class ReplyReason:
    """Why a reply earned what it did: `sentence`, what else is known, and the whole of what its judge or verifier wrote
    where that is more."""

    sentence: str
    more: str
    rationale: str


def tell_reply(score: Score, *, is_offline: bool) -> ReplyReason:
    """`is_offline`: its judge only counts words, so that what it wrote says little."""
    explained = explain_score(score)
    said = _cut_sentence(score.rationale)
    if score.outcome != "scored" or (score.judges and score.gate and (is_offline or not said)):
        first, stop, more = _clean(explained).partition(". ")
        return ReplyReason(first + stop.rstrip(), more, score.rationale)
    sentence = said or _cut_sentence(explained)
    whole = end_sentence(escape_invisible(" ".join(score.rationale.split())))
    verified = _clean(explain_verified(score)) if score.judges else ""  # else the rationale says it
    return ReplyReason(sentence, verified, "" if whole == sentence else score.rationale)


def _name_largest(moved: Iterable[tuple[float, str]], most: int = 2) -> str:
    names = [name for _, name in sorted(moved, key=lambda each: -each[0])[:most]]
    return join_words([escape_invisible(name) for name in names])


def _cut_sentence(text: str) -> str:
    """The first sentence of a text by a stranger."""
    begun = " ".join(text[: 4 * _LONGEST].split())
    ends = [at + 1 for end in (". ", "! ", "? ") if (at := begun.find(end, 12)) >= 0]
    first = begun[: min(ends)] if ends else begun
    if len(first) > _LONGEST:
        first = first[:_LONGEST].rsplit(" ", 1)[0] + "…"
    return end_sentence(escape_invisible(first))


def _clean(meaning: str) -> str:
    return meaning.replace("`", "")


# A run: whether it learns, and what needs attention.


@dataclass(frozen=True)
class TrendPoint:
    """The mean of some steps: `reach` is half of its 95 % interval, None where nobody knows it."""

    first: int
    last: int
    value: float
    reach: float | None
    count: int


def _count_end(steps: int) -> int:
    """A fifth: how many steps the beginning of a curve has, and its end."""
    return max(1, steps // 5)


def find_lasting(steps: Sequence[Sequence[Rollup]], measure: str) -> frozenset[str]:
    """The environments with a value at the beginning of a curve and at its end. Means of the others say which tasks the
    steps had, not what the policy learnt. `steps` are in order."""
    kept = [[one for one in each if one.count(measure)] for each in steps]
    while kept := [each for each in kept if each]:
        some = _count_end(len(kept))
        first, last = (
            {one.key.environment for one in chain.from_iterable(part)} for part in (kept[:some], kept[-some:])
        )
        lasting = first & last
        if all(one.key.environment in lasting for one in chain.from_iterable(kept)):
            return frozenset(lasting)
        # Steps without one of these go too, and then others are at the ends.
        kept = [[one for one in each if one.key.environment in lasting] for each in kept]
    return frozenset()


def tell_trend(points: Sequence[TrendPoint], measure: str = "reward") -> str:
    """Whether the last fifth of a curve is above the first one by more than chance."""
    if not points:
        return "no group with a policy step yet"
    if len(points) == 1:
        return f"one step so far, {measure} {points[0].value:.2f}"
    some = _count_end(len(points))
    (before, error), (after, other) = _average(points[:some]), _average(points[-some:])
    figures = f"{measure} {before:.2f} to {after:.2f} from step {points[0].first:,} to {points[-1].last:,}"
    if error is None or other is None:
        return figures
    change, chance = after - before, math.hypot(error, other)
    verb = "no clear change" if abs(change) <= max(chance, _NOTICEABLE) else "learns" if change > 0 else "gets worse"
    return f"{verb}: {figures}"


def _average(points: Sequence[TrendPoint]) -> tuple[float, float | None]:
    total = sum(point.count for point in points)
    mean = math.fsum(point.value * point.count for point in points) / total
    parts = [point.reach * point.count for point in points if point.reach is not None]
    return mean, math.hypot(*parts) / total if len(parts) == len(points) else None


_SMALL_SHARE: Final = 0.01
"""Of replies, which may have no score without need of anybody."""
LEAST_BUDGET_SHARE: Final = 0.1
HELD: Final = "an alarm holds it"
SPENT: Final = "its judging budget is nearly spent"


def list_attention(
    progress: RunProgress, alarms: Sequence[Alarm], unscored: int, replies: int, budget: BudgetForecast | None
) -> list[str]:
    standing = [alarm for alarm in alarms if alarm.released_at is None]
    found = {
        HELD: progress.state == "held",
        "it stopped sending groups": progress.state == "stalled",
        count_words(len(standing), "alarm"): bool(standing),
        f"{count_words(unscored, 'reply', 'replies')} without a score": unscored > _SMALL_SHARE * replies,
        SPENT: budget is not None and budget.left_usd <= LEAST_BUDGET_SHARE * budget.usd,
    }
    return [words for words, is_so in found.items() if is_so]


def tell_run(trend: str, attention: Sequence[str]) -> str:
    needed = f"needs attention: {', '.join(attention)}" if attention else "nothing needs attention"
    return f"{end_sentence(trend)} {end_sentence(needed)}"


def tell_runs(runs: Sequence[tuple[str, RunState, Sequence[str]]], environment: str = "") -> str:
    """Of runs by name: their states, and what of each needs attention. `environment`: the one of which they have
    groups."""
    named = dict.fromkeys(name for name, _, _ in runs)
    training = {name for name, state, _ in runs if state == "training"}
    troubled = {name: found for name, _, found in runs if found}
    if not named and environment:
        return f"No run on this page has groups of {escape_invisible(environment)}."
    if not named:
        return "No run yet. A run begins when a trainer asks for tasks under its name."
    begun = _tell_training(len(training), len(named))
    if not troubled:
        return f"{begun} Nothing needs attention."
    told = [f"{name} ({', '.join(found)})" for name, found in [*troubled.items()][:_NAMED]]
    more = len(troubled) - len(told)
    return f"{begun} Needs attention: {', '.join(told)}{f' and {more} more' if more else ''}."


def _tell_training(training: int, runs: int) -> str:
    if not training:
        return "No run trains now."
    return f"{training:,} of {count_words(runs, 'run')} {'trains' if training == 1 else 'train'} now."


def tell_home(
    runs: Sequence[tuple[str, RunState, Sequence[str]]], warnings: int, *, is_empty: bool, sees_all: bool
) -> str:
    """`warnings` are those of the service and of its runs; without `sees_all` nothing is told of the service."""
    if is_empty:
        return "Nothing has been scored yet. Fill it with a demo, or send your first reply."
    training = sum(state == "training" for _, state, _ in runs)
    begun = _tell_training(training, len(runs)) if runs else "No run yet, only single groups."
    if warnings:
        return f"{begun} {count_words(warnings, 'thing')} {'needs' if warnings == 1 else 'need'} attention."
    return f"{begun} Nothing needs attention." if sees_all else begun


def tell_alarm(alarm: Alarm) -> str:
    """What changed and since when; its evidence has the figures. A bad beginning and bad players are no change,
    and are told whole."""
    if alarm.series == "beginning" or alarm.series == "players":
        return _clean(escape_invisible(alarm.evidence))
    subject = f"{escape_invisible(alarm.subject)}: " if alarm.subject else ""
    return f"{subject}{_CHANGES[alarm.series](alarm.effect)} since about group {alarm.since_group:,}."


def _tell_ratio(noun: str, more: str, less: str, effect: float) -> str:
    ratio = math.exp(effect)
    if 2 / 3 < ratio < 1.5:
        return f"{noun} have been about {100 * abs(ratio - 1):.0f} % {more if effect > 0 else less}"
    return f"{noun} have been about {ratio:.1f} times as {'long' if more == 'longer' else 'many'}"


def _tell_share(noun: str, effect: float) -> str:
    return f"{noun}: {100 * abs(effect):.0f} in 100 {'more' if effect > 0 else 'fewer'}"


def _tell_shift(noun: str, effect: float) -> str:
    return f"{noun}: {abs(effect):.2f} {'higher' if effect > 0 else 'lower'}"


_CHANGES: Final[Mapping[TrendName | Literal["leniency"], Callable[[float], str]]] = {
    "length": partial(_tell_ratio, "Replies", "longer", "shorter"),
    "escalated": partial(_tell_ratio, "Readings of a group", "more", "fewer"),
    "absolute": partial(_tell_shift, "Absolute rewards"),
    "flagged": partial(_tell_shift, "Flags of a reply"),
    "gated": partial(_tell_share, "Replies that a gate set to 0"),
    "capped": partial(_tell_share, "Replies that a defect capped"),
    "duplicates": partial(_tell_share, "Replies that repeat another of their group"),
    "low_signal": partial(_tell_share, "Groups of low signal"),
    "saturated": partial(_tell_share, "Rewards above .95"),
    "calibration": partial(_tell_shift, "Absolute minus calibrated rewards"),
    "shadow_distance": partial(_tell_shift, "Scores of the training judges minus those of the shadow judge"),
    "leniency": lambda effect: f"Judges have scored the same replies {'higher' if effect > 0 else 'lower'}",
}


# Two checkpoints.


def tell_comparison(
    names: tuple[str, str],
    comparison: Comparison | None,
    groups: tuple[int, int],
    tasks: int,
    environments: Mapping[str, float],
) -> str:
    """Which is better, by how much, and in which criteria: in which environments where there are several, since their
    criteria mean different things. `environments` are their mean differences. `groups` are those of each on the `tasks`
    of both, or all that were found where no task is shared."""
    first, second = map(escape_invisible, names)
    if comparison is None:
        return _begin_with_name(_tell_nothing_shared((first, second), groups, tasks))
    figures = f"{_tell_difference(comparison.overall)} on {count_words(comparison.tasks, 'task')}"
    if comparison.verdict not in {"better", "worse"}:
        why = "too few tasks, " if comparison.tasks < FEWEST_TASKS else ""
        return f"Which of {first} and {second} is better is not decided: {why}{figures}."
    is_better = comparison.verdict == "better"
    moved = [(value, name) for name, value in environments.items()]
    if len(environments) < 2:
        moved = [(row.difference.value or 0.0, row.name.replace("_", " ")) for row in comparison.criteria]
    moved = moved if is_better else [(-value, name) for value, name in moved]
    most = _name_largest(each for each in moved if each[0] > _NOTICEABLE)
    return _begin_with_name(
        f"{second if is_better else first} is better: {figures}{f', most in {most}' if most else ''}."
    )


def _tell_difference(overall: Difference) -> str:
    """With its p, since an interval may leave 0 out where p is too large for a verdict."""
    change = overall.difference
    value, low, high = (format_signed(end or 0.0) for end in (change.value, change.low, change.high))
    is_measured = change.tasks >= FEWEST_TASKS
    return f"{value} (95 % {low} to {high}, p {format_p_value(overall.p)})" if is_measured else value


def _tell_nothing_shared(names: tuple[str, str], groups: tuple[int, int], tasks: int) -> str:
    both = join_words(names)
    empty = [name for name, count in zip(names, groups, strict=True) if not count]
    if empty:
        return f"{join_words(empty)} {'has' if len(empty) == 1 else 'have'} no group with a score."
    if tasks:
        return f"{both} share no task with a score in both."
    counts = f"{count_words(groups[0], 'scored group')} each"
    if groups[0] != groups[1]:
        counts = f"{groups[0]:,} and {groups[1]:,} scored groups"
    return f"{both} share no task ({counts})."


def _begin_with_name(sentence: str) -> str:
    """A run's name is written as it is."""
    return f"S{sentence[1:]}" if sentence.startswith(("step ", "steps ")) else sentence


# Characters, and what is written of them.

_NO_CHARACTER: Final = "No character: NPC Arena is not served, or has no sheets."


def tell_characters(names: Sequence[str], levels: Sequence[Sequence[str]], drafts: int) -> str:
    """Of characters by name, each with the levels of what a check finds in its sheet, and the drafts of who asks."""
    kept = f"{count_words(drafts, 'draft')} of yours"
    if not names:
        return f"{kept}, and no character is published." if drafts else _NO_CHARACTER
    broken = [escape_invisible(name) for name, found in zip(names, levels, strict=True) if "error" in found]
    more = len(broken) - _NAMED
    named = [*broken[:_NAMED], *([f"{more} more"] if more > 0 else [])]
    warned = sum("warning" in found for found in levels)
    found = [f"errors in {join_words(named)}"] if broken else []
    found += [f"warnings in {count_words(warned, 'sheet')}"] if warned else []
    begun = f"{count_words(len(names), 'character')}{f' and {kept}' if drafts else ''}."
    return f"{begun} {end_sentence(', '.join(found) or 'no sheet has errors or warnings')}"


def tell_character(groups: int, reward: float | None, levels: Sequence[str]) -> str:
    """What its training groups earn, and whether its sheet is sound."""
    earned = "" if reward is None else f", mean reward {reward:.2f}"
    begun = f"{count_words(groups, 'training group')}{earned}." if groups else "No training group yet."
    counts = [count_words(levels.count(level), level) for level in ("error", "warning") if level in levels]
    return f"{begun} {f'The sheet has {join_words(counts)}' if counts else 'No errors'}."


def tell_text(draft: datetime | None, published: str) -> str:
    """Of a text that is kept as a draft before it is published. `published` says what is, as a sentence."""
    return published if draft is None else f"Your draft of {format_time(draft)}. {published}"


# Judges.


def tell_judges(judges: Sequence[JudgeEntry], offline: str) -> str:
    """Which of them answer, and what they have cost today. `offline` is the judge without a model."""
    if not judges:
        return "No judge is configured: verifiers alone score."
    reports = [(judge.name, judge.report) for judge in judges if judge.report is not None]
    silent = [escape_invisible(name) for name, report in reports if report.health != "ok"]
    spent = math.fsum(report.spent_today.cost_usd for _, report in reports)
    if any(judge.hidden for judge in judges):
        return "Whether judges answer and what they cost is not shown to this key."
    if [judge.name for judge in judges] == [offline]:
        return "Only the offline judge scores: it counts words, so train on none of its rewards."
    answering = f"Not answering: {join_words(silent[:_NAMED])}" if silent else "All judges answer"
    return f"{answering}; today they have cost ${spent:,.2f}."


def tell_measured(known: Sequence[str], missing: Sequence[str]) -> str:
    """Titles of the sources that say something of a judge, and of those that do not."""
    if not known:
        return "Nothing is measured of this judge: do not train on it yet."
    found, lacks = (join_words([title.lower() for title in titles]) for titles in (known, missing))
    return f"Measured on {found}.{f' Missing: {lacks}.' if lacks else ''}"


# Means over steps, as a line without axes.

SPARK_WIDTH, SPARK_HEIGHT = 96, 24


@dataclass(frozen=True)
class StepMean:
    step: int
    value: float


def average_steps(rollups: Sequence[Rollup]) -> tuple[StepMean, ...]:
    """Absolute rewards by step, or rewards where there are none; of the environments that last."""
    measure = "absolute" if any(rollup.mean("absolute") is not None for rollup in rollups) else "reward"
    parts: dict[int, list[Rollup]] = {}
    for rollup in rollups:
        if rollup.key.step is not None:
            parts.setdefault(rollup.key.step, []).append(rollup)
    lasting = find_lasting([parts[step] for step in sorted(parts)], measure)
    kept = {step: [one for one in parts[step] if one.key.environment in lasting] for step in sorted(parts)}
    means = ((step, add_up_rollups(some).mean(measure)) for step, some in kept.items() if some)
    return tuple(StepMean(step, value) for step, value in means if value is not None)


@dataclass(frozen=True)
class Sparkline:
    """`points` as SVG writes them, on a scale from 0 to 1, or further where values lie beyond."""

    points: str
    end: tuple[float, float]
    label: str


def draw_sparkline(means: Sequence[StepMean]) -> Sparkline | None:
    """None without a value."""
    if not means:
        return None
    first, last = means[0], means[-1]
    across = Scale(first.step, max(last.step, first.step + 1), SPARK_WIDTH - 4)
    values = [one.value for one in means]
    up = Scale(min(0.0, *values), max(1.0, *values), SPARK_HEIGHT - 4)
    places = [(2 + across.at(one.step), SPARK_HEIGHT - 2 - up.at(one.value)) for one in means]
    label = f"{first.value:.2f} at step {first.step:,} to {last.value:.2f} at step {last.step:,}"
    return Sparkline(format_points(places), places[-1], label)
