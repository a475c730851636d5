"""Requests of clients in OpenAI's chat format. What is not known is ignored: clients send all kinds of fields."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from app.domain.values import FiniteJson, is_encodable
from app.ports.playing import ChatBody
from app.service.play.played_models import PlayFields

MOST_CHOICES: Final = 8
_PASSED_ON: Final = (
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("max_tokens", "max_completion_tokens", "stop", "seed", "logit_bias", "logprobs", "top_logprobs", "n"),
    *("response_format", "stream_options"),
)
"""Fields that policies get as they are."""


def _join_parts(content: Any) -> Any:
    """Clients send texts, or lists of parts; pictures are left out."""
    if not isinstance(content, list):
        return "" if content is None else content
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict) and "text" in part)


def _read_user(user: Any) -> Any:
    return user if isinstance(user, str) and is_encodable(user) else ""


class ClientMessage(BaseModel):
    model_config = ConfigDict(frozen=True)

    role: Annotated[str, Field(max_length=40)]
    content: Annotated[str, BeforeValidator(_join_parts)] = ""
    name: str | None = None

    @property
    def is_system(self) -> bool:
        return self.role in {"system", "developer"}


class ChatRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]

    model: Annotated[str, Field(max_length=300)] = ""
    messages: Annotated[tuple[ClientMessage, ...], Field(max_length=5000)]
    stream: bool | None = False
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    store: bool | None = None
    """False keeps nothing of the conversation."""
    user: Annotated[str, BeforeValidator(_read_user), Field(max_length=200)] = ""
    play: PlayFields = PlayFields()

    @property
    def sampling(self) -> ChatBody:
        given = {**self.__pydantic_extra__, "n": self.n if (self.n or 1) > 1 else None}
        return {name: given[name] for name in _PASSED_ON if given.get(name) not in (None, {}, [])}

    @property
    def wants_json(self) -> bool:
        return "response_format" in self.__pydantic_extra__

    @property
    def raw_messages(self) -> list[JsonValue]:
        """As the client sent them, for what is no turn."""
        return [
            {"role": one.role, "content": one.content, **({} if one.name is None else {"name": one.name})}
            for one in self.messages
        ]
