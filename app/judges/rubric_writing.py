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
from app.judges.budget import ReadingCost, SpendingAccount, create_reservation_id
from app.judges.configuration import ChatJudgeConfig
from app.judges.deadline import Deadline
from app.judges.judge_client import JudgeClient
from app.judges.prompt import render_correction
from app.judges.request_form import PromptMessage
from app.judges.text_normalisation import replace_surrogates, strip_thoughts
from app.ports.judges import JudgeCache
from app.toolkit.templates import Template

FEWEST: Final = 2
MOST: Final = 6
_RULES: Final = Template.read(Path(__file__).with_name("prompts") / "rubric.j2")
_MOST_PROBLEMS: Final = 6
_LONGEST_QUOTED: Final = 8_000


class WrittenCriterion(Frozen):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=1_000)]
    weight: Annotated[WholeNumber, Field(ge=1, le=10)]


class WrittenRubric(Frozen):
    criteria: Annotated[tuple[WrittenCriterion, ...], Field(min_length=FEWEST, max_length=MOST)]

    @model_validator(mode="after")
    def _require_unique_names(self) -> Self:
        names = [criterion.name for criterion in self.criteria]
        if len(set(names)) < len(names):
            raise ValueError("two criteria have the same name")
        return self


async def write_rubric(config: ChatJudgeConfig, preference: str, memory: JudgeCache) -> WrittenRubric:
    """Retries once, with a list of the problems, when the first answer is invalid; then JudgeFailed with the reason.
    The judge's budgets apply, and the cost is stored as a judgement without candidates."""
    account = SpendingAccount(utc_now)
    account.update_state(await memory.get_budget_state(config.name))
    line, spent = JudgeClient(config, account, memory), ReadingCost(create_reservation_id())
    deadline = Deadline(config.deadline_seconds, config.queue_seconds)
    asked = replace_surrogates(json.dumps({"preference": preference}, ensure_ascii=False))
    messages: list[PromptMessage] = [
        {"role": "system", "content": _RULES.render(fewest=FEWEST, most=MOST)},
        {"role": "user", "content": asked},
    ]
    failed: str | None = "given up"
    try:
        async with deadline:
            written = await _ask_for_rubric(line, messages, deadline, spent)
        failed = None
        return written
    except TimeoutError:
        failed = f"no usable answer within {config.deadline_seconds:g} s"
        raise JudgeFailed(failed) from None
    except JudgeFailed as error:
        failed = _redact(config, error.detail)
        raise JudgeFailed(failed) from None
    finally:
        await line.close()
        judgement = spent.add_to(_build_spending_judgement(config, messages, failed), config.prices)
        await _record_spending(line, judgement, spent.hold, memory)


async def _ask_for_rubric(
    line: JudgeClient, messages: list[PromptMessage], deadline: Deadline, spent: ReadingCost
) -> WrittenRubric:
    try:
        return _parse_rubric((await line.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        messages += [
            {"role": "assistant", "content": spent.raw[-_LONGEST_QUOTED:] or "(nothing)"},
            {"role": "user", "content": render_correction(_list_problems(error))},
        ]
    try:
        return _parse_rubric((await line.ask(messages, None, deadline, spent)).text)
    except ValueError as error:
        problems = "; ".join(_list_problems(error))
        raise JudgeFailed(f"invalid answer, also after the corrective retry: {problems}") from None


async def _record_spending(line: JudgeClient, judgement: Judgement, hold: str, memory: JudgeCache) -> None:
    if judgement.calls:
        await memory.put(judgement, hold)
    else:
        await line.budget.release(hold)


def _build_spending_judgement(
    config: ChatJudgeConfig, messages: Sequence[PromptMessage], failed: str | None
) -> Judgement:
    told = json.dumps(messages[:2], ensure_ascii=False)
    return Judgement(
        judge=config.name,
        model=config.model,
        order=(),
        prompt=told,
        prompt_digest=digest(told),
        error=failed,
        reading=digest([config.name, config.base_url, told, create_reservation_id()]),
    )


def _parse_rubric(answer: str) -> WrittenRubric:
    """ValueError, pydantic's included, for an invalid rubric. Text around the JSON object is ignored."""
    text = strip_thoughts(answer)
    start, end = text.find("{"), text.rfind("}")
    try:
        found: object = json.loads(text[start : end + 1]) if start >= 0 else None
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("there is no JSON object in the answer")
    return WrittenRubric.model_validate(found)


def _list_problems(error: ValueError) -> list[str]:
    if not isinstance(error, ValidationError):
        return [str(error)]
    listed = error.errors(include_url=False, include_input=False, include_context=False)[:_MOST_PROBLEMS]
    return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in listed]


def _redact(config: ChatJudgeConfig, words: str) -> str:
    return replace_surrogates(config.endpoint.credentials.redact(words))
