"""Replies that people have rated, read from the row forms of public data sets and from one's own labels.

    form            columns                                                        becomes
    groups          messages | prompt | draft, replies: [{text, label}]            one group a row
    preferences     messages | prompt | draft, chosen, rejected                    one group a row; also RewardBench
                    (text, list of texts, or a conversation that ends with it)     and UltraFeedback
    helpsteer2      prompt, response, helpfulness                                  one group a prompt
    judgebench      question, response_A, response_B, label (A>B or B>A)           one group a row
    characterbench  character_name, character_profile, dialogue, response_messages one reply a row, compared with the
                    (texts, or CharacterBench's own objects)                       others of its dimension
    rewardbench2    prompt, chosen, rejected (lists), num_correct, subset          one group a row
    rolermbench     context_messages, preferred_response, dispreferred_response    one group a row
    personaeval     prompt, gt, option1 to option5 with their profiles             one group a row: who speaks
    ifbench         prompt, response, follow_instruction_list                      one group a prompt, or one reply
    rpbench         scenario_id, model_a, model_b, winner (votes without texts);   one group of all votes on a pair
                    response_a, response_b, and prompt | messages, added to them

`draft` is the body of a preview of the row's `environment` (`POST /envs/{env}/preview`), for characters of one's own.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.domain.errors import InvalidRequest
from app.domain.faults import explain_faults, quote
from app.domain.labels import ImportedChoice, ImportedLabel
from app.domain.tasks import Message
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name

RowForm = Literal[
    "groups",
    "preferences",
    "helpsteer2",
    "judgebench",
    "characterbench",
    "rewardbench2",
    "rolermbench",
    "personaeval",
    "ifbench",
    "rpbench",
]
_Row = Mapping[str, object]
_PlacedRow = tuple[str, _Row]
"""A row after its place: a file and a line."""
Draft = dict[str, FiniteJson]

_CHAT: Final = "rlaif"
_ROLE_PLAY: Final = "npc_arena"
_SAME_TEXT: Final = "both sides are the same text"
_WHO_SPEAKS: Final = "Prefer the character who says the words of Character2 in this dialogue."
_VOTES_LACK_TEXTS: Final = (
    "a vote holds no texts. Add the columns response_a, response_b, and prompt or messages: find them by scenario_id, "
    "model_a and model_b"
)
_TURN_MARKER: Final = "<extra_id_1>"
"""Separates the turns in prompts of HelpSteer2, whose exact form is not documented."""


class LabelledReply(Frozen):
    text: str
    label: FiniteNumber
    """People's rating; higher is better, and only the order counts."""


class LabelledGroup(Frozen):
    """Rated replies to one situation, judged by `environment` from its `draft`."""

    id: str
    environment: Name
    draft: Draft
    replies: Annotated[tuple[LabelledReply, ...], Field(min_length=1)]
    subset: str = ""
    """Part of the data set that has a figure of its own. Groups of one reply are compared within it."""


@dataclass(frozen=True)
class LabelledData:
    form: RowForm
    groups: tuple[LabelledGroup, ...]
    left_out: Mapping[str, int]
    """How many rows were not used, by reason."""


class _RowModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


_RowModelT = TypeVar("_RowModelT", bound=_RowModel)


class _Turn(_RowModel):
    role: Literal["system", "user", "assistant"]
    content: str


class _SituationRow(_RowModel):
    id: Annotated[str, Field(validation_alias=AliasChoices("id", "prompt_id"))] = ""
    environment: Name | None = None
    subset: str = ""
    prompt: str | tuple[_Turn, ...] | None = None
    messages: tuple[_Turn, ...] | None = None
    draft: Draft | None = None

    def build_group(
        self, number: int, replies: Sequence[LabelledReply], before: Sequence[_Turn] | None = None
    ) -> LabelledGroup:
        """`before`: the conversation, where the replies hold it. ValueError when the row has no situation."""
        draft = self.draft
        if draft is None:
            turns = _list_turns(before or self.prompt or self.messages)
            draft = {"messages": [turn.model_dump() for turn in turns]}
        default = _CHAT if self.draft is None else _ROLE_PLAY
        return LabelledGroup(
            id=self.id or str(number),
            environment=self.environment or default,
            draft=draft,
            replies=tuple(replies),
            subset=self.subset,
        )


class _GroupRow(_SituationRow):
    replies: Annotated[tuple[LabelledReply, ...], Field(min_length=1)]


_Side = str | tuple[str, ...] | tuple[_Turn, ...]


class _PreferenceRow(_SituationRow):
    chosen: _Side
    rejected: _Side
    score_chosen: FiniteNumber = 1.0
    score_rejected: FiniteNumber = 0.0


class _RatedRow(_RowModel):
    prompt: str
    response: str
    helpfulness: FiniteNumber


class _BestOfRow(_RowModel):
    """RewardBench 2: rows of its subset Ties have several right answers, or are of prompts that have such rows."""

    id: str = ""
    subset: str = ""
    prompt: str
    chosen: Annotated[tuple[str, ...], Field(min_length=1)]
    rejected: Annotated[tuple[str, ...], Field(min_length=1)]


class _PreferredRow(_RowModel):
    subset: str = ""
    context_messages: Annotated[tuple[_Turn, ...], Field(min_length=1)]
    preferred_response: str
    dispreferred_response: str


class _SpeakerRow(_RowModel):
    prompt: str
    gt: str
    option1: str
    option1_profile: str = ""
    option2: str
    option2_profile: str = ""
    option3: str = ""
    option3_profile: str = ""
    option4: str = ""
    option4_profile: str = ""
    option5: str = ""
    option5_profile: str = ""

    @property
    def options(self) -> dict[str, str]:
        """Profiles by name."""
        listed = (
            (self.option1, self.option1_profile),
            (self.option2, self.option2_profile),
            (self.option3, self.option3_profile),
            (self.option4, self.option4_profile),
            (self.option5, self.option5_profile),
        )
        return {name: profile for name, profile in listed if name}


class _FollowedRow(_RowModel):
    prompt: str
    response: str
    follow_instruction_list: Annotated[tuple[bool, ...], Field(min_length=1)]


class _VoteRow(_SituationRow):
    scenario_id: str
    model_a: str
    model_b: str
    winner: Literal["A", "B", "tie"]
    is_catch: bool = False
    response_a: str = ""
    response_b: str = ""


class _ComparedRow(_RowModel):
    pair_id: str = ""
    source: str = ""
    question: str
    response_A: str
    response_B: str
    label: Literal["A>B", "B>A"]


class _DialogueLine(_RowModel):
    speaker: str
    utterance: str


def _take_response(said: object) -> object:
    """The text of what CharacterBench says with the model or the speaker that it came from."""
    return said["response"] if isinstance(said, Mapping) and "response" in said else said


def _write_profile(profile: object) -> object:
    """Lines of a profile that is an object of facts."""
    if not isinstance(profile, Mapping):
        return profile
    return "\n".join(f"{name}: {_write_fact(fact)}" for name, fact in profile.items())


def _write_fact(fact: object) -> str:
    if isinstance(fact, Mapping):
        return "; ".join(f"{name}: {_write_fact(inner)}" for name, inner in fact.items())
    return "; ".join(map(_write_fact, fact)) if isinstance(fact, list | tuple) else str(fact)


_Response = Annotated[str, BeforeValidator(_take_response)]


class _CharacterRow(_RowModel):
    id: str = ""
    character_name: str
    character_profile: Annotated[str, BeforeValidator(_write_profile)]
    greeting: str = ""
    dialogue: tuple[_DialogueLine, ...] = ()
    messages: _Response = ""
    response_messages: _Response
    gold: Annotated[FiniteNumber, Field(validation_alias=AliasChoices("gold", "annotation_score"))]
    subset: str = ""


def parse_labelled_rows(
    rows: Sequence[_Row], form: RowForm | None = None, places: Sequence[str] | None = None
) -> LabelledData:
    """`form` None: told by the columns of the first row. InvalidRequest names the row, by its place if that is known,
    and the column; rows that the data set's own authors leave out are counted, not refused."""
    if not rows:
        raise InvalidRequest("there are no rows")
    chosen = form or _detect_form(rows[0])
    left_out: Counter[str] = Counter()
    named = places or [f"row {number}" for number in range(1, len(rows) + 1)]
    groups = tuple(_READERS[chosen](list(zip(named, rows, strict=True)), left_out))
    if not groups:
        raise InvalidRequest(f"no row can be used: {'; '.join(left_out) or 'there is nothing to compare'}")
    return LabelledData(chosen, groups, dict(left_out))


def _detect_form(row: _Row) -> RowForm:
    """InvalidRequest when the columns are those of no form."""
    columns = set(row)
    for form, needed in _COLUMNS.items():
        if needed <= columns:
            return form
    forms = "; ".join(f"{form}: {', '.join(sorted(needed))}" for form, needed in _COLUMNS.items())
    raise InvalidRequest(f"these columns are of no known form ({', '.join(sorted(columns))}); known forms: {forms}")


def _read_groups(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_GroupRow, row, place)
        yield _build_group(parsed, number, place, parsed.replies)


def _read_preferences(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_PreferenceRow, row, place)
        better, worse = _list_texts(parsed.chosen), _list_texts(parsed.rejected)
        if parsed.score_chosen <= parsed.score_rejected:
            left_out["both sides have the same score"] += 1
        elif set(better) & set(worse):
            left_out[_SAME_TEXT] += 1
        else:
            replies = [LabelledReply(text=text, label=parsed.score_chosen) for text in better]
            replies += [LabelledReply(text=text, label=parsed.score_rejected) for text in worse]
            yield _build_group(parsed, number, place, replies, _find_conversation(parsed.chosen))


def _read_comparisons(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_ComparedRow, row, place)
        if parsed.response_A == parsed.response_B:
            left_out[_SAME_TEXT] += 1
            continue
        first, second = (1.0, 0.0) if parsed.label == "A>B" else (0.0, 1.0)
        situation = _SituationRow(id=parsed.pair_id, subset=parsed.source, prompt=parsed.question)
        replies = [
            LabelledReply(text=parsed.response_A, label=first),
            LabelledReply(text=parsed.response_B, label=second),
        ]
        yield situation.build_group(number, replies)


def _read_best_of(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_BestOfRow, row, place)
        if set(parsed.chosen) & set(parsed.rejected):
            left_out[_SAME_TEXT] += 1
            continue
        situation = _SituationRow(id=parsed.id, subset=parsed.subset, prompt=parsed.prompt)
        yield situation.build_group(number, _label_sides(parsed.chosen, parsed.rejected))


def _read_preferred(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_PreferredRow, row, place)
        if parsed.preferred_response == parsed.dispreferred_response:
            left_out[_SAME_TEXT] += 1
            continue
        situation = _SituationRow(subset=parsed.subset, messages=parsed.context_messages)
        yield situation.build_group(number, _label_sides([parsed.preferred_response], [parsed.dispreferred_response]))


def _read_speakers(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_SpeakerRow, row, place)
        if parsed.gt not in parsed.options:
            raise InvalidRequest(f"{place}, gt: {quote(parsed.gt)} is none of the options")
        replies = [
            LabelledReply(text=f"{name}\n{profile}".strip(), label=float(name == parsed.gt))
            for name, profile in parsed.options.items()
        ]
        draft: Draft = {"messages": [{"role": "user", "content": parsed.prompt}], "params": {"preference": _WHO_SPEAKS}}
        yield LabelledGroup(id=str(number), environment=_CHAT, draft=draft, replies=tuple(replies))


def _read_followed(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    """The label is the share of instructions that code found followed. Where no prompt has two responses, each is
    compared with those to other prompts."""
    by_prompt: defaultdict[str, list[LabelledReply]] = defaultdict(list)
    for place, row in rows:
        parsed = _parse_row(_FollowedRow, row, place)
        followed = parsed.follow_instruction_list
        by_prompt[parsed.prompt].append(LabelledReply(text=parsed.response, label=sum(followed) / len(followed)))
    yield from _group_by_prompt(by_prompt, left_out, lone=len(by_prompt) == len(rows))


def _read_votes(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    """The label of a reply is how many votes it got."""
    votes: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    situations: dict[tuple[str, ...], _VoteRow] = {}
    for place, row in rows:
        parsed = _parse_row(_VoteRow, row, place)
        if parsed.is_catch or parsed.winner == "tie":
            left_out["a pair that tests the voter" if parsed.is_catch else "a tie"] += 1
            continue
        if not (parsed.response_a and parsed.response_b and (parsed.prompt or parsed.messages)):
            raise InvalidRequest(f"{place}: {_VOTES_LACK_TEXTS}")
        texts = (parsed.response_a, parsed.response_b)
        key = (parsed.scenario_id, *sorted(texts))
        situations.setdefault(key, parsed)
        votes[key][texts["AB".index(parsed.winner)]] += 1
    for number, (key, situation) in enumerate(situations.items(), start=1):
        replies = [LabelledReply(text=text, label=float(votes[key][text])) for text in key[1:]]
        if replies[0].label == replies[1].label:
            left_out["as many votes for one reply as for the other"] += votes[key].total()
        else:
            named = situation.model_copy(update={"id": situation.id or situation.scenario_id})
            yield named.build_group(number, replies)


def _label_sides(better: Sequence[str], worse: Sequence[str]) -> list[LabelledReply]:
    sides = ((1.0, better), (0.0, worse))
    return [LabelledReply(text=text, label=label) for label, texts in sides for text in texts]


def _read_helpsteer(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    by_prompt: defaultdict[str, list[LabelledReply]] = defaultdict(list)
    for place, row in rows:
        parsed = _parse_row(_RatedRow, row, place)
        if _TURN_MARKER in parsed.prompt:
            left_out["a conversation of several turns"] += 1
        else:
            by_prompt[parsed.prompt].append(LabelledReply(text=parsed.response, label=parsed.helpfulness))
    yield from _group_by_prompt(by_prompt, left_out)


def _group_by_prompt(
    by_prompt: Mapping[str, Sequence[LabelledReply]], left_out: Counter[str], *, lone: bool = False
) -> Iterator[LabelledGroup]:
    """`lone`: groups of one reply."""
    for position, (prompt, replies) in enumerate(by_prompt.items(), start=1):
        if not lone and len({reply.label for reply in replies}) < 2:
            left_out["no two replies of the prompt have different ratings"] += len(replies)
        else:
            yield _SituationRow(prompt=prompt).build_group(position, replies)


def _read_characters(rows: Sequence[_PlacedRow], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for number, (place, row) in enumerate(rows, start=1):
        parsed = _parse_row(_CharacterRow, row, place)
        reply = LabelledReply(text=parsed.response_messages, label=parsed.gold)
        yield LabelledGroup(
            id=parsed.id or str(number),
            environment=_ROLE_PLAY,
            draft=_build_character_draft(parsed),
            replies=(reply,),
            subset=parsed.subset,
        )


def _build_character_draft(row: _CharacterRow) -> Draft:
    """A sheet with the profile as its description, and a scene of the dialogue. What stands before the first line of
    the user is the greeting, told as the situation."""
    lines = [("npc" if _is_character(line, row) else "player", line.utterance) for line in row.dialogue]
    if row.greeting and lines[:1] != [("npc", row.greeting)]:
        lines.insert(0, ("npc", row.greeting))
    if row.messages and (not lines or lines[-1] != ("player", row.messages)):
        lines.append(("player", row.messages))
    merged: list[tuple[str, str]] = []
    for speaker, text in lines:
        if merged and merged[-1][0] == speaker:
            merged[-1] = (speaker, f"{merged[-1][1]}\n{text}")
        else:
            merged.append((speaker, text))
    greeting = merged.pop(0)[1] if merged and merged[0][0] == "npc" else None
    while merged and merged[-1][0] == "npc":
        merged.pop()
    last = merged.pop()[1] if merged else "…"
    language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in row.character_profile) else "en"
    return {
        "sheet": {
            "meta": {
                "schema_version": 1,
                "id": "labelled",
                "licence": "of the data set",
                "genre": "role play",
                "world": "labelled",
                "summary": row.character_name,
            },
            "identity": {"name": row.character_name},
            "core": {"description": row.character_profile},
            "voice": {"language": language},
        },
        "scene": {
            "player": last,
            "history": [{"speaker": speaker, "text": text} for speaker, text in merged],
            **({"situation": f"{row.character_name}: {greeting}"} if greeting else {}),
        },
    }


def _is_character(line: _DialogueLine, row: _CharacterRow) -> bool:
    return line.speaker in ("character", row.character_name)


def _parse_row(model: type[_RowModelT], row: _Row, place: str) -> _RowModelT:
    try:
        return model.model_validate({name: value for name, value in row.items() if value is not None})
    except ValidationError as error:
        fault = explain_faults(error, model)[0]
        raise InvalidRequest(f"{place}, {fault.dotted}: {fault.words}") from None


def _build_group(
    row: _SituationRow,
    number: int,
    place: str,
    replies: Sequence[LabelledReply],
    before: Sequence[_Turn] | None = None,
) -> LabelledGroup:
    if row.draft is None and not (before or row.prompt or row.messages):
        raise InvalidRequest(f"{place}: give messages, prompt or draft")
    return row.build_group(number, replies, before)


def _list_turns(situation: str | Sequence[_Turn] | None) -> Sequence[_Turn]:
    return (_Turn(role="user", content=situation),) if isinstance(situation, str) else situation or ()


def _list_texts(side: _Side) -> tuple[str, ...]:
    """The texts of one side. Of a conversation only the last message is the reply."""
    if isinstance(side, str):
        return (side,)
    turns = [each for each in side if isinstance(each, _Turn)]
    return (turns[-1].content,) if turns else tuple(each for each in side if isinstance(each, str))


def _find_conversation(side: _Side) -> Sequence[_Turn]:
    """What a side that is a whole conversation holds before its reply."""
    return () if isinstance(side, str) else [each for each in side if isinstance(each, _Turn)][:-1]


_READERS: Final[Mapping[RowForm, Callable[[Sequence[_PlacedRow], Counter[str]], Iterator[LabelledGroup]]]] = {
    "groups": _read_groups,
    "preferences": _read_preferences,
    "helpsteer2": _read_helpsteer,
    "judgebench": _read_comparisons,
    "characterbench": _read_characters,
    "rewardbench2": _read_best_of,
    "rolermbench": _read_preferred,
    "personaeval": _read_speakers,
    "ifbench": _read_followed,
    "rpbench": _read_votes,
}
_COLUMNS: Final[Mapping[RowForm, set[str]]] = {
    "groups": {"replies"},
    "rewardbench2": {"chosen", "rejected", "num_correct"},
    "preferences": {"chosen", "rejected"},
    "helpsteer2": {"prompt", "response", "helpfulness"},
    "judgebench": {"question", "response_A", "response_B", "label"},
    "characterbench": {"character_name", "character_profile", "response_messages"},
    "rolermbench": {"context_messages", "preferred_response", "dispreferred_response"},
    "personaeval": {"prompt", "gt", "option1", "option2"},
    "ifbench": {"prompt", "response", "follow_instruction_list"},
    "rpbench": {"scenario_id", "model_a", "model_b", "winner"},
}
"""The first that a row has all of. Their order is that in which they are tried."""


# Choices that people already made, read from files: pairs as JSON lines, and chats of SillyTavern. In a chat, a reply
# with several `swipes` that the player went on from is an implicit choice of the one shown. Greetings are written by
# people, an edit overwrites a swipe, and a branch repeats what came before it.

_ChatTurn = Mapping[str, object]
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
    choices = ChoiceFile()
    rows = list(_read_lines(lines, choices))
    if not rows:
        return choices
    if rows[0][1].keys() >= _PAIR_KEYS:
        choices.form = "pairs"
        for line, row in rows:
            _add_pair(name, line, row, choices)
    elif {"mes", "user_name", "chat_metadata"} & rows[0][1].keys():
        choices.form = "chat"
        _read_chat(name, rows, choices)
    else:
        choices.leave_out(rows[0][0], "neither a chat of SillyTavern nor pairs with `prompt`, `chosen` and `rejected`")
    return choices


def _read_lines(lines: Iterable[str], choices: ChoiceFile) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix("\ufeff").strip()
        if not text:
            continue
        try:
            row: object = json.loads(text)
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            choices.leave_out(number, "it holds half a character, a lone surrogate")
            continue
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield number, row
        else:
            choices.leave_out(number, "not a JSON object")


def _add_pair(name: str, line: int, row: _ChatTurn, choices: ChoiceFile) -> None:
    before = row.get("prompt", row.get("messages"))
    sides = [_read_side(row.get(side)) for side in ("chosen", "rejected")]
    opening = sides[0][0]
    if before is None and opening and opening != sides[1][0]:
        choices.leave_out(line, "the two conversations differ before their last message")
        return
    prompt = [{"role": "user", "content": before}] if isinstance(before, str) else before or opening
    fields = {"prompt": prompt, "chosen": sides[0][1], "rejected": [sides[1][1]], "source": f"{name}:{line}"}
    if sides[0][1] == sides[1][1]:
        choices.leave_out(line, "both sides are the same text")
        return
    _add(choices, line, "pair", fields, str(row.get("language") or ""))


def _read_side(side: object) -> tuple[list[object], object]:
    """What comes before the reply, and the reply: a text, or a conversation that ends with it."""
    if isinstance(side, list) and side and isinstance(side[-1], dict):
        return side[:-1], side[-1].get("content")
    return [], side


def _add(choices: ChoiceFile, line: int, kind: str, fields: Mapping[str, object], language: str = "") -> None:
    try:
        choice = ImportedChoice.model_validate(fields)
        choices.labels.append(ImportedLabel.model_validate({"kind": kind, "choice": choice, "language": language}))
    except ValidationError as error:
        choices.leave_out(line, explain_faults(error)[0].sentence)


def _read_chat(name: str, rows: Sequence[tuple[int, _ChatTurn]], choices: ChoiceFile) -> None:
    header = {} if "mes" in rows[0][1] else rows[0][1]
    about = header.get("chat_metadata")
    about = about if isinstance(about, dict) else {}
    chat = str(about.get("main_chat") or name)
    turns = list(_drop_unreadable([(line, turn) for line, turn in rows if "mes" in turn], choices))
    unread = [left.line for left in choices.left_out]
    last_spoken = max((position for position, (_, turn) in enumerate(turns) if _is_players(turn)), default=-1)
    first_spoken = next((position for position, (_, turn) in enumerate(turns) if _is_players(turn)), len(turns))
    several = len({turn.get("name") for _, turn in turns if not _is_players(turn) and not turn.get("is_system")}) > 1
    prompt: list[Message] = []
    for position, (line, turn) in enumerate(turns):
        if _list_swipes(turn) and not _is_players(turn):
            reason = _find_reason(turn, position < first_spoken, position > last_spoken) or _find_gap(line, unread)
            if reason is not None:
                choices.leave_out(line, reason)
            else:
                _add_turn(choices, line, turn, prompt, chat, f"{name}:{line}", tainted=bool(about.get("tainted")))
        prompt += _build_messages(turn, several=several)


def _drop_unreadable(turns: Iterable[tuple[int, _ChatTurn]], choices: ChoiceFile) -> Iterator[tuple[int, _ChatTurn]]:
    for line, turn in turns:
        if isinstance(turn.get("name"), dict | list):
            choices.leave_out(line, "name: not a text")
        else:
            yield line, turn


def _find_gap(line: int, unread: Sequence[int]) -> str | None:
    """Why the chat before a reply is not known."""
    gap = min((one for one in unread if one < line), default=None)
    return None if gap is None else f"line {gap} of the chat before it could not be read"


def _find_reason(turn: _ChatTurn, greets: bool, ends: bool) -> str | None:
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
    shown = _read_text(turn.get("mes")).strip()
    if not shown:
        return "the reply is empty"
    others = [text.strip() for index, text in enumerate(swipes) if index != chosen]
    if shown != swipes[chosen].strip() and shown in others:
        return "mes is another swipe than swipe_id says"
    if not {text for text in (*others, swipes[chosen].strip()) if text and text != shown}:
        return "all swipes are the same text"
    return None


def _add_turn(
    choices: ChoiceFile, line: int, turn: _ChatTurn, prompt: Sequence[Message], chat: str, source: str, *, tainted: bool
) -> None:
    swipes, index = _list_swipes(turn), turn["swipe_id"]
    assert isinstance(index, int)  # noqa: S101
    shown = _read_text(turn.get("mes")).strip()
    edited = shown != swipes[index].strip()
    models = _list_models(turn, len(swipes))
    rejected = {
        text.strip(): model for text, model in zip(swipes, models, strict=True) if text.strip() not in {"", shown}
    }
    fields = {
        "prompt": tuple(prompt),
        "chosen": shown,
        "rejected": tuple(rejected),
        "rejected_models": tuple(rejected.values()) if any(rejected.values()) else (),
        "chosen_model": "" if edited else models[index],
        "chat": chat,
        "source": source,
        "place": None if edited else index,
        "may_be_edited": tainted or edited,
    }
    _add(choices, line, "edit" if edited else "implicit", fields)


def _list_swipes(turn: _ChatTurn) -> list[str]:
    swipes = turn.get("swipes")
    return [_read_text(one) for one in swipes] if isinstance(swipes, list) else []


def _list_models(turn: _ChatTurn, count: int) -> list[str]:
    """The model that each swipe names; that of the message for the one shown."""
    listed = turn.get("swipe_info")
    infos = listed if isinstance(listed, list) else []
    models = [_read_model(infos[index]) if index < len(infos) else "" for index in range(count)]
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


def _is_players(turn: _ChatTurn) -> bool:
    return bool(turn.get("is_user")) and not turn.get("is_system")


def _build_messages(turn: _ChatTurn, *, several: bool) -> list[Message]:
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
