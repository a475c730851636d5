"""`python -m deploy.run_in_podman IMAGE`: `deploy/kubernetes/replicas` as it is rendered, twice, with PostgreSQL.

`podman kube play` starts the migration job and two pods with the rendered command, variables, secret, settings, volumes
and security context. What differs from a cluster: pods share the machine's network, so the second one has another port;
this program asks what probes ask, and calls preStop: podman would need curl in the image for the one, and ignores the
other. The variable PODMAN holds the command with its options, such as `podman --runtime runc`.
"""

import asyncio
import base64
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import yaml

from tests.support.databases import running_postgres
from tests.support.manifests import find_object, render_overlay
from tests.support.serving import free_port

PODMAN: Final = shlex.split(os.environ.get("PODMAN", "podman"))
KEY: Final = "a-key-of-this-trial"
SECRET: Final = "atropos-envs"  # noqa: S105  # its name
Spec = dict[str, Any]


def run_podman(*arguments: str, given: str | None = None, check: bool = True) -> str:
    command = [*PODMAN, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300)
    if check and done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def build_pod(name: str, spec: Spec, image: str, port: int) -> Spec:
    """A pod of the rendered template. Nothing of it is left out but probes, preStop and what only a cluster has."""
    spec = json.loads(json.dumps(spec))
    (container,) = spec["containers"]
    container |= {"image": image, "imagePullPolicy": "Never"}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
        container.pop(probe, None)
    for variable in container["env"]:
        if variable["name"] == "ATROPOS_ENVS_PORT":
            variable["value"] = str(port)
    container.pop("ports", None)
    for extra in ("serviceAccountName", "topologySpreadConstraints"):
        spec.pop(extra, None)
    spec["hostNetwork"] = True
    spec["restartPolicy"] = "Never"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def play(objects: list[Spec]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(yaml.safe_dump_all(objects))
        file.flush()
        run_podman("kube", "play", file.name)


def wait_for_probe(probe: Spec, url: str) -> float:
    """Asks as often as the kubelet would, and returns the seconds it took. RuntimeError when the probe gives up."""
    began = time.monotonic()
    for _ in range(probe["failureThreshold"]):
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url + probe["httpGet"]["path"], timeout=probe["timeoutSeconds"]).status_code == 200:
                return time.monotonic() - began
        time.sleep(probe["periodSeconds"])
    raise RuntimeError(f"{url}: {probe['httpGet']['path']} does not answer 200")


@contextlib.contextmanager
def postgres_port() -> Iterator[int]:
    """A port of loopback that leads to a PostgreSQL of our own, which listens on a Unix socket alone."""
    with running_postgres() as url:
        folder = Path(parse_qs(urlsplit(url).query)["host"][0])
        (socket,) = folder.glob(".s.PGSQL.*[0-9]")
        port, loop = free_port(), asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()

        async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while piece := await source.read(65536):
                    target.write(piece)
                    await target.drain()
            target.close()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_unix_connection(str(socket))
            await asyncio.gather(forward(reader, back), forward(there, writer))

        asyncio.run_coroutine_threadsafe(asyncio.start_server(connect, "127.0.0.1", port), loop).result(10)
        try:
            yield port
        finally:
            loop.call_soon_threadsafe(loop.stop)


def store_secret(values: dict[str, str]) -> None:
    """In the form that podman 4.3 reads; later ones take a Secret of Kubernetes."""
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    run_podman("secret", "rm", SECRET, check=False)
    version = tuple(map(int, run_podman("version", "--format", "{{.Client.Version}}").split(".")[:2]))
    if version < (4, 4):
        run_podman("secret", "create", SECRET, "-", given=json.dumps(coded))
    else:
        play([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": coded}])


def migrate(job: Spec, image: str) -> None:
    play([build_pod("trial-migrate", job["spec"]["template"]["spec"], image, 0)])
    code = run_podman("wait", "trial-migrate-migrate")
    if code != "0":
        raise RuntimeError(f"the migration ended with {code}: {run_podman('logs', 'trial-migrate-migrate')}")
    print("migration job: ended with 0")


def start_pod(name: str, port: int, objects: list[Spec], image: str) -> str:
    spec = find_object(objects, "Deployment")["spec"]["template"]["spec"]
    settings = [one for one in objects if one["kind"] == "ConfigMap" and "gateway.yaml" in one["data"]]
    for one in settings:
        one["metadata"].pop("namespace", None)
    play([*settings, build_pod(name, spec, image, port)])
    (container,) = spec["containers"]
    url = f"http://127.0.0.1:{port}"
    taken = [wait_for_probe(container[probe], url) for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    print(f"{name}: started after {taken[0]:.1f} s, ready after {taken[0] + taken[1]:.1f} s, alive")
    return url


def use_both(first: str, second: str) -> None:
    """A group is handed out by one and scored by the other; both keep programs apart and show their metrics."""
    with httpx.Client(headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as client:
        asked = client.post(f"{first}/envs/gsm8k/next-batch", json={"run": "trial", "batch_size": 1})
        task = asked.raise_for_status().json()["tasks"][0]
        group = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": "0"}] * 2}
        scored = client.post(f"{second}/score", json={"run": "trial", "groups": [group]}).raise_for_status().json()
        print(f"handed out by one, scored by the other: {scored['groups'][0]['outcome']}")
        for url in (first, second):
            shown = client.get(f"{url}/envs/code_exec").raise_for_status().json()
            metrics = client.get(f"{url}/metrics").raise_for_status().text
            held = shown["isolation"]["strong"] and "atropos_envs_programs_isolated 1.0" in metrics
            print(f"{url}: {json.dumps(shown['isolation'])}")
            if not held or not shown["available"]:
                raise RuntimeError(f"{url}: programs are not isolated strongly")
            if httpx.get(f"{url}/metrics").status_code != 401:
                raise RuntimeError(f"{url}: metrics are open to everybody")


def check_confinement(container: str) -> None:
    """What the kernel says of the service's process, and that its root takes no file."""
    status = run_podman("exec", container, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    found = {name: fields[name].split()[0] for name in ("Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")}
    wanted = {"Uid": "10001", "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    written = run_podman("exec", container, "sh", "-c", "touch /opt/x 2>&1 || true")
    if found != wanted or "Read-only file system" not in written:
        raise RuntimeError(f"{container}: {found}; writing to its root: {written!r}")
    print(f"{container}: {found}, root read-only")


def stop_pod(name: str, spec: Spec) -> None:
    """preStop first, then SIGTERM, and the grace of the rendered pod."""
    (container,) = spec["containers"]
    began = time.monotonic()
    run_podman("exec", f"{name}-gateway", *container["lifecycle"]["preStop"]["exec"]["command"])
    run_podman("stop", "-t", str(spec["terminationGracePeriodSeconds"]), f"{name}-gateway")
    code = run_podman("wait", f"{name}-gateway")
    taken = time.monotonic() - began
    if code != "0":
        raise RuntimeError(f"{name} ended with {code}")
    print(f"{name}: stopped after {taken:.1f} s, preStop included, with 0")


def main(image: str) -> None:
    objects = render_overlay("replicas")
    spec = find_object(objects, "Deployment")["spec"]["template"]["spec"]
    names = ("trial-1", "trial-2")
    with postgres_port() as port:
        store_secret({"api-key": KEY, "database-url": f"postgresql://postgres@127.0.0.1:{port}/postgres"})
        try:
            migrate(find_object(objects, "Job"), image)
            urls = [start_pod(name, free_port(), objects, image) for name in names]
            use_both(*urls)
            for name in names:
                check_confinement(f"{name}-gateway")
            for name in names:
                stop_pod(name, spec)
        except RuntimeError:
            for name in names:
                print(run_podman("logs", f"{name}-gateway", check=False)[-4000:])
            raise
        finally:
            run_podman("pod", "rm", "--force", "--ignore", *names, "trial-migrate")
            run_podman("secret", "rm", SECRET, check=False)


if __name__ == "__main__":
    main(sys.argv[1])
