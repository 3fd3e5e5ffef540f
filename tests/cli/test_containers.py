"""What `deploy/` starts, started without containers: each command of its compose file, over a real PostgreSQL."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
from gateway_http import small
from pgserver import Missing, empty_schema
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
SERVICES = YAML(typ="safe").load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
KEY = "A" * 43 + "="


class Containers:
    """Runs the commands of services, with their environment.

    Args:
        folder: what is mounted as the configuration.
        store: the URL of an empty database.
    """

    def __init__(self, folder, store):
        self.folder, self.started = folder, []
        declared = SERVICES["gateway"]["environment"]
        assert re.fullmatch(
            r"postgresql://pokayoke:\$\{[^}]+\}@ledger:5432/pokayoke\?(\w+=\w+)", declared["POKAYOKE_STORE"]
        )
        options = declared["POKAYOKE_STORE"].rpartition("?")[2]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("POKAYOKE_")},
            **dict.fromkeys(declared, ""),
            "POKAYOKE_STORE": f"{store}&{options}",
            "POKAYOKE_STORE_KEY": KEY,
        }

    def command(self, service, *more):
        """The command line of a service."""
        words = [
            re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word).replace("/etc/pokayoke", str(self.folder))
            for word in SERVICES[service]["command"]
        ]
        return [sys.executable, "-m", "pokayoke", *words, *more]

    def run(self, *words):
        """Run a command to its end."""
        return subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )

    def start(self, service):
        """Start a service on a free port; returns its port."""
        log = self.folder / f"{service}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                self.command(service, "--port", "0"), env=self.environment, cwd=self.folder, stdout=out, stderr=out
            )
        self.started.append(process)
        until = time.monotonic() + 60
        while not (found := re.search(r"http://\S+?:(\d+)/", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
        return found[1]


@pytest.fixture
def containers(tmp_path, need):
    """Services whose ledger is an empty database; all of them end with the test."""
    try:
        with empty_schema() as url:
            services = Containers(tmp_path, url)
            yield services
            for process in services.started:
                process.terminate()
            for process in services.started:
                process.wait(30)
    except Missing as missing:
        need(str(missing))


def test_the_services_start_and_answer(containers):
    """`init` may run again; then the dashboard is healthy, and the gateway lets in who has a token and nobody else."""
    for _ in range(2):
        done = containers.run(*containers.command("init"))
        assert done.returncode == 0, done.stderr
    (containers.folder / "servers.json").write_text(json.dumps({"mcpServers": {"small": small()}}))
    token, line = containers.run(*containers.command("gateway"), "--new-token", "ann").stdout.splitlines()
    (containers.folder / "tokens").write_text(f"{line}\n")
    port = containers.start("dashboard")
    assert httpx.get(f"http://localhost:{port}/healthz").status_code == 200
    address = f"http://localhost:{containers.start('gateway')}/mcp"
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    accept = {"accept": "application/json, text/event-stream"}
    assert httpx.post(address, json=request, headers=accept).status_code == 401
    bearer = {**accept, "authorization": f"Bearer {token}"}
    assert httpx.post(address, json=request, headers=bearer).status_code == 200


def test_who_waits_for_whom():
    """Whatever opens the ledger waits until it exists, and it is made when the database is healthy."""
    waits = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    assert waits == {
        "ledger": {},
        "init": {"ledger": {"condition": "service_healthy"}},
        "gateway": {"init": {"condition": "service_completed_successfully"}},
        "dashboard": {"init": {"condition": "service_completed_successfully"}},
    }
    assert "healthcheck" in SERVICES["ledger"]


def test_only_this_machine_reaches_the_ports():
    """The database is not published, and the two others on the loopback address alone."""
    ports = {name: service.get("ports", []) for name, service in SERVICES.items()}
    assert ports == {"ledger": [], "init": [], "gateway": ["127.0.0.1:8765:8765"], "dashboard": ["127.0.0.1:8788:8788"]}


def test_the_image_is_made_of_what_exists():
    """The image copies what the build reads, and installs extras of the project."""
    copied = [one for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE) for one in line.split()]
    assert copied
    assert [one for one in copied if not (ROOT / one).exists()] == []
    extras = re.search(r'"\.\[([\w,-]+)\]"', DOCKERFILE)[1].split(",")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, hatch = settings["project"], settings["tool"]["hatch"]
    assert set(extras) <= project["optional-dependencies"].keys()
    needed = {"pyproject.toml", "README.md", *project["license-files"], hatch["metadata"]["hooks"]["custom"]["path"]}
    assert needed - set(copied) == set()
