"""What verifiers asks of the agent of an episode, which says given replies one after the other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Record:
    """What is told of an agent's run."""

    rewards: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    errors: list[Any] = field(default_factory=list)
    is_truncated: bool = False
    ok: bool = True
    stopped: str | None = None

    def record_reward(self, name: str, reward: float) -> None:
        self.rewards[name] = reward

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics |= values

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value

    def stop(self, reason: str) -> None:
        self.stopped = reason


class Player:
    def __init__(self, replies: list[str]) -> None:
        self.trace = Record()
        self.heard: list[str | None] = []
        self._replies = iter(replies)

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [json.loads(one) for one in self.heard if one]

    @asynccontextmanager
    async def interaction(self, _task: Any) -> AsyncIterator["Player"]:
        yield self

    async def turn(self, heard: str | None = None) -> Any:
        self.heard.append(heard)
        reply = next(self._replies, None)
        return SimpleNamespace(last_reply=reply or "", terminated=reply is None)
