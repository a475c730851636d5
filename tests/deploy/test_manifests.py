"""Manifests for Kubernetes: they fit the published schemas, the service and one another."""

import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from kubernetes_validate import validate

from app.http.compat.openrlhf import OpenRlhfOptions
from app.main.application import create_app
from app.settings import Settings
from docs.parts.metrics import build_busy_observer
from tests.record.routes import list_routes
from tests.support.manifests import FOLDER, find_object, find_policies, find_renderer, read_rules, render_overlay
from tests.support.tables import read_table

OVERLAYS = ("single", "replicas", "site")
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
    assert objects != []


@needs_renderer
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_rendered_fits_the_schemas(overlay: str) -> None:
    for one in render_overlay(overlay):
        if one["apiVersion"] != OPERATOR:
            for version in VERSIONS:
                validate(one, version, strict=True)


@needs_renderer
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_and_labels_of_what_is_rendered_meet(overlay: str) -> None:
    objects = render_overlay(overlay)
    pod = find_object(objects, "Deployment")["spec"]["template"]
    labels = set(pod["metadata"]["labels"].items())
    selected = [
        find_object(objects, "Service")["spec"]["selector"],
        find_object(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        find_policies(objects)["atropos-envs"]["podSelector"]["matchLabels"],
    ]
    service = set(find_object(objects, "Service")["metadata"]["labels"].items())
    monitored = find_object(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    mounted = {volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume}
    assert all(set(one.items()) <= labels for one in selected)
    jobs = [one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "Job"]
    assert (set(monitored.items()) <= service, mounted <= maps) == (True, True)
    assert not any(set(selected[0].items()) <= set(job.items()) for job in jobs)  # no requests for a migration


WAYS = read_table(__file__, "ways.yaml", dict[str, tuple[dict[str, str], list[str], list[str]]])
"""By policy: whom it is for, who may enter, and where they may leave for."""


def list_ways(rules: list[dict[str, Any]], side: str) -> list[str]:
    """Peers with their ports; a rule without peers is for anybody."""
    found = []
    for rule in rules:
        ports = " ".join(str(port["port"]) for port in rule.get("ports", ())) or "any"
        found += [f"{describe_peer(peer)}: {ports}" for peer in rule.get(side, ({},))]
    return found


def describe_peer(peer: dict[str, Any]) -> str:
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    if "podSelector" not in peer:
        return "anybody"
    space = peer.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "here"}})
    labels = [f"{name}={value}" for one in (space, peer["podSelector"]) for name, value in one["matchLabels"].items()]
    return " ".join(label.removeprefix("kubernetes.io/metadata.name=") for label in labels)


@needs_renderer
def test_policies_name_who_may_enter_and_where_the_service_may_leave_for() -> None:
    found = {
        name: (
            spec["podSelector"]["matchLabels"],
            list_ways(spec.get("ingress", []), "from"),
            list_ways(spec.get("egress", []), "to"),
        )
        for name, spec in find_policies(render_overlay("site")).items()
    }
    assert found == WAYS


@needs_renderer
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_pod_is_closed_in_both_directions(overlay: str) -> None:
    objects = render_overlay(overlay)
    policies = find_policies(objects).values()
    templates = [one["spec"]["template"] for one in objects if one["kind"] in {"Deployment", "Job"}]
    closed = [
        {way for spec in policies if is_selected(template, spec) for way in spec["policyTypes"]}
        for template in templates
    ]
    assert closed == [{"Ingress", "Egress"}] * len(templates)


def is_selected(template: dict[str, Any], policy: dict[str, Any]) -> bool:
    labels = template["metadata"]["labels"].items()
    return bool(policy["podSelector"]["matchLabels"].items() <= labels)


@needs_renderer
def test_no_address_is_a_range() -> None:
    objects = render_overlay("site")
    networks = [
        peer["ipBlock"]["cidr"]
        for spec in find_policies(objects).values()
        for rule in spec["egress"]
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    ]
    (container,) = find_object(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (proxies,) = (one["value"] for one in container["env"] if one["name"] == "FORWARDED_ALLOW_IPS")
    assert ([ip_network(one).num_addresses for one in networks], len([*map(ip_address, proxies.split(","))])) == (
        [1] * 3,
        2,
    )


@needs_renderer
def test_the_service_and_its_migration_run_one_image_by_its_digest() -> None:
    images = {
        container["image"]
        for one in render_overlay("site")
        if one["kind"] in {"Deployment", "Job"}
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    assert images == {f"registry.example.com/atropos-environments@sha256:{'0' * 64}"}


def test_the_ingress_lets_in_every_route_but_those_of_operators(tmp_path: Path) -> None:
    """A new route stands in it, or among those that are closed."""
    ingress = next(one for one in written_objects() if one["kind"] == "Ingress")
    (rule,) = ingress["spec"]["rules"]
    open_paths = {entry["path"] for entry in rule["http"]["paths"]}
    exact = {entry["path"] for entry in rule["http"]["paths"] if entry["pathType"] == "Exact"}
    paths = list_paths(tmp_path)
    assert (exact, {f"/{path.split('/')[1]}" for path in paths} - open_paths) == ({"/"}, {"/admin", "/metrics"})


def list_paths(folder: Path) -> list[str]:
    app = create_app(Settings.model_construct(database_url=f"sqlite:///{folder / 'routes.db'}"))
    return [word for line in list_routes(app.routes) for word in line.split() if word.startswith("/")]


def test_prometheus_has_a_key_of_its_own() -> None:
    (monitor,) = (one for one in written_objects() if one["kind"] == "ServiceMonitor")
    secrets = {one["valueFrom"]["secretKeyRef"]["name"] for one in variables() if "valueFrom" in one}
    (endpoint,) = monitor["spec"]["endpoints"]
    told = endpoint["authorization"]["credentials"]
    assert (told, told["name"] in secrets) == ({"name": "atropos-envs-metrics", "key": "key"}, False)


def variables() -> list[dict[str, Any]]:
    return [one for pod in pods().values() for container in pod["containers"] for one in container["env"]]


def test_what_pods_write_is_requested_and_bounded() -> None:
    found = {}
    for kind, pod in pods().items():
        (container,) = pod["containers"]
        resources = container["resources"]
        found[kind] = (resources["requests"]["ephemeral-storage"], resources["limits"]["ephemeral-storage"])
    assert found == {"Deployment": ("4Gi", "24Gi"), "Job": ("256Mi", "512Mi")}


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


def test_expressions_parse_and_ask_for_what_is_exposed() -> None:
    known = known_samples()
    everywhere = {label for labels in known.values() for label in labels} | {"namespace", "pod"}
    wrong = []
    for expression in expressions():
        for selector in find_selectors(expression):
            name = selector.name or ""
            labels = {one.name for one in selector.matchers.matchers} - {"namespace", "pod", "job"}
            foreign = name in FOREIGN or name.startswith(KUBELET)
            if not foreign and (name not in known or not labels <= known[name]):
                wrong.append(f"{name}{sorted(labels)} in {expression}")
        grouped = ",".join(re.findall(r"by \(([^)]*)\)", expression)).split(",")
        wrong += [label for label in map(str.strip, grouped) if label and label not in everywhere]
    assert wrong == []
