"""The Helm chart: what it renders is valid, and Horae understands it."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from horae import __version__
from horae.api.auth.safety import refuse_unsafe
from horae.metrics import Metrics
from tests.deploy.settings import CHART, check_command, check_settings
from tests.docs.pages import ROOT, blocks_of

Rendered = Mapping[tuple[str, str], Mapping[str, Any]]

OLDEST, NEWEST = "1.25", "1.37"  # of Kubernetes
KEDA_VERSION = "v2.17.2"
STORE = "store.url=postgresql://horae:hidden@db/horae"
TOKENS = f"tokens.secret={'x' * 40}"
KEDA = ("keda.enabled=true", "keda.prometheus=http://prometheus:9090")
CUSTOM = ("ScaledObject", "PodMonitor")  # no part of Kubernetes itself
EVERYTHING = (
    STORE,
    TOKENS,
    *KEDA,
    "podMonitor.enabled=true",
    "encryption.existingSecret=keys",
    "settings.retention=90d",
    "tokens.audience=horae",
    "image.pullSecrets[0].name=registry",
    "nodeSelector.disk=ssd",
    "podAnnotations.team=jobs",
    "workers.pools.mail.queues={mail,a.b}",
    "workers.pools.mail.app=tasks:app",
    "workers.pools.mail.image.repository=shop",
    "workers.pools.mail.env[0].name=SHOP",
    "workers.pools.mail.env[0].value=open",
)


def helm(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    beside = Path(sys.executable).with_name("helm")
    tool = beside if beside.exists() else shutil.which("helm")
    if tool is None:
        pytest.skip("helm is not installed; there is a wheel for Linux on x86-64 only")
    return subprocess.run([tool, *arguments], capture_output=True, text=True)


def render(*values: str) -> Rendered:
    """What the chart makes of some values, by kind and name."""
    done = helm("template", "jobs", CHART, *(word for value in values for word in ("--set", value)))
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def pod_of(rendered: Rendered, component: str) -> Mapping[str, Any]:
    pod: Mapping[str, Any] = rendered["Deployment", f"jobs-horae-{component}"]["spec"]["template"]["spec"]
    return pod


def environment_of(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a container; those from Secrets have values of the tests."""
    secrets = {"url": "postgresql://db/horae", "jwt-secret": "x" * 40, "encryption-key": "x" * 40}
    return {
        each["name"]: each.get("value") or secrets[each["valueFrom"]["secretKeyRef"]["key"]]
        for each in container["env"]
    }


@pytest.mark.parametrize("values", [(STORE, TOKENS), EVERYTHING], ids=["defaults", "everything"])
def test_what_the_chart_renders_is_valid(values: Sequence[str]) -> None:
    linted = helm("lint", "--strict", CHART, *(word for value in values for word in ("--set", value)))
    assert linted.returncode == 0, linted.stdout
    for document in render(*values).values():
        if document["kind"] not in CUSTOM:
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(document, version, strict=True)


def test_the_chart_is_of_this_version_and_names_no_registry() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    rendered = render(*EVERYTHING)
    images = {
        container["image"]
        for (kind, _), document in rendered.items()
        if kind == "Deployment"
        for part in ("initContainers", "containers")
        for container in document["spec"]["template"]["spec"][part]
    }
    assert images == {f"horae:{__version__}", f"shop:{__version__}"}


@pytest.mark.parametrize(
    ("component", "roles", "after"),
    [("api", "api", 5), ("planner", "planner", 0), ("worker-main", "worker", 0), ("worker-mail", "worker", 0)],
)
def test_a_pod_runs_its_role_answers_probes_and_has_time_to_drain(component: str, roles: str, after: int) -> None:
    pod = pod_of(render(*EVERYTHING), component)
    [container] = pod["containers"]
    check_command(container["args"])
    assert container["args"][:3] == ["serve", "--roles", roles]
    settings = check_settings(environment_of(container))
    refuse_unsafe(settings, roles={roles})
    [port] = container["ports"]
    assert port["containerPort"] == settings.port == settings.probe_port
    assert settings.host == "0.0.0.0"
    paths = {
        probe: container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    sleep = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    assert sleep == ["sleep", str(after)]
    grace = timedelta(seconds=pod["terminationGracePeriodSeconds"] - after)
    assert grace > settings.drain_seconds + timedelta(seconds=10), "results are written after the drain"
    assert pod["securityContext"]["runAsNonRoot"]


def test_the_schema_is_brought_up_to_date_before_a_pod_starts_unless_somebody_else_does_it() -> None:
    [first] = pod_of(render(STORE, TOKENS), "planner")["initContainers"]
    check_command(first["args"])
    assert "initContainers" not in pod_of(render(STORE, TOKENS, "migrate=false"), "planner")


def test_only_the_api_knows_what_tokens_are_verified_with() -> None:
    rendered = render(*EVERYTHING)
    for component in ("planner", "worker-main", "worker-mail"):
        [container] = pod_of(rendered, component)["containers"]
        assert not {"HORAE_AUTH", "HORAE_JWT_SECRET", "HORAE_JWKS"} & environment_of(container).keys()
    [container] = pod_of(render(STORE, "tokens.jwks=https://id.example.com/keys"), "api")["containers"]
    assert environment_of(container)["HORAE_JWKS"] == "https://id.example.com/keys"
    assert "HORAE_JWT_SECRET" not in environment_of(container)


def test_secrets_are_those_that_exist_or_made_of_the_values() -> None:
    assert {name for kind, name in render(STORE, TOKENS) if kind == "Secret"} == {
        "jobs-horae-store",
        "jobs-horae-tokens",
    }
    kept = render("store.existingSecret=database", "tokens.existingSecret=tokens")
    assert not [name for kind, name in kept if kind == "Secret"]
    names = {
        each["valueFrom"]["secretKeyRef"]["name"]
        for each in pod_of(kept, "api")["containers"][0]["env"]
        if "valueFrom" in each
    }
    assert names == {"database", "tokens"}


def test_every_deployment_has_a_budget_of_disruptions_for_its_own_pods() -> None:
    rendered = render(*EVERYTHING)
    deployments = {name for kind, name in rendered if kind == "Deployment"}
    assert deployments == {f"jobs-horae-{name}" for name in ("api", "planner", "worker-main", "worker-mail")}
    for name in deployments:
        chosen = rendered["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"]
        assert chosen == rendered["Deployment", name]["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= rendered["Deployment", name]["spec"]["template"]["metadata"]["labels"].items()


def test_keda_scales_workers_by_what_is_due_and_what_is_due_soon() -> None:
    rendered = render(*EVERYTHING)
    scaled = rendered["ScaledObject", "jobs-horae-worker-mail"]["spec"]
    assert scaled["scaleTargetRef"] == {"name": "jobs-horae-worker-mail"}
    queries = {trigger["name"]: trigger["metadata"]["query"] for trigger in scaled["triggers"]}
    assert queries == {
        "due": r'sum(max by (queue) (horae_queue_depth{queue=~"mail|a\\.b"}))',
        "due-soon": r'sum(max by (queue) (horae_due_soon{queue=~"mail|a\\.b"}))',
    }
    known = {family.name for family in Metrics().registry.collect()}
    assert {name for query in queries.values() for name in re.findall(r"horae_\w+", query)} <= known
    behavior = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] > 300, "or workers leave just before the work comes"
    assert "replicas" not in rendered["Deployment", "jobs-horae-worker-mail"]["spec"], "the autoscaler sets them"
    assert render(STORE, TOKENS)["Deployment", "jobs-horae-worker-main"]["spec"]["replicas"] == 2


@pytest.mark.acceptance
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go, which fetches the schema from KEDA's module")
def test_what_keda_reads_follows_its_own_schema(tmp_path: Path) -> None:
    fetched = subprocess.run(
        ["go", "mod", "download", "-json", f"github.com/kedacore/keda/v2@{KEDA_VERSION}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert fetched.returncode == 0, fetched.stderr
    definition = Path(json.loads(fetched.stdout)["Dir"], "config/crd/bases/keda.sh_scaledobjects.yaml")
    [version] = yaml.safe_load(definition.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    scaled = [each["spec"] for (kind, _), each in render(*EVERYTHING).items() if kind == "ScaledObject"]
    assert len(scaled) == 2
    for each in scaled:
        Draft202012Validator(schema | {"additionalProperties": False}).validate(each)


def test_the_values_of_the_documentation_make_a_pool_of_workers_each(tmp_path: Path) -> None:
    [block] = [each for each in blocks_of(ROOT / "docs/operations/deploy.md") if each.note == "values.yaml"]
    (tmp_path / "values.yaml").write_text(block.text)
    done = helm("template", "jobs", CHART, "--values", tmp_path / "values.yaml")
    assert done.returncode == 0, done.stderr
    named = {each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"}
    assert named == {f"jobs-horae-{name}" for name in ("api", "planner", "worker-main", "worker-mail")}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((TOKENS,), "set store.existingSecret"),
        ((STORE,), "set tokens.existingSecret"),
        ((STORE, TOKENS, "keda.enabled=true"), "set keda.prometheus"),
        ((STORE, "tokens.secret=short"), "tokens.secret"),
        (("store.url=sqlite:///horae.db", TOKENS), "store.url"),
        ((STORE, TOKENS, "api.replica=3"), "replica"),
        ((STORE, TOKENS, "workers.pools.mail.app=tasks"), "app"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_the_reason(values: Sequence[str], told: str) -> None:
    done = helm("template", "jobs", CHART, *(word for value in values for word in ("--set", value)))
    assert done.returncode != 0
    assert told in done.stderr
