"""Every part of the record, in the order in which they are made."""

from collections.abc import Mapping

from tests.record.outside import commands, database_schema, known_settings, metrics, served_openapi
from tests.record.rows import Part
from tests.record.tasks import tasks

PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("tasks", tasks, bulky=True),
        Part("openapi", served_openapi),
        Part("schema", database_schema),
        Part("metrics", metrics),
        Part("commands", commands),
        Part("settings", known_settings),
    )
}
