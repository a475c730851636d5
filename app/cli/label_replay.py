"""Replays replies that people have labelled through a panel of judges, as groups of a run are judged."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.domain.errors import GatewayError, InvalidRequest
from app.domain.judging import Mode
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import FiniteNumber, Frozen
from app.evaluation.label_agreement import AgreementFigure, JudgedLabels, measure_label_agreement
from app.evaluation.labelled_groups import LabelledGroup
from app.ports.environment import Environment
from app.ports.judges import Panels
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.catalogue import Catalogue
from app.service.judging import JudgedCompletions, score_completions

MOST_IN_FLIGHT: Final = 32
"""Groups; the judge's own limits may be tighter."""


class BenchFigures(Frozen):
    """One mode. Calls, tokens and money are means over the groups that were judged, cached judgements included."""

    mode: Mode
    groups: int
    unscored: int
    """Groups without a reward, because the judge failed."""
    pair_accuracy: AgreementFigure
    correlation: AgreementFigure
    calls_per_group: FiniteNumber
    input_tokens_per_group: FiniteNumber
    output_tokens_per_group: FiniteNumber
    usd_per_thousand_groups: FiniteNumber | None
    """Null without prices."""
    subsets: dict[str, AgreementFigure] = {}
    """Pair accuracy of each part of the data set, where it has several."""
    failures: tuple[str, ...] = ()
    """The first few reasons of unscored groups."""


@dataclass(frozen=True)
class LabelledSituation:
    group: LabelledGroup
    environment: Environment
    task: Task


def build_situation(group: LabelledGroup, catalogue: Catalogue) -> LabelledSituation:
    environment = catalogue.get_environment_or_current(group.environment).environment
    if environment.Draft is None:
        raise InvalidRequest(f"group {group.id}: {group.environment} takes no drafts")
    try:
        made = environment.draft(environment.Draft.model_validate(group.draft))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidRequest(f"group {group.id}: draft.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except GatewayError as error:
        where = "" if error.field is None else f"{error.field}: "
        raise InvalidRequest(f"group {group.id}: {where}{error.detail}") from None
    return LabelledSituation(group, made.environment, made.task)


async def judge_situations(
    situations: Sequence[LabelledSituation], panels: Panels, judge: str, mode: Mode, judged: Callable[[], None]
) -> Sequence[JudgedCompletions]:
    gate = asyncio.Semaphore(MOST_IN_FLIGHT)

    async def judge_one(situation: LabelledSituation) -> JudgedCompletions:
        async with gate:
            result = await judge_situation(situation, panels, judge, mode)
        judged()
        return result

    return await asyncio.gather(*map(judge_one, situations))


async def judge_situation(situation: LabelledSituation, panels: Panels, judge: str, mode: Mode) -> JudgedCompletions:
    """As a run's groups are judged, gates included."""
    group, options = situation.group, ScoringOptions(mode=mode, judges=(judge,))
    panel = panels.build_panel(group.environment, options)
    completions = [Completion(text=reply.text) for reply in group.replies]
    return await score_completions(
        situation.environment,
        situation.task,
        completions,
        options,
        panel,
        NoWorkers(),
        NoPrograms(),
        what=f"bench, {group.id}",
    )


def build_figures(
    situations: Sequence[LabelledSituation], judged: Sequence[JudgedCompletions], mode: Mode, seed: int
) -> BenchFigures:
    labelled = [_pair_with_labels(one.group, each.scores) for one, each in zip(situations, judged, strict=True)]
    scored = [one for one in labelled if one is not None]
    agreement = measure_label_agreement(scored, seed)
    made = [judgement for each in judged for judgement in each.judgements]
    costs = [judgement.cost_usd for judgement in made if judgement.cost_usd is not None]
    reasons = [score.rationale for each in judged for score in each.scores if score.reward is None]
    subsets = sorted({one.subset for one in scored})
    return BenchFigures(
        mode=mode,
        groups=len(situations),
        unscored=len(labelled) - len(scored),
        pair_accuracy=agreement.pair_accuracy,
        correlation=agreement.correlation,
        calls_per_group=sum(judgement.calls for judgement in made) / len(judged),
        input_tokens_per_group=sum(judgement.input_tokens for judgement in made) / len(judged),
        output_tokens_per_group=sum(judgement.output_tokens for judgement in made) / len(judged),
        usd_per_thousand_groups=1000 * math.fsum(costs) / len(judged) if costs else None,
        subsets={
            subset: measure_label_agreement([one for one in scored if one.subset == subset], seed).pair_accuracy
            for subset in subsets
        }
        if len(subsets) > 1
        else {},
        failures=tuple(dict.fromkeys(reasons))[:5],
    )


def _pair_with_labels(group: LabelledGroup, scores: Sequence[Score]) -> JudgedLabels | None:
    """None unless every reply has a reward: part of a group would be another question."""
    rewards = [score.reward for score in scores if score.reward is not None]
    if len(rewards) < len(scores):
        return None
    return JudgedLabels(tuple(reply.label for reply in group.replies), tuple(rewards), group.subset)
