"""A local tokenizer and chat template, for servers that return no token ids."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue
from tokenizers import Tokenizer

from app.domain.tasks import Message, ToolSpec
from app.inference.chat_template import ChatTemplate
from app.inference.wire import Ids, SampledMessage


@dataclass(frozen=True)
class LocalTokenizer:
    """Reads `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a folder."""

    tokenizer: Tokenizer
    template: ChatTemplate

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
        return cls(tokenizer, ChatTemplate.read(file.parent))

    def encode_prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """Token ids up to the model's turn. ValueError when the template rejects the messages."""
        return self._encode_text(self._render_messages(messages, tools, opened=True))

    def encode_reply(self, before: Sequence[Message], tools: Sequence[ToolSpec], said: SampledMessage) -> Ids:
        """Token ids of the model's message, with the end token unless it was truncated. ValueError when the template
        cannot render a message with tool calls as a continuation of its prompt."""
        if not said.message.tool_calls:
            ended = said.finish_reason != "length"
            return self._encode_text((said.message.content or "") + (self.template.eos if ended else ""))
        opened = self._render_messages(before, tools, opened=True)
        whole = self._render_messages((*before, said.message), tools, opened=False)
        if not whole.startswith(opened):
            raise ValueError("the chat template does not render tool calls as a continuation of the prompt")
        text = whole.removeprefix(opened)
        eos = self.template.eos
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
