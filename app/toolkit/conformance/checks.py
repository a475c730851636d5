"""Conformance: what every environment guarantees, each guarantee as a check that yields findings with a likely fix.

Tasks are deterministic, distinct and apart by split, and give nothing away. Only the right answer is rewarded, for any
text and however it is spelled. Strategies that do not do the task earn no more than the environment states. Episodes
end, replay identically and cannot be forged.
"""

import inspect
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Turn
from app.domain.values import Name, estimate_tokens
from app.ports.environment import Environment
from app.toolkit.conformance.attempts import build_junk, generate_hostile
from app.toolkit.conformance.probes import HARD
from app.toolkit.conformance.strategies import (
    measure_rewards,
    right_answers_are_paid_in_any_spelling,
    strategies_earn_what_is_stated,
)
from app.toolkit.conformance.subject import (
    SPLITS,
    CheckDepth,
    CheckResult,
    CheckSubject,
    ConformanceFigures,
    ConformanceFinding,
    EnvironmentBroke,
    NumberedTask,
    Spread,
    compute_sample_digest,
    format_prompt,
    shorten_reply,
)

# Tasks: deterministic, distinct, separate splits, no leaked answers

_DISTINCT: Final = 0.98
"""Minimum fraction of distinct prompts."""
_MAX_LABELS: Final = 100
"""Maximum number of label values."""
_LABELLED: Final = 200
"""Number of tasks whose labels are counted."""
_PURE = (
    "Take all randomness from `app.toolkit.seeded.SeededRandom`, seeded with split, params and index. Time, `random`, "
    "`hash` and the order of sets differ between processes."
)


async def says_what_it_is(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    kind = type(subject.environment)
    try:
        TypeAdapter(Name).validate_python(kind.name)
    except ValidationError:
        yield ConformanceFinding(
            task="",
            expected="a name of lower-case letters, digits, - and _, since it is part of URLs",
            came=repr(kind.name),
            mend="Rename it.",
        )
    if not getattr(kind, "version", ""):
        yield ConformanceFinding(task="", expected="a version", came="none", mend='Set `version`, such as "1".')
    module = inspect.getmodule(kind)
    if module is None or not (module.__doc__ or "").strip():
        yield ConformanceFinding(
            task="",
            expected="a module docstring, whose first paragraph is the description in the catalogue",
            came="none",
            mend="Describe the task, an example of prompt, reply and reward, and what earns nothing.",
        )
    if not 0 <= kind.chance < 1:
        yield ConformanceFinding(
            task="", expected="`chance` in [0, 1)", came=str(kind.chance), mend="It is a fraction of tasks."
        )
    for split in SPLITS:
        size = subject.environment.size(split, kind.Params())
        if size is not None and size < 1:
            yield ConformanceFinding(
                task="",
                expected=f"tasks in {split}",
                came=f"size {size}",
                mend="Return None from `size` for an endless split.",
            )


async def the_same_bytes(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for split in SPLITS:
        for one, again in zip(
            subject.make_tasks(split, subject.depth.sample), subject.remake_sample(split), strict=False
        ):
            if one.task.model_dump_json() != again.task.model_dump_json():
                yield ConformanceFinding(
                    task=str(one),
                    expected="the same task from the same index every time",
                    came=f"{shorten_reply(format_prompt(one.task))}, then {shorten_reply(format_prompt(again.task))}",
                    mend=_PURE,
                )
    digests = {} if subject.elsewhere is None else await subject.elsewhere()
    for split, elsewhere in digests.items():
        if elsewhere != compute_sample_digest(subject.environment, split):
            yield ConformanceFinding(
                task=f"{split} 0 to {CheckDepth.sample - 1}",
                expected="the same tasks in every process",
                came="different tasks in a separate process",
                mend=_PURE,
            )


async def splits_stay_apart(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    train = {format_prompt(one.task): one for one in subject.make_tasks("train")}
    for one in subject.make_tasks("test"):
        if format_prompt(one.task) in train:
            yield ConformanceFinding(
                task=str(one),
                expected="no prompt in both splits",
                came=f"{train[format_prompt(one.task)]} has the same prompt: {shorten_reply(format_prompt(one.task))}",
                mend="Derive the split from the content with `app.toolkit.seeded.draw_apart`, which "
                "`app.toolkit.procedural` uses with `key`. Equal keys share a split; a key must hold everything that "
                "makes two tasks different.",
            )


async def tasks_differ(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    tasks = subject.make_tasks("train")
    distinct = len({format_prompt(one.task) for one in tasks})
    if distinct < _DISTINCT * len(tasks):
        yield ConformanceFinding(
            task="",
            expected=f"{_DISTINCT:.0%} of {len(tasks):,} prompts distinct",
            came=f"{distinct:,}",
            mend="Add variety: larger numbers, longer lists, more parts, several phrasings.",
        )


async def the_answer_is_hidden(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.make_sample():
        public = json.dumps([one.task.metadata, [tool.model_dump(mode="json") for tool in one.task.tools]])
        secret = json.dumps(one.task.reference)
        # A shorter reference, such as `"A"`, would be found in any metadata.
        if len(secret) > 4 and secret.strip('"') in public:
            yield ConformanceFinding(
                task=str(one),
                expected="metadata and tools without the reference",
                came=f"metadata {shorten_reply(json.dumps(one.task.metadata))}",
                mend="Metadata are public. Put everything that reveals the answer into `reference`.",
            )


async def labels_agree(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    environment, params = subject.environment, subject.environment.Params()
    sample = subject.make_sample()
    for one in sample:
        written = one.task.metadata.get(environment.stats_label or "")
        label = environment.label(one.split, one.index, params)
        if label != written:
            yield ConformanceFinding(
                task=str(one),
                expected=f"`label` equal to {environment.stats_label!r} in the metadata",
                came=f"{label!r} and {written!r}",
                mend="`label` must return the value that `task` writes to the metadata.",
            )
    values = {
        one.task.metadata.get(environment.stats_label or "") for one in subject.make_tasks("train", _LABELLED)
    } - {None}
    if environment.stats_label is not None and not 0 < len(values) <= _MAX_LABELS:
        yield ConformanceFinding(
            task="",
            expected=f"tasks with 1 to {_MAX_LABELS} different values of {environment.stats_label!r} in their metadata",
            came=str(len(values)),
            mend="Set `stats_label` to a metadata key with few values, such as a level or a kind of task.",
        )


# Rewards: only the right answer, for any text, deterministically

_KNOWN: Final = 0.5
"""Minimum fraction of tasks with a known right answer, for environments without judges."""

_UNSCORED = (
    "Unscored means that the service failed. Return a score for every text; unreadable text earns 0. "
    "Run expensive parsing in `tools.workers`, with limits."
)


async def gold_earns_one(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for split in SPLITS:
        tasks = subject.make_tasks(split, subject.depth.sample if subject.is_judged else subject.depth.scored)
        known = [(one, gold) for one in tasks if (gold := subject.environment.gold(one.task)) is not None]
        for one, gold in known:
            (score,) = await subject.score(one, [gold])
            if score.reward != 1.0:
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"1.0 for its own right answer, {shorten_reply(gold)}",
                    came=_describe_score(score),
                    mend="`gold` and `score` disagree. If the answer is right, give it 1.0; if no reply is sure to be "
                    "right, return None from `gold`.",
                )
        if not subject.is_judged and len(known) < _KNOWN * len(tasks):
            yield ConformanceFinding(
                task="",
                expected=f"a right answer from `gold` for at least {_KNOWN:.0%} of the tasks in {split}",
                came=f"{len(known)} of {len(tasks)}",
                mend="An environment without judges must know its right answers: compute one in `gold`.",
            )


async def strangers_earn_nothing(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    met = await subject.score_foreign_answers()
    paid = [one for one in met if one.reward != 0.0]
    chance = subject.environment.chance
    # Three standard deviations, so that luck alone almost never fails an environment.
    allowed = chance * len(met) + 3 * sqrt(chance * (1 - chance) * len(met))
    if len(paid) > allowed:
        shown = ", ".join(f"{one.one} by that of {one.other} ({one.reward})" for one in paid[:3])
        yield ConformanceFinding(
            task="",
            expected=f"at most {chance:.1%} of tasks solved by another task's right answer (`chance`)",
            came=f"{len(paid)} of {len(met)}: {shown}",
            mend="Answers repeat too often, so a constant answer would earn rewards: use a larger range of answers. If "
            "there are only few tasks or answers, declare `chance`.",
        )
        return
    for one in paid:
        if one.reward == 1.0 and not subject.environment.equivalent(one.one.task, one.other.task):
            yield ConformanceFinding(
                task=str(one.one),
                expected=f"less than 1 for the right answer of {one.other}, which is not `equivalent`",
                came="1.0",
                mend="Score only what was asked for; if both answers are right, make `equivalent` return True.",
            )


async def junk_earns_nothing(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.make_sample(4 if subject.is_judged else None):
        for kind, reply in build_junk(one.task).items():
            (score,) = await subject.score(one, [reply])
            if score.reward is None or score.reward > subject.most:
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"at most {subject.most:g} for {kind}",
                    came=_describe_score(score),
                    mend=_UNSCORED if score.reward is None else _suggest_fix(kind),
                )


async def no_text_breaks_it(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    """With `chance`, a nonsense text may be right too."""
    tasks = subject.make_tasks("train", 200)
    most = 1.0 if subject.environment.chance else subject.most
    generated = generate_hostile(subject.depth.sample if subject.is_judged else subject.depth.texts)
    for number, text in enumerate([*HARD.values(), *generated]):
        one = tasks[number % len(tasks)]
        (score,) = await subject.score(one, [text])
        if subject.is_judged and score.reason == "language_unknown":
            continue
        if score.reward is None or score.reward > (most if number >= len(HARD) else subject.most):
            yield ConformanceFinding(
                task=str(one),
                expected=f"at most {most:g} for a nonsense text, {shorten_reply(text)}",
                came=_describe_score(score),
                mend=_UNSCORED
                if score.reward is None
                else "Find out why this text counts as an answer, and reject it.",
            )


async def scores_come_in_order(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.make_sample(2):
        gold = subject.environment.gold(one.task)
        group: list[str | Completion] = ["", gold or "Yes.", ""]
        scores = await subject.score(one, group)
        rewards = [score.reward for score in scores]
        right = len(scores) == 3 and (gold is None or subject.is_judged or rewards == [0.0, 1.0, 0.0])
        if not right:
            yield ConformanceFinding(
                task=str(one),
                expected="one score per completion, in the order of the group: 0, 1, 0",
                came=str(rewards),
                mend="Return one score per completion from `score`, in order.",
            )


async def scoring_twice_says_the_same(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.make_sample(2):
        gold = subject.environment.gold(one.task)
        replies: Sequence[str | Completion] = [*build_junk(one.task).values(), *([gold] if gold else [])]
        first, second = await subject.score(one, replies), await subject.score(one, replies)
        for reply, once, again in zip(replies, first, second, strict=False):
            if once != again:
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"the same score for {shorten_reply(reply)} every time",
                    came=f"{_describe_score(once)}, then {_describe_score(again)}",
                    mend="Keep no state in scoring, and seed all randomness.",
                )


def _describe_score(score: Score) -> str:
    reward = "no reward" if score.reward is None else f"{score.reward:g}"
    return f"{reward}: {score.reason or score.rationale or ', '.join(score.flags) or 'no reason given'}"


def _suggest_fix(kind: str) -> str:
    if "prompt" in kind:
        return "The answer is found in the echoed prompt. Read only the committed answer, in full."
    return "Read one declared answer format in full, and reject everything else; no answer earns no reward."


# Checks of multi-turn environments: episodes end, replay identically, and cannot be forged.

_FORGED = Message(role="user", content="You have won.")


async def episodes_end(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.episodes:
        played, ended = _play_episode(subject, one)
        if not ended:
            yield ConformanceFinding(
                task=str(one),
                expected=f"an episode that ends within its max_turns, {one.task.max_turns}",
                came="it continues",
                mend="`step` must return `done` with the last turn at the latest; an invalid reply uses up a turn.",
            )
        if _play_episode(subject, one)[0] != played:
            yield ConformanceFinding(
                task=str(one),
                expected="the same observations for the same replies",
                came="different ones",
                mend="Replay the episode from its transcript: `app.toolkit.replay.replay_episode`. Keep no state.",
            )
    if max((one.task.max_turns for one in subject.episodes), default=0) < 2:
        yield ConformanceFinding(
            task="", expected="tasks with max_turns above 1", came="none", mend="Raise `turns`, or remove `multi_turn`."
        )


async def what_is_forged_is_refused(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.episodes:
        played = _play_episode(subject, one)[0]
        changed = (*played[:1], _FORGED, *played[2:])
        for what, messages, field in (
            ("no messages", (), "messages"),
            ("a forged observation", changed, "messages[1]"),
            ("a reply after the end", (*played, *played[:1]), None),
        ):
            came = _find_refused_field(subject, one, messages)
            if came is None or (field is not None and came != field):
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"InvalidRequest naming {field or 'the message'} for {what}",
                    came="it was accepted" if came is None else f"it names {came!r}",
                    mend="Use `app.toolkit.replay`: `replay_episode` for the moves, `build_turn` for the answer.",
                )
        (score,) = await subject.score(one, [Completion(messages=changed)])
        if score.reward is None or score.reward > 0:
            yield ConformanceFinding(
                task=str(one),
                expected="0 for a transcript with a forged observation",
                came=str(score.reward),
                mend="Return `app.toolkit.replay.score_forgery` for it.",
            )


async def turns_are_rewarded_once(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    environment = subject.environment
    for one in subject.episodes:
        gold = environment.gold(one.task)
        for messages in (_play_episode(subject, one)[0], (gold and gold.messages) or ()):
            whole = [*environment.turn_rewards(one.task, messages)]
            turns = [end for end, message in enumerate(messages, 1) if message.role == "assistant"]
            early = [[*environment.turn_rewards(one.task, messages[:end])] for end in turns]
            if any(part is not None and not -1 <= part <= 1 for part in whole) or any(
                known != whole[: min(count, len(whole))] for count, known in enumerate(early, 1)
            ):
                yield ConformanceFinding(
                    task=str(one),
                    expected="rewards of turns from -1 to 1, which later messages do not change",
                    came=f"{whole} at the end, {early} as the messages came",
                    mend="`turn_rewards` may use of each message only what came before it: "
                    "`app.toolkit.replay.list_stages`.",
                )


def _play_episode(subject: CheckSubject, one: NumberedTask) -> tuple[tuple[Message, ...], bool]:
    """An episode of invalid replies, and whether it ended."""
    said: tuple[Message, ...] = ()
    for number in range(one.task.max_turns):
        said = (*said, Message(role="assistant", content=f"Reply {number}."))
        turn = _take_step(subject, one, said)
        if turn.done:
            return said, True
        said += turn.messages
    return said, False


def _take_step(subject: CheckSubject, one: NumberedTask, said: tuple[Message, ...]) -> Turn:
    try:
        return subject.environment.step(one.task, said)
    except Exception as error:  # whatever an environment may raise
        raise EnvironmentBroke(error, "a step of an episode", str(one)) from error


def _find_refused_field(subject: CheckSubject, one: NumberedTask, messages: tuple[Message, ...]) -> str | None:
    """The field named by the refusal; None without a refusal."""
    try:
        subject.environment.step(one.task, messages)
    except InvalidRequest as error:
        return error.field or ""
    except Exception as error:  # whatever an environment may raise
        raise EnvironmentBroke(error, "a step of an episode", str(one)) from error
    return None


# The checks, in order of execution

MOST_FINDINGS: Final = 20
"""Maximum findings per check."""


def _applies_always(kind: type[Environment]) -> bool:
    return True


def _has_turns(kind: type[Environment]) -> bool:
    return kind.multi_turn


def _is_verified(kind: type[Environment]) -> bool:
    return kind.rubric is None


@dataclass(frozen=True)
class Check:
    asks: str
    """The guarantee that it checks, in one sentence."""
    run: Callable[[CheckSubject], AsyncIterator[ConformanceFinding]]
    applies: Callable[[type[Environment]], bool] = _applies_always

    @property
    def name(self) -> str:
        return self.run.__name__


CHECKS: Final[Sequence[Check]] = (
    Check("It has a name, a version, a description and tasks.", says_what_it_is),
    Check("The same index gives the same task, byte for byte.", the_same_bytes),
    Check("No prompt is in both splits.", splits_stay_apart),
    Check("Prompts differ.", tasks_differ),
    Check("Nothing public reveals the answer.", the_answer_is_hidden),
    Check("Labels match the metadata.", labels_agree),
    Check("The right answer earns 1.", gold_earns_one),
    Check("Another task's right answer earns nothing.", strangers_earn_nothing, _is_verified),
    Check("Junk earns nothing.", junk_earns_nothing),
    Check(
        "Strategies that do not do the task earn what is stated, and no more.",
        strategies_earn_what_is_stated,
        _is_verified,
    ),
    Check("A right answer is paid in any spelling.", right_answers_are_paid_in_any_spelling, _is_verified),
    Check("No text breaks scoring or earns a reward by accident.", no_text_breaks_it),
    Check("A group gets one score per completion, in order.", scores_come_in_order),
    Check("Scoring twice gives the same scores.", scoring_twice_says_the_same),
    Check("Episodes end, and replay identically.", episodes_end, _has_turns),
    Check("Forged observations are refused.", what_is_forged_is_refused, _has_turns),
    Check("Later turns change no reward of a turn.", turns_are_rewarded_once, _has_turns),
)


async def apply_check(subject: CheckSubject, check: Check) -> CheckResult:
    """Runs a check. Never raises: exceptions of the environment become findings."""
    applied = check.applies(type(subject.environment))
    findings: list[ConformanceFinding] = []
    if applied:
        try:
            async for finding in check.run(subject):
                findings.append(finding)
                if len(findings) == MOST_FINDINGS:
                    break
        except EnvironmentBroke as broke:
            findings.append(_build_exception_finding(broke.where, broke.said, f"nothing raised while {broke.doing}"))
        except Exception as error:  # whatever an environment may raise
            findings.append(_build_exception_finding("", f"{type(error).__name__}: {error}", "nothing raised"))
    return CheckResult(name=check.name, asks=check.asks, applied=applied, findings=tuple(findings))


def _build_exception_finding(task: str, came: str, expected: str) -> ConformanceFinding:
    mend = "Text from a model must never raise: unreadable text earns 0." if "scoring" in expected else ""
    return ConformanceFinding(
        task=task, expected=expected, came=came, mend=mend or "See the file and line after the error."
    )


# Measurements: speed, sizes and variety of tasks

_TIMED: Final = 300
"""Number of tasks and completions timed for a rate."""


@dataclass(frozen=True)
class _Timings:
    """Seconds per item, as processor time and wall time."""

    processor: tuple[float, ...]
    clock: tuple[float, ...]

    @property
    def rate(self) -> float:
        return len(self.processor) / max(sum(self.processor), 1e-9)


async def measure_environment(subject: CheckSubject) -> ConformanceFigures:
    environment = subject.environment
    params = environment.Params()
    train = subject.make_tasks("train")
    golds = [(one, gold) for one in train if (gold := environment.gold(one.task)) is not None]
    timed = await _time_scores(subject, golds[:_TIMED])
    rubbish = await _time_scores(subject, _collect_junk(subject, train))
    prompts = [format_prompt(one.task) for one in train]
    right = Counter(gold.model_dump_json() for _, gold in golds)
    met = [] if subject.is_judged else await subject.score_foreign_answers()
    return ConformanceFigures(
        tasks_per_second=_time_tasks(subject).rate,
        gold_scores_per_second=timed.rate if golds else None,
        junk_scores_per_second=rubbish.rate,
        score_p99_ms=_compute_p99_ms((*timed.processor, *rubbish.processor)),
        score_p99_ms_by_the_clock=_compute_p99_ms((*timed.clock, *rubbish.clock)),
        train_size=environment.size("train", params),
        test_size=environment.size("test", params),
        looked_at=len(train),
        distinct_prompts=len(set(prompts)),
        prompt_characters=_compute_spread([len(prompt) for prompt in prompts]),
        prompt_tokens=_compute_spread([estimate_tokens(prompt) for prompt in prompts]),
        commonest_gold=max(right.values()) / len(golds) if golds else None,
        strangers_paid=sum(one.reward != 0.0 for one in met) / len(met) if met else None,
        chance=environment.chance,
        rewards=await measure_rewards(subject),
    )


def _time_tasks(subject: CheckSubject) -> _Timings:
    """Times tasks beyond the checked ones where possible, to avoid caches."""
    params = subject.environment.Params()
    size = subject.environment.size("train", params)
    first = subject.depth.tasks if size is None else max(0, size - _TIMED)
    spent: list[float] = []
    for index in range(first, first + _TIMED if size is None else size):
        began = time.process_time()
        subject.environment.task("train", index, params)
        spent.append(time.process_time() - began)
    return _Timings(tuple(spent), ())


def _collect_junk(subject: CheckSubject, train: Sequence[NumberedTask]) -> list[tuple[NumberedTask, Completion]]:
    """Junk replies of each kind in turn."""
    replies: list[tuple[NumberedTask, Completion]] = []
    for number, one in enumerate(train[: subject.depth.sample if subject.is_judged else _TIMED]):
        texts = list(build_junk(one.task).values())
        replies.append((one, Completion(text=texts[number % len(texts)])))
    return replies


async def _time_scores(subject: CheckSubject, replies: Sequence[tuple[NumberedTask, Completion]]) -> _Timings:
    processor: list[float] = []
    clock: list[float] = []
    for one, reply in replies:
        spent, began = time.process_time(), time.perf_counter()
        await subject.score(one, [reply])
        processor.append(time.process_time() - spent)
        clock.append(time.perf_counter() - began)
    return _Timings(tuple(processor), tuple(clock))


def _compute_p99_ms(seconds: Sequence[float]) -> float:
    """99th percentile in milliseconds; 0 without values."""
    ordered = sorted(seconds) or [0.0]
    return 1_000 * ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]


def _compute_spread(numbers: Sequence[int]) -> Spread:
    return Spread(least=min(numbers), median=round(median(numbers)), most=max(numbers))
