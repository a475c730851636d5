"""Checks of rewards: only the right answer is rewarded, for any text, deterministically."""

from collections.abc import AsyncIterator, Sequence
from math import sqrt
from typing import Final

from app.domain.scores import Score
from app.domain.tasks import Completion
from app.toolkit.conformance.findings import ConformanceFinding
from app.toolkit.conformance.hostile_texts import HARD, build_junk, generate_hostile
from app.toolkit.conformance.subject import SPLITS, CheckSubject, NumberedTask, shorten_reply

KNOWN: Final = 0.5
"""Minimum fraction of tasks with a known right answer, for environments without judges."""
DUMPED: Final = 9
"""Other right answers before and after the task's own."""

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
        if not subject.is_judged and len(known) < KNOWN * len(tasks):
            yield ConformanceFinding(
                task="",
                expected=f"a right answer from `gold` for at least {KNOWN:.0%} of the tasks in {split}",
                came=f"{len(known)} of {len(tasks)}",
                mend="An environment without judges must know its right answers: compute one in `gold`.",
            )


async def strangers_earn_nothing(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    met = await subject.score_foreign_answers()
    paid = [one for one in met if one.reward != 0.0]
    chance = subject.environment.chance
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
        for kind, reply in build_junk(one.task, subject.environment.gold(one.task)).items():
            (score,) = await subject.score(one, [reply])
            if score.reward is None or score.reward > subject.most:
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"at most {subject.most:g} for {kind}",
                    came=_describe_score(score),
                    mend=_UNSCORED if score.reward is None else _suggest_fix(kind),
                )


async def a_list_of_answers_earns_nothing(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    """Many answers in tags or boxes, the right one among them, count as none."""
    for split in SPLITS:
        known = [
            (one, text)
            for one in subject.make_tasks(split, 2 * DUMPED + 1)
            if (text := _find_tagged_gold(subject, one))
        ]
        texts = [text for _, text in known]
        for place, (one, own) in enumerate(known):
            others = [text for text in [*texts[place + 1 :], *texts[:place]] if text != own]
            half = len(others) // 2
            if not others:
                continue
            (score,) = await subject.score(one, ["\n".join([*others[:half], own, *others[half:]])])
            if score.reward != 0.0:
                yield ConformanceFinding(
                    task=str(one),
                    expected=f"0 for {len(others) + 1} answers of which one is right",
                    came=_describe_score(score),
                    mend="Treat different answers as no answer, as `app.toolkit.answers.committed` does.",
                )


async def no_text_breaks_it(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    """With `chance`, a nonsense text may be right too."""
    asked = subject.make_tasks("train", 200)
    most = 1.0 if subject.environment.chance else subject.most
    generated = generate_hostile(subject.depth.sample if subject.is_judged else subject.depth.texts)
    for number, text in enumerate([*HARD, *generated]):
        one = asked[number % len(asked)]
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
        replies: Sequence[str | Completion] = [*build_junk(one.task, gold).values(), *([gold] if gold else [])]
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
    if "thinking" in kind:
        return (
            "Thinking does not count as an answer: `app.toolkit.answers.committed` removes it, "
            "`app.toolkit.answers.committed` shows how."
        )
    if "prompt" in kind:
        return "The answer is found in the echoed prompt. Read only the committed answer, in full."
    return "Read one declared answer format in full, and reject everything else; no answer earns no reward."


def _find_tagged_gold(subject: CheckSubject, one: NumberedTask) -> str | None:
    """The right answer if it is marked by tags or a box, else None."""
    gold = subject.environment.gold(one.task)
    text = None if gold is None or subject.is_judged or one.task.max_turns > 1 else gold.text
    return text if text is not None and ("<answer>" in text or "\\boxed{" in text) else None
