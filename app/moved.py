"""Earlier import paths that plug-ins may still use: each warns, and goes with the next release."""

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PACKAGES: Final = ("app.conformance", "app.grading", "app.sheets")
"""Old packages that hold modules of MOVED."""

MOVED: Final[Mapping[str, Mapping[str, str]]] = {
    "app.cli.envs.conformance_run": {
        "run_check": "app.cli.envs.check.run_check",
    },
    "app.cli.envs.examining": {
        "examined": "app.cli.envs.check.run_check",
    },
    "app.conformance.checks": {
        "CHECKS": "app.toolkit.conformance.checks.CHECKS",
        "Check": "app.toolkit.conformance.checks.Check",
    },
    "app.domain.digests": {
        "canonical_json": "app.domain.values.canonical_json",
        "digest": "app.domain.values.digest",
        "digest_of_model": "app.domain.values.digest_of_model",
        "digest_of_text": "app.domain.values.digest_of_text",
    },
    "app.draws": {
        "Draws": "app.toolkit.seeded.SeededRandom",
        "drawn_apart": "app.toolkit.seeded.draw_apart",
    },
    "app.errors": {
        "EnvironmentUnavailable": "app.domain.errors.EnvironmentUnavailable",
        "InvalidRequest": "app.domain.errors.InvalidRequest",
        "RetrieverFailed": "app.domain.errors.RetrieverFailed",
        "WorkExceeded": "app.domain.errors.WorkExceeded",
        "WorkerFailed": "app.domain.errors.WorkerFailed",
    },
    "app.generated": {
        "Generated": "app.toolkit.procedural.ProceduralEnvironment",
        "LEVELS": "app.toolkit.procedural.LEVELS",
        "Level": "app.toolkit.procedural.Level",
        "Levelled": "app.toolkit.procedural.LevelParams",
    },
    "app.grading.committed": {
        "Committed": "app.toolkit.answers.Committed",
        "committed": "app.toolkit.answers.extract_committed",
        "grade_committed": "app.toolkit.answers.grade_committed",
    },
    "app.patterns": {
        "Pattern": "app.toolkit.texts.Pattern",
        "compiled": "app.toolkit.texts.compile_pattern",
    },
    "app.prompts": {
        "Phrasings": "app.toolkit.templates.Phrasings",
        "Template": "app.toolkit.templates.Template",
        "canonical_json": "app.domain.values.canonical_json",
        "digest": "app.domain.values.digest",
        "digest_of_model": "app.domain.values.digest_of_model",
        "digest_of_text": "app.domain.values.digest_of_text",
    },
    "app.sheets.loading": {
        "parse_model": "app.characters.loading.parse_model",
    },
    "app.toolkit.dataset_tasks": {
        "DatasetEnvironment": "app.toolkit.procedural.DatasetEnvironment",
    },
    "app.toolkit.safe_regex": {
        "Pattern": "app.toolkit.texts.Pattern",
        "compile_pattern": "app.toolkit.texts.compile_pattern",
    },
    "app.transcripts": {
        "replayed": "app.toolkit.replay.replay_episode",
        "forged": "app.toolkit.replay.score_forgery",
        "turn_after": "app.toolkit.replay.build_turn",
    },
}
"""By old module: each name that was documented for plug-ins, and where it is now."""


class MovedModules(MetaPathFinder, Loader):
    """Finds old modules, and fills them with the names that they had."""

    @classmethod
    def install(cls) -> None:
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.append(cls())

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in MOVED or name in PACKAGES:
            return ModuleSpec(name, self, is_package=name in PACKAGES)
        return None

    def exec_module(self, module: ModuleType) -> None:
        for name, place in MOVED.get(module.__name__, {}).items():
            home, _, current = place.rpartition(".")
            setattr(module, name, getattr(importlib.import_module(home), current))
        if module.__name__ in MOVED:
            places = ", ".join(sorted({place.rpartition(".")[0] for place in MOVED[module.__name__].values()}))
            warnings.warn(f"{module.__name__} has moved: import from {places}", DeprecationWarning, stacklevel=2)
