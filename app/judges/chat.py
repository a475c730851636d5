"""A judge behind any OpenAI-compatible URL: one judgement, one deadline, one corrective retry."""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from pydantic import JsonValue

from app.domain.digests import digest, digest_of_list
from app.domain.errors import StoreUnavailable
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest
from app.domain.values import utc_now
from app.judges.budget import ReadingCost, SpendingAccount, create_reservation_id
from app.judges.chat_response import ChatResponse
from app.judges.configuration import ChatJudgeConfig
from app.judges.deadline import Deadline
from app.judges.expected_scores import insert_expected_scores
from app.judges.failures import ReadingFailed, build_refusal_error
from app.judges.judge_client import JudgeClient
from app.judges.limits import await_turn_at_judging
from app.judges.memory_cache import InProcessMemory
from app.judges.prompt import TEMPLATES_DIGEST, JudgePrompt, JudgeQuestion, build_prompt, render_correction
from app.judges.reference_readings import parse_references
from app.judges.refusal_detection import is_refusal
from app.judges.request_form import PromptMessage
from app.judges.server_traits import ServerTraits
from app.judges.text_normalisation import replace_surrogates
from app.judges.verdict_parsing import PARSER_VERSION, JudgeAnswer, UnusableAnswer, parse_answer
from app.ports.judges import JudgeCache, ReadingPace

_LONGEST_QUOTED: Final = 8_000
"""Characters of an invalid answer that the corrective retry quotes."""
_MOST_PARSED_ON_LOOP: Final = 20_000
"""Longest answer, in characters, that is parsed on the event loop."""
_HEALTH_BY_BREAKER_STATE: Final = {"closed": "ok", "half_open": "probing", "open": "out"}


class ChatJudge:
    def __init__(
        self,
        config: ChatJudgeConfig,
        memory: JudgeCache | None = None,
        *,
        has_fallback: bool = False,
        traits: ServerTraits | None = None,
        chance: Callable[[], float] = random.random,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`memory` holds the spending of every process that uses this judge; without one only this process counts. With
        `has_fallback` a refusal gets no corrective retry. `traits` are shared by judges that ask the same model."""
        self.name = config.name
        self.model = config.model
        self.digest = digest(
            {
                "model": config.model,
                "temperature": config.temperature,
                "max_output_tokens": config.max_output_tokens,
                "json_mode": config.json_mode,
                "verdict_form": config.verdict_form,
                "expected_scores": config.expected_scores,
                "templates": TEMPLATES_DIGEST,
                "parser": PARSER_VERSION,
            }
            | config.asked_besides
        )
        self._config = config
        self._has_fallback = has_fallback
        self._memory = InProcessMemory(now) if memory is None else memory
        self.account = SpendingAccount(now)
        self._line = JudgeClient(config, self.account, self._memory, traits=traits, chance=chance, now=now)

    @property
    def pace(self) -> ReadingPace:
        return self._config.pace

    @property
    def writes(self) -> bool:
        return True

    @property
    def repeats_itself(self) -> bool:
        return self._config.temperature == 0

    def compute_most(self, input_tokens: int) -> float | None:
        prices = self._config.prices
        return prices.compute_cost(input_tokens, self._config.max_output_tokens) if prices.are_known else None

    async def close(self) -> None:
        await self._line.close()

    def build_question(self, request: JudgeRequest) -> JudgeQuestion:
        """Takes milliseconds for a large prompt, so call it once per judgement."""
        told = build_prompt(request, self._config.verdict_form)
        kept, prompt_digest = told.encode(self.digest)
        # the prompt has letters, cached verdicts have ids
        ids: list[JsonValue] = [candidate.id for candidate in request.candidates]
        reading = digest_of_list([self.name, self._config.base_url, request.mode, request.vote, ids, prompt_digest])
        return JudgeQuestion(request, told, kept, prompt_digest, reading)

    def report(self) -> JudgeReport:
        line, state = self._line, self.account.state
        return JudgeReport.model_validate(
            {
                "health": _HEALTH_BY_BREAKER_STATE[line.breaker.state],
                "last_error": None if line.last_error is None else self._redact(line.last_error),
                "in_flight": line.lease.slots.in_flight,
                "queued": line.lease.slots.queued,
                "limit": line.lease.limit,
                "share": line.lease.slots.limit,
                "spent": state.total,
                "spent_today": state.today,
                "budget_left_usd": line.budget.left_usd,
                "budget_left_tokens": line.budget.left_tokens,
                "cache_hits": 0,
                "changes": line.traits.changes,
                "ignored": line.traits.ignored,
            }
        )

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Records the cost at once and caches nothing."""
        hold = create_reservation_id()
        await await_turn_at_judging()
        question = self.build_question(request)
        judgement = await self.answer_question(question, hold)
        await self.record_spending(judgement, hold)
        return judgement

    async def refresh(self) -> None:
        """Loads the spending and reservations of all processes. StoreUnavailable when they cannot be read."""
        updates = self.account.updates
        state = await self._memory.get_budget_state(self.name)
        if updates == self.account.updates:  # else a newer state arrived meanwhile
            self.account.update_state(state)

    async def record_spending(self, judgement: Judgement, hold: str) -> None:
        """Durable on return. StoreUnavailable when it cannot be stored; this process still counts it."""
        if judgement.calls == 0:
            await self._line.budget.release(hold)
            return
        try:
            self.account.update_state(await self._memory.put(judgement, self._line.budget.find_reservation(hold)))
        except StoreUnavailable:
            self.account.add_unwritten(judgement)
            raise
        finally:
            self._line.budget.settle(hold)

    async def answer_question(self, question: JudgeQuestion, hold: str) -> Judgement:
        """`hold` is the id of the budget reservation. Pass it to `account_for` afterwards."""
        clock = asyncio.get_running_loop().time
        began = clock()
        spent = ReadingCost(hold)
        answer, error, failure = await self._answer_within_deadline(
            question.request, build_messages(question.prompt), spent
        )
        judgement = Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in question.request.candidates),
            verdicts=answer.verdicts if answer is not None else (),
            ranking=answer.ranking if answer is not None else (),
            prompt=question.prompt_text,
            prompt_digest=question.prompt_digest,
            error=error,
            failure=failure,
            latency_seconds=clock() - began,
        )
        return spent.add_to(judgement, self._config.prices)

    async def _answer_within_deadline(
        self, request: JudgeRequest, messages: list[PromptMessage], spent: ReadingCost
    ) -> tuple[JudgeAnswer | None, str | None, JudgeFailure | None]:
        deadline = Deadline(self._config.deadline_seconds, self._config.queue_seconds)
        try:
            async with deadline:
                return await self._ask_with_correction(request, messages, deadline, spent), None, None
        except TimeoutError:
            before = f"; last error: {spent.trouble}" if spent.trouble else ""
            words = f"no usable answer within {self._config.deadline_seconds:g} s"
            if deadline.queueing:
                words = f"no call got through this judge's limits within {self._config.queue_seconds:g} s"
                if self._line.lease.trouble:
                    words += f", which all processes share: {self._line.lease.trouble}"
            return None, self._redact(words + before), "unavailable"
        except ReadingFailed as error:
            return None, self._redact(error.detail), error.failure

    async def _ask_with_correction(
        self, request: JudgeRequest, messages: list[PromptMessage], deadline: Deadline, spent: ReadingCost
    ) -> JudgeAnswer:
        """Retries once, with a list of the problems, when the first answer is invalid."""
        formed = None if request.wanted else request
        found = await self._parse_response(await self._line.ask(messages, formed, deadline, spent), request)
        if isinstance(found, UnusableAnswer) and self._has_fallback and is_refusal(spent.raw):
            raise build_refusal_error(spent.raw)
        if isinstance(found, UnusableAnswer):
            spent.trouble = f"invalid answer: {'; '.join(found.problems)}"
            messages += [
                {"role": "assistant", "content": spent.raw[-_LONGEST_QUOTED:] or "(nothing)"},
                {"role": "user", "content": render_correction(found.problems)},
            ]
            found = await self._parse_response(await self._line.ask(messages, formed, deadline, spent), request)
        if isinstance(found, UnusableAnswer) and is_refusal(spent.raw):
            raise build_refusal_error(spent.raw)
        if isinstance(found, UnusableAnswer):
            problems = "; ".join(found.problems)
            raise ReadingFailed(f"invalid answer, also after the corrective retry: {problems}", "unusable")
        return found

    async def _parse_response(self, reply: ChatResponse, request: JudgeRequest) -> JudgeAnswer | UnusableAnswer:
        read = partial(_parse_response_text, reply, request, self._config)
        if len(reply.text) > _MOST_PARSED_ON_LOOP:
            found = await asyncio.to_thread(read)
        else:
            found = read()  # in the turn that the reply arrived in
        if isinstance(found, UnusableAnswer) or not found.is_whole:
            self._line.traits.record_format(reply)
        if reply.lacks_room and isinstance(found, UnusableAnswer):
            room = self._line.traits.form.most_tokens
            raise ReadingFailed(
                f"the judge's thought used up the {room} tokens of its answer: raise max_output_tokens, or let it "
                "think less",
                "unusable",
            )
        # words behind an object say that it may have been a draft; blank space does not
        finished = reply.text.rstrip(" \t\r\n`").endswith("}")
        if reply.cut_off and (isinstance(found, UnusableAnswer) or not finished):
            limit = self._line.traits.form.most_tokens
            problems = found.problems if isinstance(found, UnusableAnswer) else ()
            return UnusableAnswer((f"it was cut off after {limit} tokens: be shorter", *problems))
        return found

    def _redact(self, words: str) -> str:
        return replace_surrogates(self._config.endpoint.credentials.redact(words))


def _parse_response_text(
    reply: ChatResponse, request: JudgeRequest, config: ChatJudgeConfig
) -> JudgeAnswer | UnusableAnswer:
    if request.wanted:
        written = parse_references(reply.text, request.wanted)
        return UnusableAnswer((written,)) if isinstance(written, str) else JudgeAnswer((), ())
    text = insert_expected_scores(reply.text, reply.tokens) if config.expected_scores else reply.text
    return parse_answer(text, request, config.verdict_form)


def build_messages(told: JudgePrompt) -> list[PromptMessage]:
    return [{"role": "system", "content": told.system}, {"role": "user", "content": told.user}]
