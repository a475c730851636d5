"""Limits of a judge's calls that all processes of a database share: who may make how many.

Each process reports to the store what it has in flight, what it wants and what the server answered. `exchange_limits`
decides, as a pure function that the store calls in a transaction: it returns the shared state and this process's part.
The slots of all processes never exceed the limit together, also when one dies: its slots stay counted until its last
call has certainly ended. The limit shrinks when the server answers 429, and grows by one slot for as many successes as
it has slots. A breaker that one process opens is open for all, and one of them probes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from app.domain.values import Frozen

LEASE_SECONDS: Final = 10.0
"""A process whose last exchange is older than this starts no call."""
NOTICE_SECONDS: Final = 1.0
"""How soon a server notices that the connections of a dead process are closed, and ends its calls."""
_SHRINK: Final = 0.8
"""The limit becomes this share of itself when the server answers 429."""
COOLDOWN_SECONDS: Final = 15.0
"""Responses with 429 within this time, or within the server's `retry-after`, count as one episode."""
BURST_SECONDS: Final = 15.0
"""Unused rate accumulates for at most this many seconds."""
_ROTATION_SECONDS: Final = 2.0
"""How long a process keeps its turn where there are fewer slots than processes."""
_MICROS: Final = 1_000_000


@dataclass(frozen=True)
class CallLimits:
    """What the settings allow a judge. `call_seconds` is the longest that a call may last."""

    concurrency: int
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    call_seconds: float = 60.0


@dataclass(frozen=True)
class CallFeedback:
    """What the server answered since the last exchange."""

    succeeded: int = 0
    failed: bool = False
    rate_limited: bool = False
    retry_after: float = 0.0

    def __add__(self, later: "CallFeedback") -> "CallFeedback":
        return CallFeedback(
            self.succeeded + later.succeeded,
            self.failed or later.failed,
            self.rate_limited or later.rate_limited,
            max(self.retry_after, later.retry_after),
        )


NO_FEEDBACK: Final = CallFeedback()


@dataclass(frozen=True)
class BreakerNews:
    """A process's breaker opened or closed, or its probe was given up."""

    kind: Literal["opened", "closed", "given_up"]
    seconds: float = 0.0
    failures: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class LimitsExchange:
    """What one process reports and asks for. It uses no more than `kept` slots until the answer. A negative amount of
    `requests` or `tokens` is given back."""

    judge: str
    holder: str
    limits: CallLimits
    in_flight: int = 0
    kept: int = 0
    wanted: int = 0
    requests: float = 0.0
    tokens: float = 0.0
    feedback: CallFeedback = NO_FEEDBACK
    news: BreakerNews | None = None
    wants_probe: bool = False


@dataclass(frozen=True)
class OpenBreaker:
    """`probe`: who may make the one trial call."""

    seconds: float
    failures: int
    trouble: str
    probe: Literal["nobody", "you", "another"]


@dataclass(frozen=True)
class LimitsGrant:
    """`held` slots are counted as this process's; it starts calls only up to `slots` of them. `limit` is the limit of
    all processes together."""

    slots: int
    held: int
    limit: int
    contended: bool
    """Another process wants more than it has."""
    requests: float
    tokens: float
    quiet_seconds: float
    breaker: OpenBreaker | None


class SlotHolder(Frozen):
    """One process. Times are in microseconds."""

    slots: int
    wanted: int
    expires_at: int
    free_at: int
    """When a call that began before `expires_at` has certainly ended, and the slots are free again."""


class RateLevel(Frozen):
    """Level of a token bucket at one time."""

    units: float
    at: int


class BreakerState(Frozen):
    open_until: int
    failures: int
    trouble: str
    prober: str = ""
    probe_until: int = 0


class SharedLimits(Frozen):
    """All that the processes of a database know together about one judge's limits."""

    holders: dict[str, SlotHolder] = {}
    learned: int | None = None
    """The limit after responses with 429; null while it is the configured one."""
    clean: int = 0
    episode_until: int = 0
    no_growth_until: int = 0
    quiet_until: int = 0
    breaker: BreakerState | None = None
    requests: RateLevel | None = None
    tokens: RateLevel | None = None


def exchange_limits(
    state: SharedLimits, asked: LimitsExchange, now: int, is_gone: Callable[[str], bool] = lambda _: False
) -> tuple[SharedLimits, LimitsGrant]:
    """Returns the new state and this process's part. The slots of all processes together never exceed the limit.
    `is_gone` tells of a holder whether its process has certainly ended."""
    state = _apply_feedback(_end_leases_of_the_dead(state, now, is_gone), asked, now)
    breaker = _update_breaker(state.breaker, asked, now)
    limit = _compute_limit(state, asked.limits)
    before = state.holders.get(asked.holder)
    # Slots that were held longer ago may belong to others by now, but calls in flight are a fact.
    kept = max(asked.in_flight, 0 if before is None or before.free_at <= now else min(asked.kept, before.slots))
    holders = {name: one for name, one in state.holders.items() if name != asked.holder and one.free_at > now}
    active = 1 + sum(one.wanted > 0 and one.expires_at > now for one in holders.values())
    share = _compute_share(holders, asked, limit, now)
    free = limit - sum(one.slots for one in holders.values()) - kept
    held = max(kept, min(share, kept + max(0, free)))
    if asked.wanted > 0 or held > 0:
        expires_at = now + round(LEASE_SECONDS * _MICROS)
        free_at = expires_at + round(asked.limits.call_seconds * _MICROS)
        mine = SlotHolder(slots=held, wanted=asked.wanted, expires_at=expires_at, free_at=free_at)
        holders[asked.holder] = mine
    requests, of_requests = _draw(state.requests, asked.limits.requests_per_minute, asked.requests, active, now)
    tokens, of_tokens = _draw(state.tokens, asked.limits.tokens_per_minute, asked.tokens, active, now)
    changed = {"holders": holders, "breaker": breaker, "requests": requests, "tokens": tokens}
    others = (one for name, one in holders.items() if name != asked.holder and one.expires_at > now)
    return state.model_copy(update=changed), LimitsGrant(
        slots=min(held, share),
        held=held,
        limit=limit,
        contended=any(one.wanted > one.slots for one in others),
        requests=of_requests,
        tokens=of_tokens,
        quiet_seconds=max(0.0, (state.quiet_until - now) / _MICROS),
        breaker=_describe_breaker(breaker, asked.holder, now),
    )


def compute_shares(wanted: Mapping[str, int], capacity: int, turn: int) -> dict[str, int]:
    """Splits the slots evenly, but gives nobody more than it wants. Where there are fewer slots than processes, `turn`
    says whose they are; what nobody wants is spread, with one part left free for the next process."""
    names = sorted(name for name, count in wanted.items() if count > 0)
    shares, left = dict.fromkeys(wanted, 0), capacity
    if capacity < len(names):
        start = turn * max(1, capacity) % len(names)
        names = names[start:] + names[:start]
    short = names
    while left > 0 and short:
        each = max(1, left // len(short))
        for name in short:
            more = min(each, wanted[name] - shares[name], left)
            shares[name] += more
            left -= more
        short = [name for name in short if shares[name] < wanted[name]]
    spare = left // (len(names) + 1)
    return {name: count + (spare if wanted[name] > 0 else 0) for name, count in shares.items()}


def compute_burst(per_minute: float) -> float:
    """Size of the token bucket of a rate."""
    return max(1.0, per_minute / 60 * BURST_SECONDS)


def _compute_limit(state: SharedLimits, limits: CallLimits) -> int:
    return limits.concurrency if state.learned is None else min(state.learned, limits.concurrency)


def _compute_share(holders: Mapping[str, SlotHolder], asked: LimitsExchange, limit: int, now: int) -> int:
    # Calls of a process that is not heard of may still run.
    lost = sum(one.slots for one in holders.values() if one.expires_at <= now)
    wanted = {name: one.wanted for name, one in holders.items() if one.expires_at > now}
    turn = now // round(_ROTATION_SECONDS * _MICROS)
    return compute_shares(wanted | {asked.holder: asked.wanted}, max(0, limit - lost), turn)[asked.holder]


def _end_leases_of_the_dead(state: SharedLimits, now: int, is_gone: Callable[[str], bool]) -> SharedLimits:
    noticed = now + round(NOTICE_SECONDS * _MICROS)
    ended = {
        name: one.model_copy(update={"expires_at": min(one.expires_at, now), "free_at": noticed})
        for name, one in state.holders.items()
        if one.free_at > noticed and is_gone(name)
    }
    breaker = state.breaker
    if breaker is not None and breaker.probe_until > now and is_gone(breaker.prober):
        breaker = breaker.model_copy(update={"prober": "", "probe_until": 0})
    return state.model_copy(update={"holders": state.holders | ended, "breaker": breaker})


def _apply_feedback(state: SharedLimits, asked: LimitsExchange, now: int) -> SharedLimits:
    feedback, limit = asked.feedback, _compute_limit(state, asked.limits)
    if feedback.rate_limited:
        until = max(state.episode_until, now + round(max(COOLDOWN_SECONDS, feedback.retry_after) * _MICROS))
        return state.model_copy(
            update={
                # Once an episode: a burst of 429 is one message.
                "learned": max(1, int(limit * _SHRINK)) if now >= state.episode_until else limit,
                "clean": 0,
                "episode_until": until,
                "no_growth_until": max(state.no_growth_until, until),
                "quiet_until": max(state.quiet_until, now + round(feedback.retry_after * _MICROS)),
            }
        )
    if feedback.failed:
        until = max(state.no_growth_until, now + round(COOLDOWN_SECONDS * _MICROS))
        return state.model_copy(update={"clean": 0, "no_growth_until": until})
    if state.learned is None or now < state.no_growth_until:
        return state
    clean = state.clean + feedback.succeeded
    while clean >= limit and limit < asked.limits.concurrency:
        clean -= limit
        limit += 1
    is_whole = limit >= asked.limits.concurrency
    return state.model_copy(update={"learned": None if is_whole else limit, "clean": 0 if is_whole else clean})


def _update_breaker(breaker: BreakerState | None, asked: LimitsExchange, now: int) -> BreakerState | None:
    news = asked.news
    if news is not None and news.kind == "closed":
        return None
    if news is not None and news.kind == "opened":
        open_until = now + round(news.seconds * _MICROS)
        return BreakerState(open_until=open_until, failures=news.failures, trouble=news.trouble)
    if breaker is None:
        return None
    if news is not None and breaker.prober == asked.holder:
        breaker = breaker.model_copy(update={"prober": "", "probe_until": 0})
    available = breaker.probe_until <= now or breaker.prober == asked.holder
    if asked.wants_probe and breaker.open_until <= now and available:
        until = now + round(asked.limits.call_seconds * _MICROS)
        return breaker.model_copy(update={"prober": asked.holder, "probe_until": until})
    return breaker


def _describe_breaker(breaker: BreakerState | None, holder: str, now: int) -> OpenBreaker | None:
    if breaker is None:
        return None
    probe: Literal["nobody", "you", "another"] = "nobody"
    if breaker.probe_until > now:
        probe = "you" if breaker.prober == holder else "another"
    return OpenBreaker(max(0.0, (breaker.open_until - now) / _MICROS), breaker.failures, breaker.trouble, probe)


def _draw(
    level: RateLevel | None, per_minute: float | None, asked: float, active: int, now: int
) -> tuple[RateLevel | None, float]:
    """Takes units from the bucket. Several processes take parts of what is there, so that none empties it alone."""
    if per_minute is None:
        return None, 0.0
    burst = compute_burst(per_minute)
    level = RateLevel(units=burst, at=now) if level is None else level
    units = min(burst, level.units + max(0, now - level.at) / _MICROS * per_minute / 60)
    taken = min(asked, max(0.0, units) / active)
    return RateLevel(units=min(burst, units - taken), at=max(now, level.at)), taken
