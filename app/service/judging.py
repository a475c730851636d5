"""One group before its environment: what a completion earns, or why nothing can be said of it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.groups import TaskRecord
from app.domain.judging import Case, Judgement, PanelResult
from app.domain.runs import Policy, ScoringOptions
from app.domain.scores import Reason, Score
from app.domain.tasks import Completion, Task
from app.errors import EnvironmentUnavailable, GatewayError, NotFound, ScoringFailed
from app.ports import Panel, Panels, Tools
from app.service.catalogue import Catalogue, Hosted
from app.service.scales import panel_for
from app.service.shelf import Shelf

log = logging.getLogger(__name__)

CUT_OFF = Score.gated("truncated", rationale="cut off by the token limit")


@dataclass(frozen=True)
class Judged:
    scores: tuple[Score, ...]
    judgements: tuple[Judgement, ...] = ()


@dataclass
class RecordedPanel:
    """A panel that keeps the judgements made through it, so that environments need not carry them."""

    panel: Panel
    made: list[Judgement] = field(default_factory=list)

    @property
    def judges(self) -> tuple[str, ...]:
        return self.panel.judges

    @property
    def models(self) -> tuple[str, ...]:
        return self.panel.models

    @property
    def digest(self) -> str:
        return self.panel.digest

    async def judge(self, case: Case) -> PanelResult:
        result = await self.panel.judge(case)
        self.made += [each for judgement in result.judgements for each in judgement.each]
        return result


class NoPanel:
    """What a verifier's tools hold: asking it is a mistake in the environment."""

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    digest = ""

    async def judge(self, case: Case) -> PanelResult:
        raise ScoringFailed(f"{case.rubric.name}: an environment without a rubric has no judges")


class Scorer:
    """Turns completions into scores. Whatever goes wrong on our side becomes `unscored` here, with its reason."""

    def __init__(self, catalogue: Catalogue, panels: Panels, shelf: Shelf) -> None:
        self._catalogue = catalogue
        self._shelf = shelf
        self._panels = panels

    async def judged(
        self,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        *,
        remade: Task | None = None,
    ) -> Judged:
        """One score per completion, in order. Never raises but for cancellation. `remade` stands for the record's task
        where that is of an environment as it no longer is."""
        try:
            hosted = self._catalogue.hosted(record.key.environment, None if remade else record.key.data_digest)
            return await self._judged(hosted, record, completions, options, policy, remade)
        except ScoringFailed as error:
            reason = _reason(error)
            return Judged(_all_unscored(len(completions), reason, error.detail))
        except (EnvironmentUnavailable, NotFound) as error:
            return Judged(_all_unscored(len(completions), "environment_unavailable", error.detail))
        except GatewayError as error:
            return Judged(_all_unscored(len(completions), "internal", error.detail))
        except Exception:
            log.exception("scoring failed: environment=%s task=%s", record.key.environment, record.task_id)
            return Judged(_all_unscored(len(completions), "internal", "the environment's scorer broke; see the log"))

    async def _judged(
        self,
        hosted: Hosted,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        remade: Task | None,
    ) -> Judged:
        present = (hosted.environment.version, hosted.data_digest)
        if remade is None and (record.key.version, record.key.data_digest) != present:
            detail = f"the task is of {record.key.version}, the service has {hosted.environment.version} or other data"
            return Judged(_all_unscored(len(completions), "version_changed", detail))
        panel = panel_for(self._panels, hosted, options)
        if own := self._own_model(panel, policy):
            return Judged(_all_unscored(len(completions), "self_judge", f"judge {own} is the policy's own model"))
        digest = hosted.pin(options, panel).scoring_digest
        cut = [options.on_truncated == "zero" and completion.truncated for completion in completions]
        whole = [completion for completion, out in zip(completions, cut, strict=True) if not out]
        recorded = None if panel is None else RecordedPanel(panel)
        task = remade or self._shelf.task(hosted, record)
        scores = iter(await self._scores(hosted, task, whole, Tools(panel=recorded or NoPanel())))
        merged = tuple((CUT_OFF if out else next(scores)).under(digest) for out in cut)
        return Judged(merged, tuple(recorded.made) if recorded is not None else ())

    async def _scores(self, hosted: Hosted, task: Task, whole: Sequence[Completion], tools: Tools) -> list[Score]:
        if not whole:
            return []
        scores = await hosted.environment.score(task, whole, tools)
        if len(scores) != len(whole):
            raise ScoringFailed(f"{hosted.name} gave {len(scores)} scores for {len(whole)} completions")
        return scores

    def _own_model(self, panel: Panel | None, policy: Policy | None) -> str | None:
        if panel is None or policy is None:
            return None
        for judge, model in zip(panel.judges, panel.models, strict=True):
            if model.casefold() == policy.model.casefold() and self._panels.refuses_self_judging(judge):
                return judge
        return None


def _reason(error: ScoringFailed) -> Reason:
    known: dict[str, Reason] = {"judge_failed": "judge_failed", "verifier_failed": "verifier_failed"}
    return known.get(error.reason, "internal")


def _all_unscored(count: int, reason: Reason, detail: str) -> tuple[Score, ...]:
    return (Score.unscored(reason, detail),) * count
