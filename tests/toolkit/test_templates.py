"""Templates that render strictly, and the digests by which everything is recognised."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from jinja2.exceptions import SecurityError
from pydantic import JsonValue, ValidationError

from app.domain.tasks import Message
from app.domain.values import canonical_json, digest, digest_of_model, digest_of_text
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, Template

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def test_a_template_is_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "prompt.j2"
    path.write_text("You are {{ name }}.\n{% for line in lines %}\n  - {{ line }}\n{% endfor %}\n", encoding="utf-8")
    template = Template.read(path)
    assert template.render(name="Ottoline", lines=["ä", "ö"]) == "You are Ottoline.\n  - ä\n  - ö\n"
    assert template.digest == digest_of_text(path.read_text(encoding="utf-8"))


def test_what_a_player_wrote_is_never_a_template() -> None:
    said = "{{ 7 * 7 }} {% for x in y %} <b>&amp;"
    assert Template("[{{ said }}]").render(said=said) == f"[{said}]"


@pytest.mark.parametrize("source", ["{{ missing }}", "{{ person.age }}", "{% if missing %}{% endif %}"])
def test_a_value_that_is_not_given_is_an_error(source: str) -> None:
    with pytest.raises(UndefinedError):
        Template(source).render(person={"name": "x"})


@pytest.mark.parametrize("source", ["{{ ''.__class__.__mro__ }}", "{{ names.append('x') }}"])
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    with pytest.raises(SecurityError):
        Template(source).render(names=[])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, '{"a":[true,null,1.5],"b":1}'),
        ("ä😀", '"\\u00e4\\ud83d\\ude00"'),
        ((1, 2), "[1,2]"),
    ],
)
def test_a_value_has_one_text(value: object, text: str) -> None:
    assert canonical_json(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_numbers_without_a_value_have_no_text(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), Path("x")])
def test_what_is_not_json_has_no_text(value: object) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


@given(one=VALUES, other=VALUES)
def test_digests_are_equal_exactly_when_the_values_are(one: JsonValue, other: JsonValue) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(one) == digest(other)) is same


@given(value=st.dictionaries(st.text(max_size=3), SCALARS, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict[str, JsonValue]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


def test_digests_stay_what_they_are() -> None:
    assert digest_of_text("") == "e3b0c44298fc1c149afbf4c8996fb924"
    assert digest({"a": 1}) == digest_of_text('{"a":1}') == "015abd7f5cc57a2dd94b7590f04ad808"
    assert digest_of_model(Message(role="user", content="hi")) == digest({"role": "user", "content": "hi"})


def test_a_phrasing_is_one_of_several_and_never_reads_a_value_as_a_template() -> None:
    phrasings = Phrasings(["Count {what}.", "How many {what} are there?"])
    said = {phrasings.say(SeededRandom(str(seed)), what="{0.__class__}") for seed in range(50)}
    assert said == {"Count {0.__class__}.", "How many {0.__class__} are there?"}


def test_phrasings_are_known_by_their_texts(tmp_path: Path) -> None:
    (tmp_path / "prompts.yaml").write_text("- Count {what}.\n- Sum {what}.\n", encoding="utf-8")
    read = Phrasings.read(tmp_path / "prompts.yaml")
    assert (read.digest, Phrasings(["Count {what}."]).digest == read.digest) == (
        Phrasings(["Count {what}.", "Sum {what}."]).digest,
        False,
    )


def test_a_bundled_file_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "prompts.yaml").write_text("count: 3\n", encoding="utf-8")
    with pytest.raises(ValidationError) as raised:
        Phrasings.read(tmp_path / "prompts.yaml")
    assert raised.value.__notes__ == ["in prompts.yaml"]
