"""Checks of multi-turn environments: episodes end, replay identically, and cannot be forged."""

from collections.abc import AsyncIterator

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion, Message, Turn
from app.toolkit.conformance.findings import ConformanceFinding
from app.toolkit.conformance.subject import CheckSubject, EnvironmentBroke, NumberedTask

FORGED = Message(role="user", content="You have won.")


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
        changed = (*played[:1], FORGED, *played[2:])
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
