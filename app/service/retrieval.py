"""Retrieval for prompts, and what is done with a task without a batch: drafts, previews and steps of episodes.

`RetrievalService` calls the retriever, which may be anybody's class: its answer has a deadline, is validated, and loses
what is later than the time that it was asked for. The policy says whether a failure refuses the task, or leaves it
without passages. `DraftBuilder` builds the prompt of a draft or a moment of a game with it, `PreviewService` also
scores completions of a draft, and neither stores anything. `EpisodeStepper` answers a message of a multi-turn episode
by replaying the transcript, so that any replica can serve any turn; where a model plays the player, `PlayedEpisodes`
does, and where the episode runs on another's server, `HostedEpisodes`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue

from app.domain.errors import (
    Conflict,
    EnvironmentUnavailable,
    GatewayError,
    InvalidRequest,
    NotFound,
    RequestRefused,
    RetrieverFailed,
    Unavailable,
)
from app.domain.groups import TaskRecord
from app.domain.judging import Judgement
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, ContextQuery, Message, Passage, Task, ToolSpec, Turn, Withheld
from app.domain.values import FiniteNumber, Frozen, is_absent
from app.domain.worlds import RetrievalExplanation
from app.ports.environment import Drafted, Observer, Programs, Workers
from app.ports.judges import Panels
from app.ports.retrieval import ExplainingRetriever, Retriever
from app.ports.tracing import note_work, open_span
from app.service.catalogue import Catalogue, EnvironmentVersions
from app.service.hosted import HostedEpisodes
from app.service.judging import list_turn_rewards, require_taker, score_completions
from app.service.players import PlayedEpisodes
from app.service.requests import StepRequest
from app.service.runs import RunRegistry
from app.service.task_cache import TaskCache, place_context
from app.toolkit.texts import run_in_turn

log = logging.getLogger(__name__)

MAX_CONCURRENT_QUERIES: Final = 16
"""Maximum number of concurrent queries per batch."""

NOT_ASKED_DETAIL: Final = "the retriever failed for another task of this batch and was not asked again"

OnFailure = Literal["refuse", "without"]
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class RetrievalPolicy:
    """`on_failure`: `refuse` raises RetrieverFailed; `without` returns an empty context with the reason.
    `deadline_seconds` is the total time of one query, including retries."""

    on_failure: OnFailure = "refuse"
    deadline_seconds: float = 2.0


class RetrievalService:
    """Asks the retriever, and guards against it."""

    def __init__(self, retriever: Retriever, observer: Observer, policy: RetrievalPolicy | None = None) -> None:
        self._retriever = retriever
        self._observer = observer
        self._policy = policy or RetrievalPolicy()

    async def retrieve(self, query: ContextQuery, field: str) -> Context:
        """Retrieves one context. RetrieverFailed under the policy `refuse`; InvalidRequest naming `<field>.<part>`."""
        try:
            return await self._retrieve_checked(query)
        except InvalidRequest as error:
            raise InvalidRequest(error.detail, field=f"{field}.{error.field}" if error.field else field) from error
        except RetrieverFailed as error:
            if self._policy.on_failure == "refuse":
                raise
            return Context(failure=error.detail)

    async def retrieve_all(self, queries: Sequence[ContextQuery], field: str) -> list[Context]:
        """Contexts in query order. After a failure no more queries are sent, so that a hanging retriever delays a batch
        no longer than a single task."""
        contexts = [Context(failure=NOT_ASKED_DETAIL) for _ in queries]
        left = list(enumerate(queries))[::-1]
        failed = asyncio.Event()

        async def process_queries() -> None:
            while left and not failed.is_set():
                position, query = left.pop()
                contexts[position] = await self.retrieve(query, field)
                if contexts[position].failure is not None:
                    failed.set()

        asking = [asyncio.ensure_future(process_queries()) for _ in queries[:MAX_CONCURRENT_QUERIES]]
        try:
            await asyncio.gather(*asking)
        finally:  # under the policy `refuse` the first failure ends the batch, and nobody waits for the others
            for task in asking:
                task.cancel()
        return contexts

    async def explain(self, query: ContextQuery) -> RetrievalExplanation:
        """The result with reasons; only the context if the retriever cannot explain. RetrieverFailed under any policy;
        InvalidRequest naming the part of the query."""
        if isinstance(self._retriever, ExplainingRetriever):
            return await self._await_within_deadline(_call_retriever(self._retriever.explain, query))
        context = await self._retrieve_checked(query)
        return RetrievalExplanation(as_of=context.as_of, budget_tokens=query.budget_tokens, context=context)

    async def _retrieve_checked(self, query: ContextQuery) -> Context:
        with open_span("retrieve", {"atropos.retriever": type(self._retriever).__name__}) as span:
            context = await self._retrieve_in_time(query)
            counts = {"passages": len(context.passages), "withheld": len(context.withheld)}
            span.describe({f"atropos.{name}": count for name, count in counts.items()})
            return context

    async def _retrieve_in_time(self, query: ContextQuery) -> Context:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answer = _validate_context(
                await self._await_within_deadline(_call_retriever(self._retriever.retrieve, query))
            )
        except RetrieverFailed as error:
            self._observer.record_retrieval(loop.time() - began, failed=True)
            log.warning("retrieval failed: %s", error.detail)
            raise
        context, future = withhold_future(answer, query.as_of)
        self._observer.record_retrieval(loop.time() - began, failed=False, future=future)
        if future:
            log.warning("withheld %d passages later than the requested time", future)
        return context

    async def _await_within_deadline(self, asked: Coroutine[None, None, AnswerT]) -> AnswerT:
        """Awaits a coroutine up to the deadline. A cancelled one that keeps running is not awaited."""
        seconds = self._policy.deadline_seconds
        asking = asyncio.ensure_future(asked)
        try:
            done, _ = await asyncio.wait({asking}, timeout=seconds)
        finally:
            # Also of a call that has just failed: whoever is cancelled at that moment reads nothing of it.
            asking.add_done_callback(_discard_result)
            asking.cancel()
        if not done:
            raise RetrieverFailed(f"the retriever gave no answer within {seconds:g} seconds")
        if asking.cancelled():
            raise RetrieverFailed("the retriever gave up")
        return asking.result()


async def _call_retriever(ask: Callable[[ContextQuery], Awaitable[AnswerT]], query: ContextQuery) -> AnswerT:
    try:
        return await ask(query)
    except (RequestRefused, Unavailable):
        raise
    except (Exception, SystemExit) as error:  # a class of the operator's may raise whatever it likes
        log.exception("the retriever raised an exception")
        raise RetrieverFailed(f"the retriever broke: {type(error).__name__}") from error


def withhold_future(context: Context, as_of: datetime | None) -> tuple[Context, int]:
    """Withholds passages later than `as_of` or the context's own time, and counts them."""
    moments = [moment for moment in (as_of, context.as_of) if moment is not None]
    if not moments:
        return context, 0
    now = min(moments)
    late = [passage for passage in context.passages if passage.time is not None and passage.time > now]
    remaining = tuple(passage for passage in context.passages if passage not in late)
    withheld = (*context.withheld, *map(_withhold_passage, late))
    return context.model_copy(update={"passages": remaining, "withheld": withheld, "as_of": now}), len(late)


def _withhold_passage(passage: Passage) -> Withheld:
    return Withheld(id=passage.id, reason="future", text=passage.text)


def _validate_context(context: object) -> Context:
    """Checks that a context can be stored and sent, and that its times have time zones."""
    if not isinstance(context, Context):
        raise RetrieverFailed(f"the retriever gave no Context but {type(context).__name__}")
    if context.failure is not None:
        raise RetrieverFailed(context.failure)
    try:
        context.model_dump_json(warnings="error")
    except ValueError:  # lone surrogates, and what went around validation
        raise RetrieverFailed("the retriever gave a Context that cannot be written as JSON") from None
    times = [context.as_of, *(passage.time for passage in context.passages)]
    if any(moment is not None and moment.tzinfo is None for moment in times):
        raise RetrieverFailed("the retriever gave a time without its zone")
    return context


def _discard_result(asking: "asyncio.Future[AnswerT]") -> None:
    """So that an error that nobody waits for any more is no error of the service."""
    if not asking.cancelled():
        asking.exception()


# Drafts


@dataclass(frozen=True)
class PlacedDraft:
    """A draft's task with retrieved passages in its prompt. `context` is empty if nothing was retrieved."""

    task: Task
    context: Context


FillIn = Callable[[str, BaseModel], Awaitable[BaseModel]]


async def _refuse(environment: str, draft: BaseModel) -> BaseModel:
    raise InvalidRequest(f"nobody keeps drafts for {environment}", field="own_draft")


class DraftBuilder:
    """Builds prompts from drafts and moments of games as for tasks, without storing anything."""

    def __init__(self, catalogue: Catalogue, retrieval: RetrievalService) -> None:
        self.fill_in: FillIn = _refuse
        """Puts the draft that the caller keeps of a text in place of the published text, once it was read in a worker.
        For authors who ask for it: games and trainings have what is published. It is set by the feature that knows."""
        self._catalogue = catalogue
        self._retrieval = retrieval

    async def build_own(self, environment: str, draft: BaseModel) -> Drafted:
        """As `build_draft`, with the draft that the caller keeps, in a thread: it may be heavy."""
        return await run_in_turn("authors", self.build_draft, environment, await self.fill_in(environment, draft))

    def build_draft(self, environment: str, draft: BaseModel) -> Drafted:
        """Builds the draft's task. InvalidRequest naming `draft.<field>`; EnvironmentUnavailable if the environment
        fails."""
        hosted = self._catalogue.get_environment_or_current(environment)
        with _convert_unexpected_errors(environment):
            return hosted.environment.draft(draft)

    async def read_draft(self, environment: str, draft: BaseModel, workers: Workers) -> Drafted:
        """As `build_draft`, for a draft with texts of strangers: they are read in workers, and the rest is done in a
        thread."""
        hosted = self._catalogue.get_environment_or_current(environment)
        with _convert_unexpected_errors(environment):
            read = await hosted.environment.read_draft(draft, workers)
            return await run_in_turn("authors", hosted.environment.draft, read)

    def build_query(self, made: Drafted) -> ContextQuery | None:
        """The retrieval query of a draft. EnvironmentUnavailable if the environment fails."""
        with _convert_unexpected_errors(made.environment.name):
            return made.environment.query(made.task)

    async def place_context(self, made: Drafted, field: str, *, in_turn: bool = False) -> PlacedDraft:
        """Retrieves and places passages as for a task. Errors in the query name `<field>.<part of the query>`.
        `in_turn`: in a thread of authors, since the text of a stranger may make it slow."""
        query = self.build_query(made)
        context = Context() if query is None else await self._retrieval.retrieve(query, field)
        with _convert_unexpected_errors(made.environment.name):
            arguments = made.environment, made.task, context
            task = await run_in_turn("authors", place_context, *arguments) if in_turn else place_context(*arguments)
            return PlacedDraft(task, context)


@contextmanager
def _convert_unexpected_errors(environment: str) -> Iterator[None]:
    """Passes an environment's own errors through and turns unexpected ones into EnvironmentUnavailable."""
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        log.exception("could not build a task from a draft: %s", environment)
        raise EnvironmentUnavailable(f"{environment}: it failed on this draft; see the service log") from error


# Previews of drafts


class PreviewOptions(Frozen):
    """Options of every preview."""

    completions: Annotated[
        tuple[Completion, ...],
        Field(max_length=32, description="Completions to score together. Leave empty to see only the prompt."),
    ] = ()
    options: ScoringOptions = ScoringOptions()
    own_draft: Annotated[
        bool, Field(description="Use your own draft of the character that `draft` names, not what is published.")
    ] = False


class FailedGate(Frozen):
    """A gate that a completion failed, and what that gate detects."""

    flag: str
    notices: str


class PreviewedCompletion(Frozen):
    """One completion of a preview. `score.candidate` is its id in the judgements."""

    score: Score
    gates: tuple[FailedGate, ...] = ()


class PreviewResult(Frozen):
    """The prompt that a model would get, and the scores of the completions. Nothing is stored."""

    messages: tuple[Message, ...]
    """The prompt."""
    tools: Annotated[tuple[ToolSpec, ...], Field(exclude_if=is_absent)] = ()
    """What the policy is offered beside it."""
    max_turns: int
    metadata: dict[str, JsonValue]
    passages: tuple[Passage, ...]
    """Retrieved passages in the prompt."""
    withheld: tuple[Withheld, ...]
    """Passages that were withheld, with the reason."""
    completions: tuple[PreviewedCompletion, ...]
    """In request order."""
    judges: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    """One per judge call, with the presentation order, the verdicts and the raw answer."""
    seconds: FiniteNumber
    """Time from the request to the last verdict."""
    calls: int
    """Requests sent to judge models."""
    cost_usd: FiniteNumber | None
    """Total cost of all judgements; null if the price of any call is unknown."""


class PreviewService:
    """Scores completions of a draft like those of a task, and stores nothing."""

    def __init__(
        self,
        *,
        drafting: DraftBuilder,
        panels: Panels,
        workers: Workers,
        authors: Workers,
        programs: Programs,
        observer: Observer,
        gates: Mapping[str, str],
    ) -> None:
        """`gates`: what each gate detects, by flag. `authors`: workers that read what authors write."""
        self._authors = authors
        self._drafting = drafting
        self._panels = panels
        self._workers = workers
        self._programs = programs
        self._observer = observer
        self._gates = gates

    def build_draft(self, environment: str, draft: BaseModel) -> Drafted:
        """Builds the draft's task. InvalidRequest naming `draft.<field>`; EnvironmentUnavailable if the environment
        fails."""
        return self._drafting.build_draft(environment, draft)

    async def fill_in(self, environment: str, draft: BaseModel) -> BaseModel:
        """With the draft that the caller keeps of the character. InvalidRequest where there is none."""
        return await self._drafting.fill_in(environment, draft)

    async def preview(self, environment: str, draft: BaseModel, request: PreviewOptions) -> PreviewResult:
        """Rejects invalid drafts. Failures during scoring give `unscored` completions with a reason."""
        note_work(environment)
        began = asyncio.get_running_loop().time()
        made = await self._drafting.read_draft(environment, draft, self._authors)
        if request.options.rubric is not None:
            require_taker(made.environment, "options.rubric")
        panel = None if made.environment.rubric is None else self._panels.build_panel(environment, request.options)
        placed = await self._drafting.place_context(made, "draft.params", in_turn=True)
        task, context = placed.task, placed.context
        judged = await score_completions(
            made.environment,
            task,
            request.completions,
            request.options,
            panel,
            self._workers,
            self._programs,
            what=f"{environment}, a draft",
        )
        judgements = judged.judgements
        self._observer.record_judgements(judgements)
        costs = [judgement.cost_usd if judgement.calls else judgement.cost_usd or 0.0 for judgement in judgements]
        return PreviewResult(
            messages=task.messages,
            tools=task.tools,
            max_turns=task.max_turns,
            metadata=task.metadata,
            passages=context.passages,
            withheld=context.withheld,
            completions=tuple(
                PreviewedCompletion(score=score, gates=self._list_failed_gates(score)) for score in judged.scores
            ),
            judges=() if panel is None else panel.judges,
            judgements=judgements,
            seconds=asyncio.get_running_loop().time() - began,
            calls=sum(judgement.calls for judgement in judgements),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        )

    def _list_failed_gates(self, score: Score) -> tuple[FailedGate, ...]:
        if score.gate != 0.0:
            return ()
        return tuple(FailedGate(flag=flag, notices=self._gates.get(flag, "")) for flag in score.flags)


# Steps of episodes


class EpisodeStepper:
    """Answers messages of multi-turn episodes. It remembers nothing: the transcript is replayed for every step."""

    def __init__(
        self,
        environment_versions: EnvironmentVersions,
        task_cache: TaskCache,
        runs: RunRegistry,
        played: PlayedEpisodes,
        elsewhere: HostedEpisodes,
    ) -> None:
        self._environment_versions = environment_versions
        self._task_cache = task_cache
        self._runs = runs
        self._played = played
        self._elsewhere = elsewhere

    async def step(self, environment: str, request: StepRequest) -> Turn:
        """The environment's answer to the last message, with what that message adds to the reward if the run wants
        that. Conflict if the environment changed since the hand-out."""
        if not self._environment_versions.get_current(environment).environment.multi_turn:
            raise InvalidRequest(f"{environment} is single-turn: send the completion to /score", field="messages")
        record = await self._load_record(environment, request.task_id)
        hosted = await self._environment_versions.get_version(environment, record.key.data_digest)
        if not hosted.has_made(record.key):
            raise Conflict("the environment has changed since the task was handed out", field="task_id")
        task = self._task_cache.get_task(hosted, record)
        if (player := hosted.environment.find_player(task)) is not None:
            turn = await self._played.step(request.task_id, player, request.messages)
        elif hosted.environment.runs_elsewhere:
            turn = await self._elsewhere.step(request.task_id, hosted.environment.find_host(task), request.messages)
        else:
            turn = hosted.environment.step(task, request.messages)
        # The last message has the rest of the reward, which scoring tells.
        if turn.done or not (await self._runs.find_options(request.run)).turn_rewards:
            return turn
        return turn.model_copy(update={"reward": list_turn_rewards(hosted.environment, task, request.messages)[-1]})

    async def is_single_reply(self, environment: str, task_id: str) -> bool:
        """Whether the task takes a single reply. NotFound if it was not handed out."""
        if not self._environment_versions.get_current(environment).environment.multi_turn:
            return True
        record = await self._load_record(environment, task_id)
        hosted = await self._environment_versions.get_version(environment, record.key.data_digest)
        return not hosted.has_made(record.key) or self._task_cache.get_task(hosted, record).max_turns == 1

    async def _load_record(self, environment: str, task_id: str) -> TaskRecord:
        record = (await self._task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != environment:
            raise NotFound(f"task {task_id} was not handed out by {environment}", field="task_id")
        return record
