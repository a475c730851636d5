"""The part `digests`: by what runs, judges, rubrics and gates are recognised."""

from collections.abc import Iterator
from typing import get_args

from pydantic import JsonValue

from app.domain.judging import Mode
from app.domain.runs import ScoringOptions
from app.domain.values import digest_of_model
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.gates import GATES, GATES_DIGEST
from app.judges.offline import OfflineJudge
from app.judges.panel import ConfiguredPanels, JudgePanel
from app.judges.prompts import TEMPLATES_DIGEST
from app.judges.verdicts import PARSER_VERSION
from app.service.catalogue import ServedEnvironment
from app.service.judging import get_panel
from app.toolkit.conformance.checks import CHECKS
from tests.record.hosting import all_hosted
from tests.record.rows import Blocks

OPTIONS = (
    ScoringOptions(on_truncated="score"),
    *(ScoringOptions(mode=mode, votes=2, relative_weight=0.3) for mode in get_args(Mode)),
)
CONFIGS = (
    ChatJudgeConfig(name="careful", base_url="http://127.0.0.1:1/v1", model="judge-1"),
    ChatJudgeConfig(name="careful", base_url="http://127.0.0.1:1/v1", model="judge-2", temperature=0.5),
    ChatJudgeConfig(name="careful", base_url="http://127.0.0.1:1/v1", model="judge-1", json_mode="schema"),
    ChatJudgeConfig(name="careful", base_url="http://127.0.0.1:1/v1", model="judge-1", expected_scores=True),
    ChatJudgeConfig(name="careful", base_url="http://127.0.0.1:1/v1", model="judge-1", max_output_tokens=100),
)


def digests() -> Blocks:
    hosted = all_hosted()
    return {
        "environments": [_environment(each) for each in hosted.values()],
        "pins": [_pin(each, ScoringOptions()) for each in hosted.values()],
        "~pins under options": [_pin(each, options) for each in hosted.values() for options in OPTIONS],
        "judges": list(_judges()),
        "gates": [
            {
                "flag": gate.flag,
                "notices": gate.notices,
                "languages": list(gate.languages),
                "version": gate.version,
                "kind": gate.kind,
                "any_text": gate.any_text,
                "confirmed": gate.confirmed,
            }
            for gate in GATES
        ],
        "checks": [check.name for check in CHECKS],
    }


def _environment(hosted: ServedEnvironment) -> JsonValue:
    environment = hosted.environment
    return {
        "name": hosted.name,
        "version": environment.version,
        "data_digest": hosted.data_digest,
        "digests": dict(hosted.digests),
        "origin": environment.origin,
        "rubric": None if environment.rubric is None else digest_of_model(environment.rubric),
        "multi_turn": environment.multi_turn,
        "runs_programs": environment.runs_programs,
        "chance": environment.chance,
        "stats_label": environment.stats_label,
        "draft": environment.Draft is not None,
        "params": environment.Params().model_dump(mode="json"),
    }


def _pin(hosted: ServedEnvironment, options: ScoringOptions) -> JsonValue:
    panel = get_panel(ConfiguredPanels({}, {}), hosted, options)
    pin: JsonValue = hosted.build_pin(options, panel).model_dump(mode="json")
    return pin


def _judges() -> Iterator[JsonValue]:
    yield {"templates": TEMPLATES_DIGEST, "parser": PARSER_VERSION, "gates": GATES_DIGEST}
    offline = OfflineJudge()
    yield {"judge": offline.name, "model": offline.model, "digest": offline.digest}
    for config in CONFIGS:
        judge = ChatJudge(config)
        panels: dict[str, JsonValue] = {mode: JudgePanel((judge, offline), 0.5, mode).digest for mode in get_args(Mode)}
        yield {"judge": judge.name, "model": judge.model, "digest": judge.digest, "panels": panels}
