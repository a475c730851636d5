"""RLAIF: reply to a conversation. Judges score how well the reply fits the preference given in the params.

    params   {"preference": "Prefer the reply that gets to the point in fewer words."}
    prompt   user: My neighbour's dog barks all night. How do I bring it up without starting a feud?
    group    "Knock, say you sleep badly, ask whether they have noticed it too."
             "Noise between neighbours is a subject as old as walls. There are several aspects to consider …"
    reward   0.95 and 0.21: the judges give each a mark for the preference and say which they like better

The policy never sees the preference. Judges see the same messages as the policy. With a `rubric` in the params, its
criteria are judged instead of the preference. With data sets configured, their conversations are the prompts;
otherwise a built-in set is used, and the metadata says so.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from pydantic.config import JsonDict

from app.characters.loading import parse_model
from app.domain.errors import InvalidRequest
from app.domain.judging import Case, Rubric, RubricCriterion
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import Frozen, Split, digest, digest_of_model, require_encodable
from app.ports import Datasets, Drafted, Tools
from app.toolkit.procedural import DatasetEnvironment, DatasetParams
from app.toolkit.templates import read_yaml

# Conversations that need a reply: rows of data sets in several formats, and the built-in prompts.

Speaker = Literal["system", "user", "assistant"]

_SPEAKERS: Final[dict[str, Speaker]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
}
"""Roles by the names that data sets use."""


class _DatasetTurn(BaseModel):
    """Other fields of a turn are ignored."""

    model_config = ConfigDict(frozen=True)


class OpenAiTurn(_DatasetTurn):
    """A turn in the format of OpenAI."""

    role: str
    content: str | None = None


class ShareGptTurn(_DatasetTurn):
    """A turn in the format of ShareGPT."""

    speaker: Annotated[str, Field(alias="from")]
    value: str | None = None


class ConversationRow(BaseModel):
    """One row of a data set. The first of these fields that it has is used: `messages` (role, content),
    `conversations` (from, value), `prompt` (text, or messages). Turns after the user's last one are dropped."""

    model_config = ConfigDict(frozen=True)

    messages: tuple[OpenAiTurn, ...] = ()
    conversations: tuple[ShareGptTurn, ...] = ()
    prompt: str | tuple[OpenAiTurn, ...] = ()
    topic: str = ""

    @model_validator(mode="after")
    def _check_open(self) -> Self:
        _trim_conversation(self._list_turns())
        return self

    @property
    def conversation(self) -> tuple[Message, ...]:
        return _trim_conversation(self._list_turns())

    def _list_turns(self) -> list[tuple[str, str | None]]:
        if self.messages:
            return [(turn.role, turn.content) for turn in self.messages]
        if self.conversations:
            return [(turn.speaker, turn.value) for turn in self.conversations]
        if isinstance(self.prompt, str):
            return [("user", self.prompt)]
        return [(turn.role, turn.content) for turn in self.prompt]


def _trim_conversation(turns: Sequence[tuple[str, str | None]]) -> tuple[Message, ...]:
    """The turns up to the user's last one. ValueError for an unknown speaker, an empty turn, or no turn of the
    user."""
    speakers = [_parse_speaker(name) for name, _ in turns]
    if "user" not in speakers:
        raise ValueError("the conversation has no turn of the user")
    length = len(speakers) - speakers[::-1].index("user")
    return tuple(
        Message(role=speaker, content=_check_words(index, text))
        for index, (speaker, (_, text)) in enumerate(zip(speakers[:length], turns, strict=False))
    )


def _parse_speaker(name: str) -> Speaker:
    speaker = _SPEAKERS.get(name.strip().lower())
    if speaker is None:
        raise ValueError(f"unknown speaker {name[:40]!r}: use system, user or assistant")
    return speaker


def _check_words(index: int, text: str | None) -> str:
    if text is None or not text.strip():
        raise ValueError(f"turn {index + 1} is empty")
    return require_encodable(text)


_Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(require_encodable)]
_Dialogue = Annotated[tuple[_Words, ...], Field(min_length=3)]


class PromptChapter(Frozen):
    """Prompts of one topic. A text is one user turn; a list alternates user and assistant and ends with the user."""

    topic: str
    language: Annotated[str, Field(pattern=r"^[a-z]{2}$")] = "en"
    prompts: Annotated[tuple[_Words | _Dialogue, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_last_speaker(self) -> Self:
        for prompt in self.prompts:
            if not isinstance(prompt, str) and len(prompt) % 2 == 0:
                raise ValueError(f"the last turn must be the user's: {prompt[0][:60]!r}")
        return self

    def build_conversations(self) -> list["BuiltInConversation"]:
        return [
            BuiltInConversation(topic=self.topic, language=self.language, messages=_alternate_speakers(prompt))
            for prompt in self.prompts
        ]


class BuiltInConversation(Frozen):
    """One built-in conversation."""

    topic: str
    language: str
    messages: tuple[Message, ...]


class PromptBook(Frozen):
    """The built-in prompts by split."""

    train: Annotated[tuple[PromptChapter, ...], Field(min_length=1)]
    test: Annotated[tuple[PromptChapter, ...], Field(min_length=1)]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From `train.yaml` and `test.yaml`."""
        files = {name: folder / f"{name}.yaml" for name in ("train", "test")}
        return cls.model_validate({name: read_yaml(file) for name, file in files.items()})

    def interleave_conversations(self, split: Split) -> tuple[BuiltInConversation, ...]:
        """Takes one conversation of each chapter in turn, so that neighbours differ."""
        chapters = self.train if split == "train" else self.test
        rounds = zip_longest(*(chapter.build_conversations() for chapter in chapters))
        return tuple(one for one in chain.from_iterable(rounds) if one is not None)


def _alternate_speakers(prompt: str | tuple[str, ...]) -> tuple[Message, ...]:
    turns = (prompt,) if isinstance(prompt, str) else prompt
    return tuple(Message(role="assistant" if index % 2 else "user", content=text) for index, text in enumerate(turns))


# The environment.

_OWN_PROMPTS = "built-in prompts"
_FOLDER = Path(__file__).parent
_BASE = parse_model((_FOLDER / "rubric.yaml").read_text(encoding="utf-8"), "rubric.yaml", Rubric)

_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000), AfterValidator(require_encodable)
]


_DRAFT: JsonDict = {
    "messages": [{"role": "user", "content": "How do I keep basil alive?"}],
    "params": {"preference": "Prefer the reply that says it in fewer words."},
}


class GivenCriterion(Frozen):
    """One criterion to judge, on a scale from the opposite of what is wanted to exactly that."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    description: _Text
    weight: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = 1.0
    """Relative weight: only the proportions count."""


class RlaifParams(DatasetParams):
    """The preference of the judges and the system prompt of the model. They are part of the task's id."""

    preference: _Text = "Prefer the reply that is more helpful, honest and concise."
    """What judges should prefer, in a sentence or two. The model never sees it."""
    rubric: Annotated[tuple[GivenCriterion, ...], Field(max_length=12)] = ()
    """Criteria to judge one by one, each with `name`, `description` and optionally `weight` (default 1; only the
    proportions count). If empty, the preference is the only criterion."""
    system: _Text | None = None
    """System prompt of every task. Replaces the system messages of the conversation."""

    @model_validator(mode="after")
    def _check_unique_names(self) -> Self:
        names = [criterion.name for criterion in self.rubric]
        if len(set(names)) < len(names):
            raise ValueError("two criteria of the rubric have the same name")
        return self


class RlaifDraft(Frozen):
    """A conversation to test a preference with."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DRAFT]})

    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=1_000)]
    """The conversation. Messages after the user's last one are dropped."""
    params: RlaifParams = RlaifParams()


def build_rubric(params: RlaifParams) -> Rubric:
    chosen = params.rubric or (GivenCriterion(name=_BASE.criteria[0].name, description=params.preference),)
    total = sum(criterion.weight for criterion in chosen)
    criteria = tuple(
        RubricCriterion(
            name=one.name, weight=one.weight / total, description=one.description, anchors=_BASE.criteria[0].anchors
        )
        for one in chosen
    )
    return _BASE.model_copy(update={"criteria": criteria})


_RUBRIC = build_rubric(RlaifParams())
"""The rubric of the default params. It shows the catalogue that judges score this environment."""


class Rlaif(DatasetEnvironment[ConversationRow]):
    name: ClassVar[str] = "rlaif"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = RlaifParams
    rubric: ClassVar[Rubric | None] = _RUBRIC
    stats_label: ClassVar[str | None] = "topic"
    Draft: ClassVar[type[BaseModel] | None] = RlaifDraft

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (ConversationRow,)

    def __init__(self, prompts: PromptBook, datasets: Mapping[str, Dataset[ConversationRow]] | None = None) -> None:
        super().__init__(datasets)
        self._book_digest = digest_of_model(prompts)
        self._prompts = {split: prompts.interleave_conversations(split) for split in _SPLITS}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        return cls(PromptBook.read(_FOLDER), cls.read_datasets(datasets))

    @property
    def own_origin(self) -> str:
        return _OWN_PROMPTS

    @property
    def own_digests(self) -> Mapping[str, str]:
        return {"rubric": digest_of_model(_RUBRIC), "prompts": self._book_digest}

    def count_own_tasks(self, split: Split, params: BaseModel) -> int | None:
        return len(self._prompts[split])

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        one = self._prompts[split][index]
        about: dict[str, JsonValue] = {"source": _OWN_PROMPTS, "topic": one.topic, "language": one.language}
        return _build_task(one.messages, {**about, "split": split, "index": index}, RlaifParams.model_validate(params))

    def build_row_task(self, row: ConversationRow, dataset: Dataset[ConversationRow], params: BaseModel) -> Task:
        about: dict[str, JsonValue] = {"topic": row.topic} if row.topic else {}
        return _build_task(row.conversation, about, RlaifParams.model_validate(params))

    def draft(self, draft: BaseModel) -> Drafted:
        requested = RlaifDraft.model_validate(draft.model_dump())
        try:
            messages = _trim_conversation([(message.role, message.content) for message in requested.messages])
        except ValueError as error:
            raise InvalidRequest(str(error), field="draft.messages") from None
        return Drafted(self, _build_task(messages, {"source": "draft"}, requested.params))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        (case,) = await self.build_cases(task, group)
        return list((await tools.panel.judge(case)).scores)

    async def build_cases(self, task: Task, group: Sequence[Completion]) -> list[Case]:
        params = RlaifParams.model_validate(task.reference)
        conversation: list[JsonValue] = [message.model_dump(mode="json") for message in task.messages]
        case = Case(
            key=digest([conversation, task.reference]),
            rubric=build_rubric(params),
            document={"preference": params.preference, "conversation": conversation},
            language=str(task.metadata.get("language", "")),
            candidates=tuple(completion.answer for completion in group),
            conversation=task.messages,
        )
        return [case]


_SPLITS: tuple[Split, ...] = ("train", "test")


def _build_task(messages: tuple[Message, ...], metadata: dict[str, JsonValue], params: RlaifParams) -> Task:
    if params.system is not None:
        rest = tuple(message for message in messages if message.role != "system")
        messages = (Message(role="system", content=params.system), *rest)
    return Task(messages=messages, metadata=metadata, reference=params.model_dump(mode="json", exclude={"dataset"}))
