"""Puts a moment of a game before a policy, with the prompt of training, and keeps what was said."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import uuid4

from pydantic import JsonValue

from app.domain.digests import digest
from app.domain.errors import NotFound
from app.domain.playing import PlayReply, PlayTurn
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Passage
from app.ports.judges import Panel
from app.ports.playing import ChatBody, PlayStore, PolicyServer
from app.ports.runtime import Clock
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.judging import score_completions
from app.service.play.played_models import PlayedModel, PlayFields, list_model_names, read_model
from app.service.world_requests import Moment
from app.service.world_service import PlacedMoment, WorldService

log = logging.getLogger(__name__)

PRUNE_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class PreparedTurn:
    """A moment with its prompt. `asked` is its model's name."""

    played: PlayedModel
    moment: Moment
    task: PlacedMoment

    @property
    def messages(self) -> list[JsonValue]:
        """Byte for byte those of `POST /worlds/{world}/context`."""
        return [message.model_dump(mode="json") for message in self.task.placed.task.messages]

    @property
    def passages(self) -> tuple[Passage, ...]:
        return self.task.placed.context.passages


@dataclass(frozen=True)
class SpokenReply:
    """What a policy said, before anything is known of it."""

    text: str
    finish_reason: str | None = None
    seconds: float | None = None


class PlayService:
    """`list_names` gives what served characters are called, by id. `gates` is a panel without judges. Turns are removed
    after `keep_days`."""

    def __init__(
        self,
        *,
        policies: Mapping[str, PolicyServer],
        worlds: WorldService,
        list_names: Callable[[], Mapping[str, str]],
        gates: Panel,
        store: PlayStore,
        clock: Clock,
        keep_days: float,
    ) -> None:
        self.policies = policies
        self.list_names = list_names
        self._worlds = worlds
        self._gates = gates
        self._store = store
        self._clock = clock
        self._keep_days = keep_days
        self._salt: bytes | None = None

    def list_models(self, worlds: Sequence[str]) -> list[str]:
        return list_model_names([*self.list_names()], [*self.policies], worlds)

    def read_model(self, name: str, fields: PlayFields) -> PlayedModel:
        return read_model(name, fields, [*self.policies], [*self.list_names()])

    async def prepare(self, played: PlayedModel, moment: Moment) -> PreparedTurn:
        """NotFound without the world, InvalidRequest for what the moment lacks, RetrieverFailed."""
        return PreparedTurn(played, moment, await self._worlds.place_moment(played.world, moment))

    async def check(self, turn: PreparedTurn, reply: SpokenReply) -> tuple[str, ...]:
        """What the gates of training notice. Empty where they break: a reply is not lost for that."""
        task = turn.task
        judged = await score_completions(
            task.made.environment,
            task.placed.task,
            [Completion(text=reply.text)],
            ScoringOptions(),
            self._gates,
            NoWorkers(),
            NoPrograms(),
            what="play",
        )
        flags = judged.scores[0].flags if judged.scores else ()
        return (*flags, *(["truncated"] if reply.finish_reason == "length" and "truncated" not in flags else []))

    async def keep(self, turn: PreparedTurn, player: str, replies: Sequence[PlayReply]) -> str:
        """Adds alternates to the turn; durable on return. The same conversation of the same player is one turn."""
        moment = turn.moment.model_dump(mode="json", exclude_defaults=True)
        identity = digest([player, turn.played.world, moment])
        made = PlayTurn(
            turn_id=f"turn_{identity[:32]}",
            player=player,
            character=turn.played.character,
            world=turn.played.world,
            moment=moment,
            created_at=self._clock(),
        )
        await self._store.add(made, replies)
        return made.turn_id

    def make_reply(self, policy: str, said: SpokenReply, flags: tuple[str, ...]) -> PlayReply:
        return PlayReply(
            reply_id=f"reply_{uuid4().hex}",
            policy=policy,
            model=self.policies[policy].model,
            text=said.text,
            finish_reason=said.finish_reason,
            flags=flags,
            seconds=said.seconds,
            created_at=self._clock(),
        )

    def get_policy(self, name: str) -> PolicyServer:
        return self.policies[name]

    async def ask(self, turn: PreparedTurn, sampling: ChatBody) -> SpokenReply:
        """One whole reply."""
        began = asyncio.get_running_loop().time()
        answer = await self.policies[turn.played.policy].ask({**sampling, "messages": turn.messages})
        choices = answer["choices"]
        first = choices[0] if isinstance(choices, list) and choices else None
        return read_choice(first, asyncio.get_running_loop().time() - began)

    async def compute_player(self, caller: str, user: str = "") -> str:
        """A keyed hash: nobody finds the name of whoever plays without the store's salt."""
        if self._salt is None:
            self._salt = await self._store.load_salt()
        return hashlib.blake2b(f"{caller}\0{user}".encode(), key=self._salt, digest_size=16).hexdigest()

    async def get_turn(self, player: str, turn_id: str) -> PlayTurn:
        """NotFound, also for another player's."""
        found = await self._store.get(player, turn_id)
        if found is None:
            raise NotFound(f"there is no turn {turn_id[:80]!r}: it may have been removed, or is another player's")
        return found

    async def list_turns(self, player: str, limit: int) -> Sequence[PlayTurn]:
        return await self._store.list_turns(player, limit)

    async def mark_better(self, player: str, turn_id: str, reply_id: str) -> None:
        if not await self._store.mark_better(player, turn_id, reply_id):
            raise NotFound(f"the turn has no reply {reply_id[:80]!r}")

    async def remove(self, player: str, turn_id: str | None = None) -> int:
        return await self._store.remove(player, turn_id)

    async def prune_for_ever(self) -> None:
        while True:
            try:
                if removed := await self._store.prune(self._clock() - timedelta(days=self._keep_days)):
                    log.info("removed %d turns of play that were older than %g days", removed, self._keep_days)
            except Exception:
                log.exception("old turns of play could not be removed; this is tried again")
            await asyncio.sleep(PRUNE_SECONDS)


def read_choice(choice: JsonValue, seconds: float | None) -> SpokenReply:
    """The text of a choice of a chat completion; empty where it has none."""
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    return SpokenReply(
        content if isinstance(content, str) else "", reason if isinstance(reason, str) else None, seconds
    )
