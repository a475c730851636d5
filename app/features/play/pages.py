"""The page on which people talk to characters, and what they may do with what was said.

The conversation so far travels in the form, so nothing is kept of it on the server unless the turn is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import Field, TypeAdapter, ValidationError

from app.characters.actions import DoneCall, write_calls
from app.domain.access import Caller, KeyBounds
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.faults import build_refusal
from app.domain.scores import Score
from app.domain.tasks import Message
from app.domain.values import canonical_json
from app.features.play.memories import PlayMemories
from app.features.play.model import PlayReply, PlayTurn
from app.features.play.service import PlayCaller, PlayedModel, PlayFields, PlayService, PlayTurns, PreparedTurn
from app.features.play.stand_in import FoundServer, write_example_block
from app.features.worlds.service import ConversationTurn, Moment, WorldService, list_worlds_within
from app.http.viewer.group_pages import OFFLINE_JUDGE, MessageLine, RetrievedView, build_lines, build_retrieved
from app.http.viewer.rendering import FormFields, Renderer, pick_field, read_fields, redirect, wants_json
from app.http.web.api_keys import CallerBounds, find_caller, needs
from app.http.web.middleware import is_loopback
from app.http.web.routes import LazyRoute
from app.toolkit.texts import SHOWN_AT_ALL, Excerpt, cut_excerpt, escape_invisible

# What was sent.

_MOST_POLICIES: Final = 4
"""Side by side."""
_MOST_SHOWN: Final = 300
"""Characters of a call."""
_DRAFT: Final = "draft:"
"""Before the character's id where its author's draft is to speak. No id has a colon."""
_CONVERSATION: Final = TypeAdapter(tuple[ConversationTurn, ...])
_REPLIES: Final = TypeAdapter(Annotated[tuple[PlayReply, ...], Field(max_length=_MOST_POLICIES)])


@dataclass(frozen=True)
class _TalkForm:
    """Who is asked, where and when, by which policies, and what was said so far."""

    speaker: str = ""
    """The character's id, or its author's draft."""
    world: str = ""
    as_of: str = ""
    player_name: str = ""
    policies: tuple[str, ...] = ()
    line: str = ""
    event: str = ""
    conversation: tuple[ConversationTurn, ...] = ()
    keeps: bool = True
    replies: tuple[PlayReply, ...] = ()
    """To the conversation, where it is not stored."""

    @property
    def character(self) -> str:
        return self.speaker.removeprefix(_DRAFT)

    @property
    def is_draft(self) -> bool:
        return self.speaker.startswith(_DRAFT)

    def write_replies(self) -> str:
        """For the form's hidden field."""
        return _REPLIES.dump_json(self.replies).decode()

    def write_conversation(self) -> str:
        """For the form's hidden field."""
        return _CONVERSATION.dump_json(self.conversation).decode()

    def build_fields(self) -> PlayFields:
        """InvalidRequest naming the field that is wrong."""
        fields = {"world": self.world, "player_name": self.player_name, "as_of": _add_zone(self.as_of)}
        try:
            return PlayFields.model_validate({name: value for name, value in fields.items() if value})
        except ValidationError as error:
            raise build_refusal(error, PlayFields) from None

    def build_moment(self, fields: PlayFields) -> Moment:
        """That of what is said now. InvalidRequest naming the field that is wrong."""
        if bool(self.line.strip()) == bool(self.event.strip()):
            raise InvalidRequest("write what you say, or what happens: one of them", field="line")
        said = [*self.conversation, *([ConversationTurn(role="user", content=self.line)] if self.line.strip() else [])]
        return self.build_said_moment(fields, said, self.event.strip() or None)

    def build_said_moment(
        self, fields: PlayFields, said: Sequence[ConversationTurn], event: str | None = None
    ) -> Moment:
        """InvalidRequest naming the field that is wrong."""
        try:
            return Moment(
                character=self.character,
                as_of=fields.as_of,
                player_name=fields.player_name,
                conversation=tuple(said),
                event=event,
            )
        except ValidationError as error:
            raise build_refusal(error, Moment) from None


def _read_form(sent: FormFields) -> _TalkForm:
    """InvalidRequest for a conversation or replies that are none."""
    form = _TalkForm(
        speaker=pick_field(sent, "character").strip(),
        world=pick_field(sent, "world").strip(),
        as_of=pick_field(sent, "as_of").strip(),
        player_name=pick_field(sent, "player_name").strip(),
        policies=tuple(dict.fromkeys(sent.get("policy", ())))[:_MOST_POLICIES],
        line=pick_field(sent, "line").strip(),
        event=pick_field(sent, "event").strip(),
        keeps=pick_field(sent, "store").strip() != "false",
    )
    try:
        said = _CONVERSATION.validate_json(pick_field(sent, "conversation").strip() or "[]")
        going_on = pick_field(sent, "go_on").strip()
        if said and said[-1].role == "user" and going_on:
            said = (*said, ConversationTurn.model_validate_json(going_on))
    except ValidationError as error:
        raise build_refusal(error, None, "conversation") from None
    try:
        replies = _REPLIES.validate_json(pick_field(sent, "replies").strip() or "[]")
    except ValidationError as error:
        raise build_refusal(error, None, "replies") from None
    return replace(form, conversation=said, replies=replies)


def _add_zone(text: str) -> str:
    """Browsers send times without a zone."""
    return f"{text}Z" if text and "Z" not in text.upper() and "+" not in text else text


# What the page shows. All that was said is untrusted.


@dataclass(frozen=True)
class _ReplyView:
    """One reply. `said` is the line as the form sends it back, `does` its calls."""

    reply: PlayReply
    said: str
    text: Excerpt
    does: tuple[str, ...] = ()
    score: Score | None = None
    judges: tuple[str, ...] = ()
    """Those with a model that gave the score."""
    is_offline: bool = False
    """Whether the offline judge had a part in it."""


@dataclass(frozen=True)
class _TalkState:
    """What the page shows. `turn_id` is empty for what is not kept."""

    form: _TalkForm
    said: tuple[MessageLine, ...] = ()
    replies: tuple[_ReplyView, ...] = ()
    prompt: tuple[MessageLine, ...] = ()
    retrieved: RetrievedView | None = None
    turn_id: str = ""
    problems: tuple[str, ...] = ()
    notice: str = ""
    chooses_world: bool = False
    """Whether nobody said yet where they talk."""


def _build_state(turn: PlayTurn, policies: tuple[str, ...] = (), scores: Sequence[Score] = ()) -> _TalkState:
    moment = Moment.model_validate(turn.moment)
    form = _TalkForm(
        speaker=turn.character,
        world=turn.world or "",
        as_of="" if moment.as_of is None else moment.as_of.strftime("%Y-%m-%dT%H:%M:%S"),
        player_name=moment.player_name or "",
        policies=policies or tuple(dict.fromkeys(one.policy for one in turn.replies)),
    )
    asked = replace(form, conversation=_list_said(moment), replies=turn.replies)
    return replace(_build_unkept(asked, scores), turn_id=turn.turn_id)


def _list_said(moment: Moment) -> tuple[ConversationTurn, ...]:
    """With what happened as a line."""
    opened = () if moment.event is None else (ConversationTurn(role="user", content=f"[{moment.event}]"),)
    return (*moment.conversation, *opened)


def _build_unkept(form: _TalkForm, scores: Sequence[Score] = ()) -> _TalkState:
    judged: list[Score | None] = [*scores, *[None] * (len(form.replies) - len(scores))]
    return _TalkState(
        form=form,
        said=build_lines(_write_messages(form.conversation), SHOWN_AT_ALL),
        replies=tuple(
            _ReplyView(
                one,
                _write_line(one),
                cut_excerpt(one.text, SHOWN_AT_ALL),
                tuple(map(_describe_call, one.calls)),
                score,
                judges=() if score is None else tuple(name for name in score.judges if name != OFFLINE_JUDGE),
                is_offline=score is not None and OFFLINE_JUDGE in score.judges,
            )
            for one, score in zip(form.replies, judged, strict=True)
        ),
    )


def _add_prompt(state: _TalkState, turn: PreparedTurn) -> _TalkState:
    placed = turn.task.placed
    return replace(
        state,
        prompt=build_lines(placed.task.messages, SHOWN_AT_ALL),
        retrieved=build_retrieved(placed.context) if turn.played.world else None,
    )


def _write_messages(said: Sequence[ConversationTurn]) -> tuple[Message, ...]:
    return tuple(
        Message(
            role=one.role,
            content=one.content or None,
            tool_calls=write_calls(one.calls),
        )
        for one in said
    )


def _write_line(reply: PlayReply) -> str:
    """For the form; empty where nothing can follow on the reply."""
    if not reply.text.strip() and not reply.calls:
        return ""
    # A line that is too long to follow on is refused when it is sent.
    line = ConversationTurn.model_construct(role="assistant", content=reply.text.strip(), calls=reply.calls)
    return line.model_dump_json()


def _describe_call(call: DoneCall) -> str:
    """Such as `give_item(item: rope)`. `talk.js` writes it in the same way."""
    given = (
        f"{name}: {value if isinstance(value, str) else canonical_json(value)}"
        for name, value in call.arguments.items()
    )
    words = escape_invisible(f"{call.name}({', '.join(given)})")
    return words if len(words) <= _MOST_SHOWN else f"{words[:_MOST_SHOWN]}…"


def _show_opening(turn: PlayTurn) -> str:
    moment = Moment.model_validate(turn.moment)
    opening = moment.event if moment.event is not None else moment.conversation[-1].content
    return opening[:80]


# The page, and what people may do with what was said.

_PATH: Final = "/view/talk"
_MAX_FORM: Final = 4 * 1024 * 1024
"""Bytes. The form holds the whole conversation."""
_MOST_WORLDS: Final = 500
"""Offered in the form."""
_MOST_TURNS: Final = 20
"""Of the player's newest."""
_MOST_MEASURED: Final = 200
"""Of the player's newest turns, for the measures of a character."""
_NOTICES: Final[Mapping[str, str]] = {
    "better": "This reply is marked as the better one.",
    "keep": "The scene is kept, and served from now on.",
    "remove": "The turn is removed.",
    "forget": "All characters have forgotten you, and your chats are removed.",
}
_Word = Annotated[str, Query(max_length=100)]
_Place = Annotated[str | None, Query(max_length=100)]
_Words = Annotated[list[str] | None, Query(max_length=4)]
_Act = Callable[[Request, KeyBounds], Awaitable[Response]]
_ActOnForm = Callable[[Request, KeyBounds, _TalkForm], Awaitable[Response]]


@dataclass(frozen=True)
class _Speaker:
    """Somebody to talk to. `value` is what the form sends; `world` is where they are met, empty for nowhere."""

    value: str
    label: str
    world: str


@dataclass(frozen=True)
class TalkPages:
    """Data for the page."""

    playing: PlayService
    turns: PlayTurns
    memories: PlayMemories
    worlds: WorldService
    find_servers: Callable[[], Awaitable[Sequence[FoundServer]]]
    """On this machine, that could be named as policies."""
    list_homes: Callable[[], Mapping[str, Sequence[str]]]
    """Worlds in which each served character is at home, the nearest first."""


@dataclass(frozen=True)
class _PolicyAdvice:
    """What to add to the settings, and why."""

    reason: str
    block: str


@dataclass(frozen=True)
class _TalkActions:
    """Answers the page's requests."""

    pages: TalkPages
    renderer: Renderer

    @needs("talk", "handler")
    async def begin(
        self,
        request: Request,
        bounds: CallerBounds,
        turn: _Word = "",
        character: _Word = "",
        world: _Place = None,
        as_of: _Word = "",
        policy: _Words = None,
        notice: _Word = "",
    ) -> Response:
        if turn:
            return await self._show(request, bounds, turn, tuple(policy or ()), _NOTICES.get(notice, ""))
        form = _TalkForm(character, world or "", as_of, policies=tuple(policy or self.pages.playing.policy_names[:1]))
        state = _TalkState(form, notice=_NOTICES.get(notice, ""), chooses_world=world is None)
        return await self._render(request, bounds, state)

    async def say(self, request: Request, bounds: KeyBounds) -> Response:
        return await self._act_on_form(request, bounds, self._answer)

    async def _act_on_form(self, request: Request, bounds: KeyBounds, act: _ActOnForm, leave_out: str = "") -> Response:
        """What was written stays on the page where it is refused."""
        form = _TalkForm()
        try:
            sent = await read_fields(request, _MAX_FORM)
            form = _read_form({name: values for name, values in sent.items() if name != leave_out})
            return await act(request, bounds, form)
        except GatewayError as error:
            problem = f"{error.field}: {error.detail}" if error.field else error.detail
            state = replace(_build_unkept(form), problems=(escape_invisible(problem),))
            return await self._render(request, bounds, state, status=error.status)

    async def mark_better(self, request: Request, _: KeyBounds) -> Response:
        caller, sent = await self._read(request)
        turn_id, reply = pick_field(sent, "turn"), pick_field(sent, "reply")
        await self.pages.turns.mark_better(caller, turn_id, reply, consent="consent" in sent)
        return _lead_back(request, "better", turn_id)

    async def keep(self, request: Request, _: KeyBounds) -> Response:
        caller, sent = await self._read(request)
        turn_id, as_example = pick_field(sent, "turn"), pick_field(sent, "as") == "example"
        reply = pick_field(sent, "reply") if as_example else None
        consent = "consent" in sent
        await self.pages.turns.keep(caller, turn_id, "example" if as_example else "scene", reply, consent=consent)
        return _lead_back(request, "keep", turn_id)

    async def remove(self, request: Request, _: KeyBounds) -> Response:
        caller, sent = await self._read(request)
        await self.pages.turns.remove(caller, pick_field(sent, "turn"))
        return _lead_back(request, "remove")

    async def forget(self, request: Request, _: KeyBounds) -> Response:
        await self.pages.turns.forget(await self._identify(request))
        return _lead_back(request, "forget")

    async def judge(self, request: Request, bounds: KeyBounds) -> Response:
        caller, sent = await self._read(request)
        turn_id = pick_field(sent, "turn")
        if not turn_id:
            return await self._act_on_form(request, bounds, self._judge_unkept, leave_out="go_on")
        return await self._show(request, bounds, turn_id, scores=await self.pages.turns.judge(caller, turn_id))

    async def _judge_unkept(self, request: Request, bounds: KeyBounds, form: _TalkForm) -> Response:
        """Replies that nothing keeps come in the form."""
        if not form.replies:
            raise InvalidRequest("there is no reply to judge", field="replies")
        fields = self._read_place(bounds, form)
        played = await self._read_model(form, form.replies[0].policy, fields)
        caller = await self._identify(request)
        moment = form.build_said_moment(fields, form.conversation)
        prepared = await self.pages.playing.prepare(played, moment, caller.player)
        scores = await self.pages.turns.judge_replies(prepared, form.replies)
        return await self._render(request, bounds, _add_prompt(_build_unkept(form, scores), prepared))

    async def _read(self, request: Request) -> tuple[PlayCaller, FormFields]:
        return await self._identify(request), await read_fields(request, _MAX_FORM)

    async def _identify(self, request: Request) -> PlayCaller:
        return await self.pages.turns.identify(find_caller(request.scope))

    def _read_place(self, bounds: KeyBounds, form: _TalkForm) -> PlayFields:
        if form.world:
            bounds.require_world(form.world, "world")
        return form.build_fields()

    async def _read_model(self, form: _TalkForm, policy: str, fields: PlayFields) -> PlayedModel:
        playing, name = self.pages.playing, f"{form.character}@{policy}"
        return await playing.read_own_model(name, fields) if form.is_draft else playing.read_model(name, fields)

    async def _answer(self, request: Request, bounds: KeyBounds, form: _TalkForm) -> Response:
        playing, turns = self.pages.playing, self.pages.turns
        fields = self._read_place(bounds, form)
        asked = [await self._read_model(form, policy, fields) for policy in form.policies or ("",)]
        moment = form.build_moment(fields)
        if all(playing.takes_tools(one.policy) for one in asked):  # they are asked the same
            moment = moment.model_copy(update={"tools": ()})
        caller = await self._identify(request)
        prepared = await playing.prepare(asked[0], moment, caller.player)
        replies, problems = await _ask_all(playing, [replace(prepared, played=one) for one in asked])
        if not (form.keeps and playing.policies and replies) or form.is_draft:
            answered = replace(form, conversation=_list_said(moment), replies=replies, line="", event="")
            state = replace(_add_prompt(_build_unkept(answered), prepared), problems=problems)
            return await self._render(request, bounds, state, status=200 if replies else 503)
        turn_id = await turns.add(prepared, caller.player, replies)
        if not problems and not wants_json(request):
            return redirect(request, _PATH, turn=turn_id, policy=form.policies)
        turn = await turns.get(caller, turn_id)
        state = _add_prompt(_build_state(turn, form.policies), prepared)
        return await self._render(request, bounds, replace(state, problems=problems), turn)

    async def _show(
        self,
        request: Request,
        bounds: KeyBounds,
        turn_id: str,
        policies: tuple[str, ...] = (),
        notice: str = "",
        scores: Sequence[Score] = (),
    ) -> Response:
        turns = self.pages.turns
        turn = await turns.get(await self._identify(request), turn_id)
        state = replace(_build_state(turn, policies, scores), notice=notice)
        try:
            prepared = await turns.prepare(turn, turn.replies[-1] if turn.replies else None, remembers=True)
            state = _add_prompt(state, prepared)
        except GatewayError as error:  # the character or the world may be gone
            state = replace(state, problems=(escape_invisible(error.detail),))
        return await self._render(request, bounds, state, turn)

    async def _render(
        self, request: Request, bounds: KeyBounds, state: _TalkState, turn: PlayTurn | None = None, status: int = 200
    ) -> Response:
        worlds = await list_worlds_within(self.pages.worlds, bounds, _MOST_WORLDS)
        speakers = self._list_speakers(await self.pages.playing.list_drafted(), {world.name for world in worlds})
        turns = self.pages.turns
        caller = await self._identify(request)
        newest = await turns.list_newest(caller, _MOST_MEASURED)
        remembered, _ = await self.pages.memories.list_own(caller.player, _MOST_TURNS, None)
        if state.chooses_world or not state.form.speaker:
            parents = {world.name: world.parent for world in worlds}
            state = replace(state, form=_choose_place(state.form, speakers, parents, chooses_world=state.chooses_world))
        shown = {
            "state": state,
            "speakers": speakers,
            "worlds": [world.name for world in worlds],
            "policies": self.pages.playing.policy_names,
            "disclosure": self.pages.playing.disclosure.get("notice"),
            "newest": [(one, _show_opening(one)) for one in newest[:_MOST_TURNS]],
            "measures": await turns.measure_lines(newest, state.form.character),
            "remembered": [one for one in remembered if bounds.allows_world(one.world)],
            "has_stand_in": not self.pages.playing.policies,
            "advice": await self._advise(request),
        }
        data = {"turn": turn, "replies": [one.reply for one in state.replies], "problems": state.problems}
        return self.renderer.render(request, "talk.html", shown, data, status)

    def _list_speakers(self, drafted: Sequence[str], worlds: Collection[str]) -> list[_Speaker]:
        """Those that are served, then the drafts of who asks, each in the nearest home that is one of `worlds`. A form
        writes the id of a new character as its world."""
        homes = self.pages.list_homes()
        sheets = self.pages.playing.list_sheets()
        named = [(sheet.id, sheet.id, sheet.identity.name) for sheet in sheets]
        named += [(f"{_DRAFT}{name}", name, f"{name} (your draft)") for name in drafted]
        return [
            _Speaker(value, label, next((home for home in homes.get(name, (name,)) if home in worlds), ""))
            for value, name, label in named
        ]

    async def _advise(self, request: Request) -> Sequence[_PolicyAdvice]:
        peer = "" if request.client is None else request.client.host
        if self.pages.playing.policies or not may_know_machine(find_caller(request.scope), peer):
            return ()
        found = await self.pages.find_servers()
        return tuple(map(_offer_server, found)) or (_PolicyAdvice("", write_example_block()),)


def may_know_machine(caller: Caller | None, peer: str) -> bool:
    """Whether it is told what else runs on this machine: who has the key of an administrator, or sits at the machine
    where no key is needed."""
    return is_loopback(peer) if caller is None else caller.has("admin")


def _offer_server(found: FoundServer) -> _PolicyAdvice:
    models = "1 model" if len(found.models) == 1 else f"{len(found.models)} models"
    return _PolicyAdvice(f"{found.program} answers at {found.base_url} with {models}.", escape_invisible(found.block))


def _choose_place(
    form: _TalkForm, speakers: Sequence[_Speaker], parents: Mapping[str, str | None], *, chooses_world: bool
) -> _TalkForm:
    """The world in which the character is met, or the first character that is met in the world. `parents` are those of
    branches, by world."""
    homes = {one.value: one.world for one in speakers}
    root = form.world
    while parent := parents.get(root):
        root = parent
    at_home = (speaker for speaker, world in homes.items() if world and world in (form.world, root))
    speaker = form.speaker or next(at_home, next(iter(homes), ""))
    return replace(form, speaker=speaker, world=homes.get(speaker, "") if chooses_world else form.world)


def create_talk_router(pages: TalkPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(
        prefix=_PATH, include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute
    )
    actions = _TalkActions(pages, renderer)
    players: dict[str, _Act] = {
        "say": actions.say,
        "better": actions.mark_better,
        "remove": actions.remove,
        "forget": actions.forget,
    }
    authors: dict[str, _Act] = {"keep": actions.keep, "judge": actions.judge}
    router.add_api_route("", actions.begin, methods=["GET"])

    @router.post("/{act}")
    @needs("talk", "handler")
    async def play(request: Request, bounds: CallerBounds, act: str) -> Response:
        return await _find_act(players, act)(request, bounds)

    @router.post("/author/{act}")
    @needs("author", "closed")
    async def write(request: Request, bounds: CallerBounds, act: str) -> Response:
        return await _find_act(authors, act)(request, bounds)

    return router


def _find_act(acts: Mapping[str, _Act], name: str) -> _Act:
    if name not in acts:
        raise NotFound("the page has no such act")
    return acts[name]


def _lead_back(request: Request, notice: str, turn_id: str = "") -> Response:
    return redirect(request, _PATH, turn=turn_id, notice=notice)


async def _ask_all(
    playing: PlayService, asked: Sequence[PreparedTurn]
) -> tuple[tuple[PlayReply, ...], tuple[str, ...]]:
    """One reply from each policy, and why others gave none."""

    async def ask(turn: PreparedTurn) -> PlayReply:
        return await playing.make_reply(turn, await playing.ask(turn, {}))

    made = await asyncio.gather(*map(ask, asked), return_exceptions=True)
    for one in made:
        if isinstance(one, BaseException) and not isinstance(one, GatewayError):
            raise one
    replies = tuple(one for one in made if isinstance(one, PlayReply))
    return replies, tuple(escape_invisible(one.detail) for one in made if isinstance(one, GatewayError))
