"""What is sent to a judge's server beside the prompt, and what is left out because the server refuses it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict

from pydantic import JsonValue

from app.domain.judging import JudgeRequest
from app.inference.server_errors import ServerError
from app.judges.configuration import ChatJudgeConfig, JsonMode, TokenParameter
from app.judges.failures import CallFailed
from app.judges.formats import build_response_format

REFUSED_STATUSES: Final = frozenset((400, 404, 413, 415, 422, 501))
_WEAKER_MODES: Final[Mapping[JsonMode, JsonMode]] = {"schema": "object", "object": "off"}
_OTHER_TOKEN_PARAMETER: Final[Mapping[TokenParameter, TokenParameter]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
_MOST: Final = (
    r"(?:at most|less than or equal to|<=|maximum of|max allowed:?|between [0-9]+ and|\[[0-9]+,)\W{0,3}([0-9]+)"
)
_LIMIT: Final = re.compile(_MOST, re.I)
_PROMPT_TOO_LONG: Final = re.compile(r"context (?:length|window|size)|too many tokens|reduce the length", re.I)
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
    """Of the first vote."""
    alternatives: int
    """`top_logprobs`; 0 also asks for no `logprobs`."""
    has_system_role: bool = True
    """If not, the rules stand at the head of the user's message."""
    streams: bool = False
    counts_stream: bool = True
    """`stream_options` asks for the token counts of a stream."""
    most_tokens_allowed: int | None = None
    """By the server, where it said so."""
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
    told = messages if form.has_system_role else _merge_system_message(messages)
    body: dict[str, JsonValue] = {
        "model": config.model,
        "messages": [{"role": said["role"], "content": said["content"]} for said in told],
        **config.extra_body,
        **build_parameters(form, request),
    }
    if (wanted := build_response_format(form.json_mode, request, config.verdict_form)) is not None:
        body["response_format"] = wanted
    return body


def _merge_system_message(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """The messages of a model that knows no system message: its text stands at the head of the user's."""
    first, second, *others = messages
    return [{"role": "user", "content": f"{first['content']}\n\n{second['content']}"}, *others]


def build_parameters(form: RequestForm, request: JudgeRequest | None) -> dict[str, JsonValue]:
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


def leave_out_refused(form: RequestForm, failed: CallFailed) -> RequestForm | None:
    """The form without what the server refuses; None where its error names nothing of the form."""
    error = failed.error
    if failed.status == 403:
        return _give_up_logprobs(form) if form.alternatives and _LOGPROBS_FORBIDDEN.search(error.message) else None
    if failed.status is None or failed.status < 400:
        return None
    if form.has_system_role and _refuses_system_role(error):
        return replace(form, has_system_role=False)
    if failed.status not in REFUSED_STATUSES:
        return None
    for names, change in _CHANGES:
        changed = change(form, error) if names(error) else form
        if changed != form:
            return changed
    return None


def weaken_format(form: RequestForm) -> RequestForm | None:
    """The form with the next weaker format of answers."""
    refused = form.refused_modes | {form.json_mode}
    weaker = _WEAKER_MODES.get(form.json_mode)
    while weaker in refused:
        weaker = _WEAKER_MODES.get(weaker)
    return None if weaker is None else replace(form, json_mode=weaker, refused_modes=refused)


def switch_token_parameter(form: RequestForm) -> RequestForm | None:
    """The form with the other name of the limit; None where that was tried."""
    used = form.token_parameter
    if used is None or _OTHER_TOKEN_PARAMETER[used] in form.refused_token_parameters:
        return None
    refused = form.refused_token_parameters | {used}
    return replace(form, token_parameter=_OTHER_TOKEN_PARAMETER[used], refused_token_parameters=refused)


def blames_prompt(failed: CallFailed) -> bool:
    """Whether the prompt is longer than the model can read."""
    return "context_length_exceeded" in failed.error.codes or (
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
    return switch_token_parameter(form) or replace(form, token_parameter=None)


def _change_format(form: RequestForm, error: ServerError) -> RequestForm:
    if form.json_mode == "object" and "schema" not in form.refused_modes and _ONLY_SCHEMAS.search(error.message):
        return replace(form, json_mode="schema", refused_modes=form.refused_modes | {"object"})
    return weaken_format(form) or form


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
