"""Tool agent: the wishes fulfilled and nothing beside them earn 1, everything else nothing."""

import json
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, FunctionCall, Message, Task, ToolCall
from app.domain.values import Split
from app.envs.tool_agent.environment import ToolAgent, ToolAgentParams
from app.envs.tool_agent.episodes import MOST_TURNS
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from tests.support.event_loop import finish
from tests.support.tiers import examples

TOOLS = Tools(panel=NoPanel())
AGENT = ToolAgent()


@lru_cache
def tasks(split: Split) -> tuple[Task, ...]:
    return tuple(AGENT.task(split, index, ToolAgentParams()) for index in range(40))


def scores(task: Task, *group: Completion) -> list[Score]:
    return finish(AGENT.score(task, group, TOOLS))


def gold(task: Task) -> tuple[Message, ...]:
    return AGENT.gold(task).messages or ()


def test_a_way_cut_short_is_scored_as_it_stands() -> None:
    """No beginning of the known way is paid before its last change and its last answer."""
    early = []
    for task in tasks("train"):
        own = gold(task)
        beginnings = (Completion(messages=own[:length]) for length in range(len(own) + 1))
        rewards = [score.reward for score in scores(task, *beginnings)]
        if rewards[-1] != 1.0 or 1.0 in rewards[: len(own) // 2]:
            early.append((task.metadata["kind"], rewards))
    assert early == []


def test_calls_are_rewarded_as_they_come() -> None:
    """The known way earns one half before the end, by its calls alone. Calls for another task earn nothing."""
    paid = set()
    for task, other in pairwise(tasks("train")):
        own = [message for message in gold(task) if message.role == "assistant"]
        known = AGENT.turn_rewards(task, gold(task))
        said = [part or 0.0 for message, part in zip(own, known, strict=True) if not message.tool_calls]
        foreign = AGENT.turn_rewards(task, gold(other)[:1])
        paid.add((round(sum(part or 0.0 for part in known), 9), max(said), *foreign))
    assert paid == {(0.5, 0.0, 0.0)}


def test_what_comes_after_the_end_is_ignored() -> None:
    task = tasks("train")[0]
    (score,) = scores(task, Completion(messages=(*gold(task), Message(role="assistant", content="Anything else?"))))
    assert (score.reward, score.flags) == (1.0, ("after_end",))


@pytest.mark.parametrize("form", FORMATS)
def test_models_without_native_tools_play_too(form: ToolFormat) -> None:
    task = AGENT.task("train", 1, ToolAgentParams(tool_format=form))
    way = gold(task)
    roles = {message.role for message in way}
    assert (scores(task, AGENT.gold(task))[0].reward, task.tools, roles) == (1.0, (), {"assistant", "user"})


def test_turns_are_answered_until_the_end() -> None:
    task = tasks("test")[2]
    own = gold(task)
    said: tuple[Message, ...] = ()
    for message in own:
        if message.role == "assistant":
            said = (*said, message)
            turn = AGENT.step(task, said)
            said = (*said, *turn.messages)
    assert (said, turn.done, task.max_turns) == (own, True, MOST_TURNS)


def test_calls_alone_end_with_the_last_turn() -> None:
    task = AGENT.task("test", 0, ToolAgentParams())
    call = ToolCall(id="a", function=FunctionCall(name=task.tools[0].function.name, arguments={}))
    said: tuple[Message, ...] = ()
    ends = []
    for _ in range(MOST_TURNS):
        said = (*said, Message(role="assistant", tool_calls=(call,)))
        turn = AGENT.step(task, said)
        said = (*said, *turn.messages)
        ends.append((turn.done, len(turn.messages)))
    assert ends == [(False, 1)] * (MOST_TURNS - 1) + [(True, 0)]


def test_calls_that_cannot_be_read_are_answered_one_by_one() -> None:
    """Servers refuse a conversation in which a call has no answer."""
    task = tasks("test")[0]
    calls = (
        ToolCall(id="a", function=FunctionCall(name="list_events", arguments="{")),
        ToolCall(id="b", function=FunctionCall(name="list_events", arguments={})),
    )
    turns = [
        AGENT.step(task, (Message(role="assistant", tool_calls=calls),)),
        AGENT.step(task, (Message(role="assistant", content="<tool_call>{"),)),
    ]
    said = "The call cannot be read: the JSON cannot be read."
    error = json.dumps({"error": said})
    assert [turn.messages for turn in turns] == [
        tuple(Message(role="tool", content=error, name="list_events", tool_call_id=one) for one in ("a", "b")),
        (Message(role="user", content=said),),
    ]


def test_a_score_says_how_far_it_came() -> None:
    task = tasks("train")[0]
    (score,) = scores(task, Completion(text="Done."))
    assert score == Score(
        outcome="scored",
        reward=0.0,
        gate=1.0,
        absolute=0.0,
        flags=("no_call",),
        criteria=(
            Criterion(name="correct", value=0.0, weight=1.0),
            Criterion(name="end_state", value=0.0, weight=0.0, note="the service is as the wishes have it"),
            Criterion(name="answered", value=1.0, weight=0.0, note="what was asked for was said, and no list"),
        ),
        rationale="the state at the end is not what was asked for (calls: 0, errors: 0, replies: 1; stopped early)",
    )


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8) | st.just("2026-02-31"),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["event_id", "date", "start", "path", "order_id", "email", "name", "\x00", "title", "minutes"]),
    _VALUES,
    max_size=5,
)
_TEXTS = st.none() | st.text(max_size=30) | st.just("<tool_call>{") | st.just("[TOOL_CALLS]" * 50)


@settings(max_examples=examples(2_000), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data(), number=st.integers(0, 39))
def test_no_transcript_raises_and_junk_is_not_paid(data: st.DataObject, number: int) -> None:
    """Played turn by turn as a trainer would, so that what follows is not merely out of turn."""
    task = tasks("train")[number]
    names = st.sampled_from([*(tool.function.name for tool in task.tools), "", "x" * 300])
    arguments = _ARGUMENTS | _ARGUMENTS.map(json.dumps) | st.just("{")
    calls = st.lists(st.builds(FunctionCall, name=names, arguments=arguments), max_size=4)
    said: tuple[Message, ...] = ()
    for text, called in data.draw(st.lists(st.tuples(_TEXTS, calls), min_size=1, max_size=6)):
        made = tuple(ToolCall(function=one) for one in called)
        said = (*said, Message(role="assistant", content=text, tool_calls=made))
        turn = AGENT.step(task, said)
        if turn.done:
            break
        said = (*said, *turn.messages)
    assert scores(task, Completion(messages=said))[0].reward == 0.0
