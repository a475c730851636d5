"""Lets a judge's model write a rubric from a preference."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from app.domain.digests import digest
from app.domain.errors import JudgeFailed
from app.domain.judging import Judgement
from app.domain.values import Frozen, WholeNumber, utc_now
from app.judges.budget import Account, new_hold
from app.judges.configuration import ChatJudgeConfig
from app.judges.deadline import Deadline
from app.judges.line import Line, Said, Spent
from app.judges.prompt import correction_for
from app.judges.reading import encodable, visible_text
from app.ports.judges import JudgementMemory
from app.toolkit.templates import Template

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


async def write_rubric(config: ChatJudgeConfig, preference: str, memory: JudgementMemory) -> WrittenRubric:
    """Retries once, with a list of the problems, when the first answer is invalid; then JudgeFailed with the reason.
    The judge's budgets apply, and the cost is stored as a judgement without candidates."""
    account = Account(utc_now)
    account.learn(await memory.standing(config.name))
    line, spent = Line(config, account, memory), Spent(new_hold())
    deadline = Deadline(config.deadline_seconds, config.queue_seconds)
    asked = encodable(json.dumps({"preference": preference}, ensure_ascii=False))
    messages: list[Said] = [
        {"role": "system", "content": _RULES.render(fewest=FEWEST, most=MOST)},
        {"role": "user", "content": asked},
    ]
    failed: str | None = "given up"
    try:
        async with deadline:
            written = await _written(line, messages, deadline, spent)
        failed = None
        return written
    except TimeoutError:
        failed = f"no usable answer within {config.deadline_seconds:g} s"
        raise JudgeFailed(failed) from None
    except JudgeFailed as error:
        failed = _without_key(config, error.detail)
        raise JudgeFailed(failed) from None
    finally:
        await line.close()
        await _account_for(line, _judgement(config, messages, failed), spent, memory)


async def _written(line: Line, messages: list[Said], deadline: Deadline, spent: Spent) -> WrittenRubric:
    try:
        return _read((await line.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        messages += [
            {"role": "assistant", "content": spent.raw[-_LONGEST_QUOTED:] or "(nothing)"},
            {"role": "user", "content": correction_for(_problems(error))},
        ]
    try:
        return _read((await line.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        problems = "; ".join(_problems(error))
        raise JudgeFailed(f"invalid answer, also after the corrective retry: {problems}") from None


async def _account_for(line: Line, judgement: Judgement, spent: Spent, memory: JudgementMemory) -> None:
    if spent.calls:
        await memory.put(line.billed(judgement, spent), spent.hold)
    else:
        await line.budget.forget(spent.hold)


def _judgement(config: ChatJudgeConfig, messages: Sequence[Said], failed: str | None) -> Judgement:
    told = json.dumps(messages[:2], ensure_ascii=False)
    return Judgement(
        judge=config.name,
        model=config.model,
        order=(),
        prompt=told,
        prompt_digest=digest(told),
        error=failed,
        reading=digest([config.name, config.base_url, told, new_hold()]),
    )


def _read(answer: str) -> WrittenRubric:
    """ValueError, pydantic's included, for an invalid rubric. Text around the JSON object is ignored."""
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


def _without_key(config: ChatJudgeConfig, words: str) -> str:
    key = "" if config.api_key is None else config.api_key.get_secret_value()
    return encodable(words.replace(key, "…") if key else words)
