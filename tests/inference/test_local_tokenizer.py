"""Chat templates and tokenizers from files: the same tokens as the server had, as far as text tells."""

import json
from pathlib import Path

import pytest

from app.domain.tasks import FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from app.inference.tokens import LocalTokenizer
from app.inference.wire import SampledMessage
from tests.support.local_tokenizer import END, TEMPLATE, saved_tokenizer

ASKED = (Message(role="system", content="Be kind."), Message(role="user", content="Grüße <|end|> {{ 7*7 }}"))
PROMPT = "<system>Be kind.\n<user>Grüße <|end|> {{ 7*7 }}\n<assistant>"
TOOLS = (ToolSpec(function=FunctionSpec(name="add", parameters={"type": "object", "z": 1, "a": "é<"})),)
CALL = ToolCall(id="1", function=FunctionCall(name="add", arguments='{"b": 2, "a": 1}'))


def read(folder: Path, template: str = TEMPLATE) -> LocalTokenizer:
    return LocalTokenizer.read(saved_tokenizer(folder, template))


def text_of(tokenizer: LocalTokenizer, ids: tuple[int, ...]) -> str:
    text: str = tokenizer.tokenizer.decode(list(ids), skip_special_tokens=False)
    return text


def spoken(text: str, finish_reason: str = "stop") -> SampledMessage:
    return SampledMessage(Message(role="assistant", content=text), finish_reason)


def test_a_prompt_is_rendered_and_ends_where_the_model_begins(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    assert text_of(tokenizer, tokenizer.encode_prompt(ASKED)) == PROMPT


def test_what_was_said_ends_unless_it_was_cut_off(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    ids = [tokenizer.encode_reply(ASKED, (), spoken("Hi", reason)) for reason in ("stop", "length")]
    assert [text_of(tokenizer, one) for one in ids] == [f"Hi{END}", "Hi"]


def test_what_follows_begins_with_what_was_said(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    before = tokenizer.encode_prompt(ASKED) + tokenizer.encode_reply(ASKED, (), spoken("Hi"))
    after = tokenizer.encode_prompt((*ASKED, spoken("Hi").message, Message(role="user", content="And?")))
    assert after[: len(before)] == before


def test_tools_are_json_in_their_own_order_and_letters(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, "{% for tool in tools %}{{ tool.function.parameters | tojson }}{% endfor %}")
    assert text_of(tokenizer, tokenizer.encode_prompt(ASKED, TOOLS)) == '{"type": "object", "z": 1, "a": "é<"}'


def test_a_message_with_tool_calls_is_as_the_template_shows_it(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    said = SampledMessage(Message(role="assistant", tool_calls=(CALL,)), "tool_calls")
    expected = f'<call>add {{"b": 2, "a": 1}}</call>{END}'
    assert text_of(tokenizer, tokenizer.encode_reply(ASKED, TOOLS, said)) == expected


def test_a_template_that_shows_tool_calls_elsewhere_tells_no_tokens(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, "{{ messages | length }}")
    with pytest.raises(ValueError, match="does not render tool calls"):
        tokenizer.encode_reply(ASKED, (), SampledMessage(Message(role="assistant", tool_calls=(CALL,)), "tool_calls"))


def test_a_template_may_refuse_messages(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="rejects these messages: roles must alternate"):
        tokenizer.encode_prompt(ASKED)


def test_templates_reach_nothing_outside_of_them(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, "{{ messages.__class__.__mro__ }}")
    with pytest.raises(ValueError, match="rejects these messages"):
        tokenizer.encode_prompt(ASKED)


def test_what_templates_of_models_use_is_there(tmp_path: Path) -> None:
    source = """
{%- for message in messages %}
    {%- if loop.first %}{% continue %}{% endif %}
{{ strftime_now('%Y')|length }}{{ bos_token }}{{ nothing }}
{%- endfor %}"""
    assert text_of(read(tmp_path, source), read(tmp_path, source).encode_prompt(ASKED)) == "4"


def test_the_template_stands_in_the_configuration_or_in_its_own_file(tmp_path: Path) -> None:
    folder = saved_tokenizer(tmp_path, TEMPLATE)
    config = folder / "tokenizer_config.json"
    both = [{"name": "default", "template": "default"}, {"name": "tool_use", "template": "tools"}]
    config.write_text(json.dumps({"chat_template": both, "eos_token": {"content": END, "lstrip": False}}))
    listed = LocalTokenizer.read(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text("its own file")
    texts = [text_of(one, one.encode_prompt(ASKED)) for one in (listed, LocalTokenizer.read(folder))]
    assert (texts, listed.template.eos) == (["default", "its own file"], END)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    broken = saved_tokenizer(tmp_path / "broken", "{% if %}")
    bare = saved_tokenizer(tmp_path / "bare", TEMPLATE)
    (bare / "tokenizer_config.json").unlink()
    scrap = tmp_path / "scrap.json"
    scrap.write_text("{}")
    told = []
    for path in (tmp_path / "nowhere", scrap, bare, broken):
        with pytest.raises(ValueError, match=r"\S") as raised:
            LocalTokenizer.read(path)
        told.append(str(raised.value))
    expected = ["file not found", "scrap.json:", "no chat template", "the chat template beside"]
    assert [words for words, one in zip(expected, told, strict=True) if words not in one] == []
