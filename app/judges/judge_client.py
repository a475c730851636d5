"""The client of a judge's server: one retry loop that applies limits, budget and circuit breaker to every call.

A reading has one deadline for all its calls and pauses. Before each call it waits for a slot, for the rates, and for a
reservation in the budget; that wait has a limit of its own.

When a call fails:
- A 429 lowers the number of calls that all processes may make at once, and nobody calls before the time that the server
  named. A busy server is not a broken one, so the circuit breaker does not count it.
- A server that cannot be reached, breaks off its answer or answers 5xx is a failure for the breaker, and so is a call
  that the deadline ends. Where the model may have run, the call counts in the budget as what it may cost at most.
- Both are asked again after 0.5 s, 1 s, 2 s and so on up to 8 s, shortened at random so that many readings do not come
  back together. Where the next pause would outlast the deadline the reading fails at once.
- What the server refuses of a request (a parameter, a format, the system role) is left out of the next one, at once.
  ServerTraits remembers it, for all judges that ask the same model.
- What no retry changes (a wrong key, no money, a filter, a URL that is none) fails the reading.

Equal readings that are asked for at the same time are one: `CachingJudge` sees to that, before this client is asked.
"""

import asyncio
import json
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Final, Literal, TypedDict
from urllib.parse import urlsplit

from pydantic import JsonValue

from app.domain.budgets import Amount
from app.domain.judge_limits import CallFeedback
from app.domain.judging import JudgeRequest
from app.domain.tasks import is_broken_off, is_cut_by_filter, is_truncated
from app.domain.values import utc_now
from app.inference.connection import (
    CHAT_PATH,
    Connection,
    NoReply,
    ServerError,
    ServerReply,
    parse_server_error,
    tells_error,
)
from app.inference.wire import extract_text, is_event_stream, read_answer, read_json
from app.judges.configuration import (
    NOT_COUNTED,
    Budget,
    CallFailed,
    ChatJudgeConfig,
    Deadline,
    JsonMode,
    PromptCounts,
    ReadingCost,
    ReadingFailed,
    Role,
    SpendingAccount,
    TokenParameter,
    TokenUsage,
    bound_message_tokens,
    build_call_failure,
    build_refusal_error,
    get_field,
    parse_usage,
    require_retryable,
)
from app.judges.gate_wordings import replace_surrogates
from app.judges.limits import CallOutcome, CircuitBreaker, LimitsLease, await_turn_at_judging, hash_beginnings
from app.judges.loose_answers import may_be_answer
from app.judges.verdicts import (
    ALTERNATIVES_ASKED,
    Token,
    build_response_format,
    choose_mode,
    parse_tokens,
)
from app.ports.judges import JudgeCache
from app.ports.tracing import Attributes, open_span
from app.toolkit.thoughts import strip_leading_thoughts

# Answers, read without trust in their form: many servers are compatible only more or less.

LONGEST_NAME: Final = 200
"""Characters of what a server calls itself that are kept."""
LONGEST_WAIT_SECONDS: Final = 3600.0
"""Longest `retry-after` that is honoured. After this time the server is tried again."""


@dataclass(frozen=True)
class ChatResponse:
    """`text` is the refusal where the model refused."""

    text: str
    cut_off: bool
    refused: bool
    """According to the API's fields. Refusals in the text are detected elsewhere."""
    usage: TokenUsage = NOT_COUNTED
    tokens: tuple[Token, ...] = ()
    """Tokens with their probabilities, where requested and supported."""
    lacks_room: bool = False
    """The model's thought used up the tokens of the answer."""
    model: str = ""
    """What the server says answered; empty where it does not say, as `system_fingerprint`."""
    system_fingerprint: str = ""
    asked: JsonMode = "off"
    """The format that the server was to see to."""


def _require_success(reply: ServerReply, role: Role) -> bytes:
    """The body of a reply with a status below 300. CallFailed for any other."""
    if reply.status < 300:
        return reply.body
    error = parse_server_error(read_json(reply.body))
    raise CallFailed(
        f"the {role}'s server answered {reply.status}",
        status=reply.status,
        error=error,
        retry_after=parse_retry_after(reply.headers) or min(error.wait_seconds, LONGEST_WAIT_SECONDS),
    )


def parse_response(body: bytes, role: Role = "judge") -> ChatResponse:
    """The body of a reply with a status below 300, streamed or not. CallFailed when it holds no message, or an
    error."""
    value = read_answer(body)
    if value is None and is_event_stream(body):
        raise CallFailed(f"the {role}'s server broke off its stream")
    if value is None:
        raise CallFailed(f"the {role}'s server sent something that is not JSON", status=200)
    choice = _get_first(get_field(value, "choices"))
    reason = str(get_field(choice, "finish_reason") or "")
    if tells_error(value) or get_field(choice, "error") or is_broken_off(reason, says_nothing=False):
        raise _build_hidden_failure(value, choice, role)
    message = get_field(choice, "message")
    if not isinstance(message, dict):
        raise CallFailed(f"the {role}'s server sent JSON without a message", status=200)
    return _build_response(value, choice, message)


def _extract_name(value: object, name: str) -> str:
    text = get_field(value, name)
    return replace_surrogates(text[:LONGEST_NAME]) if isinstance(text, str) else ""


def _build_response(value: object, choice: object, message: Mapping[str, object]) -> ChatResponse:
    usage = parse_usage(get_field(value, "usage"))
    content, refusal = extract_text(message.get("content")), extract_text(message.get("refusal"))
    thought = extract_text(message.get("reasoning_content")) or extract_text(message.get("reasoning"))
    reason = str(get_field(choice, "finish_reason") or "")
    cut_off = is_truncated(reason) and not is_cut_by_filter(reason)
    if called := _extract_called(message):
        content = "\n".join(filter(None, (content, called)))
    text = content if content.strip() else refusal
    if not text and not cut_off:
        text = thought  # servers with a parser of thoughts may take a whole answer for one
    return ChatResponse(
        text=replace_surrogates(text),
        refused=get_field(choice, "finish_reason") == "content_filter" or (bool(refusal) and not content),
        cut_off=cut_off,
        usage=usage,
        tokens=parse_tokens(choice),
        lacks_room=cut_off
        and (
            _is_all_thought(content)
            or len(thought) > len(content)
            or 2 * usage.reasoning_tokens > (usage.output_tokens or 0)
        ),
        model=_extract_name(value, "model"),
        system_fingerprint=_extract_name(value, "system_fingerprint"),
    )


def _extract_called(message: Mapping[str, object]) -> str:
    """The arguments of calls: some models answer by a call of a tool that nobody offered. Also an answer that a server
    has parsed, in `parsed` or in `content`."""
    listed = message.get("tool_calls")
    calls = [get_field(call, "function") for call in listed] if isinstance(listed, list) else []
    held = [get_field(call, "arguments") for call in (*calls, message.get("function_call"))]
    parsed = (message.get("content"), message.get("parsed"))
    held += [each for each in parsed if isinstance(each, dict) and may_be_answer(each)]
    texts = [_encode_json(each) if isinstance(each, dict) else each for each in held]
    return "\n".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _encode_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _is_all_thought(content: str) -> bool:
    """Nothing at all is a thought that is not shown. Blank space without end is none."""
    return not content or (bool(content.strip()) and not strip_leading_thoughts(content))


def _build_hidden_failure(value: object, choice: object, role: Role) -> CallFailed:
    """For an error in a reply with status 200."""
    error = parse_server_error(value if tells_error(value) else {"error": get_field(choice, "error")})
    status = error.status or 200
    return CallFailed(
        f"the {role}'s server answered 200 with an error{f' {status}' if status != 200 else ''}",
        status=status,
        error=error,
        retry_after=min(error.wait_seconds, LONGEST_WAIT_SECONDS),
        ran=choice is not None,
    )


def parse_retry_after(headers: Mapping[str, str]) -> float:
    """Seconds from `retry-after`, at most LONGEST_WAIT_SECONDS; 0 when the header is missing or invalid."""
    milliseconds = headers.get("retry-after-ms", "").strip()  # Azure's, which is more exact
    if milliseconds.isascii() and milliseconds.isdigit():
        # Cut off, since a server may send thousands of digits, which `int` refuses.
        return min(int(milliseconds[:9]) / 1000, LONGEST_WAIT_SECONDS)
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        moment = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS) if math.isfinite(seconds) else 0.0


def _get_first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


# Requests: what is sent beside the prompt, and what is left out because a server refuses it.

_REFUSED_STATUSES: Final = frozenset((400, 404, 413, 415, 422, 501))
"""Statuses with which servers refuse a part of a request."""
_WEAKER_MODES: Final[Mapping[JsonMode, JsonMode]] = {"schema": "object", "object": "off"}
_OTHER_TOKEN_PARAMETER: Final[Mapping[TokenParameter, TokenParameter]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}

# Servers say only in words what they refuse. Each pattern matches the words of several of them.
_LIMIT: Final = re.compile(
    r"(?:at most|less than or equal to|<=|maximum of|max allowed:?|between [0-9]+ and|\[[0-9]+,)\W{0,3}([0-9]+)", re.I
)
_PROMPT_TOO_LONG: Final = re.compile(r"context (?:length|window|size)|too many tokens|reduce the length", re.I)
_WINDOW: Final = re.compile(r"context length (?:is|of)(?: only)? ([0-9]{1,9})", re.I)
_PROMPT_TOKENS: Final = re.compile(
    r"([0-9]{1,9}) (?:input tokens|in (?:the|your) (?:messages|prompt)|tokens from the input)", re.I
)
_LEAST_ROOM: Final = 256
"""Tokens of an answer with which asking is worth its price."""
_LIMIT_TOO_LARGE: Final = re.compile(r"max(?:_completion)?_tokens\W{1,3}(?:is|are) too large|^max_tokens", re.I)
_FORMAT: Final = re.compile(
    r"response_format|json_schema|json_object|json mode|json schema|structured output|guided|grammar|\bschema\b", re.I
)
_ONLY_SCHEMAS: Final = re.compile(r"must be \W?json_schema", re.I)
_ONLY_STREAMS: Final = re.compile(
    r"only supports? stream|(?:enable|use|requires?) (?:the )?stream|non-streaming"
    r"|stream\W{1,3}(?:must be|to be) (?:set to )?true|stream(?:ing)? (?:mode )?is required",
    re.I,
)
_SYSTEM_ROLE: Final = re.compile(
    r"system role|system (?:message|prompt|instruction)s? (?:is |are )?not|role\W{1,3}system"
    r"|developer instruction is not enabled|does not support \W?system|roles must alternate",
    re.I,
)
_FIRST_ROLE: Final = re.compile(r"messages\W?0\W*role", re.I)
_LOGPROBS_FORBIDDEN: Final = re.compile(r"\blogprobs\b", re.I)


@dataclass(frozen=True)
class RequestForm:
    """The parameters of a call. A false or empty one is not sent."""

    json_mode: JsonMode
    token_parameter: TokenParameter | None
    most_tokens: int
    temperature: float | None
    seed: int | None
    """Of the first vote. Each further vote adds one, or all would be the same."""
    alternatives: int
    """`top_logprobs`; 0 also asks for no `logprobs`."""
    has_system_role: bool = True
    """If not, the rules stand at the head of the user's message."""
    streams: bool = False
    counts_stream: bool = True
    """`stream_options` asks for the token counts of a stream."""
    most_tokens_allowed: int | None = None
    """By the server, where it said so."""
    is_fitted: bool = False
    """Whether the limit is what the server has left beside one long prompt. It is forgotten with that call."""
    refused_modes: frozenset[JsonMode] = frozenset()
    refused_token_parameters: frozenset[TokenParameter] = frozenset()


class PromptMessage(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


_Change = Callable[[RequestForm, ServerError], RequestForm]


def build_body(
    form: RequestForm, messages: Sequence[PromptMessage], request: JudgeRequest | None, config: ChatJudgeConfig
) -> dict[str, JsonValue]:
    """The body of a call in this form."""
    sent = messages if form.has_system_role else _merge_system_message(messages)
    body: dict[str, JsonValue] = {
        "model": config.model,
        "messages": [{"role": message["role"], "content": message["content"]} for message in sent],
        **config.extra_body,
        **_build_parameters(form, request),
    }
    if (response_format := build_response_format(form.json_mode, request)) is not None:
        body["response_format"] = response_format
    return body


def _merge_system_message(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """The messages of a model that knows no system message: its text stands at the head of the user's."""
    first, second, *others = messages
    return [{"role": "user", "content": f"{first['content']}\n\n{second['content']}"}, *others]


def _build_parameters(form: RequestForm, request: JudgeRequest | None) -> dict[str, JsonValue]:
    """All of the body but model, messages and the format of the answer."""
    sent: dict[str, JsonValue] = {}
    if form.token_parameter is not None:
        sent[form.token_parameter] = form.most_tokens
    if form.temperature is not None:
        sent["temperature"] = form.temperature
    if form.seed is not None:
        sent["seed"] = form.seed + (0 if request is None else request.vote)
    if form.alternatives and request is not None:
        sent |= {"logprobs": True, "top_logprobs": form.alternatives}
    if form.streams:
        sent["stream"] = True
    if form.streams and form.counts_stream:
        sent["stream_options"] = {"include_usage": True}
    return sent


def _leave_out_refused(form: RequestForm, failed: CallFailed) -> RequestForm | None:
    """The form without what the server refuses; None where its error names nothing of the form."""
    error = failed.error
    if failed.status == 403:  # from OpenAI's reasoning models
        return _give_up_logprobs(form) if form.alternatives and _LOGPROBS_FORBIDDEN.search(error.message) else None
    if failed.status is None or failed.status < 400:
        return None
    if form.has_system_role and _refuses_system_role(error):
        return replace(form, has_system_role=False)
    if failed.status not in _REFUSED_STATUSES:
        return None
    for names, change in _CHANGES:
        changed = change(form, error) if names(error) else form
        if changed != form:
            return changed
    return None


def _weaken_format(form: RequestForm) -> RequestForm | None:
    """The form with the next weaker format of answers."""
    refused = form.refused_modes | {form.json_mode}
    weaker = _WEAKER_MODES.get(form.json_mode)
    # A server that takes schemas alone, as LM Studio does, has refused `object` before.
    while weaker in refused:
        weaker = _WEAKER_MODES.get(weaker)
    return None if weaker is None else replace(form, json_mode=weaker, refused_modes=refused)


def _switch_token_parameter(form: RequestForm) -> RequestForm | None:
    """The form with the other name of the limit; None where that was tried."""
    used = form.token_parameter
    if used is None or _OTHER_TOKEN_PARAMETER[used] in form.refused_token_parameters:
        return None
    refused = form.refused_token_parameters | {used}
    return replace(form, token_parameter=_OTHER_TOKEN_PARAMETER[used], refused_token_parameters=refused)


def _find_room(error: ServerError) -> int | None:
    """How many tokens the model's window has left for an answer to this prompt, where the server says so."""
    window, read = _WINDOW.search(error.message), _PROMPT_TOKENS.search(error.message)
    return None if window is None or read is None else int(window[1]) - int(read[1])


def _blames_prompt(failed: CallFailed) -> bool:
    """Whether the prompt is longer than the model can read, or leaves no room for an answer."""
    if "context_length_exceeded" in failed.error.codes:
        return True
    room = _find_room(failed.error)
    return (room is not None and room < _LEAST_ROOM) or (
        _PROMPT_TOO_LONG.search(failed.error.message) is not None and not _LIMIT_TOO_LARGE.search(failed.error.message)
    )


def _names_field(*names: str) -> Callable[[ServerError], bool]:
    pattern = re.compile(rf"(?<![a-z_])(?:{'|'.join(names)})(?![a-z_])", re.I)
    return lambda error: any(map(pattern.match, error.fields)) or pattern.search(error.message) is not None


def _refuses_system_role(error: ServerError) -> bool:
    return _SYSTEM_ROLE.search(error.message) is not None or any(map(_FIRST_ROLE.match, error.fields))


def _switch_to_stream(form: RequestForm, error: ServerError) -> RequestForm:
    return replace(form, streams=True)


def _leave_out_stream_options(form: RequestForm, error: ServerError) -> RequestForm:
    return replace(form, counts_stream=False) if form.streams else form


def _reduce_logprobs(form: RequestForm, error: ServerError) -> RequestForm:
    most = _LIMIT.search(error.message)
    if most is not None and 1 < int(most[1][:6]) < form.alternatives:
        return replace(form, alternatives=int(most[1][:6]))
    return _give_up_logprobs(form)


def _give_up_logprobs(form: RequestForm) -> RequestForm:
    return replace(form, alternatives=0)


def _leave_out_temperature(form: RequestForm, error: ServerError) -> RequestForm:
    return replace(form, temperature=None)


def _leave_out_seed(form: RequestForm, error: ServerError) -> RequestForm:
    return replace(form, seed=None)


def _change_token_limit(form: RequestForm, error: ServerError) -> RequestForm:
    used = form.token_parameter
    if used is None:
        return form
    most = _LIMIT.search(error.message)
    if most is not None and 0 < int(most[1][:9]) < form.most_tokens:
        return replace(form, most_tokens=int(most[1][:9]), most_tokens_allowed=int(most[1][:9]))
    return _switch_token_parameter(form) or replace(form, token_parameter=None)


def _change_format(form: RequestForm, error: ServerError) -> RequestForm:
    if form.json_mode == "object" and "schema" not in form.refused_modes and _ONLY_SCHEMAS.search(error.message):
        return replace(form, json_mode="schema", refused_modes=form.refused_modes | {"object"})
    return _weaken_format(form) or form


_CHANGES: Final[tuple[tuple[Callable[[ServerError], bool], _Change], ...]] = (
    (lambda error: _ONLY_STREAMS.search(error.message) is not None, _switch_to_stream),
    (_names_field("stream_options", "include_usage"), _leave_out_stream_options),
    (_names_field("logprobs", "top_logprobs"), _reduce_logprobs),
    (_names_field("temperature"), _leave_out_temperature),
    (_names_field("seed"), _leave_out_seed),
    (_names_field("max_tokens", "max_completion_tokens"), _change_token_limit),
    (lambda error: any(map(_FORMAT.match, error.fields)) or _FORMAT.search(error.message) is not None, _change_format),
)
"""What the error names, and what then is sent instead. Errors may name several things: the first change counts."""


# What is known of a server: the form of request that it answers, and what it ignores without a word.

_MORE_ROOM: Final = 4
"""By this factor the tokens of an answer grow when a thought used them up."""
_MOST_ROOM: Final = 32_768
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
        self._role = config.role
        self._answered = False
        self._ignored: set[str] = set()
        self.counts = PromptCounts()

    @property
    def cut(self) -> str:
        """That the server does not read whole prompts, in words; empty where nothing says so."""
        if (window := self.counts.window) is None:
            return ""
        return (
            f"the {self._role}'s server reads only {window} tokens of a prompt, whatever its length: raise its window"
        )

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
        if failed.is_refusal or failed.is_failed_generation:
            return None
        room = _find_room(failed.error)
        if used.token_parameter is not None and room is not None and _LEAST_ROOM <= room < used.most_tokens:
            return replace(used, most_tokens=room, most_tokens_allowed=room, is_fitted=True)
        if _blames_prompt(failed):
            return None
        changed = _leave_out_refused(used, failed)
        if changed is not None and self._answered and used == self._configured != self.form:
            return self.form  # another call has found out meanwhile
        if changed is not None or failed.status not in _REFUSED_STATUSES or (self._answered and self.form == used):
            return changed
        return _weaken_format(used)  # the error names nothing

    def give_room(self, used: RequestForm) -> RequestForm | None:
        """The form with more tokens for the answer, when a thought used them up."""
        most = min(_MORE_ROOM * used.most_tokens, _MOST_ROOM, used.most_tokens_allowed or _MOST_ROOM)
        worth_asking = used.token_parameter is not None and most >= 2 * used.most_tokens
        return replace(used, most_tokens=most) if worth_asking else None

    def record_answer(self, used: RequestForm, reply: ChatResponse, *, changed: bool) -> None:
        """`changed`: the form was changed for this very answer."""
        if changed or not self._answered:
            known = self.form
            kept = (
                replace(used, most_tokens=known.most_tokens, most_tokens_allowed=known.most_tokens_allowed)
                if used.is_fitted
                else used
            )
            self.form, self._answered = replace(kept, is_fitted=False), True
        if used.alternatives and reply.text and not reply.tokens:
            self._ignored.add("logprobs")
        wrote = (reply.usage.output_tokens or 0) - reply.usage.reasoning_tokens
        if used.token_parameter is not None and wrote > used.most_tokens + _LEAST_OVERRUN:
            self._ignored.add(used.token_parameter)
            if self.form.token_parameter == used.token_parameter:
                self.form = _switch_token_parameter(self.form) or self.form

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
    text = strip_leading_thoughts(reply.text)
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


# Spans of calls, by OpenTelemetry's conventions for generative AI. They hold no text that was read or written.

_PORTS: Final = {"http": 80, "https": 443}


def _name_call(config: ChatJudgeConfig, path: str) -> str:
    return f"{_name_operation(path)} {config.model}"


def _describe_call(config: ChatJudgeConfig, path: str, most_tokens: int) -> Attributes:
    host, port = _locate_server(config.base_url)
    return {
        "gen_ai.operation.name": _name_operation(path),
        "gen_ai.provider.name": "azure.ai.openai" if config.api_version else "openai",
        "gen_ai.request.model": config.model,
        "gen_ai.request.max_tokens": most_tokens or None,
        "gen_ai.request.temperature": config.temperature,
        "server.address": host,
        "server.port": port,
        "atropos.judge": config.name,
    }


@lru_cache(maxsize=64)
def _locate_server(base_url: str) -> tuple[str | None, int | None]:
    server = urlsplit(base_url)
    return server.hostname, server.port or _PORTS.get(server.scheme)


def _describe_reply(config: ChatJudgeConfig, reply: ChatResponse) -> Attributes:
    usage = reply.usage
    return {
        "gen_ai.response.model": reply.model or None,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens or None,
        "atropos.cost_usd": _compute_cost(config, usage),
    }


def _name_failure(failed: CallFailed) -> str:
    return str(failed.status) if failed.status is not None else "no_reply"


def _name_operation(path: str) -> str:
    return "chat" if path == CHAT_PATH else path.strip("/").rpartition("/")[2]


def _compute_cost(config: ChatJudgeConfig, usage: TokenUsage) -> float | None:
    if usage.input_tokens is None or usage.output_tokens is None or not config.prices.are_known:
        return None
    return config.prices.compute_cost(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)


# The client.

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
_MOST_PARSED_ON_LOOP: Final = 100_000
"""Longest reply, in bytes, that is parsed on the event loop. Streams take longest."""
_SERVER_FAULT_STATUSES: Final = frozenset((401, 402, 403, 404, 408))
"""Statuses below 500 that every request would get."""


@dataclass(frozen=True)
class ServerCall:
    """One request to a server, and how its answer is read. `texts` are what the model reads, to estimate tokens."""

    path: str
    body: Mapping[str, JsonValue]
    texts: Sequence[str]
    parse: Callable[[bytes], ChatResponse]
    most_tokens: int = 0
    """Of its answer."""


_Revision = Callable[[CallFailed], ServerCall | None]
"""What is sent instead of a call that failed; None where nothing is."""


def _keep_call(_failed: CallFailed) -> None:
    return None


class JudgeClient:
    """Calls one judge's server. What it spends is recorded by its caller, who stores the judgement."""

    def __init__(
        self,
        config: ChatJudgeConfig,
        account: SpendingAccount,
        memory: JudgeCache,
        *,
        traits: ServerTraits | None = None,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.breaker = CircuitBreaker(config.breaker_failures, config.breaker_seconds, clock, now)
        self.lease = LimitsLease(config.name, config.call_limits, memory, self.breaker, clock, config.role)
        self.budget = Budget(config.name, config.budget, account, memory, config.deadline_seconds, config.role)
        self.last_error: str | None = None
        self._config = config
        self._chance = chance
        self._clock = clock
        self.traits = ServerTraits(config) if traits is None else traits
        self._connection = Connection(config.endpoint)
        self._asked_cut = -math.inf
        """When a prompt was last found to be cut."""

    async def close(self) -> None:
        await self.lease.close()
        await self._connection.aclose()

    async def ask(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, deadline: Deadline, spent: ReadingCost
    ) -> ChatResponse:
        """As `ask_route`, in the form that the server takes. ReadingFailed for a refusal too. Without a request the
        answer may be any JSON object."""
        form = first = self.traits.form

        def revise(failed: CallFailed) -> ServerCall | None:
            nonlocal form
            if (changed := self.traits.choose_next(form, failed)) is None:
                return None
            form = changed
            return self._build_call(messages, request, form)

        while True:
            call = self._build_call(messages, request, form)
            size = sum(len(text.encode("utf-8", "surrogatepass")) for text in call.texts)
            self._require_whole_prompt(size)
            reply = await self.ask_route(call, deadline, spent, revise)
            self.traits.counts.record(size, reply.usage)
            if self.traits.cut and self.traits.counts.cuts(size):
                self._asked_cut = self._clock()
                self.last_error = self.traits.cut
                raise ReadingFailed(self.traits.cut, "unusable")
            self.traits.record_answer(form, reply, changed=form != first)
            if reply.refused:
                raise build_refusal_error(reply.text, self._config.role)
            if not reply.lacks_room or (changed := self.traits.give_room(form)) is None:
                return reply
            form = changed

    def _require_whole_prompt(self, size: int) -> None:
        """A server that cuts longer prompts is sent one of them from time to time: its window may have been raised."""
        if not self.traits.cut or not self.traits.counts.cuts(size):
            return
        if self._clock() - self._asked_cut < self._config.breaker_seconds:
            raise ReadingFailed(self.traits.cut, "unusable")
        self._asked_cut = self._clock()  # before it is answered, so that those who wait are not all sent

    async def ask_route(
        self, call: ServerCall, deadline: Deadline, spent: ReadingCost, revise: _Revision = _keep_call
    ) -> ChatResponse:
        """Returns the server's answer, with retries until the deadline. What `revise` makes of a refused call is sent
        at once. ReadingFailed for a permanent error, an open breaker or an exhausted budget."""
        attempt = strange = 0
        while True:
            # Shortened at random, so that readings that failed together do not come back together.
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**attempt) * (0.5 + 0.5 * self._chance())
            try:
                return await self._call_within_limits(call, deadline, spent)
            except CallFailed as failed:
                if (revised := revise(failed)) is not None:
                    call = revised
                    continue
                spent.trouble = self.last_error = failed.words
                # Answers that are none: a few may be an accident, more say that the URL is wrong.
                strange += failed.status == 200 or failed.is_failed_generation
                require_retryable(failed, strange, self._config.role)
                pause = max(pause, failed.retry_after)
            attempt += 1
            await _pause_before_retry(pause, deadline, spent)

    def _build_call(
        self, messages: Sequence[PromptMessage], request: JudgeRequest | None, form: RequestForm
    ) -> ServerCall:
        body = build_body(form, messages, request, self._config)
        texts = [message["content"] for message in messages]
        parse = partial(self._parse_answer, texts, choose_mode(form.json_mode, request))
        return ServerCall(CHAT_PATH, body, texts, parse, form.most_tokens)

    def _parse_answer(self, texts: Sequence[str], asked: JsonMode, body: bytes) -> ChatResponse:
        """Without the secrets that were sent: what a server repeats of them must not be stored."""
        reply = parse_response(body, self._config.role)
        redact = self._connection.endpoint.credentials.redact
        text = redact(reply.text, texts)
        return replace(
            reply,
            text=text,
            tokens=reply.tokens if text == reply.text else (),  # a redacted text has other offsets
            model=redact(reply.model),
            system_fingerprint=redact(reply.system_fingerprint),
            asked=asked,
        )

    async def _call_within_limits(self, call: ServerCall, deadline: Deadline, spent: ReadingCost) -> ChatResponse:
        """One call, after waiting for all limits."""
        expected = self._config.prices.compute_amount(bound_message_tokens(call.texts), call.most_tokens)
        # What would fail anyway fails before it waits in the queue.
        await self.lease.prepare_probe()
        self.breaker.require_closed()
        self.budget.require_available(expected)
        # A reading that waits holds no reservation, only what it has used, so that two never wait for each other.
        if spent.calls:
            await self.budget.release_between_calls(spent.hold, spent.compute_used(self._config.prices))
        await self._wait_for_server(deadline)
        with deadline.extend_while_queued():
            await self.lease.slots.acquire(hash_beginnings(call.texts))
        try:
            await self._wait_for_server(deadline)  # the server may have sent a retry-after meanwhile
            taken = await self._take_rates_and_budget(expected, deadline, spent) if self._has_rates_or_budget else 0.0
            with self.breaker.track_call() as outcome:  # fails where the breaker opened meanwhile
                reply = await self._exchange(call, outcome, deadline, spent, expected)
            used = spent.record_answer(reply.text, reply.usage, call.texts)
            spent.served_model, spent.system_fingerprint = reply.model, reply.system_fingerprint
            if self.lease.tokens is not None:
                self.lease.tokens.settle(taken - used)  # the most that the answer might have had was taken
            return reply
        finally:
            self.lease.release()

    @property
    def _has_rates_or_budget(self) -> bool:
        return self.lease.requests is not None or self.lease.tokens is not None or self.budget.is_limited

    async def _take_rates_and_budget(self, expected: Amount, deadline: Deadline, spent: ReadingCost) -> float:
        """Returns the tokens taken."""
        with deadline.extend_while_queued():
            if self.lease.requests is not None:
                await self.lease.requests.take(1)
            taken = 0.0 if self.lease.tokens is None else await self.lease.tokens.take(expected.tokens)
            await self.budget.reserve(spent.hold, spent.compute_used(self._config.prices), expected)
        return taken

    async def _exchange(
        self, call: ServerCall, outcome: CallOutcome, deadline: Deadline, spent: ReadingCost, expected: Amount
    ) -> ChatResponse:
        spent.calls += 1
        try:
            reply = await self._call_in_span(call)
        except CallFailed as failed:
            if failed.perhaps_charged:
                spent.add_unanswered(expected)
            self._record_failure(failed, outcome)
            raise
        except asyncio.CancelledError:
            spent.add_unanswered(expected)  # the server may finish the answer, and charge for it
            if deadline.expired:  # a caller who leaves before is no fault of the server
                outcome.good, outcome.trouble = False, "no answer within the deadline"
                self.last_error = outcome.trouble
                self.lease.record(CallFeedback(failed=True))
            raise
        outcome.good = True
        self.lease.record(CallFeedback(succeeded=1))
        return reply

    async def _call_in_span(self, call: ServerCall) -> ChatResponse:
        config = self._config
        about = _describe_call(config, call.path, call.most_tokens)
        with open_span(_name_call(config, call.path), about, "client") as span:
            try:
                body = await self._send(call)
                large = len(body) > _MOST_PARSED_ON_LOOP
                reply = await asyncio.to_thread(call.parse, body) if large else call.parse(body)
            except CallFailed as failed:
                span.mark_failed(_name_failure(failed))
                raise
            span.describe(_describe_reply(config, reply))
            return reply

    async def _send(self, call: ServerCall) -> bytes:
        """Sends in a turn, and returns in one: hundreds of calls may begin and end at once."""
        await await_turn_at_judging()
        try:
            reply = await self._connection.post(call.body, call.path)
        except NoReply as error:
            raise build_call_failure(error, self._config.role) from None
        await await_turn_at_judging()
        return _require_success(reply, self._config.role)

    def _record_failure(self, failed: CallFailed, outcome: CallOutcome) -> None:
        """Updates limits and breaker after a failed call."""
        if failed.status == 429 and not failed.error.lacks_money:
            self.lease.record(CallFeedback(rate_limited=True, retry_after=failed.retry_after))
        elif (
            failed.status is None
            or failed.error.lacks_money
            or failed.status < 300
            or failed.status >= 500
            or failed.status in _SERVER_FAULT_STATUSES
        ):
            outcome.good, outcome.trouble = False, failed.words
            self.lease.record(CallFeedback(failed=True))
        else:
            outcome.good = True  # the server works, and this request is at fault

    async def _wait_for_server(self, deadline: Deadline) -> None:
        """Waits until the time that the server named in `retry-after`."""
        wait = self.lease.quiet_until - self._clock()
        if wait >= deadline.seconds_left:
            raise ReadingFailed(f"the {self._config.role}'s server asked to wait another {wait:.0f} s", "unavailable")
        if wait > 0:
            await asyncio.sleep(wait)


async def _pause_before_retry(pause: float, deadline: Deadline, spent: ReadingCost) -> None:
    """ReadingFailed when the deadline comes first."""
    if deadline.seconds_left <= pause:
        raise ReadingFailed(f"{spent.trouble}; gave up after {spent.calls} attempts", "unavailable")
    await asyncio.sleep(pause)
