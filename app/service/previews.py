"""Previews of drafts: they are scored like real tasks, and nothing is stored."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from app.domain.judging import Judgement
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Passage, Withheld
from app.domain.values import FiniteNumber, Frozen
from app.ports.environment import Drafted
from app.ports.judges import Panels
from app.ports.runtime import Observer
from app.ports.sandbox import Programs, Workers
from app.ports.tracing import note_work
from app.service.draft_building import DraftBuilder
from app.service.judging import require_taker, score_completions


class PreviewOptions(Frozen):
    """Options of every preview."""

    completions: Annotated[
        tuple[Completion, ...],
        Field(max_length=32, description="Completions to score together. Leave empty to see only the prompt."),
    ] = ()
    options: ScoringOptions = ScoringOptions()


class FailedGate(Frozen):
    """A gate that a completion failed, and what that gate detects."""

    flag: str
    notices: str


class PreviewedCompletion(Frozen):
    """One completion of a preview. `score.candidate` is its id in the judgements."""

    score: Score
    gates: tuple[FailedGate, ...] = ()


class PreviewResult(Frozen):
    """The prompt that a model would get, and the scores of the completions. Nothing is stored."""

    messages: tuple[Message, ...]
    """The prompt."""
    max_turns: int
    metadata: dict[str, JsonValue]
    passages: tuple[Passage, ...]
    """Retrieved passages in the prompt."""
    withheld: tuple[Withheld, ...]
    """Passages that were withheld, with the reason."""
    completions: tuple[PreviewedCompletion, ...]
    """In request order."""
    judges: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    """One per judge call, with the presentation order, the verdicts and the raw answer."""
    seconds: FiniteNumber
    """Time from the request to the last verdict."""
    calls: int
    """Requests sent to judge models."""
    cost_usd: FiniteNumber | None
    """Total cost of all judgements; null if the price of any call is unknown."""


class PreviewService:
    def __init__(
        self,
        *,
        drafting: DraftBuilder,
        panels: Panels,
        workers: Workers,
        programs: Programs,
        observer: Observer,
        gates: Mapping[str, str],
    ) -> None:
        """`gates`: what each gate detects, by flag."""
        self._drafting = drafting
        self._panels = panels
        self._workers = workers
        self._programs = programs
        self._observer = observer
        self._gates = gates

    def build_draft(self, environment: str, draft: BaseModel) -> Drafted:
        """Builds the draft's task. InvalidRequest naming `draft.<field>`; EnvironmentUnavailable if the environment
        fails."""
        return self._drafting.build_draft(environment, draft)

    async def preview(self, environment: str, draft: BaseModel, wanted: PreviewOptions) -> PreviewResult:
        """Rejects invalid drafts. Failures during scoring give `unscored` completions with a reason."""
        note_work(environment)
        began = asyncio.get_running_loop().time()
        made = self.build_draft(environment, draft)
        if wanted.options.rubric is not None:
            require_taker(made.environment, "options.rubric")
        panel = None if made.environment.rubric is None else self._panels.build_panel(environment, wanted.options)
        placed = await self._drafting.place_context(made, "draft.params")
        task, context = placed.task, placed.context
        what = f"{environment}, a draft"
        judged = await score_completions(
            made.environment, task, wanted.completions, wanted.options, panel, self._workers, self._programs, what=what
        )
        judgements = judged.judgements
        self._observer.record_judgements(judgements)
        costs = [judgement.cost_usd if judgement.calls else judgement.cost_usd or 0.0 for judgement in judgements]
        return PreviewResult(
            messages=task.messages,
            max_turns=task.max_turns,
            metadata=task.metadata,
            passages=context.passages,
            withheld=context.withheld,
            completions=tuple(
                PreviewedCompletion(score=score, gates=self._list_failed_gates(score)) for score in judged.scores
            ),
            judges=() if panel is None else panel.judges,
            judgements=judgements,
            seconds=asyncio.get_running_loop().time() - began,
            calls=sum(judgement.calls for judgement in judgements),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        )

    def _list_failed_gates(self, score: Score) -> tuple[FailedGate, ...]:
        if score.gate != 0.0:
            return ()
        return tuple(FailedGate(flag=flag, notices=self._gates.get(flag, "")) for flag in score.flags)
