"""A local tokenizer and chat template, for servers that return no token ids."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, JsonValue, ValidationError
from tokenizers import Tokenizer

from app.domain.tasks import Message, ToolSpec
from app.inference.wire import Ids, SampledMessage


class _NamedTemplate(BaseModel):
    name: str
    template: str


class _SpecialToken(BaseModel):
    content: str


class _TokenizerConfig(BaseModel):
    chat_template: str | list[_NamedTemplate] | None = None
    eos_token: str | _SpecialToken | None = None
    bos_token: str | _SpecialToken | None = None


@dataclass(frozen=True)
class LocalTokenizer:
    """Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a folder."""

    tokenizer: Tokenizer
    template: Template
    bos: str
    eos: str

    @classmethod
    def read(cls, path: Path) -> "LocalTokenizer":
        """Reads the file `tokenizer.json` or its folder. ValueError when something is missing or cannot be read."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise ValueError(f"{file}: file not found; it is part of the model's files")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises nothing narrower
            raise ValueError(f"{file}: {error}") from error
        config = _read_config(file.with_name("tokenizer_config.json"))
        source = _read_template(file.with_name("chat_template.jinja"), config)
        try:
            template = _create_template_environment().from_string(source)
        except TemplateError as error:
            raise ValueError(f"the chat template beside {file}: {error}") from error
        return cls(tokenizer, template, _get_token_text(config.bos_token), _get_token_text(config.eos_token))

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """Token ids up to the model's turn. ValueError when the template rejects the messages."""
        return self._encode_text(self._render_messages(messages, tools, opened=True))

    def encode_reply(self, before: Sequence[Message], tools: Sequence[ToolSpec], said: SampledMessage) -> Ids:
        """Token ids of the model's message, with the end token unless it was truncated. ValueError when the template
        cannot render a message with tool calls as a continuation of its prompt."""
        if not said.message.tool_calls:
            ended = said.finish_reason != "length"
            return self._encode_text((said.message.content or "") + (self.eos if ended else ""))
        opened = self._render_messages(before, tools, opened=True)
        whole = self._render_messages((*before, said.message), tools, opened=False)
        if not whole.startswith(opened):
            raise ValueError("the chat template does not render tool calls as a continuation of the prompt")
        text = whole.removeprefix(opened)
        end = text.rfind(self.eos) + len(self.eos) if self.eos and self.eos in text else len(text)
        return self._encode_text(text[:end])

    def _render_messages(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, opened: bool) -> str:
        try:
            return self.template.render(
                messages=[_prepare_message(message) for message in messages],
                tools=[tool.model_dump(mode="json") for tool in tools] or None,
                add_generation_prompt=opened,
                bos_token=self.bos,
                eos_token=self.eos,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise ValueError(f"the chat template rejects these messages: {error}") from error

    def _encode_text(self, text: str) -> Ids:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)


def _read_config(path: Path) -> _TokenizerConfig:
    if not path.is_file():
        return _TokenizerConfig()
    try:
        return _TokenizerConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path}: {error.errors(include_url=False)[0]['msg']}") from error


def _read_template(beside: Path, config: _TokenizerConfig) -> str:
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    given = config.chat_template
    if isinstance(given, list):
        given = {named.name: named.template for named in given}.get("default")
    if given is None:
        raise ValueError(f"no chat template: neither {beside} nor chat_template in tokenizer_config.json beside it")
    return given


def _create_template_environment() -> ImmutableSandboxedEnvironment:
    """Like the reference implementation of chat templates: undefined names are empty, and JSON is neither sorted nor
    escaped."""
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=["jinja2.ext.loopcontrols"]
    )
    jinja.filters["tojson"] = _render_json
    jinja.globals["raise_exception"] = _raise_template_error
    jinja.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    return jinja


def _render_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_template_error(words: str) -> NoReturn:
    raise TemplateError(words)


def _prepare_message(message: Message) -> dict[str, JsonValue]:
    """Arguments become objects, which templates render as JSON; missing content becomes an empty text."""
    plain: dict[str, JsonValue] = message.model_dump(mode="json")
    plain["content"] = plain["content"] or ""
    calls = plain.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call["function"] if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function["arguments"], str):
            function["arguments"] = _parse_arguments(function["arguments"])
    return plain


def _parse_arguments(arguments: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _get_token_text(token: str | _SpecialToken | None) -> str:
    return token.content if isinstance(token, _SpecialToken) else token or ""
