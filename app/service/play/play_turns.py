"""What becomes of turns that were kept: alternates, the better one, scenes, and their end."""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import ValidationError

from app.characters.casting import format_game_time
from app.characters.scenes import Scene, SceneEvent, SceneLine
from app.domain.access import Caller, KeyBounds, find_bounds
from app.domain.digests import digest
from app.domain.errors import Conflict, InvalidRequest, NotFound, RetrieverFailed
from app.domain.labels import ImportedChoice, ImportedLabel
from app.domain.playing import PlayReply, PlayTurn
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.ports.judges import Panels
from app.ports.playing import PlayStore
from app.ports.runtime import Clock
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.judging import score_completions
from app.service.labelling import LabelService
from app.service.play.play_service import PlayService, PreparedTurn
from app.service.play.played_models import PlayedModel
from app.service.world_requests import Moment

log = logging.getLogger(__name__)

PRUNE_SECONDS: Final = 3600.0
KeptAs = Literal["scene", "example"]
"""`scene`: the moment. `example`: the moment, and this reply as one that is known to be good."""
KeepScene = Callable[[str, Scene, str], Awaitable[None]]
"""Adds a scene of a character to those that are served, under its author's name. Conflict where scenes cannot be
written."""


@dataclass(frozen=True)
class PlayCaller:
    """Who asks for turns. `player` is a keyed hash: nobody finds whose key it was without the store's salt."""

    player: str
    bounds: KeyBounds
    key: str = ""
    """Its name; empty where no key is needed."""


class PlayTurns:
    """Turns are removed after `keep_days`."""

    def __init__(
        self,
        *,
        store: PlayStore,
        playing: PlayService,
        labels: LabelService,
        panels: Panels,
        keep_scene: KeepScene,
        clock: Clock,
        keep_days: float,
    ) -> None:
        self._store = store
        self._playing = playing
        self._labels = labels
        self._panels = panels
        self._keep_scene = keep_scene
        self._clock = clock
        self._keep_days = keep_days
        self._salt: bytes | None = None

    async def identify(self, caller: Caller | None, user: str = "") -> PlayCaller:
        """`user` is who plays, as far as the client tells."""
        if self._salt is None:
            self._salt = await self._store.load_salt()
        key = "" if caller is None else caller.name
        player = hashlib.blake2b(f"{key}\0{user}".encode(), key=self._salt, digest_size=16).hexdigest()
        return PlayCaller(player, find_bounds(caller), key)

    async def add(self, turn: PreparedTurn, player: str, replies: Sequence[PlayReply]) -> str:
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

    async def get(self, caller: PlayCaller, turn_id: str) -> PlayTurn:
        """NotFound, also for another player's. Refused as any request is for a world that the key does not reach."""
        found = await self._store.get(caller.player, turn_id)
        if found is None:
            raise NotFound(f"there is no turn {turn_id[:80]!r}: it may have been removed, or is another player's")
        if found.world is not None:
            caller.bounds.require_world(found.world)
        return found

    async def prepare(self, turn: PlayTurn, as_of: datetime | None = None) -> PreparedTurn:
        """The same moment again, with what is retrieved at that game time."""
        moment = Moment.model_validate(turn.moment)
        if as_of is not None:
            moment = moment.model_copy(update={"as_of": as_of})
        policy = turn.replies[-1].policy if turn.replies else ""
        played = PlayedModel(turn.character, policy, turn.world, moment.as_of)
        return await self._playing.prepare(played, moment)

    async def mark_better(self, caller: PlayCaller, turn_id: str, reply_id: str, *, consent: bool = False) -> PlayTurn:
        """With `consent` the choice is a label too, which exports have. An earlier label of the turn is withdrawn.
        NotFound for a turn without this reply; InvalidRequest, Conflict for what makes no label."""
        turn = await self.get(caller, turn_id)
        chosen = _find_reply(turn, reply_id)
        label = await self._build_label(turn, chosen) if consent else None
        # First, so that a failure in between leaves no label of a choice that does not stand any more.
        await self._labels.replace_choice(caller.player, turn.turn_id, None)
        if not await self._store.mark_better(caller.player, turn_id, reply_id):
            raise NotFound(f"there is no reply {reply_id[:80]!r} in a turn {turn_id[:80]!r} of yours")
        if label is not None:
            await self._labels.replace_choice(caller.player, turn.turn_id, label)
        replies = (one.model_copy(update={"better": one.reply_id == reply_id}) for one in turn.replies)
        return turn.model_copy(update={"replies": tuple(replies)})

    async def keep(self, caller: PlayCaller, turn_id: str, kept_as: KeptAs, reply_id: str | None = None) -> Scene:
        """Keeps the moment as a scene of its character. NotFound; InvalidRequest for a moment that makes no scene;
        Conflict where scenes cannot be written, and for a reply before which nothing could be retrieved;
        RetrieverFailed where nothing can be now."""
        turn = await self.get(caller, turn_id)
        reply = None if reply_id is None and kept_as == "scene" else _find_reply(turn, reply_id or "")
        prepared = await self._prepare_whole(turn, reply or _find_newest_whole(turn))
        try:
            scene = build_scene(prepared, turn.turn_id, reply if kept_as == "example" else None)
        except ValidationError as error:
            raise _refuse("scene", error) from None
        await self._keep_scene(turn.character, scene, caller.key)
        return scene

    async def judge(self, caller: PlayCaller, turn_id: str) -> tuple[Score, ...]:
        """What the judges of training say of the turn's replies, as one group. Nothing is stored. Conflict where one of
        them was made without what is retrieved, which is not the policy's fault; RetrieverFailed where nothing can be
        retrieved now."""
        turn = await self.get(caller, turn_id)
        if not turn.replies:
            return ()
        for reply in turn.replies:
            _require_retrieved(reply)
        task = (await self._prepare_whole(turn, turn.replies[-1])).task
        environment, options = task.made.environment, ScoringOptions()
        judged = await score_completions(
            environment,
            task.placed.task,
            [Completion(text=one.text) for one in turn.replies],
            options,
            self._panels.build_panel(environment.name, options),
            NoWorkers(),
            NoPrograms(),
            what="play",
        )
        return judged.scores

    async def remove(self, caller: PlayCaller, turn_id: str | None = None) -> int:
        """Also of worlds that the key does not reach any more: what people said is theirs."""
        return await self._store.remove(caller.player, turn_id)

    async def list_newest(self, caller: PlayCaller, limit: int) -> Sequence[PlayTurn]:
        """Of the newest those that the key reaches."""
        listed = await self._store.list_turns(caller.player, limit)
        return [one for one in listed if one.world is None or caller.bounds.allows_world(one.world)]

    async def prune_for_ever(self) -> None:
        while True:
            try:
                if removed := await self._store.prune(self._clock() - timedelta(days=self._keep_days)):
                    log.info("removed %d turns of play that were older than %g days", removed, self._keep_days)
            except Exception:
                log.exception("old turns of play could not be removed; this is tried again")
            await asyncio.sleep(PRUNE_SECONDS)

    async def _prepare_whole(self, turn: PlayTurn, reply: PlayReply | None) -> PreparedTurn:
        """With all that is retrieved: a prompt that lacks it is not what training should learn from."""
        if reply is not None:
            _require_retrieved(reply)
        prepared = await self.prepare(turn, None if reply is None else reply.as_of)
        if prepared.retrieval_failure is not None:
            raise RetrieverFailed(prepared.retrieval_failure)
        return prepared

    async def _build_label(self, turn: PlayTurn, chosen: PlayReply) -> ImportedLabel:
        prepared = await self._prepare_whole(turn, chosen)
        others = {one.text: one for one in turn.replies if one.text != chosen.text and one.retrieval_failure is None}
        if not others:
            told = "the turn has no other reply with another text for which something could be retrieved"
            raise InvalidRequest(told, field="reply")
        try:
            choice = ImportedChoice(
                prompt=prepared.task.placed.task.messages,
                chosen=chosen.text,
                rejected=tuple(others),
                chat=turn.turn_id,
                source="play",
                chosen_model=f"{chosen.policy}: {chosen.model}",
                rejected_models=tuple(f"{one.policy}: {one.model}" for one in others.values()),
            )
        except ValidationError as error:
            raise _refuse("label", error) from None
        return ImportedLabel(kind="pair", choice=choice)


def _require_retrieved(reply: PlayReply) -> None:
    if reply.retrieval_failure is not None:
        raise Conflict(f"nothing could be retrieved for this reply: {reply.retrieval_failure}", field="reply")


def _find_newest_whole(turn: PlayTurn) -> PlayReply | None:
    """The newest reply before which all was retrieved; the newest of all where there is none."""
    newest_first = turn.replies[::-1]
    return next((one for one in newest_first if one.retrieval_failure is None), next(iter(newest_first), None))


def _find_reply(turn: PlayTurn, reply_id: str) -> PlayReply:
    found = next((one for one in turn.replies if one.reply_id == reply_id), None)
    if found is None:
        raise NotFound(f"the turn has no reply {reply_id[:80]!r}")
    return found


def _refuse(what: str, error: ValidationError) -> InvalidRequest:
    told = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(map(str, told["loc"]))
    return InvalidRequest(f"this makes no {what}: {f'{field}: ' if field else ''}{told['msg']}", field="turn")


def build_scene(turn: PreparedTurn, turn_id: str, example: PlayReply | None) -> Scene:
    """Everything that the prompt told of events stands in the scene itself, so that it needs no world."""
    moment = turn.moment
    said = [
        SceneLine(speaker="player" if line.role == "user" else "npc", text=line.content) for line in moment.conversation
    ]
    opening = None if moment.event is not None else said.pop().text
    events = [passage for passage in turn.passages if passage.kind == "event"]
    return Scene(
        id=f"kept-{turn_id.removeprefix('turn_')[:16]}",
        kind="conversation" if moment.event is None else "recent_event",
        split="train",
        history=tuple(said),
        player=opening,
        event=moment.event,
        visible=tuple(
            SceneEvent(
                id=f"e{number}",
                time="recently" if passage.time is None else format_game_time(passage.time),
                text=" ".join(passage.text.split()),
            )
            for number, passage in enumerate(events, 1)
        ),
        exemplar=None if example is None else example.text,
    )
