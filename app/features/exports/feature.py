"""Puts exports together: rows of stored groups and of labels as files."""

from functools import partial
from pathlib import Path
from typing import Final

from app.features.contract import Feature, FeatureParts, Kernel
from app.features.exports.model import ExportRequest
from app.features.exports.pages import ExportPages, create_export_page_router
from app.features.exports.routes import create_export_router
from app.features.exports.service import LabelRows
from app.features.exports.store import ExportStore
from app.features.labels.store import LabelStore
from app.http.viewer.rendering import PageLink, ViewerParts


def build_exports(kernel: Kernel) -> FeatureParts:
    gateway, exports = kernel.gateway, kernel.storage.part(ExportStore)

    def read_labels(request: ExportRequest) -> LabelRows:
        return LabelRows(kernel.storage.part(LabelStore), gateway.groups, gateway.task_cache, request)

    names = sorted(gateway.catalogue.classes)
    pages = ExportPages(exports, gateway.views, read_labels, kernel.not_for_training, names)
    return FeatureParts(
        routers=[
            create_export_router(
                gateway.catalogue, gateway.runs, exports, read_labels, not_for_training=kernel.not_for_training
            )
        ],
        pages=[partial(create_export_page_router, pages)],
        viewer=ViewerParts(link_groups=[PageLink("Export", "/view/export")]),
    )


FEATURE: Final = Feature(
    name="exports", build=build_exports, needs=("labels",), templates=Path(__file__).with_name("templates")
)
