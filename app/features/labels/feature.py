"""Puts labels together: the queue and what people said, their routes and pages, and what runs ask of their judges."""

from functools import partial
from pathlib import Path
from typing import Final

from app.evaluation.agreement import find_lower_bound
from app.features.contract import Feature, FeatureParts, Kernel
from app.features.labels.pages import LabelPages, create_label_page_router, link_group, show_agreement, show_labels
from app.features.labels.routes import create_agreement_router, create_import_router, create_label_router
from app.features.labels.service import AgreementCheck, LabelService
from app.features.labels.store import LabelQueue, LabelStore
from app.http.viewer.rendering import MenuEntry, ViewerParts
from app.service.gateway import list_judges


def build_labels(kernel: Kernel) -> FeatureParts:
    gateway, labels = kernel.gateway, kernel.storage.part(LabelStore)
    labelling = LabelService(
        catalogue=gateway.catalogue,
        queue=kernel.storage.part(LabelQueue),
        labels=labels,
        groups=gateway.groups,
        task_cache=gateway.task_cache,
        runs=gateway.runs,
        panels=gateway.panels,
        clock=kernel.clock,
    )
    kernel.offer(labelling)
    gateway.runs.agreement = AgreementCheck(labels, gateway.panels, find_lower_bound)
    roster = partial(list_judges, gateway.catalogue, gateway.panels)
    return FeatureParts(
        routers=[
            create_label_router(labelling),
            create_agreement_router(gateway.panels, gateway.runs, labelling),
            create_import_router(labelling),
        ],
        pages=[partial(create_label_page_router, LabelPages(labelling, gateway.bounds, roster, kernel.clock))],
        menu=[MenuEntry(90, "Label", "/view/label", "label")],
        viewer=ViewerParts(
            link_group=[link_group],
            show_group=[partial(show_labels, labels)],
            show_judge=[partial(show_agreement, labelling)],
        ),
    )


FEATURE: Final = Feature(name="labels", build=build_labels, templates=Path(__file__).with_name("templates"))
