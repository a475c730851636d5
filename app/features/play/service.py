"""Play: a person talks to a character, a policy answers with the prompt of training, and what was said may teach it.

A client names the character, the place and the policy in the model's name: `mira@policy-42`, `mira/shore@policy-42`,
`mira/shore/<time>@policy-42`. No client sends fields of its own, and all send the model's name; SillyTavern writes it
into every reply and swipe. The prompt is the one of `POST /worlds/{world}/context`, byte for byte, and the gates of
training read the reply.

A turn is one conversation of one player up to one line; its replies are alternates. A player may mark the better one
(with consent that is a label), an author may keep the moment as a scene, and turns are removed after some days. Whose
turn it is stands in the store as a keyed hash.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Final, Literal
from uuid import uuid4

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from app.characters.actions import DoneCall, write_calls
from app.characters.actions import write_reply as write_completion
from app.characters.casting import Staging, format_game_time
from app.characters.loading import build_yaml_refusal, dump_yaml, parse_model
from app.characters.memories import EarlierTalk
from app.characters.scenes import Scene, SceneEvent, SceneLine, SceneSet
from app.characters.schema import Actions, CharacterSheet, Text
from app.domain.access import Caller, KeyBounds, find_bounds
from app.domain.authored_files import MAX_AUTHORED, SCENE_FILES
from app.domain.errors import Conflict, InvalidRequest, NotFound, RetrieverFailed, TooLarge
from app.domain.faults import explain_faults
from app.domain.labels import ImportedChoice, ImportedLabel, Labeller
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Passage
from app.domain.values import Name, canonical_json, digest, suggest
from app.domain.worlds import GameTime
from app.envs.npc_arena.environment import NpcArena
from app.features.authoring.model import AuthoredChange
from app.features.authoring.service import AuthoringService
from app.features.labels.service import LabelService
from app.features.play.memories import PlayMemories, build_remembered
from app.features.play.model import MEASURES, Forgotten, LineMeasures, PlayReply, PlayTurn, measure_lines
from app.features.play.replies import OfferedTools, PolicyAnswer, read_whole
from app.features.play.stand_in import STAND_IN, STAND_IN_MODEL, StandInPolicy, holds_stand_in, write_reply
from app.features.play.store import PlayStore
from app.features.worlds.service import Moment, PlacedMoment, WorldService
from app.ports.environment import Clock, NoPrograms, NoWorkers
from app.ports.judges import Panel, Panels
from app.ports.play import ChatBody, PolicyServer
from app.service.access import QuotaService
from app.service.background import repeat
from app.service.judging import bound_scoring, score_completions
from app.service.runs import add_up_bounds
from app.toolkit.texts import run_in_turn

log = logging.getLogger(__name__)


# Names under which clients ask for a character.

MOST_LISTED: Final = 1000
"""Names in a list of models. Others can be asked for all the same."""
_TIME: Final = TypeAdapter[datetime](GameTime)


class PlayFields(Staging):
    """What a client may say in the field `play` of its request, beside or in place of the model's name."""

    character: Name | None = None
    world: Name | None = None
    policy: Name | None = None
    event: Text | None = None
    """What the character witnesses, in place of a player's line: the conversation then ends with the character's."""
    kind: Annotated[str | None, Field(pattern="^(turn|raw)$")] = None
    """`turn`: answer as the character, whatever the request looks like. `raw`: pass the messages on as they are."""
    narrator: bool = True
    """Whether system messages between lines are a narrator's. False drops them."""


@dataclass(frozen=True)
class PlayedModel:
    """Who is asked, where and when, and which policy plays it."""

    character: str
    policy: str
    world: str | None = None
    as_of: datetime | None = None
    as_of_text: str = ""
    own_draft: bool = False
    """Whether the caller's draft of the character speaks, not what is published."""

    @property
    def name(self) -> str:
        places = "/".join([self.character, self.world or "", self.as_of_text])
        return f"{places.rstrip('/')}@{self.policy}"


def _list_model_names(characters: Sequence[str], policies: Sequence[str], worlds: Sequence[str]) -> list[str]:
    """Each character with each policy, then in each world."""
    return [name for name, _ in zip(_iterate_names(characters, policies, worlds), range(MOST_LISTED), strict=False)]


def _iterate_names(characters: Sequence[str], policies: Sequence[str], worlds: Sequence[str]) -> Iterator[str]:
    for place in ("", *(f"/{world}" for world in worlds)):
        yield from (f"{character}{place}@{policy}" for character in characters for policy in policies)


def read_model(name: str, fields: PlayFields, policies: Sequence[str], characters: Sequence[str]) -> PlayedModel:
    """NotFound for a policy or character that is not there; InvalidRequest for a name of another form, and for fields
    that say something else."""
    left, at, policy = name.rpartition("@")
    places = (left if at else policy).split("/", 2)
    character, world, time = (*places, "", "", "")[:3]
    requested = fields.policy or (policy if at else "") or (policies[0] if len(policies) == 1 else "")
    _require_same("policy", fields.policy, policy if at else "")
    _require_same("character", fields.character, character)
    _require_same("world", fields.world, world)
    _require_known("policy", requested, policies)
    character = _require_known("character", fields.character or character, characters)
    model = PlayedModel(character, requested, fields.world or world or None, fields.as_of)
    if not time:
        return model
    try:
        return replace(model, as_of=fields.as_of or _TIME.validate_python(time), as_of_text=time)
    except ValidationError:
        raise InvalidRequest(f"{time[:40]!r} is no time such as 1312-04-03T09:15:00Z", field="model") from None


def _require_same(what: str, field: str | None, named: str) -> None:
    if field and named and field != named:
        raise InvalidRequest(f"the model's name says {named[:64]!r}", field=f"play.{what}")


def _require_known(what: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        fault = f"there is no {what} {name[:64]!r}{suggest(name[:64], names)}" if name else f"name a {what}"
        raise NotFound(f"{fault} (a model is `character@policy` or `character/world@policy`)", field="model")
    return name


# A moment of a game before a policy, with the prompt of training.


@dataclass(frozen=True)
class PreparedTurn:
    """A moment with its prompt."""

    played: PlayedModel
    moment: Moment
    task: PlacedMoment
    asked_at: datetime
    earlier: tuple[EarlierTalk, ...] = ()
    """What its prompt tells of earlier talk."""

    @property
    def messages(self) -> list[JsonValue]:
        """Those of `POST /worlds/{world}/context`, byte for byte, but for what is told of earlier talk."""
        return [message.model_dump(mode="json") for message in self.task.placed.task.messages]

    @property
    def as_of(self) -> datetime | None:
        """Game time of what was retrieved."""
        return self.task.placed.context.as_of

    @property
    def offered(self) -> OfferedTools:
        """What the policy may call: actions of the sheet, and tools of the game."""
        return OfferedTools(self.task.placed.task.tools, self._actions.at_most)

    @property
    def replaced(self) -> tuple[str, ...]:
        """Actions of the sheet in whose place a tool of the game stands."""
        own = {action.name for action in self._actions.allowed}
        return tuple(tool.function.name for tool in self.moment.tools or () if tool.function.name in own)

    @property
    def _actions(self) -> Actions:
        speaker = self.task.made.environment
        return speaker.sheets[0].actions if isinstance(speaker, NpcArena) else Actions()

    @property
    def passages(self) -> tuple[Passage, ...]:
        return self.task.placed.context.passages

    @property
    def recalled(self) -> int:
        """How many lines of earlier talk its prompt tells."""
        return sum(len(talk.lines) for talk in self.earlier)

    @property
    def retrieval_failure(self) -> str | None:
        """Why nothing was retrieved, where the settings let that pass."""
        return self.task.placed.context.failure


@dataclass(frozen=True)
class GateReading:
    """`unchecked` says why the gates could not read the reply; None where they did."""

    flags: tuple[str, ...] = ()
    unchecked: str | None = None


class PlayService:
    """`list_sheets` gives the served characters, `list_drafted` the ids of those of which the caller keeps a draft.
    `gates` is a panel without judges. Without `policies` the stand-in answers. `disclosure` are the fields by which
    clients are told that an AI answers; none by default."""

    def __init__(
        self,
        *,
        policies: Mapping[str, PolicyServer],
        worlds: WorldService,
        memories: PlayMemories,
        list_sheets: Callable[[], Sequence[CharacterSheet]],
        list_drafted: Callable[[], Awaitable[Sequence[str]]],
        gates: Panel,
        quotas: QuotaService,
        clock: Clock,
        disclosure: Mapping[str, JsonValue] = MappingProxyType({}),
    ) -> None:
        self.policies = policies
        self.disclosure = disclosure
        self.quotas = quotas
        self.list_sheets = list_sheets
        self.list_drafted = list_drafted
        self._worlds = worlds
        self._memories = memories
        self._gates = gates
        self._clock = clock

    @property
    def policy_names(self) -> tuple[str, ...]:
        return tuple(self.policies) or (STAND_IN,)

    def list_models(self, worlds: Sequence[str]) -> list[str]:
        return _list_model_names(self._list_served(), self.policy_names, worlds)

    def read_model(self, name: str, fields: PlayFields) -> PlayedModel:
        return read_model(name, fields, self.policy_names, self._list_served())

    async def read_own_model(self, name: str, fields: PlayFields) -> PlayedModel:
        """As `read_model`, of a character of which the caller keeps a draft, which then speaks."""
        return replace(read_model(name, fields, self.policy_names, await self.list_drafted()), own_draft=True)

    def _list_served(self) -> list[str]:
        return [sheet.id for sheet in self.list_sheets()]

    async def prepare(
        self, played: PlayedModel, moment: Moment, player: str | None = None, until: datetime | None = None
    ) -> PreparedTurn:
        """With what the character remembers of this player, of what was said `until` then. NotFound without the world,
        InvalidRequest for what the moment lacks, RetrieverFailed."""
        asked_at, earlier = self._clock(), tuple[EarlierTalk, ...]()
        if player is not None and played.world is not None:
            earlier = await self._memories.recall(player, played.world, moment, until)
        placed = await self._worlds.place_moment(played.world, moment, own_draft=played.own_draft, earlier=earlier)
        return PreparedTurn(played, moment, placed, asked_at, earlier)

    def takes_tools(self, policy: str) -> bool:
        """A server that reads no calls may refuse a request with tools."""
        return policy in self.policies and self.policies[policy].takes_tools

    async def check(self, turn: PreparedTurn, reply: PolicyAnswer) -> GateReading:
        """What the gates of training notice. A reply is not lost where they break."""
        task = turn.task
        judged = await score_completions(
            task.made.environment,
            task.placed.task,
            [build_completion(reply.text, reply.calls)],
            ScoringOptions(),
            self._gates,
            NoWorkers(),
            NoPrograms(),
            what="play",
        )
        return read_gates(judged.scores, reply.finish_reason)

    async def make_reply(self, turn: PreparedTurn, answer: PolicyAnswer) -> PlayReply:
        """With what the gates of training notice."""
        policy, noticed = turn.played.policy, await self.check(turn, answer)
        if answer.left_out:
            log.info("left out calls of the policy %s: %s", policy, "; ".join(answer.left_out))
        return PlayReply(
            reply_id=f"reply_{uuid4().hex}",
            policy=policy,
            model=STAND_IN_MODEL if policy == STAND_IN else self.policies[policy].model,
            text=answer.text,
            finish_reason=answer.finish_reason,
            flags=noticed.flags,
            unchecked=noticed.unchecked,
            retrieval_failure=turn.retrieval_failure,
            calls=answer.calls,
            left_out=answer.left_out,
            **{name: getattr(answer, name) for name in MEASURES},
            recalled=turn.recalled,
            as_of=turn.as_of,
            created_at=self._clock(),
        )

    def get_policy(self, played: PlayedModel, turn: PreparedTurn | None) -> PolicyServer:
        """Without a `turn` the stand-in, which knows sheets alone, is an InvalidRequest."""
        if played.policy != STAND_IN:
            return self.policies[played.policy]
        speaker = None if turn is None else turn.task.made.environment
        if turn is None or not isinstance(speaker, NpcArena):
            fault = "the stand-in answers as a character alone: name a policy under `policies` in the settings"
            raise InvalidRequest(fault, field="model")
        return StandInPolicy(write_reply(speaker.sheets[0], turn.moment, turn.passages))

    async def ask(self, turn: PreparedTurn, sampling: ChatBody) -> PolicyAnswer:
        """One whole reply."""
        await self.quotas.count_request()
        began = asyncio.get_running_loop().time()
        body = {**sampling, **turn.offered.build_body(), "messages": turn.messages}
        answer = await self.get_policy(turn.played, turn).ask(body)
        said = read_whole(answer, asyncio.get_running_loop().time() - began, turn.offered)
        return said[0] if said else PolicyAnswer("")


def build_completion(text: str, calls: Sequence[DoneCall]) -> Completion:
    """As gates and judges read it."""
    return write_completion(text, calls) if calls else Completion(text=text)


def read_gates(scores: Sequence[Score], finish_reason: str | None) -> GateReading:
    """Of the only score. Without judges one that the gates pass is unscored too, but names its candidate."""
    score = scores[0] if scores else Score.unscored("internal", "the environment gave no score")
    broke = score.outcome == "unscored" and not score.candidate
    cut = ["truncated"] if finish_reason == "length" and "truncated" not in score.flags else []
    return GateReading((*score.flags, *cut), (score.rationale or str(score.reason)) if broke else None)


# Turns that were kept.

_PRUNE_SECONDS: Final = 3600.0
"""Between two looks for turns that are too old."""
_MOST_MEASURED: Final = 500
"""Lines of one character."""
KeptAs = Literal["scene", "example"]
"""`scene`: the moment. `example`: the moment, and this reply as one that is known to be good."""
_KeepScene = Callable[[str, Scene, str], Awaitable[None]]
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
        keep_scene: _KeepScene,
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
        self._leaves_traces = False
        """Whether words that were removed could not be erased from the file of the database yet."""

    async def identify(self, caller: Caller | None, user: str = "") -> PlayCaller:
        """`user` is who plays, as far as the client tells."""
        if self._salt is None:
            self._salt = await self._store.load_salt()
        key = "" if caller is None else caller.name
        player = hashlib.blake2b(f"{key}\0{user}".encode(), key=self._salt, digest_size=16).hexdigest()
        return PlayCaller(player, find_bounds(caller), key)

    async def add(self, turn: PreparedTurn, player: str, replies: Sequence[PlayReply]) -> str:
        """Adds alternates to the turn; durable on return. The same conversation of the same player is one turn.
        Conflict for what the stand-in or a draft said: nothing can be made of what is not there."""
        if any(reply.policy == STAND_IN for reply in replies):
            raise Conflict("turns of the stand-in are not stored")
        if turn.played.own_draft:
            raise Conflict("turns with a draft are not stored: publish it first")
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
        remembered = None
        if made.world is not None:
            remembered = build_remembered(player, made.world, turn.moment, turn.as_of, made.turn_id, replies)
        await self._store.add(made, replies, remembered, turn.asked_at)
        return made.turn_id

    async def get(self, caller: PlayCaller, turn_id: str) -> PlayTurn:
        """NotFound, also for another player's. Refused as any request is for a world that the key does not reach."""
        turn = await self._store.get(caller.player, turn_id)
        if turn is None:
            raise NotFound(f"there is no turn {turn_id[:80]!r}: it may have been removed, or is another player's")
        if turn.world is not None:
            caller.bounds.require_world(turn.world)
        return turn

    async def prepare(self, turn: PlayTurn, reply: PlayReply | None = None, *, remembers: bool = False) -> PreparedTurn:
        """The same moment again, with what is retrieved at the game time of the reply. `remembers`: also with what its
        character remembered of the player when it was given: for themselves, and not for training."""
        moment = Moment.model_validate(turn.moment)
        if reply is not None and reply.as_of is not None:
            moment = moment.model_copy(update={"as_of": reply.as_of})
        policy = turn.replies[-1].policy if turn.replies else ""
        played = PlayedModel(turn.character, policy, turn.world, moment.as_of)
        player = turn.player if remembers else None
        return await self._playing.prepare(played, moment, player, (reply or turn).created_at)

    async def mark_better(self, caller: PlayCaller, turn_id: str, reply_id: str, *, consent: bool = False) -> PlayTurn:
        """With `consent` the choice is a label too, which exports have. An earlier label of the turn is withdrawn.
        NotFound for a turn without this reply; InvalidRequest, Conflict for what makes no label."""
        turn = await self.get(caller, turn_id)
        chosen = _find_reply(turn, reply_id)
        label = await self._build_label(turn, chosen) if consent else None
        # The player, whom the service itself tells by the key: the key's name would tell whose the turns are.
        by = Labeller(caller.player, verified=bool(caller.key))
        # First, so that a failure in between leaves no label of a choice that does not stand any more.
        await self._labels.replace_choice(by, turn.turn_id, None)
        if not await self._store.mark_better(caller.player, turn_id, reply_id):
            raise NotFound(f"there is no reply {reply_id[:80]!r} in a turn {turn_id[:80]!r} of yours")
        if label is not None:
            await self._labels.replace_choice(by, turn.turn_id, label)
        replies = (one.model_copy(update={"better": one.reply_id == reply_id}) for one in turn.replies)
        return turn.model_copy(update={"replies": tuple(replies)})

    async def keep(
        self, caller: PlayCaller, turn_id: str, kept_as: KeptAs, reply_id: str | None = None, *, consent: bool = False
    ) -> Scene:
        """Keeps the moment as a scene of its character, with `consent` also what the character remembered then of its
        player. NotFound; InvalidRequest for a moment that makes no scene; Conflict where scenes cannot be written, and
        for a reply before which nothing could be retrieved, or that has memories without consent; RetrieverFailed where
        nothing can be retrieved now."""
        turn = await self.get(caller, turn_id)
        _require_policies(turn)
        reply = None if reply_id is None and kept_as == "scene" else _find_reply(turn, reply_id or "")
        if kept_as == "example" and reply is not None and not consent:
            _require_no_memories(reply)
        prepared = await self._prepare_whole(turn, reply or _find_newest_whole(turn), remembers=consent)
        try:
            scene = _build_scene(prepared, turn.turn_id, reply if kept_as == "example" else None)
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
        prepared = await self._prepare_whole(turn, turn.replies[-1], remembers=True)
        return await self.judge_replies(prepared, turn.replies)

    async def judge_replies(self, turn: PreparedTurn, replies: Sequence[PlayReply]) -> tuple[Score, ...]:
        """The same of replies that are not stored."""
        task, environment, options = turn.task, turn.task.made.environment, ScoringOptions()
        completions = [build_completion(one.text, one.calls) for one in replies]
        bounds = await bound_scoring(environment, task.placed.task, completions, options, self._panels)
        async with self._playing.quotas.hold_judging(add_up_bounds(bounds)):
            judged = await score_completions(
                environment,
                task.placed.task,
                completions,
                options,
                self._panels.build_fresh_panel(environment.name, options),  # the cache would keep what was said
                NoWorkers(),
                NoPrograms(),
                what="play",
            )
        return judged.scores

    async def remove(self, caller: PlayCaller, turn_id: str | None = None) -> int:
        """Also of worlds that the key does not reach any more: what people said is theirs."""
        removed = await self._store.remove(caller.player, turn_id)
        await self._erase_removed()
        return removed

    async def forget(self, caller: PlayCaller) -> Forgotten:
        """All that is remembered of the player, and their turns."""
        forgotten = await self._store.forget(caller.player, self._clock())
        await self._erase_removed()
        return forgotten

    async def _erase_removed(self) -> None:
        """StoreUnavailable where it cannot be done now: pruning tries again."""
        self._leaves_traces = True
        await self._store.erase_removed()
        self._leaves_traces = False

    async def list_newest(self, caller: PlayCaller, limit: int) -> Sequence[PlayTurn]:
        """Of the newest those that the key reaches."""
        listed = await self._store.list_turns(caller.player, limit)
        return [one for one in listed if one.world is None or caller.bounds.allows_world(one.world)]

    async def measure_lines(self, turns: Sequence[PlayTurn], character: str) -> tuple[LineMeasures, ...]:
        """Of the newest lines of a character in these turns of one player."""
        own = [one for one in turns if one.character == character]
        if not own:
            return ()
        ids = [one.turn_id for one in own]
        return measure_lines(await self._store.list_replies(own[0].player, ids, _MOST_MEASURED))

    async def prune_for_ever(self) -> None:
        await repeat(self._prune, _PRUNE_SECONDS, "old turns of play could not be removed")

    async def _prune(self) -> None:
        old = await self._store.prune(self._clock() - timedelta(days=self._keep_days))
        is_old = old != Forgotten(removed=0, turns=0)
        if is_old or self._leaves_traces:
            await self._erase_removed()
        if is_old:
            told = "removed %d turns and %d memories of play that were older than %g days"
            log.info(told, old.turns, old.removed, self._keep_days)

    async def _prepare_whole(self, turn: PlayTurn, reply: PlayReply | None, *, remembers: bool = False) -> PreparedTurn:
        """With all that is retrieved: a prompt that lacks it is not what training should learn from."""
        if reply is not None:
            _require_retrieved(reply)
        prepared = await self.prepare(turn, reply, remembers=remembers)
        if prepared.retrieval_failure is not None:
            raise RetrieverFailed(prepared.retrieval_failure)
        return prepared

    async def _build_label(self, turn: PlayTurn, chosen: PlayReply) -> ImportedLabel:
        _require_policies(turn)
        _require_no_memories(chosen)
        prepared = await self._prepare_whole(turn, chosen)
        said = chosen.text, chosen.calls
        usable = [one for one in turn.replies if one.retrieval_failure is None and not one.recalled]
        others = {
            (one.text, canonical_json([call.model_dump(mode="json") for call in one.calls])): one
            for one in usable
            if (one.text, one.calls) != said
        }
        if not others:
            fault = "the turn has no other reply with other words or calls for which something could be retrieved"
            raise InvalidRequest(fault, field="reply")
        rejected = tuple(others.values())
        try:
            choice = ImportedChoice(
                prompt=prepared.task.placed.task.messages,
                chosen=chosen.text,
                rejected=tuple(one.text for one in rejected),
                tools=prepared.task.placed.task.tools,
                chosen_calls=write_calls(chosen.calls),
                rejected_calls=tuple(write_calls(one.calls) for one in rejected)
                if any(one.calls for one in rejected)
                else (),
                chat=turn.turn_id,
                source="play",
                chosen_model=f"{chosen.policy}: {chosen.model}",
                rejected_models=tuple(f"{one.policy}: {one.model}" for one in rejected),
            )
        except ValidationError as error:
            raise _refuse("label", error) from None
        return ImportedLabel(kind="pair", choice=choice)


def _require_policies(turn: PlayTurn) -> None:
    if holds_stand_in(Moment.model_validate(turn.moment).conversation):
        raise Conflict("the stand-in said a line of this conversation: begin anew with a policy", field="turn")


def _require_retrieved(reply: PlayReply) -> None:
    if reply.retrieval_failure is not None:
        raise Conflict(f"nothing could be retrieved for this reply: {reply.retrieval_failure}", field="reply")


def _require_no_memories(reply: PlayReply) -> None:
    """What players told a character does not reach training."""
    if reply.recalled:
        fault = "its prompt told what you said in earlier chats, which is not used for training"
        raise Conflict(f"{fault}. Keep it as an example with `consent`", field="reply")


def _find_newest_whole(turn: PlayTurn) -> PlayReply | None:
    """The newest reply before which all was retrieved; the newest of all where there is none."""
    newest_first = turn.replies[::-1]
    return next((one for one in newest_first if one.retrieval_failure is None), next(iter(newest_first), None))


def _find_reply(turn: PlayTurn, reply_id: str) -> PlayReply:
    reply = next((one for one in turn.replies if one.reply_id == reply_id), None)
    if reply is None:
        raise NotFound(f"the turn has no reply {reply_id[:80]!r}")
    return reply


def _refuse(what: str, error: ValidationError) -> InvalidRequest:
    return InvalidRequest(f"this makes no {what}: {explain_faults(error)[0].sentence}", field="turn")


def _build_scene(turn: PreparedTurn, turn_id: str, example: PlayReply | None) -> Scene:
    """Everything that the prompt told of events stands in the scene itself, so that it needs no world."""
    moment = turn.moment
    lines = [
        SceneLine(speaker="player" if line.role == "user" else "npc", text=line.content, calls=line.calls)
        for line in moment.conversation
    ]
    opening = None if moment.event is not None else lines.pop().text
    events = [passage for passage in turn.passages if passage.kind == "event"]
    return Scene(
        id=f"kept-{turn_id.removeprefix('turn_')[:16]}",
        kind="conversation" if moment.event is None else "recent_event",
        split="train",
        history=tuple(lines),
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
        begun=None if moment.begun is None else SceneLine.model_validate(moment.begun.describe()),
        earlier=turn.earlier,
    )


# Scenes that were kept from play, in a file of each character beside the other scenes that authors wrote.

_TRIES: Final = 5
"""Others may keep scenes of the character at the same moment."""
_LONGEST_ID: Final = 59
"""With which the name of the file is one of an `AuthoredFile`."""


async def keep_scene(authoring: AuthoringService, sheet: CharacterSheet, scene: Scene, author: str) -> None:
    """Adds the scene to `scenes/kept_<character>.yaml`; one that is kept again replaces itself. In force on return.
    Raises as `AuthoringService.save` and `build_change` do."""
    file = name_kept_file(sheet.id)
    for attempt in range(_TRIES):
        based_on = authoring.find_number(file)
        text = await _read_text(authoring, file)
        change = await run_in_turn("authors", build_change, sheet, scene, text, based_on)
        try:
            await authoring.save([change], author, "from play")
        except Conflict:
            if attempt + 1 == _TRIES:
                raise
        else:
            return


def name_kept_file(character: str) -> str:
    """A long id is cut, with a digest in place of its end."""
    if len(character) > _LONGEST_ID:
        character = f"{character[: _LONGEST_ID - 9]}_{sha256(character.encode()).hexdigest()[:8]}"
    return f"{SCENE_FILES}kept_{character}.yaml"


def build_change(sheet: CharacterSheet, scene: Scene, text: str | None, based_on: int) -> AuthoredChange:
    """The file with the scene; `text` is what it holds, None where there is none. Blocking. InvalidRequest for what
    makes no file of scenes; TooLarge for a file that is full."""
    file = name_kept_file(sheet.id)
    former = () if text is None else parse_model(text, file, SceneSet).scenes
    others = tuple(one for one in former if one.id != scene.id)
    try:
        scene_set = SceneSet(character=sheet.id, language=sheet.voice.language, scenes=(*others, scene))
    except ValidationError as error:
        raise build_yaml_refusal(file, error, SceneSet) from None
    written = _write_scenes(scene_set)
    if len(written) > MAX_AUTHORED:
        raise TooLarge(f"{file} would hold more than {MAX_AUTHORED:,} characters: remove scenes from it", field="turn")
    return AuthoredChange(file=file, text=written, based_on=based_on)


async def _read_text(authoring: AuthoringService, file: str) -> str | None:
    try:
        return (await authoring.read(file)).text
    except NotFound:
        return None


def _write_scenes(scenes: SceneSet) -> str:
    """As a scene file has them."""
    return dump_yaml(scenes.model_dump(mode="json", exclude_defaults=True))
