"""Contestants that are policy servers: they are asked for replies first, by an evaluation of each on the same tasks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.cli.evaluate.session import EvaluationSession, EvaluationSurvey
from app.cli.gateway_client import GatewayClient
from app.cli.process.plan import check_run_name
from app.cli.tournament.contestants import Entrant
from app.cli.tournament.tournament_cost import TournamentCost
from app.domain.errors import GatewayError, InvalidRequest, Unavailable
from app.evaluation.tournament import Contestant
from app.http.api.models import EnvironmentInfo

POLICY_FAILED = "policy_failed"
"""The reason of attempts to which the policy's server gave no answer."""


@dataclass(frozen=True)
class PolicySource:
    """A policy server under a contestant's name, which is also the name of its run."""

    name: str
    url: str
    model: str

    @classmethod
    def parse(cls, text: str) -> "PolicySource":
        """`NAME=URL` or `NAME=URL,MODEL`; the model has the contestant's name unless it is given."""
        name, _, rest = text.partition("=")
        url, _, model = rest.partition(",")
        if not name or not url:
            raise ValueError(f"--policy {text}: use NAME=URL or NAME=URL,MODEL")
        return cls(check_run_name(name, f"--policy {name}"), url, model or name)

    def build_contestant(self, asking: EvaluationSession) -> "FreshContestant":
        """`asking` says how; its folder gets one for the contestant."""
        wanted = replace(asking.wanted, run=self.name, model=self.model)
        ends = replace(asking.ends, policy=self.url, out=asking.ends.out / self.name)
        return FreshContestant(self.name, replace(asking, wanted=wanted, ends=ends))

    def __str__(self) -> str:
        return f"{self.name},{self.model}"


def parse_policies(given: Sequence[str], environment: str | None) -> tuple[PolicySource, ...]:
    policies = tuple(map(PolicySource.parse, given))
    if policies and environment is None:
        raise ValueError("--policy needs --env: the environment whose tasks are asked")
    names = [policy.name for policy in policies]
    if len(set(names)) < len(names):
        raise ValueError("--policy: each contestant needs a name of its own")
    return policies


@dataclass(frozen=True)
class FreshContestant:
    """The session's folder is the contestant's source."""

    name: str
    session: EvaluationSession

    @property
    def source(self) -> str:
        return str(self.session.ends.out)

    def describe(self, judges: Sequence[str]) -> Contestant:
        return Contestant(
            name=self.name, source=self.source, models=(self.session.wanted.model,), judges=tuple(sorted(judges))
        )

    async def survey(self) -> EvaluationSurvey:
        with _naming(self.name):
            return await self.session.survey()

    async def collect(self) -> bool:
        """Returns whether nobody stopped it. Unavailable where replies are missing that a later start may get."""
        with _naming(self.name):
            outcome = await self.session.run()
            if outcome.stopped or outcome.report is None:
                return False
            failed = [row for row in outcome.report.unscored if row.reason == POLICY_FAILED]
            if failed:
                missing = sum(row.attempts for row in failed)
                raise Unavailable(
                    f"{missing:,} of {outcome.report.counts.asked:,} replies are missing ({failed[0].detail}): repeat "
                    "the command to ask for them"
                )
        return True


@dataclass(frozen=True)
class FreshSurvey:
    stored: tuple[Entrant, ...]
    found: tuple[tuple[FreshContestant, EvaluationSurvey], ...]
    duels: TournamentCost

    @property
    def missing(self) -> list[FreshContestant]:
        return [one for one, survey in self.found if survey.missing is not None]

    @property
    def usd(self) -> float | None:
        """Of replies, as far as it is known, and duels. None where that of duels is not known."""
        replies = sum(survey.missing.known_usd for _, survey in self.found if survey.missing is not None)
        return None if self.duels.usd is None else replies + self.duels.usd


async def fetch_judged(gateway: GatewayClient, name: str) -> EnvironmentInfo:
    environment = await gateway.fetch_environment(name)
    if environment.mode is None:
        raise InvalidRequest(f"{name} is scored by a verifier: use `atropos-envs compare` or `runs compare`")
    return environment


def require_own_runs(fresh: Sequence[FreshContestant], stored: Sequence[Entrant]) -> None:
    """InvalidRequest for a policy whose replies would be stored among those of another contestant."""
    runs = {entrant.run: entrant.contestant.source for entrant in stored}
    for one in fresh:
        if one.name in runs:
            raise InvalidRequest(
                f"contestant {one.name}: its replies would be stored under the run of {runs[one.name]}; give the "
                "policy another name"
            )


async def require_same_tasks(fresh: Sequence[FreshContestant], stored: Sequence[Entrant]) -> None:
    """Begins the runs. InvalidRequest where their tasks differ, or where a stored contestant has none of them."""
    dealt = []
    for one in fresh:
        with _naming(one.name):
            dealt.append([task.task_id for task in await one.session.begin()])
    for one, tasks in zip(fresh, dealt, strict=True):
        if tasks != dealt[0]:
            raise InvalidRequest(
                f"{fresh[0].name} and {one.name} would not be asked the same tasks: the run of one of them began "
                "earlier, with another seed, other characters or other passages. Give it another name"
            )
    for entrant in stored:
        if not entrant.replies.keys() & set(dealt[0]):
            raise InvalidRequest(
                f"{entrant.contestant.source} has no reply to the tasks that {fresh[0].name} would be asked: "
                "--seed, --split, --params and --tasks must be those that it had"
            )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Says of an error whose it is."""
    try:
        yield
    except GatewayError as error:
        error.detail, error.field = f"contestant {name}: {error.detail}", None
        raise
