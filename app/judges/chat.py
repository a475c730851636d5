"""A judge behind any OpenAI-compatible URL: one judgement, one deadline, one corrective retry."""

import asyncio
import json
import random
from collections.abc import Callable
from datetime import datetime
from typing import Final

from app.domain.digests import digest, digest_of_text
from app.domain.errors import StoreUnavailable
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest
from app.domain.values import utc_now
from app.judges.budget import Account, new_hold
from app.judges.configuration import ChatJudgeConfig
from app.judges.deadline import Deadline
from app.judges.declining import declines
from app.judges.expected import with_expected_scores
from app.judges.failures import ReadingFailed, refusal
from app.judges.forgetful import Forgetful
from app.judges.limits import turn
from app.judges.line import Line, Said, Spent
from app.judges.prompt import TEMPLATES_DIGEST, Prompt, Question, correction_for, prompt_for
from app.judges.reading import encodable
from app.judges.replies import ChatReply
from app.judges.verdicts import PARSER_VERSION, Answer, Unusable, read_answer
from app.ports.judges import JudgementMemory

_LONGEST_QUOTED: Final = 8_000
"""Characters of an invalid answer that the corrective retry quotes."""
_AT_ONCE: Final = 20_000
"""Longest answer, in characters, that is parsed on the event loop."""
_HEALTH: Final = {"closed": "ok", "half_open": "probing", "open": "out"}


class ChatJudge:
    def __init__(
        self,
        config: ChatJudgeConfig,
        memory: JudgementMemory | None = None,
        *,
        has_fallback: bool = False,
        chance: Callable[[], float] = random.random,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`memory` holds the spending of every process that uses this judge; without one only this process counts. With
        `has_fallback` a refusal gets no corrective retry."""
        self.name = config.name
        self.model = config.model
        self.digest = digest(
            {
                "model": config.model,
                "temperature": config.temperature,
                "max_output_tokens": config.max_output_tokens,
                "json_mode": config.json_mode,
                "expected_scores": config.expected_scores,
                "templates": TEMPLATES_DIGEST,
                "parser": PARSER_VERSION,
            }
        )
        self._config = config
        self._has_fallback = has_fallback
        self._key = config.api_key.get_secret_value() if config.api_key is not None else ""
        self._memory = Forgetful(now) if memory is None else memory
        self.account = Account(now)
        self._line = Line(config, self.account, self._memory, chance=chance, now=now)

    async def close(self) -> None:
        await self._line.close()

    def question(self, request: JudgeRequest) -> Question:
        """Takes milliseconds for a large prompt, so call it once per judgement."""
        told = prompt_for(request)
        kept = json.dumps(_messages(told), ensure_ascii=False)
        prompt_digest = digest_of_text(f"{self.digest} {kept}")
        reading = digest([self.name, self._config.base_url, request.mode, request.vote, prompt_digest])
        return Question(request, told, kept, prompt_digest, reading)

    def report(self) -> JudgeReport:
        line, standing = self._line, self.account.standing
        return JudgeReport.model_validate(
            {
                "health": _HEALTH[line.breaker.state],
                "last_error": None if line.last_error is None else self._without_key(line.last_error),
                "in_flight": line.limit.in_flight,
                "queued": line.limit.queued,
                "limit": line.limit.limit,
                "spent": standing.total,
                "spent_today": standing.today,
                "budget_left_usd": line.budget.left_usd,
                "budget_left_tokens": line.budget.left_tokens,
                "cache_hits": 0,
            }
        )

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Records the cost at once and caches nothing."""
        hold = new_hold()
        async with turn():
            question = self.question(request)
        judgement = await self.read(question, hold)
        await self.account_for(judgement, hold)
        return judgement

    async def refresh(self) -> None:
        """Loads the spending and reservations of all processes. StoreUnavailable when they cannot be read."""
        updates = self.account.updates
        standing = await self._memory.standing(self.name)
        if updates == self.account.updates:  # else a newer state arrived meanwhile
            self.account.learn(standing)

    async def account_for(self, judgement: Judgement, hold: str) -> None:
        """Durable on return. StoreUnavailable when it cannot be stored; this process still counts it."""
        if judgement.calls == 0:
            await self._line.budget.forget(hold)
            return
        try:
            self.account.learn(await self._memory.put(judgement, hold))
        except StoreUnavailable:
            self.account.add_unwritten(judgement)
            raise
        finally:
            self._line.budget.settled(hold)

    async def read(self, question: Question, hold: str) -> Judgement:
        """`hold` is the id of the budget reservation. Pass it to `account_for` afterwards."""
        clock = asyncio.get_running_loop().time
        began = clock()
        spent = Spent(hold)
        answer, error, failure = await self._within_deadline(question.request, _messages(question.told), spent)
        judgement = Judgement(
            judge=self.name,
            model=self.model,
            order=tuple(candidate.id for candidate in question.request.candidates),
            verdicts=answer.verdicts if answer is not None else (),
            ranking=answer.ranking if answer is not None else (),
            prompt=question.kept,
            prompt_digest=question.prompt_digest,
            error=error,
            failure=failure,
            latency_seconds=clock() - began,
        )
        return self._line.billed(judgement, spent)

    async def _within_deadline(
        self, request: JudgeRequest, messages: list[Said], spent: Spent
    ) -> tuple[Answer | None, str | None, JudgeFailure | None]:
        deadline = Deadline(self._config.deadline_seconds, self._config.queue_seconds)
        try:
            async with deadline:
                return await self._answer(request, messages, deadline, spent), None, None
        except TimeoutError:
            before = f"; last error: {spent.trouble}" if spent.trouble else ""
            words = f"no usable answer within {self._config.deadline_seconds:g} s"
            if deadline.queueing:
                words = f"no call got through this judge's limits within {self._config.queue_seconds:g} s"
            return None, self._without_key(words + before), "unavailable"
        except ReadingFailed as error:
            return None, self._without_key(error.detail), error.failure

    async def _answer(self, request: JudgeRequest, messages: list[Said], deadline: Deadline, spent: Spent) -> Answer:
        """Retries once, with a list of the problems, when the first answer is invalid."""
        found = await self._read(await self._line.ask(messages, request, deadline, spent), request)
        if isinstance(found, Unusable) and self._has_fallback and declines(spent.raw):
            raise refusal(spent.raw)
        if isinstance(found, Unusable):
            spent.trouble = f"invalid answer: {'; '.join(found.problems)}"
            messages += [
                {"role": "assistant", "content": spent.raw[-_LONGEST_QUOTED:] or "(nothing)"},
                {"role": "user", "content": correction_for(found.problems)},
            ]
            found = await self._read(await self._line.ask(messages, request, deadline, spent), request)
        if isinstance(found, Unusable) and declines(spent.raw):
            raise refusal(spent.raw)
        if isinstance(found, Unusable):
            problems = "; ".join(found.problems)
            raise ReadingFailed(f"invalid answer, also after the corrective retry: {problems}", "unusable")
        return found

    async def _read(self, reply: ChatReply, request: JudgeRequest) -> Answer | Unusable:
        expected = self._config.expected_scores
        if len(reply.text) > _AT_ONCE:
            found = await asyncio.to_thread(_read, reply, request, expected)
        else:
            async with turn():
                found = _read(reply, request, expected)
        # words behind an object say that it may have been a draft; blank space does not
        finished = reply.text.rstrip(" \t\r\n`").endswith("}")
        if reply.cut_off and (isinstance(found, Unusable) or not finished):
            limit = self._config.max_output_tokens
            problems = found.problems if isinstance(found, Unusable) else ()
            return Unusable((f"it was cut off after {limit} tokens: be shorter", *problems))
        return found

    def _without_key(self, words: str) -> str:
        return encodable(words.replace(self._key, "…") if self._key else words)


def _read(reply: ChatReply, request: JudgeRequest, expected: bool) -> Answer | Unusable:
    return read_answer(with_expected_scores(reply.text, reply.tokens) if expected else reply.text, request)


def _messages(told: Prompt) -> list[Said]:
    return [{"role": "system", "content": told.system}, {"role": "user", "content": told.user}]
