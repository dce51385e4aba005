"""The files of `deploy`: what they name exists, and what belongs together fits."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from elanus import metrics
from elanus.cli.app import app
from elanus.server.access import check_openness
from elanus.server.settings import Settings
from elanus.server.settings_load import environment_name, load, setting_names

DEPLOY = Path(__file__).parents[3] / "deploy"
ROLES = {"rootcoord", "datacoord", "indexcoord", "querycoord", "querynode", "proxy", "datanode"}
VERSIONS = {
    "Namespace": "v1",
    "ConfigMap": "v1",
    "Secret": "v1",
    "Service": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
}
PROBES = ("livenessProbe", "readinessProbe")
SPECS = {spec.name: spec for spec in vars(metrics).values() if isinstance(spec, metrics.Spec)}
OTHERS = {"up", "process_resident_memory_bytes"}
"""Metrics of Prometheus itself, and of its client library."""
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PASSWORD = environment_name("proxy.root_password")
TARGET_LABELS = {"instance", "job", "le"}


def manifests() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


MANIFESTS = manifests()


def of(kind: str) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in MANIFESTS if m["kind"] == kind}


WORKLOADS = of("Deployment") | of("StatefulSet")


def pod(workload: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for workload in WORKLOADS.values():
        for container in pod(workload)["containers"]:
            yield workload, container


# settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in setting_names():
        monkeypatch.delenv(environment_name(name), raising=False)


@pytest.mark.parametrize("file", sorted((DEPLOY / "systemd").glob("*.yaml")), ids=lambda file: file.name)
def test_the_settings_of_the_units_are_settings(file: Path) -> None:
    settings = load(file)
    assert settings.proxy.host == "0.0.0.0"
    check_starts(settings)


def check_starts(settings: Settings) -> None:
    """A proxy with these settings starts, and its clients sign in; root's password is given apart."""
    check_openness(settings.proxy)
    assert settings.proxy.authorization_enabled
    assert not settings.proxy.root_password, "a password is no part of settings that many may read"
    assert settings.proxy.initial_root_password == ""


def test_the_container_starts_as_its_first_lines_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DEPLOY / "container/Containerfile").read_text()
    for name, value in re.findall(r"^ENV (ELANUS_\w+)=(.*)$", text, re.M):
        monkeypatch.setenv(name, value)
    file = tmp_path / "empty.yaml"
    file.write_text("{}")
    settings = load(file)
    check_starts(settings)
    ports = {settings.proxy.port, settings.http.port_for(settings.proxy.port), settings.metrics.port}
    exposed, published = re.search(r"^EXPOSE (.*)$", text, re.M), re.findall(r"-p (\d+):\1", text)
    assert exposed is not None
    assert ports == set(map(int, exposed[1].split())) == set(map(int, published))
    assert re.findall(r"-e (ELANUS_\w+)=", text) == [PASSWORD]


def test_the_settings_of_the_pods_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(of("ConfigMap")["elanus-settings"]["data"]["cluster.yaml"])
    monkeypatch.setenv("ELANUS_CLUSTER__HOST", "10.0.0.7")
    settings = load(file)
    policy = of("NetworkPolicy")["elanus"]
    public = {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", ())}
    clients = {settings.proxy.port, settings.http.port_for(settings.proxy.port)}
    assert public == clients | {settings.metrics.port}, "the port of the cluster is not among them"
    assert {port["port"] for port in of("Service")["elanus"]["spec"]["ports"]} == clients
    (proxy,) = (c for _, c in containers() if "proxy" in c.get("args", ()))
    assert clients | {settings.cluster.port, settings.metrics.port} == {
        port["containerPort"] for port in proxy["ports"]
    }
    check_starts(settings)
    given = {source["secretRef"]["name"] for source in proxy["envFrom"]}
    assert PASSWORD in {name for secret in given for name in of("Secret")[secret]["stringData"]}
    for url, name in ((settings.meta.url, "etcd"), (settings.log.url, "nats")):
        hosts = re.findall(rf"{name}-\d\.{name}:(\d+)", url)
        assert len(hosts) == WORKLOADS[name]["spec"]["replicas"]
        assert {int(port) for port in hosts} <= {p["port"] for p in of("Service")[name]["spec"]["ports"]}
    (limit,) = {
        c["resources"]["limits"]["memory"] for w, c in containers() if "querynode" in c.get("args", ())
    }
    assert settings.querynode.memory_mb == int(limit.removesuffix("Gi")) * 1024 * 3 // 4


def environment_variables() -> set[str]:
    in_pods = {e["name"] for _, c in containers() for e in c.get("env", ())}
    in_image = set(re.findall(r"^ENV (\w+)=", (DEPLOY / "container/Containerfile").read_text(), re.M))
    in_secrets = {name for secret in of("Secret").values() for name in secret["stringData"]}
    in_units = {n for u in UNITS for n in re.findall(r"^# (ELANUS_\w+)=", u.read_text(), re.M)}
    assert in_units == {PASSWORD}
    return {n for n in in_pods | in_image | in_secrets | in_units if n.startswith("ELANUS_")}


def test_variables_of_containers_are_settings() -> None:
    assert len(environment_variables()) > 4
    assert environment_variables() <= {environment_name(name) for name in setting_names()}


# commands


def command_lines() -> Iterator[list[str]]:
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
        yield shlex.split(line.replace("%i", "querynode"))[1:]
    for _, container in containers():
        if container["name"] == "elanus":
            yield container["args"]
    (line,) = re.findall(r"^CMD (.*)$", (DEPLOY / "container/Containerfile").read_text(), re.M)
    yield json.loads(line)


def test_commands_are_commands() -> None:
    group = typer.main.get_command(app)
    for line in command_lines():
        command = group.commands[line[0]]  # type: ignore[attr-defined]
        parsed = command.make_context(line[0], list(line[1:]))
        roles = parsed.params.get("roles", ())
        assert set(roles) <= ROLES, line


def test_every_role_is_deployed() -> None:
    deployed = {role for line in command_lines() if line[0] == "run" for role in ROLES & set(line)}
    assert deployed == ROLES


# Kubernetes


def test_manifests_have_their_kinds_versions_and_the_namespace() -> None:
    for manifest in MANIFESTS:
        assert manifest["apiVersion"] == VERSIONS[manifest["kind"]]
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] in of("Namespace")
    named = [(m["kind"], m["metadata"]["name"]) for m in MANIFESTS]
    assert len(named) == len(set(named))


POD_FIELDS = (
    "automountServiceAccountToken containers enableServiceLinks securityContext "
    "terminationGracePeriodSeconds topologySpreadConstraints volumes"
)
FIELDS: Mapping[str, str] = {
    "Namespace": "",
    "ConfigMap": "data",
    "Secret": "type stringData",
    "Service.spec": "clusterIP ports publishNotReadyAddresses selector",
    "Deployment.spec": "replicas selector strategy template",
    "StatefulSet.spec": "podManagementPolicy replicas selector serviceName template volumeClaimTemplates",
    "NetworkPolicy.spec": "ingress podSelector policyTypes",
    "PodDisruptionBudget.spec": "maxUnavailable minAvailable selector",
    "template": "metadata spec",
    "template.spec": POD_FIELDS,
    "containers": "args command env envFrom image lifecycle livenessProbe name ports readinessProbe "
    "resources securityContext volumeMounts",
    "strategy": "rollingUpdate",
    "rollingUpdate": "maxSurge maxUnavailable",
    "securityContext": "allowPrivilegeEscalation capabilities fsGroup runAsGroup runAsNonRoot runAsUser "
    "seccompProfile",
    "capabilities": "drop",
    "seccompProfile": "type",
    "topologySpreadConstraints": "labelSelector maxSkew topologyKey whenUnsatisfiable",
    "lifecycle": "preStop",
    "preStop": "exec",
    "exec": "command",
    "livenessProbe": "failureThreshold httpGet initialDelaySeconds periodSeconds",
    "readinessProbe": "httpGet periodSeconds",
    "httpGet": "path port",
    "volumes": "name configMap emptyDir",
    "volumeMounts": "name mountPath readOnly",
    "volumeClaimTemplates": "metadata spec",
    "env": "name valueFrom",
    "valueFrom": "fieldRef",
    "fieldRef": "fieldPath",
    "envFrom": "secretRef",
    "secretRef": "name",
    "metadata": "name namespace labels annotations",
}
"""The fields that are used, as Kubernetes spells them: it ignores others, or refuses the object."""


def misspelled(name: str, value: Any, where: str = "") -> Iterator[str]:
    """Yield the fields that the object has and `FIELDS` does not."""
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, dict):
            continue
        known = FIELDS.get(f"{where}.{name}") or FIELDS.get(name)
        if known:
            yield from (f"{where}.{name}.{field}" for field in one if field not in known.split())
        for field, below in one.items():
            if field not in ("data", "stringData", "labels", "annotations", "matchLabels", "resources"):
                yield from misspelled(field, below, name)


def test_objects_have_fields_that_there_are() -> None:
    for manifest in MANIFESTS:
        kind = manifest["kind"]
        own = {"apiVersion", "kind", "metadata", *FIELDS.get(kind, "spec").split()}
        assert manifest.keys() <= own
        below = {field: value for field, value in manifest.items() if field in ("metadata", "spec")}
        found = [bad for field, value in below.items() for bad in misspelled(field, value, kind)]
        assert found == []


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("spec", {"replica": 2}, "Deployment"),
        ("spec", {"template": {"spec": {"container": []}}}, "Deployment"),
        ("readinessProbe", {"httpGet": {"path": "/", "prot": 1}}, "containers"),
        ("containers", [{"name": "elanus", "arg": []}], "spec"),
    ],
)
def test_a_misspelled_field_is_noticed(name: str, value: object, where: str) -> None:
    assert len(list(misspelled(name, value, where))) == 1


def test_probes_ask_for_what_is_served() -> None:
    paths = {c[p]["httpGet"]["path"] for w, c in containers() if c["name"] == "elanus" for p in PROBES}
    assert paths == {"/healthz", "/readyz"}
    served = (Path(__file__).parents[3] / "src/elanus/server/http_port.py").read_text()
    assert all(f'"{path}"' in served for path in paths)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@.", "@querynode.")
    copy.write_text(unit.read_text().replace("/opt/elanus/bin/elanus", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60
    )
    said = [line for line in done.stderr.splitlines() if copy.name in line]
    assert (done.returncode, said) == (0, [])


def test_selectors_find_pods() -> None:
    labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in WORKLOADS.values()]
    for workload in WORKLOADS.values():
        assert (
            workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
        )
    selectors = [s["spec"]["selector"] for s in of("Service").values()]
    selectors += [b["spec"]["selector"]["matchLabels"] for b in of("PodDisruptionBudget").values()]
    selectors += [p["spec"]["podSelector"]["matchLabels"] for p in of("NetworkPolicy").values()]
    for selector in selectors:
        assert any(selector.items() <= own.items() for own in labels), selector


def test_services_reach_ports_of_their_pods() -> None:
    for service in of("Service").values():
        selector = service["spec"]["selector"].items()
        ports = {
            port["name"]
            for workload in WORKLOADS.values()
            if selector <= workload["spec"]["template"]["metadata"]["labels"].items()
            for container in pod(workload)["containers"]
            for port in container["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for stateful in of("StatefulSet").values():
        assert stateful["spec"]["serviceName"] in of("Service")


def test_pods_name_what_exists() -> None:
    for workload, container in containers():
        spec = pod(workload)
        assert spec["enableServiceLinks"] is False, "its variables would be taken for settings"
        volumes = {v["name"]: v for v in spec.get("volumes", ())}
        claims = {c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", ())}
        assert {m["name"] for m in container["volumeMounts"]} == volumes.keys() | claims
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in of("ConfigMap")
        for source in container.get("envFrom", ()):
            assert source["secretRef"]["name"] in of("Secret")
        ports = {port["name"] for port in container["ports"]}
        for probe in PROBES:
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports
        assert container["resources"].keys() == {"requests", "limits"}
        assert re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", container["image"]), "an image has a version"


def test_a_drained_machine_takes_one_pod_of_those_that_others_wait_for() -> None:
    budgets = of("PodDisruptionBudget")
    assert budgets.keys() == WORKLOADS.keys() - {"elanus-datanode"}, "a data node's work is ordered again"
    for name, budget in budgets.items():
        replicas = WORKLOADS[name]["spec"]["replicas"]
        left = budget["spec"].get("minAvailable", replicas - budget["spec"].get("maxUnavailable", 0))
        assert 0 < left < replicas, "some stay, and a machine can be drained"
        assert name not in ("etcd", "nats") or left > replicas / 2, "a majority stays"


def test_pods_of_elanus_have_no_rights_on_their_machine() -> None:
    own = [
        (pod(w)["securityContext"], c["securityContext"]) for w, c in containers() if c["name"] == "elanus"
    ]
    assert len(own) == 4
    for of_pod, of_container in own:
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert of_container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_pods_hold_no_key_of_the_cluster() -> None:
    assert all(pod(workload)["automountServiceAccountToken"] is False for workload in WORKLOADS.values())


def test_a_proxy_takes_connections_until_the_service_knows_that_it_ends() -> None:
    proxy = WORKLOADS["elanus-proxy"]
    (container,) = pod(proxy)["containers"]
    program, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "sleep"
    assert 0 < int(seconds) < pod(proxy)["terminationGracePeriodSeconds"] / 2


def test_pods_have_the_user_and_the_group_of_the_image() -> None:
    text = (DEPLOY / "container/Containerfile").read_text()
    (ids,) = re.findall(r"^USER (\d+):(\d+)$", text, re.M)
    assert re.findall(r"--uid (\d+)", text) + re.findall(r"groupadd --system --gid (\d+)", text) == list(ids)
    contexts = [pod(w)["securityContext"] for w, c in containers() if c["name"] == "elanus"]
    assert {(str(one["runAsUser"]), str(one["runAsGroup"])) for one in contexts} == {ids}
    assert {str(one["fsGroup"]) for one in contexts} == {ids[1]}


def test_coordinators_that_stand_by_are_ready() -> None:
    probes = {w["metadata"]["name"]: c["readinessProbe"]["httpGet"]["path"] for w, c in containers()}
    assert probes["elanus-coordinators"] == "/healthz"
    assert probes["elanus-proxy"] == "/readyz"


# metrics


def names_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics of an expression, and the labels that they are selected by."""
    for name, selected in re.findall(r"\b((?:elanus|process)_\w+|up)\b(\{[^}]*\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]~?", selected))


def check(expression: str) -> None:
    named = list(names_in(expression))
    assert named, expression
    allowed = set(TARGET_LABELS)
    for name, labels in named:
        if name in OTHERS:
            continue
        spec = SPECS.get(name) or SPECS[re.sub(r"_(bucket|sum|count)$", "", name)]
        assert isinstance(spec, metrics.HistogramSpec) == (spec.name != name), (
            f"{name}: another kind of metric"
        )
        assert labels <= {*spec.labels, *TARGET_LABELS}, expression
        allowed |= set(spec.labels)
        if isinstance(spec, metrics.CounterSpec):
            assert re.search(rf"(rate|increase)\({name}\b", expression), f"{name} only grows: {expression}"
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in grouped.split(",")} <= allowed, expression
    assert expression.count("(") == expression.count(")")


RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_over_real_metrics_and_says_what_to_do(rule: dict[str, Any]) -> None:
    check(rule["expr"])
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "remedy"}


def test_alerts_have_names_of_their_own_and_commands_that_exist() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    said = " ".join(rule["annotations"]["remedy"] for rule in RULES)
    assert set(re.findall(r"elanus ([a-z]+)", said)) <= set(commands)
    assert set(re.findall(r"\b[a-z]+\.[a-z]+_[a-z_]+", said)) <= set(setting_names())


def test_the_scrape_configuration_names_the_job_and_the_rules() -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    assert [job["job_name"] for job in scraped["scrape_configs"]] == ["elanus"]
    assert all((DEPLOY / "prometheus" / file).is_file() for file in scraped["rule_files"])


def test_the_dashboard_shows_real_metrics() -> None:
    dashboard = json.loads((DEPLOY / "grafana/elanus.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert all(x < 24 for x, _ in cells)
        taken |= cells
        for target in panel.get("targets", ()):
            check(target["expr"].replace("$__rate_interval", "5m"))
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(dashboard)))
    assert used <= variables


@pytest.mark.parametrize(
    "wrong",
    [
        "elanus_no_such_metric",
        "elanus_growing_bytes_bucket",
        'elanus_segments{kind="x"}',
        "sum by (pchannel) (elanus_segments)",
        "elanus_rows_inserted_total",
        "elanus_request_seconds",
    ],
)
def test_a_wrong_expression_is_noticed(wrong: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check(wrong)
