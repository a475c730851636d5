"""Builds the attempts of a report from the ledger, and what it says of how it was made."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from app.cli.evaluate.eval_spec import EvaluationContext, EvaluationSpec
from app.cli.evaluate.ledger import EvaluationLedger, TaskProgress
from app.cli.prices import PolicyPrices
from app.domain.scores import Score
from app.domain.tasks import Completion, Message
from app.evaluation.attempts import Attempt, EvaluationSetup, SamplingSettings
from app.service.request_models import HandedOutTask

PROMPT: Final = 4_000
TEXT: Final = 12_000
"""Maximum characters kept; the stored group has the full text."""


def build_attempts(ledger: EvaluationLedger, tasks: Sequence[HandedOutTask], label: str | None) -> tuple[Attempt, ...]:
    """Attempts that were made, by task and sample. `label` is the metadata key for the breakdown."""
    return tuple(
        attempt
        for place, task in enumerate(tasks)
        if place in ledger.items
        for attempt in _iter_attempts(ledger.items[place], task, label)
    )


def build_evaluation_setup(
    wanted: EvaluationSpec,
    found: EvaluationContext,
    ledger: EvaluationLedger,
    threshold: float,
    prices: PolicyPrices,
    gateway_url: str = "",
) -> EvaluationSetup:
    """What a report says of how it was made."""
    environment, sent = found.environment, wanted.sampling.parameters
    named = {"temperature", "top_p", "max_tokens"}
    return EvaluationSetup.model_validate(
        {
            "environment": environment.name,
            "version": environment.version,
            "split": wanted.split,
            "params": wanted.params,
            "tasks": len(found.tasks),
            "samples": wanted.samples,
            "threshold": threshold,
            "seed": wanted.seed,
            "model": wanted.model,
            "step": wanted.step,
            "sampling": SamplingSettings.model_validate(
                {name: value for name, value in sent.items() if name in named}
                | {"extra": {name: value for name, value in sent.items() if name not in named}}
            ),
            "run": wanted.run,
            "label": environment.label,
            "criteria": tuple(criterion.name for criterion in environment.criteria),
            "offline_judges": tuple(judge.name for judge in found.judges if not judge.for_training),
            "gateway": found.version,
            "gateway_url": gateway_url,
            "input_price": prices.input,
            "output_price": prices.output,
            "started_at": ledger.began_at,
        }
    )


def _iter_attempts(item: TaskProgress, task: HandedOutTask, label: str | None) -> Iterator[Attempt]:
    prompt, value = (
        _keep_end(_format_message(task.messages[-1]) if task.messages else ""),
        task.metadata.get(label or ""),
    )
    for sample in sorted({*item.answered, *item.failed}):
        if (standing := _find_outcome(item, sample)) is None:
            continue
        score, reason, detail = standing
        answered = item.answered.get(sample)
        text = "" if answered is None else _extract_text(answered.completion)
        yield Attempt(
            task_id=task.task_id,
            place=item.place,
            sample=sample,
            outcome="scored" if reason is None else "unscored",
            reason=reason,
            reward=score.reward,
            calibrated=score.calibrated,
            calibrated_error=score.calibrated_error,
            criteria={criterion.name: criterion.value for criterion in score.criteria},
            label=value if isinstance(value, str) else None,
            flags=score.flags,
            rationale=score.rationale or detail,
            judges=score.judges,
            scoring_digest=score.scoring_digest,
            group_id=item.find_group_id(sample),
            prompt=prompt,
            text=_cut_middle(text),
            characters=len(text),
            turns=0 if answered is None else answered.turns,
            input_tokens=None if answered is None else answered.input_tokens,
            output_tokens=None if answered is None else answered.output_tokens,
            finish_reason=None if answered is None else answered.completion.finish_reason,
            seconds=None if answered is None else answered.seconds,
        )


def _find_outcome(item: TaskProgress, sample: int) -> tuple[Score, str | None, str] | None:
    """The score, the reason for a missing reward, and its detail; None for an unfinished attempt."""
    score, failed = item.find_score(sample), item.failed.get(sample)
    if score is not None and score.reward is not None:
        return score, None, ""
    if failed is not None:
        return score or Score.pending(), failed.reason, failed.detail
    return None if score is None else (score, score.reason or score.outcome, "")


def _extract_text(completion: Completion) -> str:
    """The model's messages with the observations between them."""
    if completion.messages is None:
        return completion.text or ""
    if len(completion.messages) == 1 and not completion.messages[0].tool_calls:
        return completion.messages[0].content or ""
    return _format_transcript(completion.messages)


def _format_transcript(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{message.role}: {_format_message(message)}" for message in messages)


def _format_message(message: Message) -> str:
    calls = [f"{call.function.name}({_format_arguments(call.function.arguments)})" for call in message.tool_calls]
    return "\n".join(part for part in (message.content or "", *calls) if part)


def _format_arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _keep_end(text: str) -> str:
    return text if len(text) <= PROMPT else "… " + text[-PROMPT:]


def _cut_middle(text: str) -> str:
    """Keeps more of the end, where answers usually are."""
    return text if len(text) <= TEXT else f"{text[: TEXT // 3]} … {text[-2 * TEXT // 3 :]}"
