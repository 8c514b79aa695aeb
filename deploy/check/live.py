"""Starts posthaste with each configuration in deploy/, and compares its metrics, alerts and commands with the files there.

    live.py PROGRAM WORK

WORK has the output of files.py. Prints every mistake and exits with code 1.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
# Long enough for the first start on a loaded machine, which creates a database and a key. Only a server that hangs takes longer.
TIME_LIMIT_S = 60
KEY = "ph_only-for-this-check-0123456789abcdef"

mistakes = []


def wrong(where, what):
    mistakes.append(f"{where}: {what}")


class Server:
    """A server with these settings on a free port, stopped at the end of the block."""

    def __init__(self, program, config, **variables):
        self.program, self.config, self.variables = program, config, variables

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="posthaste-deploy.")
        settings = {
            "POSTHASTE_CONFIG": str(self.config),
            "POSTHASTE_LISTEN": "127.0.0.1:0",
            "POSTHASTE_STORE": f"sqlite:{self.home}/posthaste.db",
            "POSTHASTE_LOG_FORMAT": "json",
            **self.variables,
        }
        # Without the settings of the caller.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSTHASTE_", "PG"))}
        self.log = open(f"{self.home}/log", "w+b")
        self.process = subprocess.Popen([self.program, "serve"], env=kept | settings, cwd=self.home, stdout=subprocess.PIPE, stderr=self.log)
        signal.signal(signal.SIGALRM, lambda *_: self.process.kill())
        signal.alarm(TIME_LIMIT_S)
        # Prints one line when it is ready.
        said = self.process.stdout.readline().decode()
        while said and not re.search(r"http://\S+", said):
            said = self.process.stdout.readline().decode()
        if not said:
            self.__exit__(None, None, None)
            raise RuntimeError(f"it does not start with {self.config}:\n{self.told}")
        self.address = re.search(r"http://[^\s/]+", said)[0]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait()
        signal.alarm(0)
        self.log.seek(0)
        self.told = self.log.read().decode(errors="replace")
        if code != 0:
            wrong(self.config, f"a stop ended with {code}:\n{self.told}")
        # The warning about an unknown variable; an unknown key in the file is an error at the start.
        if any(text in self.told for text in ("is not a setting", "did you mean", "unknown")):
            wrong(self.config, f"has an unknown setting:\n{self.told}")
        self.log.close()
        shutil.rmtree(self.home)

    def await_ready(self):
        """Waits until the server is ready: it listens before its engine has started."""
        until = time.monotonic() + TIME_LIMIT_S
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(self.address + "/readyz", timeout=TIME_LIMIT_S):
                    return
            except urllib.error.HTTPError as error:
                told = error.read().decode()
                time.sleep(0.1)
        wrong(self.config, f"it does not become ready: {told}")

    def get(self, path, key=None):
        request = urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {key}"} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=TIME_LIMIT_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            wrong(self.config, f"GET {path} answers {error.code}: {error.read().decode()}")
            return None


def probe(server):
    server.get("/healthz")
    server.await_ready()


def compare_metrics(server):
    text = server.get("/metrics")
    told = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    lines = (DEPLOY / "prometheus" / "metrics.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    listed = {row[0]: row[1] for row in rows}
    sometimes = {row[0] for row in rows if row[2:]}
    for name in sorted(listed.keys() - told.keys() - sometimes):
        wrong("metrics.txt", f"{name} is not exported")
    for name in sorted(told.keys() - listed.keys()):
        wrong("metrics.txt", f"{name} is exported and not listed; add it there, to the dashboard and to docs/operations.md")
    for name in sorted(listed.keys() & told.keys()):
        if listed[name] != told[name]:
            wrong("metrics.txt", f"{name} is a {told[name]}, not a {listed[name]}")
    # Label values that rules use.
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text()
    for metric, label, value in set(re.findall(r'(posthaste_\w+)\{(\w+)="(\w+)"\}', rules)):
        if metric in told and not re.search(rf'^{metric}\{{[^}}]*{label}="{value}"', text, re.MULTILINE):
            wrong("rules.yml", f'nothing is exported as {metric}{{{label}="{value}"}}')


def compare_alerts(server):
    """Checks that every alert has a rule and a section in the runbook."""
    names = re.findall(r'^posthaste_alerts\{name="(\w+)"\}', server.get("/metrics"), re.MULTILINE)
    if not names:
        wrong("metrics.txt", "posthaste_alerts names no alerts")
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text()
    runbook = (ROOT / "docs" / "operations.md").read_text()
    for name in names:
        if f"\n### {name}\n" not in runbook:
            wrong("operations.md", f"has no section for the alert {name}")
        if "- alert: Posthaste" + "".join(part.capitalize() for part in name.split("_")) + "\n" not in rules:
            wrong("rules.yml", f"has no rule for the alert {name}")


def numbers(text):
    return [float(number) for number in re.findall(r"[\d.]+", text)]


def compare_thresholds(server):
    """Compares the thresholds of the five health values with those of the server."""
    figures = json.loads(server.get("/v1/stats", KEY))["windows"]["1h"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())
    board = json.loads((DEPLOY / "grafana" / "posthaste.json").read_text())
    for name, figure in figures.items():
        # The upper end of "1.0-1.3" is the threshold.
        expected = [numbers(figure["healthy"])[-1], numbers(figure["alert"])[-1]]
        exprs = [rule["expr"] for group in rules["groups"] for rule in group["rules"] if f"(posthaste_{name})" in rule["expr"]]
        found = [float(re.search(rf"\(posthaste_{name}\) [<>]=? ([\d.]+)", expr)[1]) for expr in exprs]
        if found != expected:
            wrong("rules.yml", f"{name}: {found} found, but the server uses {expected}")
        for panel in board["panels"]:
            if panel["type"] != "stat" or f"(posthaste_{name}{{" not in panel["targets"][0]["expr"]:
                continue
            steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"] if step["value"] is not None]
            if sorted(steps) != sorted(expected):
                wrong("posthaste.json", f"{panel['title']}: {steps} found, but the server uses {expected}")


def compare_commands(program):
    """Checks that every command in the runbook exists and has the flags."""
    text = (ROOT / "docs" / "operations.md").read_text()
    lines = re.findall(r"`(posthaste [^`]+)`", text)
    lines += [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines() if line.startswith("posthaste ")]
    helps = {}
    for line in sorted(set(lines)):
        words = line.split("#")[0].split()[1:]
        # Commands have at most two words, followed by arguments.
        command = [word for word in words[:2] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-")]
        while True:
            key = tuple(command)
            if key not in helps:
                helps[key] = subprocess.run([program, *command, "--help"], capture_output=True, text=True)
            # The second word may be an argument.
            if helps[key].returncode == 0 or len(command) < 2:
                break
            command.pop()
        told = helps[tuple(command)]
        if told.returncode != 0 or "Commands:" in told.stdout:
            wrong("operations.md", f"there is no command `{line}`")
            continue
        for flag in re.findall(r"--[a-z-]+", line):
            if flag not in told.stdout:
                wrong("operations.md", f"`{line}`: there is no {flag}")


def main():
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    with Server(program, DEPLOY / "systemd" / "posthaste.toml", POSTHASTE_ADMIN_KEY=KEY) as server:
        probe(server)
        compare_metrics(server)
        compare_alerts(server)
        compare_thresholds(server)
    compare_commands(program)
    with Server(program, work / "chart.toml") as server:
        probe(server)
    # Runs the script in a copy, so that it does not change secrets that are in use.
    compose = work / "compose"
    shutil.rmtree(compose, ignore_errors=True)
    compose.mkdir()
    shutil.copy(DEPLOY / "compose" / "prepare", compose)
    subprocess.run([compose / "prepare"], check=True, stdout=subprocess.DEVNULL)
    config = compose / "secrets" / "posthaste.toml"
    made = config.read_text()
    subprocess.run([compose / "prepare"], check=True, stdout=subprocess.DEVNULL)
    if config.read_text() != made:
        wrong("prepare", "creates different secrets the second time")
    if compose.joinpath("secrets").stat().st_mode & 0o077:
        wrong("prepare", "secrets/ is readable by others")
    with Server(program, config) as server:
        probe(server)
        server.get("/v1/tenants", re.search(r'^admin_key = "(.+)"$', made, re.MULTILINE)[1])
    password = re.search(r'^store = "postgres://posthaste:(.+)@postgres', made, re.MULTILINE)[1]
    if password != compose.joinpath("secrets", "postgres_password").read_text():
        wrong("prepare", "the passwords of the database and of posthaste differ")
    shutil.rmtree(compose)
    for mistake in mistakes:
        print(f"deploy: {mistake}", file=sys.stderr)
    sys.exit(1 if mistakes else 0)


main()
