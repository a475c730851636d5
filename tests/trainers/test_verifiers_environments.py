"""Environments of the released verifiers in our child process, in its jail: rewards, users, tools, and refusals."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.domain.errors import HostFailed
from app.domain.hosting import HostedStep
from app.domain.tasks import Message
from app.envs.foreign.contract import Description, ForeignOptions, Start
from app.envs.foreign.verifiers import VerifiersOptions, VerifiersServer
from app.evaluation.graders import GraderReport
from app.sandbox.children import JailedChildren
from tests.support.commands import ended
from tests.trainers.installed import VERIFIERS, do_job

NEEDS = (VERIFIERS / ".installed",)
TASKSETS = Path(__file__).parent / "tasksets"
UPSTREAM = os.environ.get("ATROPOS_TEST_VERIFIERS_ENVIRONMENTS", "")
"""The folder `environments` of the repository of verifiers."""
LEGACY = os.environ.get("ATROPOS_TEST_VERIFIERS_LEGACY", "")
"""An interpreter that has verifiers 0.3.1."""
GUESS_AGAIN = HostedStep(messages=(Message(role="user", content="No. Guess again."),))


@asynccontextmanager
async def serving(
    package: str,
    folder: Path = TASKSETS,
    max_turns: int = 16,
    python: Path = VERIFIERS / "bin" / "python",
    **args: JsonValue,
) -> AsyncIterator[tuple[VerifiersServer, Description]]:
    """Skips where this machine has no jail."""
    server = VerifiersServer(
        "x",
        package,
        python,
        ForeignOptions(deadline_seconds=300, max_turns=max_turns),
        VerifiersOptions(args=args, folders=(folder,)),
        JailedChildren(lambda name: None),
    )
    await server.open()
    try:
        yield server, await asyncio.to_thread(server.describe_blocking)
    except HostFailed as error:
        if "no jail" in error.detail:
            pytest.skip(error.detail)
        raise
    finally:
        await server.close()


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


def calls(name: str, arguments: Mapping[str, JsonValue]) -> Message:
    call = {"id": "c1", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return Message.model_validate({"role": "assistant", "tool_calls": [call]})


def told(text: str) -> HostedStep:
    return HostedStep(messages=(Message(role="tool", content=text, tool_call_id="c1"),))


async def play(server: VerifiersServer, index: int, *said: Message, finishes: bool = False) -> list[HostedStep]:
    session = await server.open_session(Start("train", index, index))
    try:
        steps = [await session.step(message) for message in said]
        return [*steps, await session.finish()] if finishes else steps
    finally:
        await session.close()


async def test_a_reply_is_scored_without_an_episode() -> None:
    async with serving("sums", count=3) as (server, description):
        replies = ["it is 2", "a long and wrong reply", "raise", "no number"]
        steps = [(await play(server, 1, says(reply)))[0] for reply in replies]
        prompts = [row.messages for row in (description.rows or {})["train"]]
    assert (len(prompts), prompts[1], steps) == (
        3,
        (Message(role="system", content="Answer with a number."), Message(role="user", content="What is 1 + 1?")),
        [
            HostedStep(done=True, reward=1.5, parts={"right": 1.0, "short": 1.0}),
            HostedStep(done=True, reward=0.0, parts={"right": 0.0, "short": 0.0}),
            HostedStep(done=True, failure="TaskError: task SumTask scoring: ValueError: the reward broke"),
            HostedStep(done=True, failure="the environment gave a reward that is no finite number"),
        ],
    )


def test_its_grader_is_checked_by_the_command() -> None:
    """The reward of `sums` splits the reply and looks for the answer among its words."""
    options = ["--python", VERIFIERS / "bin" / "python", "--folder", TASKSETS, "--args", '{"count": 12}', "--trusted"]
    told = ended("graders", "check", "verifiers:sums", *options, "--deadline", 60, "--json")
    report = GraderReport.model_validate_json(told.stdout)
    assert (told.returncode, report.right_paid, "first of two" in {one.kind for one in report.paid}) == (1, 12, True)


async def test_a_reward_that_needs_a_runtime_has_one_and_is_not_left_out() -> None:
    async with serving("sums", task={"rewards": {"wrote": {"fn": "sums:wrote_a_file"}}}) as (server, _):
        (step,) = await play(server, 1, says("it is 2"))
    assert step == HostedStep(done=True, reward=2.5, parts={"right": 1.0, "short": 1.0, "wrote": 1.0})


async def test_users_and_tools_answer_until_the_episode_is_over() -> None:
    async with serving("guesses", max_turns=5) as (server, description):
        episodes = await asyncio.gather(
            play(server, 3, calls("hints_parity", {"number": 3}), says("1"), calls("no_such", {}), says("3")),
            play(server, 3, calls("hints_parity", {"number": -1}), says("1"), finishes=True),
            play(server, 3, *[says(str(number)) for number in (5, 6, 7, 8, 9)]),
            play(server, 3, says("leave")),
        )
    over = HostedStep(done=True, reward=1.0, parts={"turns": 4.0, "found": 1.0})
    early = HostedStep(done=True, reward=0.0, parts={"turns": 2.0, "found": 0.0})
    beyond = HostedStep(done=True, reward=0.0, parts={"turns": 5.0, "found": 0.0})
    raised = "Error executing tool parity: it is below 0"
    assert (description.replayable, list(episodes)) == (
        True,
        [
            [told("odd"), GUESS_AGAIN, told("error: unknown tool 'no_such'"), over],
            [told(raised), GUESS_AGAIN, early],
            [*[GUESS_AGAIN] * 4, beyond],
            [HostedStep(done=True, failure="ValueError: the user left")],
        ],
    )


async def test_what_is_not_served_is_refused_with_the_reason() -> None:
    reasons = []
    for package in ("sums", "no_such_package"):
        with pytest.raises(HostFailed) as refused:
            async with serving(package, image="a-box"):
                pass
        reasons.append(refused.value.detail)
    assert (reasons[0], reasons[1].split("(")[0]) == (
        "x: task 0 needs a container",
        "x: ModuleNotFoundError: taskset 'no_such_package' not found ",
    )


@pytest.mark.skipif(not LEGACY, reason="ATROPOS_TEST_VERIFIERS_LEGACY names no interpreter")
async def test_environments_of_verifiers_before_0_4_are_played_too() -> None:
    async with serving("legacy_sums", python=Path(LEGACY), count=3) as (server, description):
        steps = [(await play(server, 1, says(reply)))[0] for reply in ("it is 2", "raise", "")]
        steps += await play(server, 1, finishes=True)
    early = "the episode ended early, and verifiers before 0.4 scores no such episode"
    assert (len((description.rows or {})["train"]), steps) == (
        3,
        [
            HostedStep(done=True, reward=1.0, parts={"right": 1.0, "num_turns": 1.0}),
            HostedStep(done=True, failure="Error calling reward function right: the reward broke"),
            HostedStep(done=True, failure="EmptyModelResponseError"),
            HostedStep(done=True, failure=early),
        ],
    )


@pytest.mark.skipif(not UPSTREAM, reason="ATROPOS_TEST_VERIFIERS_ENVIRONMENTS names no folder")
async def test_a_released_environment_gives_the_rewards_that_it_gives_by_itself(tmp_path: Path) -> None:
    folder = Path(UPSTREAM) / "scratchpad"
    async with serving("scratchpad", folder) as (server, description):
        words = [str(row.hidden["word"]) for row in (description.rows or {})["train"] if isinstance(row.hidden, dict)]
        replies = [(place % 20, _reply(words, place)) for place in range(64)]
        ours = await _reward_all(server, replies)
    job = {"package": "scratchpad", "replies": replies}
    theirs, _ = do_job(
        tmp_path, job, "verifiers_rewards.py", installed=VERIFIERS, variables={"PYTHONPATH": str(folder)}
    )
    assert (ours, len(ours), set(theirs)) == (theirs, 64, {0.0, 1.0})


def _reply(words: Sequence[str], place: int) -> str:
    """The right word, another one, both or none."""
    right, other = words[place % 20], words[(place + 1) % 20]
    return (right, other, f"{other} or {right}?", "I do not know.")[place // 20 % 4]


async def _reward_all(server: VerifiersServer, replies: Sequence[tuple[int, str]]) -> list[float | None]:
    slots = asyncio.Semaphore(8)

    async def reward(index: int, reply: str) -> float | None:
        async with slots:
            steps = await play(server, index, calls("scratchpad_roundtrip", {"word": reply}), says(reply))
        assert steps[0] == told(reply)
        return steps[-1].reward

    return await asyncio.gather(*(reward(*one) for one in replies))
