"""All services and views that the APIs use, in one object."""

from dataclasses import dataclass

from app.ports.judges import Panels
from app.ports.store import Exports, Groups, Health, Views
from app.service.catalogue import Catalogue
from app.service.dispatch import Dispatcher
from app.service.gathering import Gathering
from app.service.group_scoring import GroupScoring
from app.service.parts import PartDesk
from app.service.rescoring import Rescorer
from app.service.runs import RunBook
from app.service.scoring import ScoreDesk
from app.service.shelf import Shelf
from app.service.stepping import Stepper
from app.service.trying import Trier
from app.service.worlds import WorldDesk


@dataclass(frozen=True)
class Gateway:
    catalogue: Catalogue
    dispatcher: Dispatcher
    stepper: Stepper
    desk: ScoreDesk
    scoring: GroupScoring
    gathering: Gathering
    parts: PartDesk
    rescorer: Rescorer
    trier: Trier
    runs: RunBook
    shelf: Shelf
    worlds: WorldDesk
    groups: Groups
    panels: Panels
    views: Views
    exports: Exports
    health: Health
