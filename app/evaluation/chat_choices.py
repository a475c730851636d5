"""Choices that people already made, read from files: pairs as JSON lines, and chats of SillyTavern.

In a chat, a reply with several `swipes` that the player went on from is an implicit choice of the one shown. Greetings
are written by people, an edit overwrites a swipe, and a branch repeats what came before it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from app.domain.labels import ImportedChoice, ImportedLabel
from app.domain.tasks import Message

Turn = Mapping[str, object]
_PAIR_KEYS = frozenset({"chosen", "rejected"})


@dataclass(frozen=True)
class LeftOutLine:
    line: int
    reason: str


@dataclass
class ChoiceFile:
    """What a file holds. `labels` are in its order."""

    form: Literal["pairs", "chat", "unknown"] = "unknown"
    labels: list[ImportedLabel] = field(default_factory=list)
    left_out: list[LeftOutLine] = field(default_factory=list)

    def leave_out(self, line: int, reason: str) -> None:
        self.left_out.append(LeftOutLine(line, reason))


def read_choices(name: str, lines: Iterable[str]) -> ChoiceFile:
    """`name` is that of the file. Each line that is no choice, though it might be taken for one, is left out with its
    reason."""
    found = ChoiceFile()
    rows = list(_read_lines(lines, found))
    if not rows:
        return found
    if rows[0][1].keys() >= _PAIR_KEYS:
        found.form = "pairs"
        for line, row in rows:
            _add_pair(name, line, row, found)
    elif {"mes", "user_name", "chat_metadata"} & rows[0][1].keys():
        found.form = "chat"
        _read_chat(name, rows, found)
    else:
        found.leave_out(rows[0][0], "neither a chat of SillyTavern nor pairs with `prompt`, `chosen` and `rejected`")
    return found


def _read_lines(lines: Iterable[str], found: ChoiceFile) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix("\ufeff").strip()
        if not text:
            continue
        try:
            row: object = json.loads(text)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            found.leave_out(number, "it holds half a character, a lone surrogate")
            continue
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield number, row
        else:
            found.leave_out(number, "not a JSON object")


def _add_pair(name: str, line: int, row: Turn, found: ChoiceFile) -> None:
    before = row.get("prompt", row.get("messages"))
    sides = [_read_side(row.get(side)) for side in ("chosen", "rejected")]
    opening = sides[0][0]
    if before is None and opening and opening != sides[1][0]:
        found.leave_out(line, "the two conversations differ before their last message")
        return
    prompt = [{"role": "user", "content": before}] if isinstance(before, str) else before or opening
    given = {"prompt": prompt, "chosen": sides[0][1], "rejected": [sides[1][1]], "source": f"{name}:{line}"}
    if sides[0][1] == sides[1][1]:
        found.leave_out(line, "both sides are the same text")
        return
    _add(found, line, "pair", given, str(row.get("language") or ""))


def _read_side(side: object) -> tuple[list[object], object]:
    """What comes before the reply, and the reply: a text, or a conversation that ends with it."""
    if isinstance(side, list) and side and isinstance(side[-1], dict):
        return side[:-1], side[-1].get("content")
    return [], side


def _add(found: ChoiceFile, line: int, kind: str, given: Mapping[str, object], language: str = "") -> None:
    try:
        choice = ImportedChoice.model_validate(given)
        found.labels.append(ImportedLabel.model_validate({"kind": kind, "choice": choice, "language": language}))
    except ValidationError as error:
        first = error.errors()[0]
        found.leave_out(line, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


def _read_chat(name: str, rows: Sequence[tuple[int, Turn]], found: ChoiceFile) -> None:
    header = {} if "mes" in rows[0][1] else rows[0][1]
    about = header.get("chat_metadata")
    about = about if isinstance(about, dict) else {}
    chat = str(about.get("main_chat") or name)
    turns = list(_drop_unreadable([(line, turn) for line, turn in rows if "mes" in turn], found))
    unread = [left.line for left in found.left_out]
    last_said = max((place for place, (_, turn) in enumerate(turns) if _is_players(turn)), default=-1)
    first_said = next((place for place, (_, turn) in enumerate(turns) if _is_players(turn)), len(turns))
    several = len({turn.get("name") for _, turn in turns if not _is_players(turn) and not turn.get("is_system")}) > 1
    prompt: list[Message] = []
    for place, (line, turn) in enumerate(turns):
        if _list_swipes(turn) and not _is_players(turn):
            reason = _find_reason(turn, place < first_said, place > last_said) or _find_gap(line, unread)
            if reason is not None:
                found.leave_out(line, reason)
            else:
                _add_turn(found, line, turn, prompt, chat, f"{name}:{line}", tainted=bool(about.get("tainted")))
        prompt += _build_messages(turn, several=several)


def _drop_unreadable(turns: Iterable[tuple[int, Turn]], found: ChoiceFile) -> Iterator[tuple[int, Turn]]:
    for line, turn in turns:
        if isinstance(turn.get("name"), dict | list):
            found.leave_out(line, "name: not a text")
        else:
            yield line, turn


def _find_gap(line: int, unread: Sequence[int]) -> str | None:
    """Why the chat before a reply is not known."""
    gap = min((one for one in unread if one < line), default=None)
    return None if gap is None else f"line {gap} of the chat before it could not be read"


def _find_reason(turn: Turn, greets: bool, ends: bool) -> str | None:
    """Why a reply with swipes is no choice."""
    swipes, chosen = _list_swipes(turn), turn.get("swipe_id")
    if turn.get("is_system"):
        return "a hidden line"
    if greets:
        return "a greeting, which a person wrote"
    if len(swipes) < 2:
        return "only one reply was offered"
    if ends:
        return "no message of the player follows: shown last is not chosen"
    if type(chosen) is not int or not 0 <= chosen < len(swipes):
        return "swipe_id names no swipe"
    said = _read_text(turn.get("mes")).strip()
    if not said:
        return "the reply is empty"
    others = [text.strip() for place, text in enumerate(swipes) if place != chosen]
    if said != swipes[chosen].strip() and said in others:
        return "mes is another swipe than swipe_id says"
    if not {text for text in (*others, swipes[chosen].strip()) if text and text != said}:
        return "all swipes are the same text"
    return None


def _add_turn(
    found: ChoiceFile, line: int, turn: Turn, prompt: Sequence[Message], chat: str, source: str, *, tainted: bool
) -> None:
    swipes, place = _list_swipes(turn), turn["swipe_id"]
    assert isinstance(place, int)  # noqa: S101
    said = _read_text(turn.get("mes")).strip()
    edited = said != swipes[place].strip()
    models = _list_models(turn, len(swipes))
    rejected = {
        text.strip(): model for text, model in zip(swipes, models, strict=True) if text.strip() not in {"", said}
    }
    given = {
        "prompt": tuple(prompt),
        "chosen": said,
        "rejected": tuple(rejected),
        "rejected_models": tuple(rejected.values()) if any(rejected.values()) else (),
        "chosen_model": "" if edited else models[place],
        "chat": chat,
        "source": source,
        "place": None if edited else place,
        "may_be_edited": tainted or edited,
    }
    _add(found, line, "edit" if edited else "implicit", given)


def _list_swipes(turn: Turn) -> list[str]:
    swipes = turn.get("swipes")
    return [_read_text(one) for one in swipes] if isinstance(swipes, list) else []


def _list_models(turn: Turn, count: int) -> list[str]:
    """The model that each swipe names; that of the message for the one shown."""
    listed = turn.get("swipe_info")
    infos = listed if isinstance(listed, list) else []
    models = [_read_model(infos[place]) if place < len(infos) else "" for place in range(count)]
    chosen = turn.get("swipe_id")
    if isinstance(chosen, int) and 0 <= chosen < count:
        models[chosen] = models[chosen] or _read_model(turn)
    return models


def _read_model(holder: object) -> str:
    extra = holder.get("extra") if isinstance(holder, dict) else None
    return str(extra.get("model") or "") if isinstance(extra, dict) else ""


def _read_text(value: object) -> str:
    """A text; exports of other sites have objects with `message` in its place."""
    if isinstance(value, dict):
        value = value.get("message")
    return value if isinstance(value, str) else ""


def _is_players(turn: Turn) -> bool:
    return bool(turn.get("is_user")) and not turn.get("is_system")


def _build_messages(turn: Turn, *, several: bool) -> list[Message]:
    """The line as the model was shown it. Of several characters each line has its speaker; the player's name is left
    out."""
    text, extra = _read_text(turn.get("mes")), turn.get("extra")
    if turn.get("is_system"):
        narrated = isinstance(extra, dict) and extra.get("type") == "narrator"
        return [Message(role="system", content=text)] if narrated and text else []
    if not text:
        return []
    if turn.get("is_user"):
        return [Message(role="user", content=text)]
    return [Message(role="assistant", content=text, name=str(turn.get("name") or "") or None if several else None)]
