"""A judge behind any OpenAI-compatible URL: one retry loop, one deadline, one corrective question."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypedDict, cast

from pydantic import SecretStr

from app.domain.judging import Judgement, JudgeRequest
from app.errors import JudgeFailed
from app.judges.prompt import TEMPLATES_DIGEST, correction_for, prompt_for
from app.judges.reading import encodable
from app.judges.replies import ChatReply, NotAReply, read_reply, retry_after, told_by_server
from app.judges.verdicts import PARSER_VERSION, Answer, Unusable, read_answer
from app.prompts import digest

CONNECT_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
STRANGE_REPLIES: Final = 3
"""As many replies with status 200 that are no chat completions, and the URL is taken to be wrong."""

_PASSING: Final = frozenset((408, 409, 425, 429))
"""Statuses below 500 after which the same request may succeed."""
_LONGEST_QUOTED: Final = 8_000
"""Characters of an unusable answer that are shown to the judge again."""


class Said(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatJudgeConfig:
    name: str
    base_url: str
    model: str
    api_key: SecretStr | None = None
    deadline_seconds: float = 60.0
    """For one reading of a group: every retry, pause and correction included."""
    max_output_tokens: int = 4096
    temperature: float | None = 0.0
    """None leaves it to the server: some models refuse the parameter."""
    input_price_per_million: float | None = None
    output_price_per_million: float | None = None
    """US dollars per million tokens."""
    json_mode: bool = True


@dataclass
class _Spent:
    """What a reading has cost so far, what went wrong last, and when its time is up."""

    until: float
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    raw: str = ""
    trouble: str = ""


class ChatJudge:
    def __init__(self, config: ChatJudgeConfig, *, chance: Callable[[], float] = random.random) -> None:
        self.name = config.name
        self.model = config.model
        self.digest = digest(
            {
                "model": config.model,
                "temperature": config.temperature,
                "max_output_tokens": config.max_output_tokens,
                "json_mode": config.json_mode,
                "templates": TEMPLATES_DIGEST,
                "parser": PARSER_VERSION,
            }
        )
        self._config = config
        self._chance = chance
        self._key = config.api_key.get_secret_value() if config.api_key is not None else ""
        # openai takes a second to import, and a service without judge models needs none of it
        from openai import AsyncOpenAI, DefaultAioHttpClient, Timeout

        self._client = AsyncOpenAI(
            base_url=config.base_url,
            api_key=self._key or "none",
            max_retries=0,
            timeout=Timeout(None, connect=CONNECT_SECONDS),  # the deadline below bounds everything else
            # with a 200 ms judge and 64 calls under way: 1.13 times the ideal wall time, httpx up to 1.5; the gap grows
            http_client=DefaultAioHttpClient(),
        )
        # the client takes these from the process environment and would send them to any server
        self._client.organization = self._client.project = None

    async def close(self) -> None:
        await self._client.close()

    async def judge(self, request: JudgeRequest) -> Judgement:
        clock = asyncio.get_running_loop().time
        began = clock()
        spent = _Spent(until=began + self._config.deadline_seconds)
        prompt = prompt_for(request)
        messages: list[Said] = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ]
        answer, error = await self._within_deadline(request, messages, spent)
        told = json.dumps(messages[:2], ensure_ascii=False)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in request.candidates),
            verdicts=answer.verdicts if answer is not None else (),
            ranking=answer.ranking if answer is not None else (),
            prompt=told,
            prompt_digest=digest([self.digest, told]),
            raw=spent.raw,
            error=error,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cost_usd=self._cost(spent),
            latency_seconds=clock() - began,
            calls=spent.calls,
        )

    async def _within_deadline(
        self, request: JudgeRequest, messages: list[Said], spent: _Spent
    ) -> tuple[Answer | None, str | None]:
        try:
            async with asyncio.timeout(self._config.deadline_seconds):
                return await self._answer(request, messages, spent), None
        except TimeoutError:
            before = f"; before that: {spent.trouble}" if spent.trouble else ""
            return None, self._without_key(f"no usable answer within {self._config.deadline_seconds:g} s{before}")
        except JudgeFailed as error:
            return None, self._without_key(error.detail)

    async def _answer(self, request: JudgeRequest, messages: list[Said], spent: _Spent) -> Answer:
        """Asks once more, with what was wrong, when the first answer cannot be used."""
        found = self._read(await self._asked(messages, spent), request)
        if isinstance(found, Unusable):
            spent.trouble = f"the answer cannot be used: {'; '.join(found.problems)}"
            messages += [
                {"role": "assistant", "content": spent.raw[-_LONGEST_QUOTED:] or "(nothing)"},
                {"role": "user", "content": correction_for(found.problems)},
            ]
            found = self._read(await self._asked(messages, spent), request)
        if isinstance(found, Unusable):
            raise JudgeFailed(f"the answer cannot be used, nor the corrected one: {'; '.join(found.problems)}")
        return found

    def _read(self, reply: ChatReply, request: JudgeRequest) -> Answer | Unusable:
        found = read_answer(reply.text, request)
        if isinstance(found, Unusable) and reply.cut_off:
            limit = self._config.max_output_tokens
            return Unusable((f"it was cut off after {limit} tokens: be shorter", *found.problems))
        return found

    async def _asked(self, messages: list[Said], spent: _Spent) -> ChatReply:
        """The server's answer, after as many attempts as the deadline allows. JudgeFailed for a fault that will not
        pass."""
        from openai import APIConnectionError, APIStatusError

        now = asyncio.get_running_loop().time
        attempt = strange = 0
        while True:
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                spent.calls += 1
                reply = read_reply(await self._sent(messages))
            except APIStatusError as error:
                spent.trouble = f"the judge's server answered {error.status_code}"
                if error.status_code < 500 and error.status_code not in _PASSING:
                    raise JudgeFailed(spent.trouble + told_by_server(error.status_code, error.body)) from None
                pause = max(pause, retry_after(error.response.headers))
            except NotAReply as error:
                spent.trouble = str(error)
                strange += 1
                if strange == STRANGE_REPLIES:
                    raise JudgeFailed(spent.trouble) from None
            except APIConnectionError:
                spent.trouble = "the judge's server could not be reached"
            except Exception as error:
                # the transport has exceptions of its own which the client passes on as they are
                spent.trouble = f"the connection to the judge's server broke: {type(error).__name__}"
            else:
                spent.raw = reply.text
                spent.input_tokens += reply.input_tokens
                spent.output_tokens += reply.output_tokens
                return reply
            attempt += 1
            if now() + pause >= spent.until:
                raise JudgeFailed(f"{spent.trouble}, {spent.calls} attempts, no time for another")
            await asyncio.sleep(pause)

    async def _sent(self, messages: list[Said]) -> bytes:
        from openai import omit
        from openai.types.chat import ChatCompletionMessageParam

        temperature = self._config.temperature
        response = await self._client.chat.completions.with_raw_response.create(
            model=self.model,
            messages=cast(list[ChatCompletionMessageParam], messages),
            max_tokens=self._config.max_output_tokens,
            temperature=omit if temperature is None else temperature,
            response_format={"type": "json_object"} if self._config.json_mode else omit,
        )
        return response.content

    def _cost(self, spent: _Spent) -> float | None:
        prices = (self._config.input_price_per_million, self._config.output_price_per_million)
        if prices == (None, None):
            return None
        return ((prices[0] or 0.0) * spent.input_tokens + (prices[1] or 0.0) * spent.output_tokens) / 1e6

    def _without_key(self, words: str) -> str:
        return encodable(words.replace(self._key, "…") if self._key else words)
