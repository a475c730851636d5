"""Which judges score which environment, as configured."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from app.domain.runs import ScoringOptions
from app.errors import InvalidRequest
from app.judges.offline import NAME as OFFLINE
from app.judges.offline import OfflineJudge
from app.judges.panel import ListwisePanel
from app.ports import Judge, Panel

_MODES: Final = {"listwise": ListwisePanel}


class ConfiguredPanels:
    """`defaults` holds judges by environment; where it names none, `fallback` serves. The offline judge is always
    there under its name. ValueError for a name that no judge has."""

    def __init__(
        self,
        judges: Mapping[str, Judge],
        defaults: Mapping[str, Sequence[str]],
        *,
        fallback: Sequence[str] = (OFFLINE,),
        self_judging: Collection[str] = (),
    ) -> None:
        self._judges: dict[str, Judge] = {OFFLINE: OfflineJudge(), **judges}
        self._defaults = {environment: tuple(names) for environment, names in defaults.items()}
        self._fallback = tuple(fallback)
        self._self_judging = frozenset(self_judging)
        if not isinstance(self._judges[OFFLINE], OfflineJudge):
            raise ValueError(f"{OFFLINE!r} is the name of the judge without a model; call yours something else")
        for where, names in (("fallback", self._fallback), *self._defaults.items()):
            unknown = sorted(set(names) - set(self._judges))
            if unknown:
                raise ValueError(f"{where}: there is no judge {unknown[0]!r}")

    @property
    def judges(self) -> Mapping[str, Judge]:
        return self._judges

    def panel(self, environment: str, options: ScoringOptions) -> Panel:
        names = options.judges or self._defaults.get(environment) or self._fallback
        return _MODES[options.mode](self._chosen(names), options.relative_weight)

    def refuses_self_judging(self, judge: str) -> bool:
        return judge not in self._self_judging

    def _chosen(self, names: Sequence[str]) -> tuple[Judge, ...]:
        unknown = [name for name in names if name not in self._judges]
        if unknown:
            known = ", ".join(sorted(self._judges))
            raise InvalidRequest(f"there is no judge {unknown[0]!r}; there are {known}", field="options.judges")
        return tuple(self._judges[name] for name in dict.fromkeys(names))
