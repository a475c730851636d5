"""Tool use over many turns: fulfil a user's wishes with the tools of a small service; the end state decides.

    prompt   system: You work for the user by calling tools. …     tools: list_events, create_event, find_person …
             user:   Put a budget review with Dana Whitlock on 2026-03-09 at 14:00, 45 minutes.
    reply    <tool_call>{"name": "find_person", "arguments": {"name": "Dana Whitlock"}}</tool_call>
    step     tool:   {"email": "dana.whitlock@example.com"}        … and so on; then
             user:   Make it 15:30 instead, please.
    reward   1.0     the calendar is exactly what the wishes lead to, and what was asked was answered

Only the end state and the answers are paid: neither the way there, nor doing nothing (every scenario needs a change),
nor deleting what is in the way, nor an answer among other values of its kind, names included. The state is
recomputed from the transcript, so any replica can serve any turn; a result that the service did not give makes the
transcript forged.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

from pydantic import BaseModel

from app.domain.errors import InvalidRequest
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Frozen, Split
from app.envs.tool_agent.calendar import CALENDAR
from app.envs.tool_agent.episodes import (
    MOST_TURNS,
    TEST_SIZE,
    ServiceScenario,
    SimulatedService,
    ToolEpisode,
    find_next_turn,
    find_scenario,
    has_answered,
    has_reached_goal,
    play_solution,
    replay_to_score,
    reward_progress,
)
from app.envs.tool_agent.files import FILES
from app.envs.tool_agent.orders import ORDERS
from app.envs.tool_agent.travel import TRAVEL
from app.ports import Environment, Tools
from app.ports.environment import FreeReward
from app.toolkit.replay import score_forgery
from app.toolkit.thoughts import map_completions
from app.toolkit.tool_calls.formats import ToolFormat, find_declared_format, render_tools

# Tasks take them in turn.
SERVICES: Final[tuple[SimulatedService[Any], ...]] = (
    CALENDAR,
    ORDERS,
    FILES,
    TRAVEL,
)

_INSTRUCTION = (
    "You work for the user by calling tools. Do what the user asks for and nothing beyond it. Look up what you do not "
    "know instead of guessing. When everything is done, reply to the user in a few words, without a call and without "
    "JSON. Ask the user nothing: what was said, the rules and the tools hold all that you need."
)


class ToolAgentParams(Frozen):
    """`tool_format`: `native` passes the tools to the model's chat template; any other format writes them into the
    prompt and returns results as user messages."""

    tool_format: Literal["native"] | ToolFormat = "native"


class ToolAgent(Environment):
    name: ClassVar[str] = "tool_agent"
    version: ClassVar[str] = "4"
    scores_at_once: ClassVar[bool] = True
    Params: ClassVar[type[BaseModel]] = ToolAgentParams
    multi_turn: ClassVar[bool] = True
    stats_label: ClassVar[str | None] = "service"
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="gibberish",
            share=None,
            because="The words around what was asked for are free; near misses change what was asked for.",
        ),
        FreeReward(
            strategy="two_answers",
            share=None,
            because="Sentences of other tasks hold no other value of the kind that was asked for; `hedge` adds those.",
        ),
        FreeReward(
            strategy="denied",
            share=1.0,
            because="A denial of another part of the sentence, such as of a deed that the service shows, is not read.",
        ),
    )

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        form = ToolAgentParams.model_validate(params, from_attributes=True).tool_format
        service, scenario = find_scenario(SERVICES, split, index)
        parts = [_INSTRUCTION, service.rules] + ([] if form == "native" else [render_tools(service.tools, form)])
        return Task(
            messages=(
                Message(role="system", content="\n\n".join(parts)),
                Message(role="user", content=scenario.wishes[0].says),
            ),
            tools=service.tools if form == "native" else (),
            max_turns=MOST_TURNS,
            metadata={
                "source": self.origin,
                "split": split,
                "index": index,
                "service": service.name,
                "kind": scenario.kind,
                "tool_format": form,
            },
            reference={"split": split, "index": index},
        )

    def step(self, task: Task, messages: tuple[Message, ...]) -> Turn:
        service, scenario = _rebuild_scenario(task)
        return find_next_turn(service, scenario, messages, find_declared_format(task.metadata["tool_format"]))

    def turn_rewards(self, task: Task, messages: Sequence[Message]) -> Sequence[float | None]:
        service, scenario = _rebuild_scenario(task)
        return reward_progress(service, scenario, messages, find_declared_format(task.metadata["tool_format"]))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        service, scenario = _rebuild_scenario(task)
        form = find_declared_format(task.metadata["tool_format"])
        return await map_completions(group, lambda completion: _score_completion(service, scenario, completion, form))

    def gold(self, task: Task) -> Completion:
        return Completion(
            messages=play_solution(*_rebuild_scenario(task), find_declared_format(task.metadata["tool_format"]))
        )


def _score_completion(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], completion: Completion, form: ToolFormat | None
) -> Score:
    messages = completion.messages or (Message(role="assistant", content=completion.answer),)
    try:
        episode, flags = replay_to_score(service, scenario, messages, form)
    except InvalidRequest as error:
        return score_forgery(error)
    state, answers = has_reached_goal(service, scenario, episode), has_answered(service, scenario, episode)
    correct = float(state and answers)
    return Score(
        outcome="scored",
        reward=correct,
        gate=1.0,
        absolute=correct,
        flags=flags if correct or episode.calls else (*flags, "no_call"),
        criteria=(
            Criterion(name="correct", value=correct, weight=1.0),
            Criterion(name="end_state", value=float(state), weight=0.0, note="the service is as the wishes have it"),
            Criterion(
                name="answered", value=float(answers), weight=0.0, note="what was asked for was said, and no list"
            ),
        ),
        rationale=_explain_score(episode, state, answers),
    )


def _explain_score(episode: ToolEpisode, state: bool, answers: bool) -> str:
    if not state:
        outcome = "the state at the end is not what was asked for"
    else:
        outcome = (
            "done as asked"
            if answers
            else "the state is right; an answer that was asked for is missing, or one of several"
        )
    how = "to the end" if episode.done else "stopped early"
    return f"{outcome} (calls: {episode.calls}, errors: {episode.errors}, replies: {episode.turns}; {how})"


def _rebuild_scenario(task: Task) -> tuple[SimulatedService[Any], ServiceScenario[Any]]:
    split: Split = "test" if task.metadata["split"] == "test" else "train"
    return find_scenario(SERVICES, split, int(str(task.metadata["index"])))
