"""Quotas of keys: what a key may use in a day, and how many tasks it may hold."""

from collections.abc import Sequence
from datetime import datetime
from operator import not_
from typing import Annotated, Final, Literal, Self

from pydantic import Field

from app.domain.budgets import NO_AMOUNT, Amount
from app.domain.values import FiniteNumber, Frozen

QuotaName = Literal["requests_per_day", "judge_tokens_per_day", "judge_usd_per_day", "leases"]
WARNING_SHARE: Final = 0.8
"""From this share of a quota on, hand-outs come with a warning."""

Count = Annotated[int, Field(ge=1, le=10**15)]


class KeyQuotas(Frozen):
    """Null: no limit. Days begin at midnight UTC. Quotas stop the handing out of tasks, and never the scoring of what
    was handed out."""

    requests_per_day: Count | None = None
    """Requests for tasks and for scores."""
    judge_tokens_per_day: Count | None = None
    """Prompts plus answers of judges."""
    judge_usd_per_day: Annotated[FiniteNumber, Field(gt=0, le=1e9)] | None = None
    leases: Count | None = None
    """Tasks that are leased at the same time."""

    @property
    def is_open(self) -> bool:
        return self == NO_QUOTAS

    @property
    def limits_judging(self) -> bool:
        return self.judge_tokens_per_day is not None or self.judge_usd_per_day is not None


NO_QUOTAS: Final = KeyQuotas()


class QuotaUse(Frozen):
    """How much of one quota is used."""

    quota: QuotaName
    limit: FiniteNumber
    used: FiniteNumber
    held: FiniteNumber
    """Put aside for judging what is handed out."""
    until: datetime
    """When some of it is free again at the latest: the end of the day, or of the first lease to end."""
    wanted: Annotated[FiniteNumber, Field(exclude_if=not_)] = 0.0
    """What a request would add; left out where there is none."""

    @property
    def is_spent(self) -> bool:
        return self.used + self.held >= self.limit

    @property
    def needs_warning(self) -> bool:
        return self.used + self.held >= WARNING_SHARE * self.limit

    @property
    def frees_itself(self) -> bool:
        """Whether the scoring of tasks that are handed out may make room for what is wanted."""
        return self.quota == "leases" or (self.held > 0 and self.used + self.wanted <= self.limit)

    def describe(self) -> str:
        held = f", {_show(self.held)} reserved for tasks that are handed out" if self.held else ""
        wanted = f", {_show(self.wanted)} asked for" if self.wanted else ""
        until = f"{self.until:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.quota} is {_show(self.limit)}: {_show(self.used)} used{held}{wanted}, until {until}"


class KeyUsage(Frozen):
    """What a key has used on this day, and what it holds now."""

    requests: int = 0
    """For tasks and for scores; counted where they are limited."""
    judge_tokens: int = 0
    judge_usd: FiniteNumber = 0.0
    held_tokens: int = 0
    held_usd: FiniteNumber = 0.0
    leases: int = 0
    day_ends_at: datetime
    next_lease_ends_at: datetime | None = None

    def list_uses(self, quotas: KeyQuotas) -> tuple[QuotaUse, ...]:
        """Of the quotas that are limited."""
        lease_ends = self.next_lease_ends_at or self.day_ends_at
        known: dict[QuotaName, tuple[float, float, datetime]] = {
            "requests_per_day": (self.requests, 0, self.day_ends_at),
            "judge_tokens_per_day": (self.judge_tokens, self.held_tokens, self.day_ends_at),
            "judge_usd_per_day": (self.judge_usd, self.held_usd, self.day_ends_at),
            "leases": (self.leases, 0, lease_ends),
        }
        return tuple(
            QuotaUse(quota=name, limit=limit, used=used, held=held, until=until)
            for name, (used, held, until) in known.items()
            if (limit := getattr(quotas, name)) is not None
        )

    def find_exceeded(self, quotas: KeyQuotas, wanted: "Demand") -> QuotaUse | None:
        """The first quota that does not allow what is wanted."""
        more: dict[QuotaName, float] = {
            "requests_per_day": wanted.requests,
            "judge_tokens_per_day": wanted.judging.tokens,
            "judge_usd_per_day": wanted.judging.usd,
            "leases": wanted.leases,
        }
        for use in self.list_uses(quotas):
            needed = more[use.quota]
            asks = needed > 0 or (use.quota.startswith("judge") and wanted.is_judged)
            if asks and (use.is_spent or use.used + use.held + needed > use.limit + _ROUNDING):
                return use.model_copy(update={"wanted": needed})
        return None


class Demand(Frozen):
    """What a request would add."""

    requests: int = 1
    leases: int = 0
    is_judged: bool = False
    judging: Amount = NO_AMOUNT

    @classmethod
    def combine(cls, members: Sequence[Self]) -> Self:
        """Of one request for several environments."""
        total = sum((one.judging for one in members), NO_AMOUNT)
        judged = any(one.is_judged for one in members)
        return cls(leases=sum(one.leases for one in members), is_judged=judged, judging=total)


_ROUNDING: Final = 1e-9


def _show(number: float) -> str:
    return f"{number:.4g}" if number != int(number) else f"{int(number)}"
