"""Checks that the files in deploy/ are consistent, and the chart with Helm and the schemas of Kubernetes.

    files.py WORK

Prints every mistake and exits with code 1. Writes files for later checks into WORK: the expressions of the dashboard as rules,
the rules that the chart installs, and the configuration that it mounts.
"""

import json
import pathlib
import re
import sys

import helm_python as helm
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "posthaste"
# The oldest version that the chart supports, and the newest one with a schema.
KUBERNETES = ["1.30", kubernetes_validate.latest_version()]
# Replacements for Grafana's variables, so that expressions can be parsed.
VARIABLES = {"$__rate_interval": "5m", "$job": "posthaste", "$instance": ".*"}

mistakes = []


def wrong(where, what):
    mistakes.append(f"{where}: {what}")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def metrics_named(text):
    """Yields the metrics of an expression, histograms by their own name."""
    for name in re.findall(r"(?<![:\w])(?:posthaste|process)_\w+", text):
        yield re.sub(r"_(bucket|sum|count)$", "", name)


def exported():
    """Returns every metric, and whether it is optional."""
    lines = [line for line in read("deploy/prometheus/metrics.txt").splitlines() if not line.startswith("#")]
    if lines != sorted(lines):
        wrong("metrics.txt", "is not sorted")
    return {line.split()[0]: line.split()[2:] for line in lines}


def anchors(text):
    """Returns the anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


# --- Prometheus and Grafana ---


def check_rules(known, runbook):
    rules = yaml.safe_load(read("deploy/prometheus/rules.yml"))
    severities = {}
    for group in rules["groups"]:
        for rule in group["rules"]:
            name = rule.get("alert") or rule["record"]
            for metric in metrics_named(rule["expr"]):
                if metric not in known:
                    wrong("rules.yml", f"{name} names {metric}, which is not in metrics.txt")
            if "alert" not in rule:
                continue
            severities.setdefault(name, []).append(rule["labels"]["severity"])
            for needed in ("summary", "description", "runbook_url"):
                if needed not in rule["annotations"]:
                    wrong("rules.yml", f"{name} has no {needed}")
            page, _, anchor = rule["annotations"].get("runbook_url", "").partition("#")
            if page != "docs/operations.md" or anchor not in runbook:
                wrong("rules.yml", f"the runbook of {name} has no section #{anchor}")
    figures = ["RetryRatio", "DeadLetterRatio", "AttemptsPerSuccess", "SecondAttemptSuccessRatio", "RetryingOver24h"]
    for figure in figures:
        if severities.get(f"Posthaste{figure}") != ["warning", "critical"]:
            wrong("rules.yml", f"Posthaste{figure} needs a warning rule, then a critical one")
    tested = read("deploy/prometheus/rules_test.yml")
    for name in severities:
        if name not in tested:
            wrong("rules_test.yml", f"does not test {name}")


def check_dashboard(known, work):
    board = json.loads(read("deploy/grafana/posthaste.json"))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    if variables != {"datasource", "job", "instance"}:
        wrong("posthaste.json", f"has variables that this check does not replace: {sorted(variables)}")
    seen, taken, rules, shown = set(), {}, [], set()
    for panel in board["panels"]:
        title = panel["title"]
        if panel["id"] in seen:
            wrong("posthaste.json", f"{title}: duplicate id")
        seen.add(panel["id"])
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            wrong("posthaste.json", f"{title}: wider than the grid")
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])):
            if cell in taken:
                wrong("posthaste.json", f"{title}: overlaps {taken[cell]}")
                break
            taken[cell] = title
        if panel["type"] == "row":
            continue
        if not panel.get("description"):
            wrong("posthaste.json", f"{title}: no description")
        if not panel["targets"]:
            wrong("posthaste.json", f"{title}: no targets")
        for target in panel["targets"]:
            if target["datasource"]["uid"] != "${datasource}":
                wrong("posthaste.json", f"{title}: is bound to one data source")
            expression = target["expr"]
            shown.update(metrics_named(expression))
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            if "$" in expression:
                wrong("posthaste.json", f"{title}: an unknown variable in {target['expr']}")
            rules.append({"record": f"panel:{panel['id']}:{target['refId'].lower()}", "expr": expression})
    for metric in sorted(shown - known.keys()):
        wrong("posthaste.json", f"names {metric}, which is not in metrics.txt")
    for metric in sorted(name for name, sometimes in known.items() if name not in shown and not sometimes):
        wrong("posthaste.json", f"does not show {metric}")
    (work / "dashboard-rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))


# --- Compose ---


def check_compose():
    compose = yaml.safe_load(read("deploy/compose/compose.yaml"))
    for name, service in compose["services"].items():
        for secret in service.get("secrets", []):
            secret = secret if isinstance(secret, str) else secret["source"]
            if secret not in compose["secrets"]:
                wrong("compose.yaml", f"{name}: there is no secret {secret}")
        for network in service.get("networks", []):
            if network not in compose["networks"]:
                wrong("compose.yaml", f"{name}: there is no network {network}")
        for other in service.get("depends_on", {}):
            if "healthcheck" not in compose["services"].get(other, {}):
                wrong("compose.yaml", f"{name} waits for {other}, which has no health check")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if not source.startswith((".", "/")) and source not in compose["volumes"]:
                wrong("compose.yaml", f"{name}: there is no volume {source}")
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                wrong("compose.yaml", f"{name}: {port} is published beyond the loopback")
        for key in ("context", "dockerfile"):
            below = DEPLOY / "compose" / service.get("build", {}).get("context", ".")
            path = below if key == "context" else below / service.get("build", {}).get("dockerfile", ".")
            if not path.exists():
                wrong("compose.yaml", f"{name}: there is no {path}")
    seconds = int(compose["services"]["posthaste"]["stop_grace_period"].rstrip("s"))
    grace = int(compose["services"]["posthaste"]["environment"]["POSTHASTE_GRACE"].rstrip("s"))
    if seconds <= grace:
        wrong("compose.yaml", f"is killed after {seconds} s, within its grace of {grace} s")
    text = read("deploy/compose/prepare")
    for secret in compose["secrets"].values():
        if secret["file"].removeprefix("./") not in text:
            wrong("compose.yaml", f"prepare does not create {secret['file']}")


# --- Consistency between files ---


def check_versions():
    cargo = read("Cargo.toml")
    rust = re.search(r'^rust-version = "([\d.]+)"', cargo, re.MULTILINE)[1]
    version = re.search(r'^version = "([\d.]+)"', cargo, re.MULTILINE)[1]
    image = re.search(r"^ARG RUST_IMAGE=\S+/rust:([\d.]+)-", read("deploy/container/Containerfile"), re.MULTILINE)[1]
    if not (image + ".").startswith(rust + "."):
        wrong("Containerfile", f"builds with Rust {image}; Cargo.toml says {rust}")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    if chart["appVersion"] != version:
        wrong("Chart.yaml", f"is for {chart['appVersion']}; this is {version}")


def check_context():
    """Checks that all compiled-in files are part of the build context of the image."""
    ignored = read("deploy/container/Containerfile.dockerignore").splitlines()
    given = [line[1:] for line in ignored if line.startswith("!")]
    for source in (ROOT / "crates").glob("*/src/**/*.rs"):
        # The image is built without tests.
        if "tests" in source.relative_to(ROOT).parts:
            continue
        for path in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', source.read_text(encoding="utf-8")):
            included = (source.parent / path).resolve().relative_to(ROOT)
            if included.parts[0] not in given:
                wrong("Containerfile", f"{included} is needed by {source.relative_to(ROOT)}, and is not copied")


def check_unit():
    unit = read("deploy/systemd/posthaste.service")
    stop = int(re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)[1])
    grace = int(re.search(r'^grace = "(\d+)s"$', read("deploy/systemd/posthaste.toml"), re.MULTILINE)[1])
    if stop <= grace:
        wrong("posthaste.service", f"is killed after {stop} s, within its grace of {grace} s")
    defaults = read("config.default.toml")
    needed = sum(int(re.search(rf"^{key} = (\d+)$", defaults, re.MULTILINE)[1]) for key in ("connections", "max_in_flight"))
    files = int(re.search(r"^LimitNOFILE=(\d+)$", unit, re.MULTILINE)[1])
    if files <= needed:
        wrong("posthaste.service", f"LimitNOFILE is {files}; connections and requests alone may take {needed}")


def check_runbook(known, text):
    for metric in known:
        if f"`{metric}" not in text:
            wrong("operations.md", f"does not explain {metric}")


# --- The chart ---

POSTGRES = {"store": {"kind": "postgres", "postgres": {"url": "postgres://posthaste@db/posthaste"}}, "secret": {"name": "keys"}}
EVERYTHING = {
    **POSTGRES,
    "config": 'public_url = "https://hooks.example.com"\n\n[limits]\nconnections = 500\n',
    "env": [{"name": "POSTHASTE_LOG_LEVEL", "value": "info"}],
    "image": {"repository": "registry.example/posthaste", "pullSecrets": [{"name": "registry"}]},
    "ingress": {"enabled": True, "host": "hooks.example.com", "className": "nginx", "tlsSecret": "tls", "annotations": {"a/b": "c"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "hooks"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "serviceMonitor": {"enabled": True, "withKey": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}, "runbookBase": "https://git.example.com/"},
    "dashboard": {"enabled": True},
}
WORLDS = {
    "as it is": {},
    "sqlite with a secret": {"secret": {"name": "keys"}, "store": {"sqlite": {"storageClassName": "fast"}}},
    "postgres": POSTGRES,
    "one node on postgres": {**POSTGRES, "store": {"kind": "postgres", "postgres": {**POSTGRES["store"]["postgres"], "replicas": 1}}},
    "everything": EVERYTHING,
}
REFUSED = {
    "an unknown value": {"replicas": 3},
    "postgres without a URL": {"store": {"kind": "postgres"}, "secret": {"name": "keys"}},
    "postgres without a secret": {"store": POSTGRES["store"]},
    "a password that every user can read": {"store": {"kind": "postgres", "postgres": {"url": "postgres://a:b@c/d"}}, "secret": {"name": "keys"}},
    "a worker on sqlite": {"role": "worker"},
    "an ingress without a host": {"ingress": {"enabled": True}},
    "a key without a secret": {"serviceMonitor": {"enabled": True, "withKey": True}},
    "no grace": {"graceSeconds": 0},
}
# Custom resources, for which there is no schema.
OPERATOR = "monitoring.coreos.com/v1"


def render(chart, values):
    manifests = chart.render(values, name="hooks", namespace="webhooks")
    found = []
    for path, text in manifests.items():
        if path.endswith(".yaml"):
            found.extend(manifest for manifest in yaml.safe_load_all(text) if manifest)
    return found


def check_pod(world, manifest):
    pod = manifest["spec"]["template"]["spec"]
    container = pod["containers"][0]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    if len(variables) != len(container["env"]):
        wrong("chart", f"{world}: a variable is set twice")
    grace = int(variables["POSTHASTE_GRACE"].rstrip("s")) + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if pod["terminationGracePeriodSeconds"] <= grace:
        wrong("chart", f"{world}: is killed within its grace")
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            wrong("chart", f"{world}: there is no volume {mount['name']}")
    selector = manifest["spec"]["selector"]["matchLabels"].items()
    if not selector <= manifest["spec"]["template"]["metadata"]["labels"].items():
        wrong("chart", f"{world}: the selector does not match the pods")


def check_chart(work):
    for world, values in WORLDS.items():
        for message in helm.lint(CHART, values, strict=True)["messages"]:
            # An icon is optional.
            if message["severity"] > 1:
                wrong("chart", f"{world}: {message['path']}: {message['error']}")
    with helm.Chart.load(CHART) as chart:
        for world, values in WORLDS.items():
            try:
                chart.validate_schema(values)
                manifests = render(chart, values)
            except (helm.HelmError, yaml.YAMLError) as error:
                wrong("chart", f"{world}: {error}")
                continue
            kinds = sorted(manifest["kind"] for manifest in manifests)
            for manifest in manifests:
                kind = manifest["kind"]
                if manifest["apiVersion"] == OPERATOR:
                    continue
                for version in KUBERNETES:
                    try:
                        kubernetes_validate.validate(manifest, version, strict=True)
                    except kubernetes_validate.ValidationError as error:
                        wrong("chart", f"{world}: {kind} for Kubernetes {version}: {error.message} at {list(error.path)}")
                if kind in ("Deployment", "StatefulSet"):
                    check_pod(world, manifest)
            if ("PodDisruptionBudget" in kinds) != (world in ("postgres", "everything")):
                wrong("chart", f"{world}: {kinds}: a disruption budget is required for several nodes, and not allowed for one")
            if world == "everything":
                by_kind = {manifest["kind"]: manifest for manifest in manifests}
                (work / "chart-rules.yml").write_text(yaml.safe_dump(by_kind["PrometheusRule"]["spec"]))
                config = next(manifest for manifest in manifests if "posthaste.toml" in manifest.get("data", {}))
                (work / "chart.toml").write_text(config["data"]["posthaste.toml"])
                board = next(manifest for manifest in manifests if "posthaste.json" in manifest.get("data", {}))
                if json.loads(board["data"]["posthaste.json"]) != json.loads(read("deploy/grafana/posthaste.json")):
                    wrong("chart", "installs a dashboard that differs from deploy/grafana")
                if "https://git.example.com/docs/operations.md#" not in json.dumps(by_kind["PrometheusRule"]):
                    wrong("chart", "runbookBase is not applied to the rules")
        for world, values in REFUSED.items():
            try:
                chart.validate_schema(values)
                render(chart, values)
            except helm.HelmError:
                continue
            wrong("chart", f"{world} should be refused")


def main():
    work = pathlib.Path(sys.argv[1])
    known = exported()
    text = read("docs/operations.md")
    runbook = anchors(text)
    check_rules(known, runbook)
    check_dashboard(known, work)
    check_compose()
    check_versions()
    check_context()
    check_unit()
    check_runbook(known, text)
    check_chart(work)
    for mistake in mistakes:
        print(f"deploy: {mistake}", file=sys.stderr)
    sys.exit(1 if mistakes else 0)


main()
