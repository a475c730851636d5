"""Replies that people have rated, read from the row forms of public data sets and from one's own labels.

    form            columns                                                        becomes
    groups          messages | prompt | draft, replies: [{text, label}]            one group a row
    preferences     messages | prompt | draft, chosen, rejected                    one group a row; also RewardBench,
                    (text, list of texts, or a conversation that ends with it)     RewardBench 2 and UltraFeedback
    helpsteer2      prompt, response, helpfulness                                  one group a prompt
    characterbench  character_name, character_profile, dialogue, response_messages one reply a row, compared with the
                                                                                   others of its dimension

`draft` is the body of a preview of the row's `environment` (`POST /envs/{env}/preview`), for characters of one's own.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from app.domain.errors import InvalidRequest
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name

RowForm = Literal["groups", "preferences", "helpsteer2", "characterbench"]
Row = Mapping[str, object]
Draft = dict[str, FiniteJson]

CHAT: Final = "rlaif"
ROLE_PLAY: Final = "npc_arena"
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


RowModelT = TypeVar("RowModelT", bound=_RowModel)


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
        self, place: int, replies: Sequence[LabelledReply], before: Sequence[_Turn] | None = None
    ) -> LabelledGroup:
        """`before`: the conversation, where the replies hold it. ValueError when the row has no situation."""
        draft = self.draft
        if draft is None:
            turns = _list_turns(before or self.prompt or self.messages)
            draft = {"messages": [turn.model_dump() for turn in turns]}
        default = CHAT if self.draft is None else ROLE_PLAY
        return LabelledGroup(
            id=self.id or str(place),
            environment=self.environment or default,
            draft=draft,
            replies=tuple(replies),
            subset=self.subset,
        )


class _GroupRow(_SituationRow):
    replies: Annotated[tuple[LabelledReply, ...], Field(min_length=1)]


Side = str | tuple[str, ...] | tuple[_Turn, ...]


class _PreferenceRow(_SituationRow):
    chosen: Side
    rejected: Side
    score_chosen: FiniteNumber = 1.0
    score_rejected: FiniteNumber = 0.0


class _RatedRow(_RowModel):
    prompt: str
    response: str
    helpfulness: FiniteNumber


class _DialogueLine(_RowModel):
    speaker: str
    utterance: str


class _CharacterRow(_RowModel):
    id: str = ""
    character_name: str
    character_profile: str
    dialogue: tuple[_DialogueLine, ...] = ()
    messages: str = ""
    response_messages: str
    gold: Annotated[FiniteNumber, Field(validation_alias=AliasChoices("gold", "annotation_score"))]
    subset: str = ""


def parse_labelled_rows(rows: Sequence[Row], form: RowForm | None = None) -> LabelledData:
    """`form` None: told by the columns of the first row. InvalidRequest names row and column; rows that the data set's
    own authors leave out are counted, not refused."""
    if not rows:
        raise InvalidRequest("there are no rows")
    chosen = form or detect_form(rows[0])
    left_out: Counter[str] = Counter()
    groups = tuple(_READERS[chosen](rows, left_out))
    if not groups:
        raise InvalidRequest(f"no row can be used: {'; '.join(left_out) or 'there is nothing to compare'}")
    return LabelledData(chosen, groups, dict(left_out))


def detect_form(row: Row) -> RowForm:
    """InvalidRequest when the columns are those of no form."""
    columns = set(row)
    for form, needed in _COLUMNS.items():
        if needed <= columns:
            return form
    known = "; ".join(f"{form}: {', '.join(sorted(needed))}" for form, needed in _COLUMNS.items())
    raise InvalidRequest(f"these columns are of no known form ({', '.join(sorted(columns))}); known forms: {known}")


def _read_groups(rows: Sequence[Row], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for place, row in enumerate(rows, start=1):
        read = _parse_row(_GroupRow, row, place)
        yield _build_group(read, place, read.replies)


def _read_preferences(rows: Sequence[Row], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for place, row in enumerate(rows, start=1):
        read = _parse_row(_PreferenceRow, row, place)
        better, worse = _list_texts(read.chosen), _list_texts(read.rejected)
        if read.score_chosen <= read.score_rejected:
            left_out["both sides have the same score"] += 1
        elif set(better) & set(worse):
            left_out["both sides are the same text"] += 1
        else:
            replies = [LabelledReply(text=text, label=read.score_chosen) for text in better]
            replies += [LabelledReply(text=text, label=read.score_rejected) for text in worse]
            yield _build_group(read, place, replies, _find_conversation(read.chosen))


def _read_helpsteer(rows: Sequence[Row], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    by_prompt: defaultdict[str, list[LabelledReply]] = defaultdict(list)
    for place, row in enumerate(rows, start=1):
        read = _parse_row(_RatedRow, row, place)
        if _TURN_MARKER in read.prompt:
            left_out["a conversation of several turns"] += 1
        else:
            by_prompt[read.prompt].append(LabelledReply(text=read.response, label=read.helpfulness))
    for number, (prompt, replies) in enumerate(by_prompt.items(), start=1):
        if len({reply.label for reply in replies}) < 2:
            left_out["no two replies of the prompt have different ratings"] += len(replies)
        else:
            row_model = _SituationRow(prompt=prompt)
            yield _build_group(row_model, number, replies)


def _read_characters(rows: Sequence[Row], left_out: Counter[str]) -> Iterator[LabelledGroup]:
    for place, row in enumerate(rows, start=1):
        read = _parse_row(_CharacterRow, row, place)
        reply = LabelledReply(text=read.response_messages, label=read.gold)
        yield LabelledGroup(
            id=read.id or str(place),
            environment=ROLE_PLAY,
            draft=_build_character_draft(read),
            replies=(reply,),
            subset=read.subset,
        )


def _build_character_draft(row: _CharacterRow) -> Draft:
    """A sheet with the profile as its description, and a scene of the dialogue. What stands before the first line of
    the user is the greeting, told as the situation."""
    lines = [("npc" if _is_character(line, row) else "player", line.utterance) for line in row.dialogue]
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


def _parse_row(model: type[RowModelT], row: Row, place: int) -> RowModelT:
    try:
        return model.model_validate({name: value for name, value in row.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(f"row {place}: {first['msg']}", field=".".join(map(str, first["loc"]))) from None


def _build_group(
    row: _SituationRow, place: int, replies: Sequence[LabelledReply], before: Sequence[_Turn] | None = None
) -> LabelledGroup:
    if row.draft is None and not (before or row.prompt or row.messages):
        raise InvalidRequest(f"row {place}: give messages, prompt or draft", field="messages")
    return row.build_group(place, replies, before)


def _list_turns(situation: str | Sequence[_Turn] | None) -> Sequence[_Turn]:
    return (_Turn(role="user", content=situation),) if isinstance(situation, str) else situation or ()


def _list_texts(side: Side) -> tuple[str, ...]:
    """The texts of one side. Of a conversation only the last message is the reply."""
    if isinstance(side, str):
        return (side,)
    turns = [each for each in side if isinstance(each, _Turn)]
    return (turns[-1].content,) if turns else tuple(each for each in side if isinstance(each, str))


def _find_conversation(side: Side) -> Sequence[_Turn]:
    """What a side that is a whole conversation holds before its reply."""
    return () if isinstance(side, str) else [each for each in side if isinstance(each, _Turn)][:-1]


_READERS: Final[Mapping[RowForm, Callable[[Sequence[Row], Counter[str]], Iterator[LabelledGroup]]]] = {
    "groups": _read_groups,
    "preferences": _read_preferences,
    "helpsteer2": _read_helpsteer,
    "characterbench": _read_characters,
}
_COLUMNS: Final[Mapping[RowForm, set[str]]] = {
    "groups": {"replies"},
    "preferences": {"chosen", "rejected"},
    "helpsteer2": {"prompt", "response", "helpfulness"},
    "characterbench": {"character_name", "character_profile", "response_messages"},
}
