"""Tool use over many turns: fulfil a user's wishes with the tools of a small service; the end state decides.

    prompt   system: You work for the user by calling tools. …     tools: list_events, create_event, find_person …
             user:   Put a budget review with Dana Whitlock on 2026-03-09 at 14:00, 45 minutes.
    reply    <tool_call>{"name": "find_person", "arguments": {"name": "Dana Whitlock"}}</tool_call>
    step     tool:   {"email": "dana.whitlock@example.com"}        … and so on; then
             user:   Make it 15:30 instead, please.
    reward   1.0     the calendar is exactly what the wishes lead to, and what was asked was answered

Only the end state and the answers are paid: neither the way there, nor doing nothing (every scenario needs a change),
nor deleting what is in the way. The state is recomputed from the transcript, so any replica can serve any turn; a
result that the service did not give makes the transcript forged.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from app.domain.errors import InvalidRequest
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Message, Task, Turn
from app.domain.values import Frozen, Split
from app.envs.tool_agent.services.episodes import MOST_TURNS, Replayed, answered, next_turn, played, reached, replay
from app.envs.tool_agent.services.generating import TEST_SIZE, scenario_of
from app.envs.tool_agent.services.registry import SERVICES
from app.envs.tool_agent.services.service import Scenario, Service, tools_of
from app.ports import Environment, Tools
from app.toolkit.replay import forged
from app.toolkit.tool_calls.formats.format import ToolFormat
from app.toolkit.tool_calls.formats.registry import declared
from app.toolkit.tool_calls.rendering import rendered

INSTRUCTION = (
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
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = ToolAgentParams
    multi_turn: ClassVar[bool] = True
    stats_label: ClassVar[str | None] = "service"

    def size(self, split: Split, params: BaseModel) -> int | None:
        return TEST_SIZE if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        form = ToolAgentParams.model_validate(params, from_attributes=True).tool_format
        service, scenario = scenario_of(SERVICES, split, index)
        tools = tools_of(service)
        parts = [INSTRUCTION, service.rules] + ([] if form == "native" else [rendered(tools, form)])
        return Task(
            messages=(
                Message(role="system", content="\n\n".join(parts)),
                Message(role="user", content=scenario.wishes[0].says),
            ),
            tools=tools if form == "native" else (),
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
        service, scenario = _made(task)
        return next_turn(service, scenario, messages, declared(task.metadata["tool_format"]))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        service, scenario = _made(task)
        return [_scored(service, scenario, completion, declared(task.metadata["tool_format"])) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(messages=played(*_made(task), declared(task.metadata["tool_format"])))


def _scored(service: Service[Any], scenario: Scenario[Any], completion: Completion, form: ToolFormat | None) -> Score:
    said = completion.messages or (Message(role="assistant", content=completion.answer),)
    try:
        episode = replay(service, scenario, said, form)
    except InvalidRequest as error:
        return forged(error)
    state, answers = reached(service, scenario, episode), answered(scenario, episode)
    correct = float(state and answers)
    return Score(
        outcome="scored",
        reward=correct,
        gate=1.0,
        absolute=correct,
        criteria=(
            Criterion(name="correct", value=correct, weight=1.0),
            Criterion(name="end_state", value=float(state), weight=0.0, note="the service is as the wishes have it"),
            Criterion(name="answered", value=float(answers), weight=0.0, note="what was asked for was said"),
        ),
        rationale=_why(episode, state, answers),
    )


def _why(episode: Replayed, state: bool, answers: bool) -> str:
    if not state:
        outcome = "the state at the end is not what was asked for"
    else:
        outcome = "done as asked" if answers else "the state is right; an answer that was asked for is missing"
    how = "to the end" if episode.done else "stopped early"
    return f"{outcome} (calls: {episode.calls}, errors: {episode.errors}, replies: {episode.turns}; {how})"


def _made(task: Task) -> tuple[Service[Any], Scenario[Any]]:
    split: Split = "test" if task.metadata["split"] == "test" else "train"
    return scenario_of(SERVICES, split, int(str(task.metadata["index"])))
