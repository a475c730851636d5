"""What is known of a judge's server: the form of request that it answers, and what it ignores without a word."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from app.judges.chat_response import ChatResponse
from app.judges.configuration import ChatJudgeConfig, JsonMode
from app.judges.expected_scores import ALTERNATIVES_ASKED
from app.judges.failures import CallFailed
from app.judges.request_form import (
    REFUSED_STATUSES,
    RequestForm,
    blames_prompt,
    leave_out_refused,
    switch_token_parameter,
    weaken_format,
)
from app.judges.text_normalisation import strip_thoughts
from app.judges.verdict_parsing import may_be_answer

MORE_ROOM: Final = 4
"""By this factor the tokens of an answer grow when a thought used them up."""
MOST_ROOM: Final = 32_768
"""Most tokens of an answer that a thought can bring about."""

_FORMAT_WORDS: Final[Mapping[JsonMode, str]] = {
    "schema": "the schema of the answer is sent",
    "object": "any JSON object is asked for, without the schema",
    "off": "the form of the answer is asked for in words alone",
}
_WATCHED: Final = ("response_format", "logprobs", "max_tokens", "max_completion_tokens")
"""Parameters of which answers show that they are ignored."""
_LONGEST_LOOKED_AT: Final = 20_000
"""Characters of an answer whose form is looked at, on the event loop."""
_LEAST_OVERRUN: Final = 16
"""Tokens beyond the limit that prove that it is ignored."""


class ServerTraits:
    """Starts with what is configured. Changes are remembered once the server answered a request that had them."""

    def __init__(self, config: ChatJudgeConfig) -> None:
        self.form = self._configured = build_request_form(config)
        self._known = False
        self._ignored: set[str] = set()

    @property
    def ignored(self) -> tuple[str, ...]:
        """Parameters that the answers show to be ignored."""
        return tuple(name for name in _WATCHED if name in self._ignored)

    @property
    def changes(self) -> tuple[str, ...]:
        """How requests differ from what is configured, in words."""
        return tuple(_describe_changes(self._configured, self.form))

    def choose_next(self, used: RequestForm, failed: CallFailed) -> RequestForm | None:
        """The form for an immediate retry, when the server refused only something of the form."""
        if failed.is_refusal or blames_prompt(failed) or failed.is_failed_generation:
            return None
        changed = leave_out_refused(used, failed)
        if changed is not None and self._known and used == self._configured != self.form:
            return self.form  # another call has found out meanwhile
        if changed is not None or failed.status not in REFUSED_STATUSES or (self._known and self.form == used):
            return changed
        return weaken_format(used)

    def give_room(self, used: RequestForm) -> RequestForm | None:
        """The form with more tokens for the answer, when a thought used them up."""
        most = min(MORE_ROOM * used.most_tokens, MOST_ROOM, used.most_tokens_allowed or MOST_ROOM)
        worth_asking = used.token_parameter is not None and most >= 2 * used.most_tokens
        return replace(used, most_tokens=most) if worth_asking else None

    def record_answer(self, used: RequestForm, reply: ChatResponse, *, changed: bool) -> None:
        """`changed`: the form was changed for this very answer."""
        if changed or not self._known:
            self.form, self._known = used, True
        if used.alternatives and reply.text and not reply.tokens:
            self._ignored.add("logprobs")
        wrote = (reply.usage.output_tokens or 0) - reply.usage.reasoning_tokens
        if used.token_parameter is not None and wrote > used.most_tokens + _LEAST_OVERRUN:
            self._ignored.add(used.token_parameter)
            if self.form.token_parameter == used.token_parameter:
                self.form = switch_token_parameter(self.form) or self.form

    def record_format(self, reply: ChatResponse) -> None:
        """For an answer that is not all of its text."""
        if "response_format" not in self._ignored and _proves_format_ignored(reply):
            self._ignored.add("response_format")


def build_request_form(config: ChatJudgeConfig) -> RequestForm:
    return RequestForm(
        json_mode=config.json_mode,
        token_parameter=config.token_parameter,
        most_tokens=config.max_output_tokens,
        temperature=config.temperature,
        seed=config.seed,
        alternatives=ALTERNATIVES_ASKED if config.expected_scores else 0,
    )


def _proves_format_ignored(reply: ChatResponse) -> bool:
    """Whether an answer is not of the form that was asked for, so that the server cannot have seen to it."""
    if reply.asked == "off" or reply.cut_off or reply.refused or len(reply.text) > _LONGEST_LOOKED_AT:
        return False
    text = strip_thoughts(reply.text)
    if not text:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return not isinstance(value, dict) or (reply.asked == "schema" and not may_be_answer(value))


def _describe_changes(configured: RequestForm, form: RequestForm) -> list[str]:
    words = [_FORMAT_WORDS[form.json_mode]] if form.json_mode != configured.json_mode else []
    if form.token_parameter is None and configured.token_parameter is not None:
        words.append(f"{configured.token_parameter} is left out: answers have no limit")
    elif form.token_parameter != configured.token_parameter:
        words.append(f"{form.token_parameter} is sent in place of {configured.token_parameter}")
    if form.most_tokens != configured.most_tokens:
        words.append(f"an answer may have {form.most_tokens} tokens in place of {configured.most_tokens}")
    if form.temperature is None and configured.temperature is not None:
        words.append("temperature is left out")
    if form.seed is None and configured.seed is not None:
        words.append("seed is left out")
    if form.alternatives != configured.alternatives:
        words.append(f"top_logprobs is {form.alternatives}" if form.alternatives else "logprobs are left out")
    if not form.has_system_role:
        words.append("the rules stand in the user's message, without a system message")
    if form.streams:
        words.append("answers are streamed")
    return words
