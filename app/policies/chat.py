"""A model behind an OpenAI-compatible URL that answers tasks, episodes included."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import httpx
from pydantic import BaseModel, Field, SecretStr, ValidationError

from app.domain.tasks import Completion, Message, Task
from app.errors import Unavailable
from app.ports import Environment

_TOLD = 300
"""Characters of a server's refusal that are passed on."""


class _Said(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None


class _Answer(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


@dataclass(frozen=True)
class ChatPolicy:
    """`base_url` ends where `/chat/completions` begins."""

    base_url: str
    model: str
    api_key: SecretStr | None = None
    temperature: float = 1.0
    max_tokens: int = 512
    timeout_seconds: float = 120.0

    async def answer(self, environment: Environment, task: Task, count: int) -> list[Completion]:
        """`count` completions at once. Unavailable, with what the server said, when it does not answer."""
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key.get_secret_value()}"}
        base = self.base_url.rstrip("/")
        try:
            async with httpx.AsyncClient(headers=headers, timeout=self.timeout_seconds) as client:
                return await asyncio.gather(*(self._played(client, base, environment, task) for _ in range(count)))
        except httpx.HTTPStatusError as error:
            status, told = error.response.status_code, " ".join(error.response.text.split())[:_TOLD]
            raise Unavailable(f"{base} answers {status}: {told}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{base} does not answer: {error or type(error).__name__}") from error
        except ValidationError as error:
            raise Unavailable(f"{base} does not answer as a chat completions server does") from error

    async def _played(self, client: httpx.AsyncClient, base: str, environment: Environment, task: Task) -> Completion:
        said: tuple[Message, ...] = ()
        while True:
            choice = await self._asked(client, base, (*task.messages, *said))
            content = choice.message.content or ""
            if task.max_turns == 1:
                return Completion(text=content, finish_reason=choice.finish_reason)
            said = (*said, Message(role="assistant", content=content))
            turn = environment.step(task, said)
            if turn.done or choice.finish_reason == "length":
                return Completion(messages=said, finish_reason=choice.finish_reason)
            said += turn.messages

    async def _asked(self, client: httpx.AsyncClient, base: str, messages: Sequence[Message]) -> _Choice:
        body = {
            "model": self.model,
            "messages": [message.model_dump(mode="json") for message in messages],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        reply = await client.post(f"{base}/chat/completions", json=body)
        return _Answer.model_validate_json(reply.raise_for_status().content).choices[0]
