"""Labelled groups through real panels: a judge of known accuracy gets it back, a judge that is out gives no figure."""

import asyncio
import random

import pytest

from app.cli.judge_bench import build_situation, judge_situations
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import InvalidRequest
from app.domain.judging import JudgeRequest
from app.domain.values import digest_of_text
from app.envs.npc_arena.environment import NpcArena
from app.envs.rlaif.environment import Rlaif
from app.evaluation.judge_bench import BenchFigures, build_figures
from app.evaluation.labelled_groups import LabelledGroup, LabelledReply
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from app.service.catalogue import Catalogue

ACCURACY = 0.75
GOOD, BAD = "a fine reply", "a poor reply"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    opened = Catalogue({Rlaif.name: Rlaif, NpcArena.name: NpcArena})
    opened.open(ConfiguredDatasets({}))
    return opened


def pair(number: int) -> LabelledGroup:
    return LabelledGroup(
        id=str(number),
        environment="rlaif",
        draft={"messages": [{"role": "user", "content": f"question {number}"}]},
        replies=(LabelledReply(text=f"{GOOD} {number}", label=1), LabelledReply(text=f"{BAD} {number}", label=0)),
        subset=("even", "odd")[number % 2],
    )


def err_at_times(request: JudgeRequest, asked: int) -> dict[str, float]:
    """Right about a pair with the probability ACCURACY, whatever its order."""
    number = request.candidates[0].text.rsplit(" ", 1)[1]
    right = random.Random(digest_of_text(number)).random() < ACCURACY
    return {one.id: 0.9 if (one.text.startswith(GOOD)) == right else 0.2 for one in request.candidates}


async def _replay(catalogue: Catalogue, judge: ScriptedJudge, groups: int) -> BenchFigures:
    pairs = [pair(number) for number in range(groups)]
    situations = [build_situation(one, catalogue) for one in pairs]
    seen: list[None] = []
    judged = await judge_situations(
        situations, ConfiguredPanels({judge.name: judge}, {}), judge.name, "listwise", lambda: seen.append(None)
    )
    assert len(seen) == groups
    return build_figures(pairs, judged, "listwise", seed=0)


def replay(catalogue: Catalogue, judge: ScriptedJudge, groups: int) -> BenchFigures:
    return asyncio.run(_replay(catalogue, judge, groups))


def test_a_judge_of_known_accuracy_gets_it_back(catalogue: Catalogue) -> None:
    found = replay(catalogue, ScriptedJudge(err_at_times), 120)
    low, high = found.pair_accuracy.low, found.pair_accuracy.high
    assert low is not None
    assert high is not None
    assert (low <= ACCURACY <= high, found.unscored, sorted(found.subsets)) == (True, 0, ["even", "odd"])


def test_a_judge_that_is_out_gives_no_figure(catalogue: Catalogue) -> None:
    found = replay(catalogue, ScriptedJudge(lambda request, asked: "the judge is out"), 5)
    assert (found.unscored, found.pair_accuracy.value, found.failures) == (5, None, ("scripted: the judge is out",))


def test_a_draft_that_cannot_be_built_names_its_group(catalogue: Catalogue) -> None:
    group = pair(3).model_copy(update={"draft": {"messages": []}})
    nobody = LabelledGroup(
        id="9", environment="npc_arena", draft={"character": "hob_tarant", "line": "Hi"}, replies=group.replies
    )
    with pytest.raises(InvalidRequest, match=r"group 3: `draft\.messages`: an empty list"):
        build_situation(group, catalogue)
    with pytest.raises(InvalidRequest, match=r"group 9: draft\.character: there is no character 'hob_tarant'"):
        build_situation(nobody, catalogue)
