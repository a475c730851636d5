"""Conversations that need a reply, from data sets in several formats or from the built-in prompts."""

from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from app.domain.tasks import Message
from app.domain.values import Frozen, Split, require_encodable
from app.toolkit.package_data import read_yaml

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
        trim_conversation(self._list_turns())
        return self

    @property
    def conversation(self) -> tuple[Message, ...]:
        return trim_conversation(self._list_turns())

    def _list_turns(self) -> list[tuple[str, str | None]]:
        if self.messages:
            return [(turn.role, turn.content) for turn in self.messages]
        if self.conversations:
            return [(turn.speaker, turn.value) for turn in self.conversations]
        if isinstance(self.prompt, str):
            return [("user", self.prompt)]
        return [(turn.role, turn.content) for turn in self.prompt]


def trim_conversation(turns: Sequence[tuple[str, str | None]]) -> tuple[Message, ...]:
    """The turns up to the user's last one. ValueError for an unknown speaker, an empty turn, or no turn of the
    user."""
    speakers = [_parse_speaker(name) for name, _ in turns]
    if "user" not in speakers:
        raise ValueError("the conversation has no turn of the user")
    length = len(speakers) - speakers[::-1].index("user")
    return tuple(
        Message(role=speaker, content=_check_words(place, text))
        for place, (speaker, (_, text)) in enumerate(zip(speakers[:length], turns, strict=False))
    )


def _parse_speaker(name: str) -> Speaker:
    speaker = _SPEAKERS.get(name.strip().lower())
    if speaker is None:
        raise ValueError(f"unknown speaker {name[:40]!r}: use system, user or assistant")
    return speaker


def _check_words(place: int, text: str | None) -> str:
    if text is None or not text.strip():
        raise ValueError(f"turn {place + 1} is empty")
    return require_encodable(text)


Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(require_encodable)]
Dialogue = Annotated[tuple[Words, ...], Field(min_length=3)]


class PromptChapter(Frozen):
    """Prompts of one topic. A text is one user turn; a list alternates user and assistant and ends with the user."""

    topic: str
    language: Annotated[str, Field(pattern=r"^[a-z]{2}$")] = "en"
    prompts: Annotated[tuple[Words | Dialogue, ...], Field(min_length=1)]

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
    said = (prompt,) if isinstance(prompt, str) else prompt
    return tuple(Message(role="assistant" if place % 2 else "user", content=text) for place, text in enumerate(said))
