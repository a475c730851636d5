"""Whether a judge is a stranger to the contestants: of another model than those that scored or wrote their replies."""

from collections.abc import Mapping, Sequence

from app.domain.errors import InvalidRequest, NotFound
from app.domain.model_names import is_same_model
from app.domain.suggestions import suggest
from app.evaluation.tournament import Contestant
from app.http.api.models import JudgeInfo


def find_judge(judges: Mapping[str, JudgeInfo], name: str) -> JudgeInfo:
    if name not in judges:
        near = suggest(name, judges) or f"; there are: {', '.join(sorted(judges))}"
        raise NotFound(f"the gateway has no judge {name!r}{near}")
    return judges[name]


def find_kin(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> list[str]:
    """In which ways the judge is no stranger to the contestants. `models` are those of judges by name."""
    found = []
    before = sorted({name for contestant in contestants for name in contestant.judges})
    same = [name for name in before if name == judge.name or is_same_model(models.get(name, name), judge.model)]
    if same:
        found.append(f"which scored these runs as {', '.join(same)}")
    played = sorted({model for contestant in contestants for model in contestant.models})
    own = [model for model in played if is_same_model(model, judge.model)]
    if own:
        found.append(f"which wrote the replies of {', '.join(own)}")
    return found


def require_stranger(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> None:
    if known := find_kin(judge, contestants, models):
        raise InvalidRequest(
            f"judge {judge.name} is of the model {judge.model}, {' and '.join(known)}: name another with --judge, "
            "or allow it with --same-model"
        )


def find_notice(judge: JudgeInfo, contestants: Sequence[Contestant], models: dict[str, str]) -> str:
    """The first line of the report."""
    told = []
    if not judge.for_training:
        told.append(f"Judge {judge.name} has no model and is only for trying the system: this says nothing of quality.")
    if known := find_kin(judge, contestants, models):
        told.append(
            f"Judge {judge.name} is of the model {judge.model}, {' and '.join(known)}: a model may only have learnt "
            "what this judge likes."
        )
    if unknown := [contestant.name for contestant in contestants if not contestant.judges]:
        told.append(
            f"Who scored {', '.join(unknown)} is not known, as no reply that was read names a judge: "
            f"{judge.name} may be no stranger."
        )
    return " ".join(told)
