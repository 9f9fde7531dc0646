"""`modelplane doctor`: what prevents a fleet on this machine, and the remedies."""

from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from client.commands.local import doctor
from client.failures import ExitCode
from client.local.diagnosis import Level, diagnose
from client.local.machine_facts import (
    MachineFacts,
    clock_url,
    existing_folder,
    read_clock,
    read_facts,
    registries,
)
from tests.client.conftest import Cli

GIB = 1 << 30
GOOD = MachineFacts(
    cores=4,
    memory_bytes=8 * GIB,
    free_bytes={"/home": 50 * GIB},
    ports=200,
    ports_tried=200,
    clock_seconds=0.4,
)
# The changed facts, how bad they are, the check, and words of the remedy.
FAULTS: list[tuple[dict[str, Any], Level, str, str]] = [
    ({"cores": 1}, Level.WARNING, "cores", "2 cores"),
    ({"memory_bytes": 5 * GIB}, Level.WARNING, "memory", "end other programs"),
    ({"memory_bytes": 2 * GIB}, Level.PREVENTS, "memory", "6 GiB"),
    ({"free_bytes": {"/x": GIB}}, Level.PREVENTS, "disk", "2 GiB, or name folders"),
    (
        {"free_bytes": {"/x": 5 * GIB}, "installed": False},
        Level.PREVENTS,
        "disk",
        "room for 12 GiB",
    ),
    ({"unwritable": ("/home",)}, Level.PREVENTS, "disk", "make it writable"),
    ({"python": (3, 10)}, Level.PREVENTS, "python", "install Python 3.11"),
    ({"missing": {"go"}}, Level.WARNING, "programs", "apt-get install golang-go`"),
    (
        {"missing": {"git", "go"}, "installed": False},
        Level.PREVENTS,
        "programs",
        "git golang-go",
    ),
    ({"ports": 59}, Level.PREVENTS, "ports", "ss -ltnp"),
    (
        {"namespaces": "no", "missing": {"ip"}},
        Level.WARNING,
        "network namespace",
        "iproute2",
    ),
    ({"namespaces": "no"}, Level.WARNING, "network namespace", "max_user_namespaces"),
    ({"silent": "no answer"}, Level.WARNING, "package registries", "GOPROXY"),
    (
        {"silent": "no answer", "installed": False},
        Level.PREVENTS,
        "package registries",
        "HTTPS_PROXY",
    ),
    ({"clock_seconds": 90.0}, Level.PREVENTS, "clock", "set-ntp"),
    ({"clock_seconds": -90.0}, Level.PREVENTS, "clock", "set-ntp"),
]


def test_a_good_machine_has_no_problem() -> None:
    assert {one.level for one in diagnose(GOOD)} == {Level.GOOD}
    silent = replace(GOOD, clock_seconds=None)
    assert {one.level for one in diagnose(silent)} == {Level.GOOD}


@pytest.mark.parametrize(("changed", "level", "check", "remedy"), FAULTS)
def test_each_problem_has_its_level_and_a_remedy(
    changed: dict[str, Any], level: Level, check: str, remedy: str
) -> None:
    bad = [
        one for one in diagnose(replace(GOOD, **changed)) if one.level is not Level.GOOD
    ]
    assert [(one.level, one.check) for one in bad] == [(level, check)]
    assert remedy in bad[0].remedy


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("facts", "code", "last"),
    [
        (GOOD, ExitCode.DONE, "`modelplane up` can start a fleet here"),
        (replace(GOOD, cores=1), ExitCode.DONE, "`modelplane up` can start"),
        (replace(GOOD, clock_seconds=99.0), ExitCode.FAILED, "  next: set the clock"),
    ],
)
def test_only_a_problem_that_prevents_a_start_is_a_failure(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    facts: MachineFacts,
    code: ExitCode,
    last: str,
) -> None:
    monkeypatch.setattr(doctor, "read_facts", lambda *_: facts)
    shown = cli("doctor")
    assert (shown.code, shown.err) == (code, "")
    assert shown.out.splitlines()[-1].startswith(last)


class Old(BaseHTTPRequestHandler):
    """A server of 2001 that refuses the request."""

    def do_HEAD(self) -> None:
        self.send_error(403)

    def date_time_string(self, _timestamp: float | None = None) -> str:
        return "Mon, 01 Jan 2001 00:00:00 GMT"

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def old_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Old) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def test_the_clock_is_compared_with_the_date_of_any_response(old_server: str) -> None:
    ahead, silent = read_clock(old_server)
    assert (ahead is not None and ahead > 10 * 365 * 86400, silent) == (True, "")


@pytest.mark.parametrize(
    ("url", "says"),
    [("http://127.0.0.1:1/", "127.0.0.1 does not answer"), ("file:///x", "not a URL")],
)
def test_a_registry_that_does_not_answer_is_named(url: str, says: str) -> None:
    ahead, silent = read_clock(url)
    assert (ahead, says in silent) == (None, True)


def test_settings_of_registries_are_shown_without_credentials() -> None:
    environment = {
        "PIP_INDEX_URL": "https://ann:secret@pypi.example/simple",
        "https_proxy": "http://ann:secret@proxy:3128",
        "GOPROXY": "",
    }
    assert registries(environment) == {
        "PIP_INDEX_URL": "https://pypi.example/simple",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    assert clock_url(environment) == "https://ann:secret@pypi.example/simple"
    assert clock_url({}) == "https://pypi.org/"


def test_the_facts_of_this_machine_can_be_read(tmp_path: Path, old_server: str) -> None:
    home = tmp_path / "not" / "there"
    assert existing_folder(home) == tmp_path
    facts = read_facts(home, {"PIP_INDEX_URL": old_server})
    assert facts.cores > 0
    assert facts.memory_bytes > 0
    assert facts.free_bytes[str(home)] > 0
    assert (facts.unwritable, facts.ports_tried) == ((), 200)
    assert not home.exists()
