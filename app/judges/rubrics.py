"""A rubric written once: what a preference comes down to, in the words of a judge's model."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, JsonValue, StringConstraints, ValidationError, model_validator

from app.domain.values import Frozen, WholeNumber
from app.errors import JudgeFailed
from app.judges.configuration import ChatJudgeConfig
from app.judges.connection import Connection
from app.judges.failures import CallFailed
from app.judges.prompt import correction_for
from app.judges.reading import encodable, visible_text
from app.judges.replies import ChatReply, read_reply
from app.prompts import Template

FEWEST: Final = 2
MOST: Final = 6
_RULES: Final = Template.read(Path(__file__).with_name("prompts") / "rubric.j2")
_PROBLEMS_TOLD: Final = 6
_LONGEST_QUOTED: Final = 8_000


class WrittenCriterion(Frozen):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=1_000)]
    weight: Annotated[WholeNumber, Field(ge=1, le=10)]


class WrittenRubric(Frozen):
    criteria: Annotated[tuple[WrittenCriterion, ...], Field(min_length=FEWEST, max_length=MOST)]

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        return self


async def write_rubric(config: ChatJudgeConfig, preference: str) -> WrittenRubric:
    """Asks once more, with what was wrong, when the first answer cannot be used. JudgeFailed with the reason otherwise:
    somebody waits for it at a terminal and can ask again."""
    connection = Connection(config.base_url, config.api_key)
    try:
        async with asyncio.timeout(config.deadline_seconds):
            return await _written(connection, config, preference)
    except TimeoutError:
        raise JudgeFailed(f"no usable answer within {config.deadline_seconds:g} s") from None
    except CallFailed as failed:
        raise JudgeFailed(_without_key(config, failed.words + failed.told)) from None
    finally:
        await connection.close()


async def _written(connection: Connection, config: ChatJudgeConfig, preference: str) -> WrittenRubric:
    asked = encodable(json.dumps({"preference": preference}, ensure_ascii=False))
    messages = [_said("system", _RULES.render(fewest=FEWEST, most=MOST)), _said("user", asked)]
    first = await _answer(connection, config, messages)
    try:
        return _read(first)
    except ValueError as error:
        messages += [_said("assistant", first[-_LONGEST_QUOTED:] or "(nothing)")]
        messages += [_said("user", correction_for(_problems(error)))]
    try:
        return _read(await _answer(connection, config, messages))
    except ValueError as error:
        problems = "; ".join(_problems(error))
        raise JudgeFailed(f"the answer cannot be used, nor the corrected one: {problems}") from None


async def _answer(connection: Connection, config: ChatJudgeConfig, messages: Sequence[dict[str, JsonValue]]) -> str:
    body: dict[str, JsonValue] = {
        "model": config.model,
        "messages": list(messages),
        config.token_parameter: config.max_output_tokens,
    }
    if config.temperature is not None:
        body["temperature"] = config.temperature
    if config.json_mode != "off":
        body["response_format"] = {"type": "json_object"}
    reply: ChatReply = read_reply(await connection.send(body))
    if reply.refused:
        raise JudgeFailed(f"the judge refuses: {' '.join(reply.text.split())[:200]}")
    return reply.text


def _read(answer: str) -> WrittenRubric:
    """ValueError with what is wrong, pydantic's included. What stands around the object does not matter."""
    text = visible_text(answer)
    start, end = text.find("{"), text.rfind("}")
    try:
        found: object = json.loads(text[start : end + 1]) if start >= 0 else None
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("there is no JSON object in the answer")
    return WrittenRubric.model_validate(found)


def _problems(error: ValueError) -> list[str]:
    if not isinstance(error, ValidationError):
        return [str(error)]
    listed = error.errors(include_url=False, include_input=False, include_context=False)[:_PROBLEMS_TOLD]
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in listed]


def _said(role: str, content: str) -> dict[str, JsonValue]:
    return {"role": role, "content": content}


def _without_key(config: ChatJudgeConfig, words: str) -> str:
    key = "" if config.api_key is None else config.api_key.get_secret_value()
    return encodable(words.replace(key, "…") if key else words)
