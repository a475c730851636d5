"""Random groups that a panel has judged, in every mode, by judges that differ, find defects, fail, or give rewards."""

import asyncio
import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.groups import Group, GroupDetail, Rollout, TaskPrompt, TaskRecord
from app.domain.judging import (
    REWARD_CRITERION,
    Candidate,
    Case,
    Defect,
    Judgement,
    JudgeRequest,
    Mode,
    Rubric,
    Verdict,
    combine_outcomes,
)
from app.domain.tasks import Completion, Message, TaskKey
from app.domain.values import digest
from app.judges.aggregation import rank_candidates
from app.judges.panel import JudgePanel
from app.ports.judges import Judge
from tests.support.tables import read_table

MODES: tuple[Mode, ...] = ("listwise", "pairwise", "pointwise")
RUBRIC = read_table(__file__, "tavern_rubric.yaml", Rubric)
_WORDS = tuple("ale bar coin door evening ferry guest harbour inn jug key lamp mug night oar".split())  # noqa: SIM905


@dataclass
class MoodyJudge:
    """Marks by the text and its own noise, prefers early places a little, and says which defects it sees."""

    name: str
    seed: int
    noise: float
    failing: float = 0.0
    gives_rewards: bool = False
    model: str = "moody-1"
    digest: str = "moody"
    asked: int = 0

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.asked += 1
        luck = random.Random(f"{self.seed} {self.asked}")
        order = tuple(candidate.id for candidate in request.candidates)
        if luck.random() < self.failing:
            return Judgement(judge=self.name, model=self.model, order=order, error="out of order", calls=1)
        verdicts = tuple(self._read(one, place, request, luck) for place, one in enumerate(request.candidates))
        liking = {
            one.candidate: one.reward or math.fsum(value or 0.0 for value in one.scores.values()) for one in verdicts
        }
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=verdicts,
            ranking=rank_candidates({name: round(value, 2) for name, value in liking.items()}),
            prompt=f"Judge {len(order)} replies.",
            raw="{}",
            input_tokens=900,
            output_tokens=80,
            cost_usd=0.0031,
            latency_seconds=1.25,
            calls=1,
            cached=luck.random() < 0.3,
        )

    def _read(self, one: Candidate, place: int, request: JudgeRequest, luck: random.Random) -> Verdict:
        quality = int(digest(one.text)[:6], 16) / 0xFFFFFF
        marks = {criterion.name: self._mark(quality - 0.03 * place, luck) for criterion in request.rubric.criteria}
        if self.gives_rewards:
            value = 6 * quality - 3 + luck.gauss(0, 0.2)
            chance = 1 / (1 + math.exp(-value))
            return Verdict(
                candidate=one.id, scores={REWARD_CRITERION: chance}, reward=value, note=f"reward {value:.4g}"
            )
        if digest(request.document)[0] in "0123":
            marks["humour"] = None
        quote = " ".join(one.text.split()[:3])
        seen = [rule.code for rule in request.rubric.defects if luck.random() < 0.35 - 0.3 * quality]
        return Verdict(
            candidate=one.id,
            scores=marks,
            defects=tuple(Defect(code=code, quote=quote) for code in seen),
            note="well said" if quality > 0.5 else "plain",
        )

    def _mark(self, quality: float, luck: random.Random) -> float | None:
        return min(4, max(0, round(4 * (quality + luck.gauss(0, self.noise))))) / 4


def make_judged_group(seed: int) -> GroupDetail:
    """Its judges, mode, size and everything else follow from the seed."""
    luck = random.Random(seed)
    kind = ("graders", "graders", "graders", "rewards", "both")[seed % 5]
    judges: list[Judge] = []
    if kind != "rewards":
        judges += [
            MoodyJudge(f"judge-{number}", seed * 10 + number, luck.choice((0.05, 0.15, 0.4)), luck.choice((0, 0, 0.1)))
            for number in range(luck.choice((1, 1, 2, 3)))
        ]
    if kind != "graders":
        judges.append(MoodyJudge("reward", seed * 10 + 9, 0.1, gives_rewards=True, model="rm-1"))
    panel = JudgePanel(
        judges,
        luck.choice((0.0, 0.25, 0.5, 0.8)),
        MODES[seed % 3],
        luck.choice((1, 1, 2)),
        readings=luck.choice((None, 1, 2)),
    )
    texts = [" ".join(luck.choices(_WORDS, k=6)) for _ in range(luck.choice((1, 2, 3, 4, 5, 8)))]
    texts += luck.choices(texts, k=luck.choice((0, 0, 2)))
    case = Case(
        key=f"case {seed}",
        rubric=RUBRIC,
        document={"seed": seed},
        candidates=tuple(texts),
        conversation=(Message(role="user", content="What will it be?"),),
    )
    result = asyncio.run(panel.judge(case))
    number = 1000 + seed
    rollouts = tuple(
        Rollout(rollout_id=f"group_{number:032x}-{place}", completion=Completion(text=text), score=score)
        for place, (text, score) in enumerate(zip(texts, result.scores, strict=True))
    )
    group = Group(
        group_id=f"group_{number:032x}",
        task_id=f"task_{number:032x}",
        environment="npc_arena",
        run="tavern",
        lease_id=None,
        policy=None,
        purpose="train",
        outcome=combine_outcomes(result.scores),
        rollouts=rollouts,
        created_at=datetime(2026, 11, 20, tzinfo=UTC),
    )
    key = TaskKey(environment="npc_arena", version="1", data_digest="d", split="train", index=seed, params={})
    prompt = TaskPrompt(messages=case.conversation)
    task = TaskRecord(task_id=group.task_id, key=key, prompt=prompt)
    return GroupDetail(group=group, task=task, judgements=result.judgements, making=result.making)
