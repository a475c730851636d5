"""OpenEnv's own server with an environment that grades an answer as `gsm8k` does: the last number after `####`.

Runs in OpenEnv's Python: `openenv_server.py PORT`. A step over HTTP is an episode of its own there.
"""

import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Answer(Action):  # type: ignore[misc]
    text: str
    wanted: str = "0"


class Graded(Observation):  # type: ignore[misc]
    said: str = ""


class GradedAnswers(Environment):  # type: ignore[misc]
    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Graded:
        return Graded()

    def step(self, action: Answer, timeout_s: float | None = None, **more: Any) -> Graded:
        right = action.text.rpartition("####")[2].strip() == action.wanted
        return Graded(done=True, reward=float(right))

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    uvicorn.run(create_fastapi_app(GradedAnswers, Answer, Graded), port=int(sys.argv[1]), log_level="error")
