"""What a tournament has done, folded from journal events."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, JsonValue, TypeAdapter

from app.domain.values import Frozen, Split
from app.evaluation.tournament import Contestant, Duel


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
        known = {"task_id": self.task_id, "label": self.label, "one": self.one, "other": self.other}
        return Duel.model_validate({**known, "groups": [reply.group_id for reply in self.replies], **outcome})


class FreshSetup(Frozen):
    """How replies are asked for that are not stored yet."""

    policies: tuple[str, ...]
    """Names and models of the contestants."""
    split: Split
    params: dict[str, JsonValue]
    sampling: dict[str, JsonValue]


class TournamentJournalSetup(Frozen):
    """Options that must stay the same when a tournament is resumed under one --out."""

    contestants: tuple[str, ...]
    judge: str
    environment: str | None
    tasks: int
    seed: int
    run: str
    fresh: FreshSetup | None = None


class TournamentBegan(Frozen):
    kind: Literal["began"] = "began"
    setup: TournamentJournalSetup
    at: AwareDatetime


class DuelsPlanned(Frozen):
    """Who meets whom, with which replies: what is stored later changes nothing of it."""

    kind: Literal["planned"] = "planned"
    contestants: tuple[Contestant, ...]
    duels: tuple[PlannedDuel, ...]


class DuelJudged(Frozen):
    """The outcome of the duel at this place of the plan, or why there is none."""

    kind: Literal["judged"] = "judged"
    place: int
    duel: Duel


TournamentEvent = TournamentBegan | DuelsPlanned | DuelJudged
TOURNAMENT_EVENT: Final[TypeAdapter[TournamentEvent]] = TypeAdapter(
    Annotated[TournamentEvent, Field(discriminator="kind")]
)


@dataclass
class TournamentLedger:
    setup: TournamentJournalSetup | None = None
    began_at: datetime | None = None
    plan: DuelsPlanned | None = None
    judged: dict[int, Duel] = field(default_factory=dict)
    """By place in the plan."""

    @property
    def holds_results(self) -> bool:
        return bool(self.judged)

    def apply(self, happened: TournamentEvent) -> None:
        match happened:
            case TournamentBegan(setup=setup, at=at):
                self.setup, self.began_at = setup, at
            case DuelsPlanned():
                self.plan = happened
            case DuelJudged(place=place, duel=duel):
                self.judged[place] = duel

    def list_open(self) -> list[int]:
        """Places of duels without an outcome, those included that had none before."""
        planned = 0 if self.plan is None else len(self.plan.duels)
        return [place for place in range(planned) if place not in self.judged or not self.judged[place].readings]

    def list_duels(self) -> list[Duel]:
        planned = () if self.plan is None else self.plan.duels
        return [self.judged.get(place) or one.build_duel() for place, one in enumerate(planned)]

    def iter_compacted(self) -> Iterator[TournamentEvent]:
        if self.setup is not None and self.began_at is not None:
            yield TournamentBegan(setup=self.setup, at=self.began_at)
        if self.plan is not None:
            yield self.plan
        for place, duel in self.judged.items():
            yield DuelJudged(place=place, duel=duel)
