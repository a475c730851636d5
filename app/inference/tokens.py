"""A model's chat template and tokenizer, applied here: for servers without token ids, and to check those of others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, JsonValue, ValidationError
from tokenizers import Tokenizer

from app.domain.errors import UserError
from app.domain.faults import describe_faults
from app.domain.tasks import Message, ToolSpec
from app.domain.values import digest
from app.inference.policies import count_shared_prefix
from app.inference.wire import Ids, SampledMessage

# Chat templates.

_CONFIG_FILE = "tokenizer_config.json"
_TEMPLATE_FILE = "chat_template.jinja"


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
class ChatTemplate:
    template: Template
    bos: str
    eos: str
    digest: str

    @classmethod
    def read(cls, path: Path) -> "ChatTemplate":
        """Reads `chat_template.jinja` and `tokenizer_config.json` of a folder, or the template in a file of any other
        name, with the configuration beside it. UserError when there is no template or it cannot be read."""
        folder = path if path.is_dir() else path.parent
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        config = _read_config(folder / _CONFIG_FILE)
        source = _read_template(folder / _TEMPLATE_FILE if path.is_dir() else path, config)
        try:
            template = _create_template_environment().from_string(source)
        except TemplateError as error:
            raise UserError(f"the chat template beside or in {path}: {error}") from error
        bos, eos = _get_token_text(config.bos_token), _get_token_text(config.eos_token)
        return cls(template, bos, eos, digest([source, bos, eos]))

    def render_messages(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        tools: Sequence[JsonValue] | None = None,
        *,
        opened: bool,
    ) -> str:
        """`opened`: up to where the model goes on. UserError when the template rejects the messages."""
        try:
            return self.template.render(
                messages=messages,
                tools=tools,
                add_generation_prompt=opened,
                bos_token=self.bos,
                eos_token=self.eos,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise UserError(f"the chat template rejects these messages: {error}") from error


def _read_config(path: Path) -> _TokenizerConfig:
    if not path.is_file():
        return _TokenizerConfig()
    try:
        return _TokenizerConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: {describe_faults(error, _TokenizerConfig)}") from error


def _read_template(beside: Path, config: _TokenizerConfig) -> str:
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    template = config.chat_template
    if isinstance(template, list):
        template = {named.name: named.template for named in template}.get("default")
    if template is None:
        raise UserError(f"no chat template: neither {beside} nor chat_template in tokenizer_config.json beside it")
    return template


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


def _get_token_text(token: str | _SpecialToken | None) -> str:
    return token.content if isinstance(token, _SpecialToken) else token or ""


# Local tokenizers.


@dataclass(frozen=True)
class LocalTokenizer:
    """Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a folder."""

    tokenizer: Tokenizer
    template: ChatTemplate

    @classmethod
    def read(cls, path: Path) -> "LocalTokenizer":
        """Reads the file `tokenizer.json` or its folder. UserError when something is missing or cannot be read."""
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise UserError(f"{file}: file not found; it is part of the model's files")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises nothing narrower
            raise UserError(f"{file}: {error}") from error
        return cls(tokenizer, ChatTemplate.read(file.parent))

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """Token ids up to the model's turn. UserError when the template rejects the messages."""
        return self._encode_text(self._render_messages(messages, tools, opened=True))

    def encode_reply(self, before: Sequence[Message], tools: Sequence[ToolSpec], said: SampledMessage) -> Ids:
        """Token ids of the model's message, with the end token unless it was truncated. UserError when the template
        cannot render a message with tool calls as a continuation of its prompt."""
        if not said.message.tool_calls:
            ended = said.finish_reason != "length"
            return self._encode_text((said.message.content or "") + (self.template.eos if ended else ""))
        opened = self._render_messages(before, tools, opened=True)
        whole = self._render_messages((*before, said.message), tools, opened=False)
        if not whole.startswith(opened):
            raise UserError("the chat template does not render tool calls as a continuation of the prompt")
        text = whole.removeprefix(opened)
        eos = self.template.eos
        # What the template writes behind the end token was not sampled.
        end = text.rfind(eos) + len(eos) if eos and eos in text else len(text)
        return self._encode_text(text[:end])

    def decode(self, ids: Ids) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def _render_messages(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, opened: bool) -> str:
        offered: list[JsonValue] = [tool.model_dump(mode="json") for tool in tools]
        return self.template.render_messages(
            [_prepare_message(message) for message in messages], offered or None, opened=opened
        )

    def _encode_text(self, text: str) -> Ids:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)


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


# The check: a server's token ids beside those that its text gives when it is tokenised again.

_Part = Literal["prompt", "completion"]

_SHOWN: Final = 8
"""Tokens of each side that are shown from the first difference on."""
_EXAMPLES: Final = 3


@dataclass(frozen=True)
class TokenDifference:
    """The first place where the ids differ, and what follows there on both sides."""

    part: _Part
    place: int
    server_ids: Ids
    server_text: str
    made_ids: Ids
    made_text: str

    @property
    def words(self) -> str:
        server = f"the server has {list(self.server_ids)} {self.server_text!r}"
        return f"{self.part}, token {self.place}: {server}, its text gives {list(self.made_ids)} {self.made_text!r}"


@dataclass(frozen=True)
class CheckedTurn:
    """`refused`: why the text cannot be tokenised; then `differences` holds nothing."""

    differences: tuple[TokenDifference, ...] = ()
    refused: str = ""


@dataclass
class TokenCheckTally:
    checked: int = 0
    differing: dict[_Part, int] = field(default_factory=lambda: {"prompt": 0, "completion": 0})
    without_ids: int = 0
    refused: int = 0
    last_refused: str = ""
    examples: list[tuple[str, TokenDifference]] = field(default_factory=list)
    """Each with its task."""

    def add_turn(self, task_id: str, turn: CheckedTurn | None) -> None:
        """None for a turn whose ids the server did not tell."""
        if turn is None:
            self.without_ids += 1
            return
        if turn.refused:
            self.refused += 1
            self.last_refused = turn.refused
            return
        self.checked += 1
        for difference in turn.differences:
            self.differing[difference.part] += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append((task_id, difference))

    @property
    def lines(self) -> list[str]:
        counts = [f"{count} of {self.checked} {part}s" for part, count in self.differing.items()]
        lines = [f"tokenised again, other ids: {', '.join(counts)}"]
        lines += [f"  {task_id}, {difference.words}" for task_id, difference in self.examples]
        lines += [f"not checked, the server told no ids: {self.without_ids} turns"] if self.without_ids else []
        if self.refused:
            lines.append(f"not checked, {self.last_refused}: {self.refused} turns")
        return lines


def check_turn(
    tokenizer: LocalTokenizer, before: Sequence[Message], tools: Sequence[ToolSpec], said: SampledMessage
) -> CheckedTurn | None:
    """None when the server told no ids."""
    if said.prompt_ids is None or said.ids is None:
        return None
    try:
        prompt = tokenizer.encode_prompt(before, tools)
        reply = tokenizer.encode_reply(before, tools, said)
    except UserError as error:
        return CheckedTurn(refused=str(error))
    differences = (
        _find_difference(tokenizer, "prompt", said.prompt_ids, prompt),
        _find_difference(tokenizer, "completion", said.ids, reply),
    )
    return CheckedTurn(tuple(one for one in differences if one is not None))


def _find_difference(tokenizer: LocalTokenizer, part: _Part, server: Ids, made: Ids) -> TokenDifference | None:
    if server == made:
        return None
    start = count_shared_prefix(server, made)
    ours, theirs = made[start : start + _SHOWN], server[start : start + _SHOWN]
    return TokenDifference(part, start, theirs, tokenizer.decode(theirs), ours, tokenizer.decode(ours))
