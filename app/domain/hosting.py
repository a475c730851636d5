"""Episodes that run on another's server: what it answered, as it is stored."""

from collections.abc import Mapping
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from app.domain.tasks import Message
from app.domain.values import FiniteNumber, Frozen, Reward


class ServerFacts(Frozen):
    """What is known of the server that an environment runs on."""

    kind: str
    server_version: str | None
    """As the server names it."""
    rule: Literal["versioned", "unverified"]
    """`unverified`: the server names no version, so that how it rewards may change unseen."""
    replayable: bool
    """Whether a lost session can be played again: the same seed and messages brought the same answers twice."""
    notes: tuple[str, ...] = ()
    """What else an operator should know."""


class HostedStep(Frozen):
    """The server's answer to one message of the model, or to the end of an episode."""

    messages: tuple[Message, ...] = ()
    """What the model sees next."""
    done: bool = False
    reward: Reward | None = None
    """What this adds to the reward of the episode; None where the server said nothing of it."""
    parts: Annotated[dict[str, FiniteNumber], Field(exclude_if=not_)] = {}
    """What the server says that its reward is made of, by name."""
    refused: Annotated[bool, Field(exclude_if=not_)] = False
    """The message was no action: nothing happened but that the model was told so."""
    failure: Annotated[str, Field(exclude_if=not_)] = ""
    """Why the episode has no score: the server failed in a way that asking again would repeat."""
    diverged: Annotated[bool, Field(exclude_if=not_)] = False
    """The failure is that the session was lost, and what was played again came out otherwise or may not be played."""

    @property
    def is_over(self) -> bool:
        return self.done or bool(self.failure)


StoredSteps = Mapping[str, HostedStep]
"""By the digest of the task and of all that the model said up to there."""
