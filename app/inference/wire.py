"""Parses chat completions, with the token ids and log probabilities that inference servers may add.

Where these are, as of vLLM 0.20 and SGLang 0.5:

    requested by             prompt                          completion
    return_token_ids         prompt_token_ids (vLLM: of the  choices[].token_ids
                             answer, SGLang: of the choice)
    return_tokens_as_token_ids with logprobs (older vLLM)    choices[].logprobs.content[].token = "token_id:<id>"
    return_prompt_token_ids, choices[].prompt_token_ids      choices[].meta_info.output_token_logprobs
    return_meta_info (older SGLang)                          = [logprob, id, text] of each token
    logprobs                                                 choices[].logprobs.content[].logprob
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from app.domain.tasks import FunctionCall, Message, ToolCall

Extension = Literal["token_ids", "logprobs"]

EXTENSIONS: Final[tuple[tuple[Extension, ...], ...]] = (("token_ids", "logprobs"), ("logprobs",), ())
"""Extensions of the standard to request, tried in this order until the server accepts one."""

ASKED_BY: Final[dict[Extension, dict[str, JsonValue]]] = {
    "token_ids": {
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "return_prompt_token_ids": True,
        "return_meta_info": True,
    },
    "logprobs": {"logprobs": True},
}

_ID_PREFIX = "token_id:"

Ids = tuple[int, ...]


class _ResponseFunction(BaseModel):
    name: str
    arguments: str | dict[str, JsonValue] | None = None


class _ResponseToolCall(BaseModel):
    id: str | None = None
    function: _ResponseFunction


class _ResponseMessage(BaseModel):
    content: str | None = None
    tool_calls: list[_ResponseToolCall] | None = None


class _TokenLogprob(BaseModel):
    token: str = ""
    logprob: float


class _ChoiceLogprobs(BaseModel):
    content: list[_TokenLogprob] | None = None


class _ChoiceMetaInfo(BaseModel):
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None


class _ResponseChoice(BaseModel):
    message: _ResponseMessage
    finish_reason: str | None = None
    logprobs: _ChoiceLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    meta_info: _ChoiceMetaInfo | None = None


class Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class _ResponseBody(BaseModel):
    choices: Annotated[list[_ResponseChoice], Field(min_length=1)]
    prompt_token_ids: list[int] | None = None
    usage: Usage | None = None


class _ListedModel(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: list[_ListedModel]


_MODELS_ADAPTER = TypeAdapter(_ModelList)


@dataclass(frozen=True)
class SampledMessage:
    """One model message. Ids are None when the server sent none, `logprobs` also when they do not match the ids one to
    one."""

    message: Message
    finish_reason: str | None
    prompt_ids: Ids | None = None
    ids: Ids | None = None
    logprobs: tuple[float, ...] | None = None

    @property
    def has_tokens(self) -> bool:
        return self.prompt_ids is not None and self.ids is not None


@dataclass(frozen=True)
class ChatCompletion:
    said: tuple[SampledMessage, ...]
    usage: Usage


def parse_completion(body: bytes) -> ChatCompletion:
    """ValueError when `body` is not a chat completion."""
    answer = _ResponseBody.model_validate_json(body)
    said = tuple(_build_sampled_message(choice, answer.prompt_token_ids) for choice in answer.choices)
    return ChatCompletion(said, answer.usage or Usage())


def parse_models(body: bytes) -> tuple[str, ...] | None:
    """The names in a response of `GET /models`; None for anything else."""
    try:
        return tuple(model.id for model in _MODELS_ADAPTER.validate_json(body).data)
    except ValidationError:
        return None


def _build_sampled_message(choice: _ResponseChoice, prompt_ids: list[int] | None) -> SampledMessage:
    ids, logprobs = _extract_tokens(choice)
    fitting = ids is not None and logprobs is not None and len(ids) == len(logprobs)
    known = choice.prompt_token_ids or prompt_ids
    return SampledMessage(
        message=_build_message(choice.message),
        finish_reason=choice.finish_reason,
        prompt_ids=tuple(known) if known else None,
        ids=ids,
        logprobs=logprobs if fitting and all(map(math.isfinite, logprobs or ())) else None,
    )


def _extract_tokens(choice: _ResponseChoice) -> tuple[Ids | None, tuple[float, ...] | None]:
    content = None if choice.logprobs is None else choice.logprobs.content
    logprobs = None if content is None else tuple(token.logprob for token in content)
    if choice.token_ids is not None:
        return tuple(choice.token_ids), logprobs
    meta = None if choice.meta_info is None else choice.meta_info.output_token_logprobs
    if meta is not None:
        values = tuple(math.nan if value is None else value for value, _, _ in meta)
        return tuple(token_id for _, token_id, _ in meta), values
    return (None if content is None else _parse_named_ids(content)), logprobs


def _parse_named_ids(content: Sequence[_TokenLogprob]) -> Ids | None:
    """Ids from tokens of the form `token_id:<id>`; None unless all have it."""
    names = [token.token.removeprefix(_ID_PREFIX) for token in content if token.token.startswith(_ID_PREFIX)]
    if len(names) != len(content) or not all(name.isascii() and name.isdigit() for name in names):
        return None
    return tuple(map(int, names))


def _build_message(spoken: _ResponseMessage) -> Message:
    calls = tuple(
        ToolCall(id=call.id, function=FunctionCall(name=call.function.name, arguments=call.function.arguments or "{}"))
        for call in spoken.tool_calls or ()
    )
    return Message(role="assistant", content=spoken.content if calls else spoken.content or "", tool_calls=calls)
