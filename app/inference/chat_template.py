"""A model's chat template, applied here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, JsonValue, ValidationError

from app.domain.digests import digest

CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"


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
        name, with the configuration beside it. ValueError when there is no template or it cannot be read."""
        folder = path if path.is_dir() else path.parent
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        config = _read_config(folder / CONFIG_FILE)
        source = _read_template(folder / TEMPLATE_FILE if path.is_dir() else path, config)
        try:
            template = _create_template_environment().from_string(source)
        except TemplateError as error:
            raise ValueError(f"the chat template beside or in {path}: {error}") from error
        bos, eos = _get_token_text(config.bos_token), _get_token_text(config.eos_token)
        return cls(template, bos, eos, digest([source, bos, eos]))

    def render_messages(
        self,
        messages: Sequence[Mapping[str, JsonValue]],
        tools: Sequence[JsonValue] | None = None,
        *,
        opened: bool,
    ) -> str:
        """`opened`: up to where the model goes on. ValueError when the template rejects the messages."""
        try:
            return self.template.render(
                messages=messages,
                tools=tools,
                add_generation_prompt=opened,
                bos_token=self.bos,
                eos_token=self.eos,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise ValueError(f"the chat template rejects these messages: {error}") from error


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


def _get_token_text(token: str | _SpecialToken | None) -> str:
    return token.content if isinstance(token, _SpecialToken) else token or ""
