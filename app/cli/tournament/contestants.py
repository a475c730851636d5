"""A tournament as data: its plan, who takes part, who meets whom, what that costs, and which judge may read it.

A contestant is the folder of an evaluation, or a run or some of its steps, with the replies that the gateway stored for
it. The plan of duels is drawn from the seed and written before the first duel: what is stored later changes nothing of
it. The judge should be a stranger: a judge that scored or wrote the replies would only find again what the models
had learnt from it."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Final

from pydantic import AwareDatetime

from app.cli.costs import JudgingCost, estimate_rescoring
from app.cli.evaluate.attempts import REPORT, read_evaluation
from app.cli.runs import RunSelector
from app.domain.errors import InvalidRequest, NotFound
from app.domain.judging import OwnRubric
from app.domain.values import Frozen, digest, is_same_model, suggest, take_evenly
from app.evaluation.duels import Contestant, Duel
from app.http.api.models import JudgeInfo
from app.service.rescoring import RescoreRequest
from app.terminal.client import GatewayClient, Retrier

# The plan, and what its run holds of it.


class StoredReply(Frozen):
    """A completion by its place in a stored group."""

    group_id: str
    place: int


class PlannedDuel(Frozen):
    """`one` and `other` are places among the contestants."""

    environment: str
    task_id: str
    label: str | None
    one: int
    other: int
    replies: tuple[StoredReply, StoredReply]

    def build_duel(self, **outcome: object) -> Duel:
        planned = {"task_id": self.task_id, "label": self.label, "one": self.one, "other": self.other}
        return Duel.model_validate({**planned, "groups": [reply.group_id for reply in self.replies], **outcome})


class TournamentOptions(Frozen):
    """Options that must stay the same when a tournament is resumed under one --out."""

    contestants: tuple[str, ...]
    judge: str
    environment: str | None
    tasks: int
    seed: int
    run: str


class TournamentPlan(Frozen):
    """Who meets whom, with which replies: what is stored later changes nothing of it."""

    options: TournamentOptions
    contestants: tuple[Contestant, ...]
    duels: tuple[PlannedDuel, ...]
    began_at: AwareDatetime

    @property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json", exclude={"began_at"}))


@dataclass
class TournamentLedger:
    plan: TournamentPlan
    judged: dict[int, Duel] = field(default_factory=dict)
    """By place in the plan."""

    @property
    def holds_results(self) -> bool:
        return any(duel.group_id is not None for duel in self.judged.values())

    def list_open(self) -> list[int]:
        """Places of duels without an outcome, those included that had none before."""
        places = range(len(self.plan.duels))
        return [place for place in places if place not in self.judged or not self.judged[place].readings]

    def list_duels(self) -> list[Duel]:
        return [self.judged.get(place) or one.build_duel() for place, one in enumerate(self.plan.duels)]


# Contestants with stored replies, and their duels.

_PAGE: Final = 500
"""Groups of one request."""
_MOST_GROUPS: Final = 10_000
"""Newest groups of a run among which its replies are looked for."""
_SAMPLES: Final = (3, 12, 48)
"""Groups of an environment of a run that are read to find its judges: more while none of them names any."""


@dataclass(frozen=True)
class _TaskReplies:
    """A contestant's stored groups for one task, with how many completions each has."""

    environment: str
    label: str | None
    groups: Mapping[str, int]


@dataclass(frozen=True)
class Entrant:
    """A contestant with its replies by task."""

    contestant: Contestant
    run: str
    replies: Mapping[str, _TaskReplies]


async def load_entrants(gateway: GatewayClient, sources: Sequence[str], environment: str | None) -> tuple[Entrant, ...]:
    """In the order given, under names that differ. InvalidRequest or UserError for a source without replies."""
    if len(set(sources)) < len(sources):
        raise InvalidRequest("each contestant takes part once")
    entrants = [
        _read_folder(Path(source), environment)
        if (Path(source) / f"{REPORT}.json").is_file()
        else await _fetch_run(gateway, RunSelector.parse(source), source, environment)
        for source in sources
    ]
    for entrant in entrants:
        if not entrant.replies:
            where = "" if environment is None else f" in {environment}"
            raise InvalidRequest(f"{entrant.contestant.source} has no stored reply{where}")
    shown = [entrant.contestant.name for entrant in entrants]
    return tuple(
        replace(entrant, contestant=_name_with_source(entrant.contestant))
        if shown.count(entrant.contestant.name) > 1
        else entrant
        for entrant in entrants
    )


def _name_with_source(contestant: Contestant) -> Contestant:
    return contestant.model_copy(update={"name": f"{contestant.name} ({contestant.source})"})


def _read_folder(folder: Path, environment: str | None) -> Entrant:
    evaluation = read_evaluation(folder)
    setup = evaluation.setup
    replies: dict[str, _TaskReplies] = {}
    for attempt in evaluation.attempts if environment in (None, setup.environment) else ():
        if attempt.group_id is not None:
            stored = replies.get(attempt.task_id) or _TaskReplies(setup.environment, attempt.label, {})
            sizes = {**stored.groups, attempt.group_id: stored.groups.get(attempt.group_id, 0) + 1}
            replies[attempt.task_id] = _TaskReplies(stored.environment, stored.label, sizes)
    contestant = Contestant(
        name=setup.checkpoint,
        source=str(folder),
        models=(setup.model,),
        judges=tuple(sorted({judge for attempt in evaluation.attempts for judge in attempt.judges})),
        tasks=len(replies),
    )
    return Entrant(contestant, setup.run, replies)


async def _fetch_run(gateway: GatewayClient, chosen: RunSelector, source: str, environment: str | None) -> Entrant:
    await gateway.require_run(chosen.run)
    query = {"run": chosen.run, "limit": str(_PAGE)} | ({} if environment is None else {"env": environment})
    if chosen.steps is not None:
        query |= {"min_step": str(chosen.steps.first), "max_step": str(chosen.steps.last)}
    replies: dict[str, _TaskReplies] = {}
    models: set[str] = set()
    scored: dict[str, list[str]] = {}
    looked_at, before = 0, None
    while looked_at < _MOST_GROUPS:
        page = await gateway.list_groups(query if before is None else {**query, "before": str(before)})
        for group in page.groups:
            if group.outcome == "pending":
                continue
            stored = replies.get(group.task_id) or _TaskReplies(group.environment, group.label, {})
            replies[group.task_id] = _TaskReplies(
                stored.environment, stored.label, {**stored.groups, group.group_id: group.size}
            )
            models |= set() if group.policy is None else {group.policy.model}
            if group.outcome == "scored":
                scored.setdefault(group.environment, []).append(group.group_id)
        looked_at, before = looked_at + max(page.looked_at, len(page.groups)), page.next_before
        if before is None:
            break
    contestant = Contestant(
        name=chosen.name,
        source=source,
        models=tuple(sorted(models)),
        judges=await _find_judges(gateway, scored),
        tasks=len(replies),
    )
    return Entrant(contestant, chosen.run, replies)


async def _find_judges(gateway: GatewayClient, scored: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """By whom a run's groups were scored, which are given by environment: it keeps its judges. None that is known where
    every reply that was read had failed a gate."""
    listed = (await gateway.list_environments()).environments
    verified = {environment.name for environment in listed if environment.mode is None}
    judges = [await _sample_judges(gateway, ids) for name, ids in scored.items() if name not in verified]
    return tuple(sorted(set().union(*judges)))


async def _sample_judges(gateway: GatewayClient, group_ids: Sequence[str]) -> set[str]:
    judges: set[str] = set()
    fetched: set[str] = set()
    for count in _SAMPLES:
        for group_id in take_evenly(group_ids, count):
            if group_id not in fetched:
                fetched.add(group_id)
                group = (await gateway.fetch_group(group_id)).group
                judges |= {judge for score in group.scores for judge in score.judges}
        if judges:
            break
    return judges


async def require_judged(gateway: GatewayClient, name: str) -> None:
    """InvalidRequest for an environment whose replies no judge scores."""
    if (await gateway.fetch_environment(name)).mode is None:
        raise InvalidRequest(f"{name} is scored by a verifier: use `atropos-envs compare` or `runs compare`")


async def find_shared_rubric(gateway: GatewayClient, entrants: Sequence[Entrant]) -> OwnRubric | None:
    """The rubric that the runs were given, if they were. InvalidRequest where they differ."""
    runs = [await gateway.fetch_run(name) for name in dict.fromkeys(entrant.run for entrant in entrants)]
    rubrics = [None if run is None else run.options.rubric for run in runs]
    if any(rubric != rubrics[0] for rubric in rubrics):
        raise InvalidRequest("the contestants' runs are scored by different rubrics: they do not compare")
    return rubrics[0]


def plan_duels(entrants: Sequence[Entrant], options: TournamentOptions) -> TournamentPlan:
    """Everybody meets everybody on each task of both, with one reply each, drawn by the seed. Of more tasks than wanted
    those that most share come first. InvalidRequest without a shared task."""
    shared = {
        task: [place for place, entrant in enumerate(entrants) if task in entrant.replies]
        for task in dict.fromkeys(task for entrant in entrants for task in entrant.replies)
    }
    playable = [task for task, places in shared.items() if len(places) > 1]
    if not playable:
        names = ", ".join(entrant.contestant.name for entrant in entrants)
        raise InvalidRequest(f"{names} have no task in common: evaluate them on one split first")
    seed = options.seed
    chosen = sorted(playable, key=lambda task: (-len(shared[task]), _draw(seed, task)))[: options.tasks]
    duels = []
    for task in chosen:
        drawn = {place: _draw_reply(entrants[place], task, seed) for place in shared[task]}
        first = entrants[shared[task][0]].replies[task]
        duels += [
            PlannedDuel(
                environment=first.environment,
                task_id=task,
                label=first.label,
                one=one,
                other=other,
                replies=(drawn[one], drawn[other]),
            )
            for one, other in combinations(shared[task], 2)
        ]
    return TournamentPlan(
        options=options,
        contestants=tuple(entrant.contestant for entrant in entrants),
        duels=tuple(duels),
        began_at=datetime.now(UTC),
    )


def _draw_reply(entrant: Entrant, task: str, seed: int) -> StoredReply:
    """The same in every start; nobody picks the best."""
    groups = entrant.replies[task].groups
    places = [(group_id, place) for group_id in sorted(groups) for place in range(groups[group_id])]
    group_id, place = min(places, key=lambda one: _draw(seed, f"{task} {one[0]} {one[1]}"))
    return StoredReply(group_id=group_id, place=place)


def _draw(seed: int, what: str) -> str:
    return hashlib.sha256(f"{seed} {what}".encode("utf-8", "backslashreplace")).hexdigest()


# Cost.

_ESTIMATED: Final = 12
"""Groups whose re-scoring by the judge is estimated, spread over the duels."""
_ORDERS: Final = 2
"""Times that the judge reads a pair: judges prefer a position, so each reply is shown first once."""


async def estimate_duels(
    gateway: GatewayClient, patience: Retrier, duels: Sequence[PlannedDuel], judge: JudgeInfo
) -> JudgingCost:
    """By what it would take this judge to read some of the stored groups in pairs."""
    calls = _ORDERS * len(duels)
    unknown = JudgingCost(judge="", calls=(calls, calls), input_tokens=None, output_tokens=None, usd=None)
    if not judge.for_training:
        return unknown.model_copy(update={"usd": (0.0, 0.0)})
    ids = sorted({duel.replies[0].group_id for duel in take_evenly(duels, _ESTIMATED)})
    asked = RescoreRequest(judges=(judge.name,), mode="pairwise", votes=1)
    some = (await estimate_rescoring(gateway, patience, ids, asked, _ESTIMATED)).cost
    return some.scale(calls / some.calls[0]) if some.calls[0] else unknown


def describe_spending(duels: Collection[Duel]) -> str:
    prices = [duel.usd for duel in duels if duel.calls]
    price = "price unknown" if None in prices else f"${sum(price for price in prices if price is not None):.4f}"
    return f"{sum(duel.calls for duel in duels):,} calls, {price}"


# Whether the judge is a stranger: of another model than those that scored or wrote the replies.


def find_judge(judges: Mapping[str, JudgeInfo], name: str) -> JudgeInfo:
    if name not in judges:
        near = suggest(name, judges) or f"; there are: {', '.join(sorted(judges))}"
        raise NotFound(f"the gateway has no judge {name!r}{near}")
    return judges[name]


def _find_kin(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> list[str]:
    """In which ways the judge is no stranger to the contestants. `models` are those of judges by name."""
    ways = []
    before = sorted({name for contestant in contestants for name in contestant.judges})
    same = [name for name in before if name == judge.name or is_same_model(models.get(name, name), judge.model)]
    if same:
        ways.append(f"which scored these runs as {', '.join(same)}")
    played = sorted({model for contestant in contestants for model in contestant.models})
    own = [model for model in played if is_same_model(model, judge.model)]
    if own:
        ways.append(f"which wrote the replies of {', '.join(own)}")
    return ways


def require_stranger(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> None:
    if ways := _find_kin(judge, contestants, models):
        raise InvalidRequest(
            f"judge {judge.name} is of the model {judge.model}, {' and '.join(ways)}: name another with --judge, "
            "or allow it with --same-model"
        )


def find_notice(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> str:
    """The first line of the report."""
    sentences = []
    if not judge.for_training:
        sentences.append(
            f"Judge {judge.name} has no model and is only for trying the system: this says nothing of quality."
        )
    if ways := _find_kin(judge, contestants, models):
        sentences.append(
            f"Judge {judge.name} is of the model {judge.model}, {' and '.join(ways)}: a model may only have learnt "
            "what this judge likes."
        )
    if unknown := [contestant.name for contestant in contestants if not contestant.judges]:
        sentences.append(
            f"Who scored {', '.join(unknown)} is not known, as no reply that was read names a judge: "
            f"{judge.name} may be no stranger."
        )
    return " ".join(sentences)
