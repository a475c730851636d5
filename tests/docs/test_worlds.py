"""What docs/worlds.md tells people to type works as it stands there, in its order, and its tables are complete."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from pydantic import JsonValue

from app.domain.worlds import Event, Obstacle, RetrievalExplanation, World
from app.features.worlds.service import GameContext
from app.service.requests import TaskBatch
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as model_serving
from tests.support.gateways import Gateways
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "worlds.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8000"
MODEL = "http://127.0.0.1:9000/v1"
SEPARATOR = "\necho; echo ----\n"


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def first_cells(heading: str) -> list[str]:
    """The codes in the first column of the table under that heading."""
    rows = [line for line in PAGE.split(f"{heading}\n", 1)[1].split("\n## ")[0].splitlines() if line.startswith("|")]
    return [name for line in rows for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def answer(_: int, received: Received) -> Reply:
    """As many words as the conversation has messages."""
    said = " ".join(["Aye."] * len(received.messages))
    return Reply(json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode())


@pytest.fixture(scope="module")
def printed(gateways: Gateways) -> list[str]:
    """What each block of the page prints."""
    gateway, python = gateways.of(), Path(sys.executable).parent
    with model_serving(answer) as model:
        script = "set -euo pipefail\n" + SEPARATOR.join(blocks()).replace(SHOWN, gateway.url).replace(MODEL, model.url)
        environment = {**os.environ, "PATH": f"{python}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("----")


def reply(text: str) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = json.loads(text)
    return found


def test_events_are_told_and_explained(printed: list[str]) -> None:
    explained = RetrievalExplanation.model_validate(reply(printed[1]))
    assert reply(printed[0]) == {"new": 4, "known": 0}
    assert [one.event.id for one in explained.events if one.told] == ["rope", "tax"]
    assert {(one.event.id, one.reason) for one in explained.hidden} == {
        ("bridge", "not_visible"),
        ("spliced", "future"),
    }


def test_the_game_gets_a_prompt_and_no_secret(printed: list[str]) -> None:
    context = GameContext.model_validate(reply(printed[2]))
    prompt = context.messages[0].content or ""
    assert [passage.id for passage in context.passages] == ["rope", "tax"]
    assert ("Maren" in prompt, "spliced and holds" in prompt, "toll bridge" in printed[2]) == (True, False, False)


def test_the_game_of_the_examples_plays(printed: list[str]) -> None:
    assert [line.strip() for line in printed[3].strip().splitlines()] == [
        "Can you take me across?",
        "Aye. Aye.",
        "told: ['day1-rope']",
        "What do you want for it?",
        "Aye. Aye. Aye. Aye.",
        "told: ['day1-spliced']",
    ]


def test_tasks_hold_what_the_game_holds(printed: list[str]) -> None:
    tasks = TaskBatch.model_validate(reply(printed[4])).tasks
    told = [("broke at Reedgate" in (task.messages[0].content or "")) for task in tasks]
    assert (told, {task.metadata["character"] for task in tasks}) == ([True, True], {"hob_tarrant"})


def test_a_branch_shares_the_morning_and_an_event_is_corrected_and_taken_back(printed: list[str]) -> None:
    branch = World.model_validate(reply(printed[5]))
    assert (branch.name, branch.parent, branch.newest) == (
        "drowned_coast-2",
        "drowned_coast",
        datetime(1312, 4, 3, 9, 15, tzinfo=UTC),
    )
    assert reply(printed[6]) == {"corrected": "tax", "revision": 2}
    assert reply(printed[7]) == {"withdrawn": "tax"}


def test_lore_comes_up(printed: list[str]) -> None:
    kept, explained = printed[8].strip().split("}{", 1)
    (lore,) = RetrievalExplanation.model_validate(reply("{" + explained)).lore
    assert (reply(kept + "}"), lore.entry) == ({"name": "coast", "entries": 2, "read_as": None}, "levy")


def test_a_world_is_closed(printed: list[str]) -> None:
    closed = World.model_validate(reply(printed[9]))
    assert (closed.name, closed.closed_at is None) == ("drowned_coast-2", False)


def test_every_field_of_an_event_is_told() -> None:
    assert first_cells("## Telling what happens") == list(Event.model_fields)


def test_every_reason_is_told() -> None:
    assert first_cells("## Why a character knows, or does not") == list(get_args(Obstacle))
