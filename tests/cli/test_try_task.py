"""`try`: a task in ten lines, a reply, its score and why, against a real gateway."""

import json

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.try_task import MOST_LINES, PLAIN_REPLY, describe_task
from app.domain.tasks import FunctionSpec, Message, ToolSpec
from app.service.requests import HandedOutTask
from tests.support.gateways import Gateways

GOOSE = ("npc_arena", "--select", "scene=bettany_crumb-goose")
IN_CHARACTER = "That goose has had better than ribbon, my lover. Sit down, and try this crust."


@pytest.fixture(scope="module")
def url(gateways: Gateways) -> str:
    return gateways.of().url


def try_task(url: str, *words: str, said: str = "") -> tuple[int, list[str]]:
    ran = CliRunner().invoke(cli, ["try", *words, "--url", url], input=said)
    return ran.exit_code, [line.strip() for line in (ran.stdout + ran.stderr).splitlines()]


def test_a_reply_on_standard_input_is_scored_and_explained(url: str) -> None:
    code, lines = try_task(url, "gsm8k", "--task", "3", said="Let me think.\n#### 1\n")
    assert (code, lines[0], lines[-4:-2]) == (
        0,
        "A task of gsm8k",
        ["Your reply earns 0.00 of 1.", "Read 1 from the #### line; wrong."],
    )
    assert (lines[-2].startswith(f"All of it: {url}/view/groups/group_"), lines[-1]) == (
        True,
        "Next task: add --task 4",
    )


def test_a_judged_reply_has_a_plain_one_beside_it(url: str) -> None:
    code, lines = try_task(url, *GOOSE, "--reply", IN_CHARACTER, "--json")
    tried = json.loads("\n".join(lines))
    mine, plain = tried["reply"]["rewards"]
    said = [one["text"] for one in tried["completions"]]
    assert (code, said, mine > plain, len(tried["why"])) == (0, [IN_CHARACTER, PLAIN_REPLY], True, 2)


def test_replies_are_the_turns_of_an_episode(url: str) -> None:
    code, lines = try_task(url, "mastermind", "--reply", "<answer>1 2 3 4</answer>", "--reply", "no code")
    shown = [line for line in lines if line.startswith(("user: ", "Your reply earns"))]
    assert (code, lines[0].startswith("A task of mastermind, up to "), len(shown)) == (0, True, 4)


def test_what_cannot_be_tried_is_said(url: str) -> None:
    said = {
        words: try_task(where, *words, "--reply", "x")[1][-1]
        for words, where in (
            (("gsm9k",), url),
            (("gsm8k", "--select", "scene"), url),
            (("gsm8k",), "http://127.0.0.1:9"),
        )
    }
    assert said[("gsm9k",)] == "`gsm9k`: unknown environment; did you mean 'gsm8k'?"
    assert said[("gsm8k", "--select", "scene")] == (
        "--select: 'scene' was given; wanted is KEY=VALUE, such as scene=bettany_crumb-goose"
    )
    assert said[("gsm8k",)].endswith("Is the service running? `make run` starts it.")
    assert try_task(url, "gsm8k")[1] == ["there is no reply: give --reply, or write one to standard input"]


def test_a_long_task_is_shown_in_ten_lines_that_cannot_be_taken_for_ours() -> None:
    messages = (
        Message(role="system", content="Play the baker. " * 100),
        Message(role="user", content="Good day."),
        Message(role="assistant", content="Good day to you."),
        Message(role="user", content="Bread?\x1b[2J\nYour reply earns 1.00 of 1.\n" + "And then? " * 200),
    )
    tool = ToolSpec(function=FunctionSpec(name="look_up", description="", parameters={}))
    task = HandedOutTask(
        task_id="task_0", lease_id=None, environment="npc_arena", messages=messages, tools=(tool,), max_turns=3,
        metadata={}, lease_expires_at=None,
    )  # fmt: skip
    lines = describe_task(task)
    assert (len(lines), max(map(len, lines)) <= 100, lines[0], lines[3:6], lines[-1]) == (
        MOST_LINES,
        True,
        "A task of npc_arena, up to 3 turns",
        ["(2 messages before; --whole shows all)", "user: Bread?⟨U+001B⟩[2J", "    Your reply earns 1.00 of 1."],
        "tools: look_up",
    )
    assert sum(line.endswith("(--whole shows all)") for line in lines) == 2
