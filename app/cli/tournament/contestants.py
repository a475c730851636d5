"""Who takes part in a tournament: folders of evaluations, or runs with their steps, and the replies that each has."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final

from app.cli.evaluate.files import REPORT, read_evaluation
from app.cli.gateway_client import GatewayClient
from app.cli.run_selector import RunSelector
from app.cli.tournament.duel_ledger import DuelsPlanned, PlannedDuel, StoredReply
from app.domain.errors import InvalidRequest
from app.domain.rubrics import OwnRubric
from app.evaluation.tournament import Contestant

PAGE: Final = 500
MOST_GROUPS: Final = 10_000
"""Newest groups of a run among which its replies are looked for."""
SAMPLES: Final = (3, 12, 48)
"""Groups of an environment of a run that are read to find its judges: more while none of them names any."""


@dataclass(frozen=True)
class TaskReplies:
    """A contestant's stored groups for one task, with how many completions each has."""

    environment: str
    label: str | None
    groups: Mapping[str, int]


@dataclass(frozen=True)
class Entrant:
    """A contestant with its replies by task."""

    contestant: Contestant
    run: str
    replies: Mapping[str, TaskReplies]


async def load_entrants(
    gateway: GatewayClient, sources: Sequence[str], environment: str | None, names: Mapping[str, str] | None = None
) -> tuple[Entrant, ...]:
    """In the order given, under names that differ. `names` are those of sources that were given one. InvalidRequest or
    ValueError for a source without replies."""
    if len(set(sources)) < len(sources):
        raise InvalidRequest("each contestant takes part once")
    found = [
        _read_folder(Path(source), environment)
        if (Path(source) / f"{REPORT}.json").is_file()
        else await _fetch_run(gateway, RunSelector.parse(source), source, environment)
        for source in sources
    ]
    for entrant in found:
        if not entrant.replies:
            where = "" if environment is None else f" in {environment}"
            raise InvalidRequest(f"{entrant.contestant.source} has no stored reply{where}")
    given = names or {}
    found = [_rename(entrant, given.get(entrant.contestant.source, entrant.contestant.name)) for entrant in found]
    told = [entrant.contestant.name for entrant in found]
    return tuple(
        _rename(entrant, f"{entrant.contestant.name} ({entrant.contestant.source})")
        if told.count(entrant.contestant.name) > 1
        else entrant
        for entrant in found
    )


def _rename(entrant: Entrant, name: str) -> Entrant:
    return Entrant(entrant.contestant.model_copy(update={"name": name}), entrant.run, entrant.replies)


def _read_folder(folder: Path, environment: str | None) -> Entrant:
    evaluation = read_evaluation(folder)
    setup = evaluation.setup
    replies: dict[str, TaskReplies] = {}
    for attempt in evaluation.attempts if environment in (None, setup.environment) else ():
        if attempt.group_id is not None:
            known = replies.get(attempt.task_id) or TaskReplies(setup.environment, attempt.label, {})
            sizes = {**known.groups, attempt.group_id: known.groups.get(attempt.group_id, 0) + 1}
            replies[attempt.task_id] = TaskReplies(known.environment, known.label, sizes)
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
    query = {"run": chosen.run, "limit": str(PAGE)} | ({} if environment is None else {"env": environment})
    if chosen.steps is not None:
        query |= {"min_step": str(chosen.steps.first), "max_step": str(chosen.steps.last)}
    replies: dict[str, TaskReplies] = {}
    models: set[str] = set()
    scored: dict[str, list[str]] = {}
    looked_at, before = 0, None
    while looked_at < MOST_GROUPS:
        page = await gateway.list_groups(query if before is None else {**query, "before": str(before)})
        for group in page.groups:
            if group.outcome == "pending":
                continue
            known = replies.get(group.task_id) or TaskReplies(group.environment, group.label, {})
            replies[group.task_id] = TaskReplies(
                known.environment, known.label, {**known.groups, group.group_id: group.size}
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
    found = [await _sample_judges(gateway, ids) for name, ids in scored.items() if name not in verified]
    return tuple(sorted(set().union(*found)))


async def _sample_judges(gateway: GatewayClient, group_ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    read: set[str] = set()
    for count in SAMPLES:
        for group_id in _spread(group_ids, count):
            if group_id not in read:
                read.add(group_id)
                group = (await gateway.fetch_group(group_id)).group
                found |= {judge for score in group.scores for judge in score.judges}
        if found:
            break
    return found


def _spread(items: Sequence[str], count: int) -> list[str]:
    return [items[place * len(items) // count] for place in range(min(count, len(items)))]


async def find_shared_rubric(gateway: GatewayClient, entrants: Sequence[Entrant]) -> OwnRubric | None:
    """The rubric that the runs were given, if they were. InvalidRequest where they differ."""
    runs = [await gateway.fetch_run(name) for name in dict.fromkeys(entrant.run for entrant in entrants)]
    rubrics = [None if run is None else run.options.rubric for run in runs]
    if any(rubric != rubrics[0] for rubric in rubrics):
        raise InvalidRequest("the contestants' runs are scored by different rubrics: they do not compare")
    return rubrics[0]


def plan_duels(entrants: Sequence[Entrant], tasks: int, seed: int) -> DuelsPlanned:
    """Everybody meets everybody on each task of both, with one reply each, drawn by the seed. Of more tasks than wanted
    those that most share come first. InvalidRequest without a shared task."""
    shared = {
        task: [place for place, entrant in enumerate(entrants) if task in entrant.replies]
        for task in dict.fromkeys(task for entrant in entrants for task in entrant.replies)
    }
    wanted = [task for task, places in shared.items() if len(places) > 1]
    if not wanted:
        names = ", ".join(entrant.contestant.name for entrant in entrants)
        raise InvalidRequest(f"{names} have no task in common: evaluate them on one split first")
    chosen = sorted(wanted, key=lambda task: (-len(shared[task]), _draw(seed, task)))[:tasks]
    duels = []
    for task in chosen:
        drawn = {place: _draw_reply(entrants[place], task, seed) for place in shared[task]}
        about = entrants[shared[task][0]].replies[task]
        duels += [
            PlannedDuel(
                environment=about.environment,
                task_id=task,
                label=about.label,
                one=one,
                other=other,
                replies=(drawn[one], drawn[other]),
            )
            for one, other in combinations(shared[task], 2)
        ]
    return DuelsPlanned(contestants=tuple(entrant.contestant for entrant in entrants), duels=tuple(duels))


def _draw_reply(entrant: Entrant, task: str, seed: int) -> StoredReply:
    """The same in every start; nobody picks the best."""
    groups = entrant.replies[task].groups
    places = [(group_id, place) for group_id in sorted(groups) for place in range(groups[group_id])]
    group_id, place = min(places, key=lambda one: _draw(seed, f"{task} {one[0]} {one[1]}"))
    return StoredReply(group_id=group_id, place=place)


def _draw(seed: int, what: str) -> str:
    return hashlib.sha256(f"{seed} {what}".encode("utf-8", "backslashreplace")).hexdigest()
