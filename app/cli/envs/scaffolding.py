"""`atropos-envs envs new`: a working environment to start from."""

import keyword
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import app.envs.community
from app.toolkit.templates import Template

_TEMPLATES: Final = Path(__file__).parent / "templates"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
LONGEST_NAME: Final = 40
_FILES_OF_ONE: Final[Mapping[bool, Mapping[str, str]]] = {
    False: {
        "__init__.py": "__init__.py.j2",
        "environment.py": "verified.py.j2",
        "prompts.yaml": "prompts.yaml.j2",
    },
    True: {
        "__init__.py": "__init__.py.j2",
        "environment.py": "judged.py.j2",
        "prompts.yaml": "judged_prompts.yaml.j2",
        "rubric.yaml": "rubric.yaml.j2",
    },
}
"""Files of an environment's folder and their templates, by whether it is judged."""
_FILES_OF_A_PACKAGE: Final[Mapping[str, str]] = {
    "pyproject.toml": "pyproject.toml.j2",
    "README.md": "README.md.j2",
    "tests/test_{name}.py": "test_package.py.j2",
}


@dataclass(frozen=True)
class ScaffoldRequest:
    name: str
    folder: Path | None = None
    """None for the default folder."""
    package: bool = False
    judged: bool = False


@dataclass(frozen=True)
class ScaffoldResult:
    files: tuple[Path, ...]
    next_steps: str


def write_environment(wanted: ScaffoldRequest, taken: Collection[str]) -> ScaffoldResult:
    """Writes all files or none. ValueError for an invalid or `taken` name, for existing files, and where no default
    folder exists."""
    _check_name(wanted.name, taken)
    folder = _choose_folder(wanted)
    texts = {folder / place: text for place, text in _render_texts(wanted).items()}
    there = [str(path) for path in texts if path.exists()]
    if there:
        raise ValueError(f"already exists: {', '.join(there)}; nothing was written")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return ScaffoldResult(tuple(map(_shorten_path, texts)), _describe_next_steps(wanted, folder))


def build_module_name(name: str) -> str:
    """Module name of a package, prefixed to avoid clashes with other modules."""
    return f"atropos_envs_{name}"


def _check_name(name: str, taken: Collection[str]) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > LONGEST_NAME:
        raise ValueError(
            f"invalid environment name {name!r}: use at most {LONGEST_NAME} lower-case letters, digits and _, starting "
            "with a letter, and no Python keyword; for example tide_tables"
        )
    if name in taken:
        raise ValueError(f"the environment {name!r} already exists; names must be unique")


def _choose_folder(wanted: ScaffoldRequest) -> Path:
    if wanted.package:
        return (wanted.folder or Path()) / build_module_name(wanted.name).replace("_", "-")
    if wanted.folder is not None:
        return wanted.folder
    community = Path(app.envs.community.__path__[0])
    if not (community.parents[2] / "pyproject.toml").is_file():
        raise ValueError("this is an installed package, not a checkout: use --path FOLDER or --package")
    return community


def _render_texts(wanted: ScaffoldRequest) -> dict[str, str]:
    """Texts by path within the folder."""
    values = {
        "name": wanted.name,
        "title": wanted.name.replace("_", " ").capitalize(),
        "class_name": "".join(part.capitalize() for part in wanted.name.split("_")),
        "module": build_module_name(wanted.name),
        "distribution": build_module_name(wanted.name).replace("_", "-"),
        "service_version": version("atropos-environments"),
    }
    inside = "src/{module}" if wanted.package else "{name}"
    sources = {f"{inside}/{file}": source for file, source in _FILES_OF_ONE[wanted.judged].items()}
    if wanted.package:
        sources |= _FILES_OF_A_PACKAGE
    return {
        place.format(**values): Template.read(_TEMPLATES / source).render(**values) + "\n"
        for place, source in sources.items()
    }


def _shorten_path(path: Path) -> Path:
    """Relative to the current directory where possible."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _describe_next_steps(wanted: ScaffoldRequest, folder: Path) -> str:
    shown = _shorten_path(folder)
    if wanted.package:
        steps: tuple[str, ...] = (
            f"python -m pip install -e {shown}    # beside atropos-environments, which then serves it",
            f"atropos-envs envs check {wanted.name}",
            "atropos-envs serve",
        )
    elif wanted.folder is None:
        steps = (f"atropos-envs envs check {wanted.name}", "atropos-envs serve")
    else:
        steps = (f"atropos-envs envs check {shown / wanted.name}",)
    told = "\n".join(f"    {step}" for step in steps)
    return (
        f"It passes all checks. Change it step by step, and check it after each change:\n{told}\nSee CONTRIBUTING.md."
    )
