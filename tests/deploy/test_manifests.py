"""Manifests for Kubernetes: they fit the published schemas, the service and one another."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import promql_parser
import pytest
import yaml
from kubernetes_validate import validate

from app.http.compat.openrlhf import OpenRlhfOptions
from app.settings import Settings
from app.telemetry.metrics import PREFIX, WatchedGauge
from docs.parts.metrics import build_busy_observer
from tests.support.manifests import FOLDER, find_object, find_renderer, read_rules, render_overlay

OVERLAYS = ("single", "replicas")
VERSIONS = ("1.30", "1.37")
"""The oldest release that is still looked after by distributions, and the newest that the schemas know."""
OPERATOR = "monitoring.coreos.com/v1"
"""Kinds of the Prometheus Operator, whose schemas Kubernetes does not publish."""
FOREIGN = {"up", "process_resident_memory_bytes"}
KUBELET = "kubelet_volume_stats_"

needs_renderer = pytest.mark.skipif(find_renderer() is None, reason="neither kustomize nor kubectl 1.21 is here")


def written_objects() -> Iterator[dict[str, Any]]:
    """Whole objects, without patches and kustomize's own files."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        if path.name not in {"kustomization.yaml", "settings.yaml"} and path.parent.name + path.stem not in {
            f"{overlay}deployment" for overlay in OVERLAYS
        }:
            yield from yaml.safe_load_all(path.read_text(encoding="utf-8"))


def expressions() -> list[str]:
    dashboard = json.loads((FOLDER / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    drawn = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = [rule["expr"] for rule in read_rules()]
    return alerts + [expr.replace("$__rate_interval", "5m") for expr in drawn]


def find_selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """ValueError for what is no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def note(node: object) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), note)
    return found


def known_samples() -> dict[str, set[str]]:
    """Names of samples as Prometheus keeps them, with their labels."""
    known: dict[str, set[str]] = {}
    for family in build_busy_observer().registry.collect():
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    return known


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_fits_the_schemas(version: str) -> None:
    objects = [one for one in written_objects() if one["apiVersion"] != OPERATOR]
    for one in objects:
        validate(one, version, strict=True)
    assert len(objects) == 9


@needs_renderer
@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_rendered_fits_the_schemas(overlay: str, version: str) -> None:
    objects = render_overlay(overlay)
    for one in objects:
        if one["apiVersion"] != OPERATOR:
            validate(one, version, strict=True)
    common = {"ConfigMap", "Deployment", "Ingress", "NetworkPolicy", "PrometheusRule", "Service", "ServiceAccount"}
    more = {
        "single": {"PersistentVolumeClaim"},
        "replicas": {"Job", "HorizontalPodAutoscaler", "PodDisruptionBudget"},
    }
    assert {one["kind"] for one in objects} == common | {"ServiceMonitor"} | more[overlay]


@needs_renderer
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_and_labels_of_what_is_rendered_meet(overlay: str) -> None:
    objects = render_overlay(overlay)
    pod = find_object(objects, "Deployment")["spec"]["template"]
    labels = set(pod["metadata"]["labels"].items())
    selected = [
        find_object(objects, "Service")["spec"]["selector"],
        find_object(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        find_object(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    service = set(find_object(objects, "Service")["metadata"]["labels"].items())
    monitored = find_object(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    mounted = {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume}
    assert all(set(one.items()) <= labels for one in selected)
    jobs = [one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "Job"]
    assert (set(monitored.items()) <= service, mounted <= maps) == (True, True)
    assert not any(set(selected[0].items()) <= set(job.items()) for job in jobs)  # no requests for a migration


def pods() -> dict[str, dict[str, Any]]:
    return {
        one["kind"]: one["spec"]["template"]["spec"]
        for one in written_objects()
        if one["kind"] in {"Deployment", "Job"}
    }


def test_pods_are_restricted() -> None:
    """The level `restricted` of the Pod Security Standards, with a read-only root."""
    found = {}
    for kind, pod in pods().items():
        (container,) = pod["containers"]
        outer = pod["securityContext"]
        found[kind] = (
            pod["enableServiceLinks"],
            pod["automountServiceAccountToken"],
            (outer["runAsNonRoot"], outer["runAsUser"], outer["seccompProfile"]),
            container["securityContext"],
        )
    wanted = (
        False,
        False,
        (True, 10001, {"type": "RuntimeDefault"}),
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    )
    assert found == {"Deployment": wanted, "Job": wanted}


def test_the_grace_period_is_long_enough_for_the_longest_request() -> None:
    pod = pods()["Deployment"]
    (container,) = pod["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    (limit,) = (one.le for one in OpenRlhfOptions.model_fields["wait_seconds"].metadata if hasattr(one, "le"))
    shutdown = int(variables["ATROPOS_ENVS_SHUTDOWN_SECONDS"])
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    calls_of_judges, close = 5, 10
    wanted = before + shutdown + calls_of_judges + close
    assert (shutdown, pod["terminationGracePeriodSeconds"]) == (limit, wanted)


def test_probes_ask_what_is_there_and_outlast_the_check_of_the_store() -> None:
    (container,) = pods()["Deployment"]["containers"]
    names = ("startupProbe", "readinessProbe", "livenessProbe")
    assert [container[name]["httpGet"]["path"] for name in names] == ["/livez", "/readyz", "/livez"]
    assert container["readinessProbe"]["timeoutSeconds"] > 5  # as long as the store may take to answer


def test_the_settings_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown or wrong one would stop the start."""
    (container,) = pods()["Deployment"]["containers"]
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one.get("value", "text"))
    monkeypatch.setenv("ATROPOS_ENVS_SETTINGS", str(FOLDER / "base" / "settings.yaml"))
    settings = Settings()
    ours = {one["name"].removeprefix("ATROPOS_ENVS_").lower() for one in container["env"]}
    unknown = ours - Settings.model_fields.keys() - {"settings", "hf_home"}
    assert (unknown, settings.shutdown_seconds, settings.programs.at_once) == (set(), 175, 2)


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_parses_and_asks_for_what_is_exposed(expression: str) -> None:
    known = known_samples()
    wrong = []
    for selector in find_selectors(expression):
        name = selector.name or ""
        if name in FOREIGN or name.startswith(KUBELET):
            continue
        labels = {one.name for one in selector.matchers.matchers} - {"namespace", "pod", "job"}
        if name not in known or not labels <= known[name]:
            wrong.append(f"{name}{sorted(labels)}")
    assert wrong == []


def test_labels_that_results_are_grouped_by_are_exposed() -> None:
    known = {label for labels in known_samples().values() for label in labels} | {"namespace", "pod"}
    grouped = [re.findall(r"by \(([^)]*)\)", expression) for expression in expressions()]
    named = {label.strip() for groups in grouped for group in groups for label in group.split(",")}
    assert named <= known


def test_what_is_to_be_watched_has_an_alert() -> None:
    """And a gauge that is exposed alone."""
    asked = " ".join(rule["expr"] for rule in read_rules())
    wanted = (
        "rollouts_total",
        "judge_breaker_open",
        "judge_budget_left_usd",
        "db_write_queue",
        "db_read_queue",
        "group_oldest_seconds",
        "program_oldest_seconds",
        "programs_isolated",
        "db_disk_free_bytes",
    )
    assert [name for name in wanted if f"{PREFIX}_{name}" not in asked] == []
    assert {f"{PREFIX}_{name}" for name in get_args(WatchedGauge)} <= known_samples().keys()


def test_the_dashboard_is_one() -> None:
    dashboard = json.loads((FOLDER / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert (len(set(ids)), len(places), dashboard["uid"]) == (len(ids), len(ids), "atropos-envs")
