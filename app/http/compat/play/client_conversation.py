"""Finds in a client's messages what was said, and what the client wants.

Clients send a prompt of their own as system messages, about 5 to 12 of them. The prompt of training stands in their
place. A few say what to do, and are honoured: SillyTavern's, which stand last, and a narrator's, between lines.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from app.domain.errors import InvalidRequest
from app.http.compat.play.chat_request import ChatRequest, ClientMessage
from app.service.world_requests import ConversationTurn

Wish = Literal["turn", "continue", "impersonate", "quiet", "helper", "raw"]
"""What is wanted. All but the first two are passed on as they are: they are no turns of a character."""

MOST_LINES: Final = 200
_HISTORY: Final = re.compile(r"^\[Start a new (?:group )?chat", re.I)
_EXAMPLES: Final = re.compile(r"^\[(?:Start a new|Example) chat", re.I)
_CONTINUE: Final = re.compile(r"^\[Continue (?:the following|your last) message", re.I)
_IMPERSONATE: Final = re.compile(r"^\[?Write your next reply from the point of view of ", re.I)
_GROUP: Final = re.compile(r"^\[Write the next reply only as (?P<name>[^\]]{1,120}?)\.?\]$", re.I)
_HELPER: Final = re.compile(
    r"^### Task:|\bRespond with ONLY\b|^(?:Generate|Create|Provide) a (?:concise|short)[^.]{0,80}\btitle\b", re.I
)
_QUOTED: Final = "original message: "
_PREFIX: Final = re.compile(r"^(?P<name>[^:\n]{1,60}): ")


@dataclass(frozen=True)
class ClientConversation:
    """`lines` alternate, the player first. `beginning` is the reply that is to be continued."""

    wish: Wish
    lines: tuple[ConversationTurn, ...] = ()
    event: str | None = None
    speaker: str | None = None
    """The id of the character whom a group is to hear next."""
    beginning: str | None = None
    dropped: int = 0
    """System messages that nobody was shown."""


@dataclass(frozen=True)
class _SaidLine:
    role: Literal["user", "assistant"]
    text: str


def read_conversation(request: ChatRequest, names: Mapping[str, str]) -> ClientConversation:
    """`names` are ids of characters by what they are called, in lower case. InvalidRequest for messages in which nobody
    says anything, and for a group's member who is not served."""
    messages = [one for one in request.messages if one.content.strip()]
    if not messages and request.play.event is None:
        raise InvalidRequest("nobody says anything", field="messages")
    if request.play.kind == "raw":
        return ClientConversation("raw")
    history, trailing = _split(messages)
    wish = _read_wish(request, messages, trailing)
    if wish not in {"turn", "continue"}:
        return ClientConversation(wish)
    return _read_turn(request, wish, history, trailing, names, sum(one.is_system for one in messages))


def _split(messages: Sequence[ClientMessage]) -> tuple[list[ClientMessage], list[ClientMessage]]:
    """The history, from its first line on, and the system messages behind its last line."""
    marks = [place for place, one in enumerate(messages) if one.is_system and _HISTORY.match(one.content)]
    start = marks[-1] + 1 if marks else 0
    while start < len(messages) and messages[start].is_system:
        start += 1
    end = len(messages)
    while end > start and messages[end - 1].is_system:
        end -= 1
    own = [one for one in messages[start:end] if not (one.name or "").startswith("example_")]
    return [one for one in own if not _EXAMPLES.match(one.content)], list(messages[end:])


def _read_wish(request: ChatRequest, messages: Sequence[ClientMessage], trailing: Sequence[ClientMessage]) -> Wish:
    texts = [one.content.strip() for one in trailing]
    if any(map(_CONTINUE.match, texts)) and request.play.kind is None:
        return "continue"
    if request.play.kind == "turn":
        return "turn"
    if any(map(_IMPERSONATE.match, texts)):
        return "impersonate"
    last = messages[-1].content.strip() if messages else ""
    if not request.stream and (request.wants_json or _HELPER.search(last[:2000])):
        return "helper"
    unknown = [text for text in texts if not _GROUP.match(text)]
    if unknown and not request.stream:
        return "quiet"
    if messages and all(one.is_system for one in messages):
        return "quiet" if not request.stream else "turn"
    return "continue" if request.play.event is None and messages[-1].role == "assistant" else "turn"


def _read_turn(
    request: ChatRequest,
    wish: Wish,
    history: Sequence[ClientMessage],
    trailing: Sequence[ClientMessage],
    names: Mapping[str, str],
    systems: int,
) -> ClientConversation:
    speaker = _find_speaker(trailing, names)
    told = [one for one in history if one.is_system]
    lines = _merge(
        _read_line(one, speaker, names) for one in reversed(history) if not one.is_system or request.play.narrator
    )
    event, used = request.play.event, len(told) if request.play.narrator else 0
    rest = [text for one in trailing if not _is_order(text := one.content.strip())]
    if rest and event is None and wish == "turn" and lines and lines[-1].role == "assistant" and request.play.narrator:
        event, used = "\n".join(rest), used + len(rest)
    read = ClientConversation(wish, speaker=speaker, event=event, dropped=systems - used - (len(trailing) - len(rest)))
    if wish == "continue":
        quoted = (_read_quoted(one.content.strip()) for one in trailing)
        return _take_beginning(read, lines, next(filter(None, quoted), ""))
    if event is None and (not lines or lines[-1].role != "user"):
        raise InvalidRequest(
            "the conversation must end with what the player says, or `play.event` be set", field="messages"
        )
    return replace(read, lines=_cut(lines, ends_with="user" if event is None else "assistant"))


def _is_order(text: str) -> bool:
    return _CONTINUE.match(text) is not None or _GROUP.match(text) is not None


def _read_quoted(text: str) -> str:
    """The beginning of a reply that an order to continue it quotes."""
    _, found, said = text.partition(_QUOTED)
    return said[:-1] if found and said.endswith("]") else ""


def _take_beginning(read: ClientConversation, merged: Sequence[_SaidLine], quoted: str) -> ClientConversation:
    """The reply stands last in the history, or in the order to continue it alone."""
    if quoted and merged and merged[-1].role == "user":
        merged = [*merged, _SaidLine("assistant", quoted)]
    if len(merged) < 2 or merged[-1].role != "assistant":
        raise InvalidRequest("there is no reply to continue", field="messages")
    return replace(read, lines=_cut(merged[:-1], ends_with="user"), beginning=merged[-1].text)


def _cut(merged: Sequence[_SaidLine], ends_with: str) -> tuple[ConversationTurn, ...]:
    """The newest lines, the player's first. A greeting is part of the prompt."""
    kept = list(merged)
    if ends_with == "assistant" and kept and kept[-1].role == "user":
        raise InvalidRequest("with an event the conversation ends with the character's line", field="messages")
    most = MOST_LINES - (1 if ends_with == "user" else 0)
    kept = kept[-most:] if len(kept) > most else kept
    if kept and kept[0].role == "assistant":
        kept = kept[1:]
    return tuple(ConversationTurn(role=one.role, content=one.text) for one in kept)


def _find_speaker(trailing: Sequence[ClientMessage], names: Mapping[str, str]) -> str | None:
    called = [match["name"].strip() for one in trailing if (match := _GROUP.match(one.content.strip()))]
    if not called:
        return None
    found = names.get(called[-1].casefold())
    if found is None:
        raise InvalidRequest(f"no served character is called {called[-1]!r}", field="messages")
    return found


def _read_line(message: ClientMessage, speaker: str | None, names: Mapping[str, str]) -> _SaidLine:
    """A narrator's line, and one of another character in a group, stand between or behind brackets, as in training."""
    text = message.content.strip()
    if message.is_system:
        return _SaidLine("user", f"[{text}]")
    if speaker is None:
        return _SaidLine("assistant" if message.role == "assistant" else "user", text)
    match = _PREFIX.match(text)
    said = text[match.end() :] if match else text
    if message.role != "assistant":
        return _SaidLine("user", said or text)
    whose = None if match is None else match["name"].strip()
    if whose is not None and names.get(whose.casefold()) != speaker:
        return _SaidLine("user", f"[{whose}] {said}")
    return _SaidLine("assistant", said)


def _merge(newest_first: Iterable[_SaidLine]) -> list[_SaidLine]:
    """The newest, in order; older ones are not read. Neighbours of one role are one line: chat templates of several
    models take turns alone."""
    merged: list[tuple[Literal["user", "assistant"], list[str]]] = []
    for line in newest_first:
        if merged and merged[-1][0] == line.role:
            merged[-1][1].append(line.text)
        elif len(merged) > MOST_LINES:
            break
        else:
            merged.append((line.role, [line.text]))
    return [_SaidLine(role, "\n".join(reversed(texts))) for role, texts in reversed(merged)]
