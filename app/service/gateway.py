"""All services and views that the APIs use, in one object."""

from dataclasses import dataclass

from app.ports.judges import Panels
from app.ports.labelling import LabelStore
from app.ports.store import GroupStore, HealthCheck
from app.ports.views import ExportStore, GroupViews
from app.service.catalogue import Catalogue
from app.service.dispatch import Dispatcher
from app.service.group_assembly import GroupAssembler
from app.service.group_scoring import GroupScoring
from app.service.key_bounds import BoundsCheck
from app.service.labelling import LabelService
from app.service.previews import PreviewService
from app.service.quotas import QuotaService
from app.service.rescoring import Rescorer
from app.service.rubric_finder import RubricFinder
from app.service.run_health import RunHealthService
from app.service.run_registry import RunRegistry
from app.service.sample_intake import SampleService
from app.service.scoring import ScoringService
from app.service.stepping import EpisodeStepper
from app.service.task_cache import TaskCache
from app.service.world_service import WorldService


@dataclass(frozen=True)
class Gateway:
    catalogue: Catalogue
    dispatcher: Dispatcher
    stepper: EpisodeStepper
    scoring: ScoringService
    group_scoring: GroupScoring
    assembler: GroupAssembler
    samples: SampleService
    rescorer: Rescorer
    labelling: LabelService
    previews: PreviewService
    runs: RunRegistry
    quotas: QuotaService
    task_cache: TaskCache
    worlds: WorldService
    groups: GroupStore
    labels: LabelStore
    panels: Panels
    views: GroupViews
    exports: ExportStore
    health: HealthCheck
    bounds: BoundsCheck
    run_health: RunHealthService
    rubrics: RubricFinder
