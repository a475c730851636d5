"""Every setting, from app.settings: a table, and a whole gateway.yaml."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.settings import DEFAULT_FILE, PREFIX, WITHDRAWN, Settings
from docs.markdown import code, fenced, table
from docs.parts.schemas import Fields

NAME = "<name>"

EXAMPLES: Mapping[str, object] = {
    "api_key": "a-long-random-text",
    "cache_dir": ".cache/datasets",
    "datasets.<name>.<name>.source": "Maxwell-Jia/AIME_2024",
    "datasets.<name>.<name>.columns": {"problem": "Problem", "answer": "Answer", "solution": "Solution"},
    "datasets.<name>.<name>.hold_out": 0.2,
    "judges.<name>.base_url": "http://127.0.0.1:8001/v1",
    "judges.<name>.model": "the-judge-model",
    "judges.<name>.api_key_env": "JUDGE_API_KEY",
    "judges.<name>.input_price_per_million": 0.4,
    "judges.<name>.output_price_per_million": 1.6,
    "policies.<name>.base_url": "http://127.0.0.1:8002/v1",
    "policies.<name>.model": "the-policy",
    "nemo_gym_ports.<name>.port": 8101,
    "nemo_gym_ports.<name>.environment": "npc_arena",
    "nemo_gym_ports.<name>.group_size": 8,
    "ors_ports.<name>.port": 8201,
    "ors_ports.<name>.environment": "gsm8k",
    "environments.<name>.judges": ["careful"],
    "rag.remote.url": "https://lore.example.com/retrieve",
    "rag.remote.api_key_env": "LORE_API_KEY",
}
"""For settings whose default says nothing."""

NAMES = {
    "judges": ("careful",),
    "policies": ("policy-42",),
    "nemo_gym_ports": ("arena",),
    "ors_ports": ("sums",),
    "environments": ("npc_arena",),
    "datasets": ("math", "aime"),
}
"""What the example calls its one member of each section, and that member's."""


@dataclass(frozen=True)
class Setting:
    """`path` as in the file, up to where its value begins: `judges.<name>.model`."""

    path: str
    model: type[BaseModel]
    name: str

    @property
    def field(self) -> FieldInfo:
        return self.model.model_fields[self.name]

    @property
    def mappings(self) -> int:
        """How many names lead to its value."""
        return self._unwrap()[1]

    @property
    def section(self) -> type[BaseModel] | None:
        """The model of what stands here, or of a mapping's members, when it has settings of its own."""
        member = self._unwrap()[0]
        return member if isinstance(member, type) and issubclass(member, BaseModel) else None

    @property
    def within(self) -> str:
        """Where its section's settings are."""
        return ".".join([self.path, *(NAME for _ in range(self.mappings)), ""])

    def _unwrap(self) -> tuple[object, int]:
        member: object = self.field.annotation
        mappings = 0
        while get_origin(member) in (dict, Annotated):
            is_mapping = get_origin(member) is dict
            member = get_args(member)[1 if is_mapping else 0]
            mappings += is_mapping
        sections = [one for one in get_args(member) if isinstance(one, type) and issubclass(one, BaseModel)]
        return (sections[0] if len(sections) == 1 and type(None) in get_args(member) else member), mappings

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        key = f"{self.path}.{NAME}" if self.mappings else self.path
        fields = Fields(self.model)
        words = fields.member_in_words(self.name) if self.mappings else fields.type_in_words(self.name)
        variable = PREFIX + key.upper().replace(".", "__")
        return code(key), code(variable), words, fields.default(self.name), self.meaning

    @property
    def meaning(self) -> str:
        return Fields(self.model).meaning(self.name)

    @property
    def example(self) -> object:
        known = EXAMPLES.get(self.path)
        return self.field.get_default(call_default_factory=True, validated_data={}) if known is None else known


def settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[Setting]:
    """In the order of the source; sections are followed by their members."""
    for name in model.model_fields:
        setting = Setting(prefix + name, model, name)
        yield setting
        if setting.section is not None:
            yield from settings(setting.section, setting.within)


def settings_table() -> str:
    file = ("", code(PREFIX + "SETTINGS"), "path", code(DEFAULT_FILE), "The YAML file; the default one may be absent.")
    rows = [setting.row for setting in settings() if setting.section is None]
    return table(("in the file", "variable", "type", "default", "meaning"), [file, *rows])


def withdrawn_table() -> str:
    rows = [(code(key.replace("*", NAME)), f"{instead[0].upper()}{instead[1:]}.") for key, instead in WITHDRAWN.items()]
    return table(("in the file", "instead"), rows)


def settings_example() -> str:
    return fenced(gateway_yaml(), "yaml")


def gateway_yaml() -> str:
    """A file that sets everything, each setting under its meaning."""
    lines: list[str] = []
    for setting in settings():
        *parents, key = setting.path.split(".")
        indent = "  " * len(parents)
        lines += [""] if not parents else []
        lines += [f"{indent}# {setting.meaning}"]
        if setting.section is None:
            lines += [f"{indent}{key}: {_flow(setting.example)}"]
        else:
            names = NAMES[key] if setting.mappings else ()
            lines += [f"{indent}{key}:", *(f"{indent}{'  ' * depth}{name}:" for depth, name in enumerate(names, 1))]
    return "\n".join(lines).strip() + "\n"


def _flow(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=True).removesuffix("...\n").strip()
