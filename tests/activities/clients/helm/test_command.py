"""A helm process is bounded, ends with its children, and keeps secrets.

A script of a few lines stands in for helm, because helm itself does none of this on
demand.
"""

import asyncio
import base64
import json
import logging
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from activities.clients.helm import command
from activities.clients.helm.command import (
    HISTORY_MAX,
    OPERATION_SECONDS,
    TERM_SECONDS,
    HelmCommand,
    HelmFailed,
    environment,
)
from activities.clients.helm.limits import PER_CLUSTER, HelmLimits
from api_types.errors import AnswerTooLarge
from tests.activities.clients.helm.conftest import Script, ended, numbers_in
from tests.activities.environment.cluster_under_test import eventually
from tests.environment.charts import chart
from tests.environment.waiting import TIMEOUT_SECONDS

# Shell: a program and a child that ignore SIGTERM, and write both ids. They end later
# than every wait here.
STUBBORN = (
    "trap '' TERM; sleep 3600 & echo $$ >> {ids}; echo $! >> {ids}; wait; sleep 3600"
)
OBEDIENT = "sleep 3600 & echo $$ >> {ids}; echo $! >> {ids}; wait"
# A program that obeys SIGTERM, with a child that ignores it and holds its output open.
SURVIVED = "(trap '' TERM; sleep 3600) & echo $$ >> {ids}; echo $! >> {ids}; wait"


def made(executable: str, home: Path, **options: Any) -> HelmCommand:
    return HelmCommand(
        executable, environment(home), HelmLimits(8), **{"term_seconds": 0.5, **options}
    )


@asynccontextmanager
async def running(
    made_command: HelmCommand, *arguments: str
) -> AsyncIterator[asyncio.Task[bytes]]:
    """Run helm during a test. It has ended when the block ends."""
    task = asyncio.create_task(made_command.run(list(arguments)))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_output_is_given_and_the_arguments_are_passed_on(
    script: Script, tmp_path: Path
) -> None:
    helm = made(
        script('printf "%s|" "$@"'), tmp_path, kubeconfig=tmp_path / "kube config"
    )
    assert (
        await helm.run(["get", "all; rm $HOME", 3])
        == f"get|all; rm $HOME|3|--kubeconfig|{tmp_path}/kube config|".encode()
    )


async def test_without_values_nothing_is_on_standard_input(
    script: Script, tmp_path: Path
) -> None:
    assert await made(script("cat"), tmp_path).run(["get"]) == b""


# Time


async def test_helm_is_given_a_time_limit_with_a_unit_and_a_bounded_history(
    script: Script, tmp_path: Path
) -> None:
    shown = script(f'printf "%s\\n" "$@" >> {tmp_path}/arguments; echo "{{}}"')
    helm = HelmCommand(shown, environment(tmp_path), HelmLimits(1))
    await helm.install_or_upgrade("mp-lws", "/chart.tgz", {}, namespace="lws")
    await helm.roll_back("mp-lws", "lws", 3, on_server=True)
    await helm.uninstall("mp-lws", namespace="lws")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert [after for each, after in pairwise(arguments) if each == "--timeout"] == [
        "300s"
    ] * 3
    assert [
        after for each, after in pairwise(arguments) if each == "--history-max"
    ] == ["10"] * 2


def test_the_time_limits_have_their_documented_values() -> None:
    assert (OPERATION_SECONDS, TERM_SECONDS, HISTORY_MAX, PER_CLUSTER) == (
        300,
        20.0,
        10,
        3,
    )


@pytest.mark.slow
async def test_a_run_beyond_its_time_is_ended_with_all_it_started(
    script: Script, tmp_path: Path
) -> None:
    helm = made(
        script(STUBBORN.format(ids=tmp_path / "ids")), tmp_path, operation_seconds=2
    )
    with pytest.raises(HelmFailed) as raised:
        await helm.run(["upgrade"])
    assert raised.value.stderr == "helm upgrade did not end within 2 s and was stopped"
    await ended(*await numbers_in(tmp_path / "ids", 2))


# The end


@pytest.mark.slow
async def test_a_cancelled_run_that_ignores_sigterm_is_killed_with_all_its_processes(
    script: Script, tmp_path: Path
) -> None:
    helm = made(script(STUBBORN.format(ids=tmp_path / "ids")), tmp_path, term_seconds=2)
    async with running(helm, "upgrade") as run:
        pids = await numbers_in(tmp_path / "ids", 2)
        began = time.monotonic()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        # Helm had time to record the release as failed. Only a kill ends these
        # processes.
        assert time.monotonic() - began >= 2
    await ended(*pids)


@pytest.mark.parametrize(
    "text", [OBEDIENT, SURVIVED], ids=["with-its-child", "before-its-child"]
)
async def test_a_cancelled_run_that_obeys_is_over_at_once(
    script: Script, tmp_path: Path, text: str
) -> None:
    helm = made(
        script(text.format(ids=tmp_path / "ids")),
        tmp_path,
        term_seconds=2 * TIMEOUT_SECONDS,
    )
    async with running(helm, "upgrade") as run:
        pids = await numbers_in(tmp_path / "ids", 2)
        run.cancel()
        # A run that waited for its whole time would still exist.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.wait([run])
        assert run.cancelled()
    await ended(*pids)


async def test_a_run_that_is_cancelled_while_helm_is_started_leaves_no_process(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy helm may start children before asyncio has connected its pipes."""
    start, connected = asyncio.create_subprocess_exec, asyncio.Event()

    async def slowly(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*arguments, **options)
        await connected.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    async with running(
        made(script(STUBBORN.format(ids=tmp_path / "ids")), tmp_path), "upgrade"
    ) as run:
        pids = await numbers_in(tmp_path / "ids", 2)
        run.cancel()
        await asyncio.sleep(0)
        connected.set()
        with pytest.raises(asyncio.CancelledError):
            await run
    await ended(*pids)


async def test_helm_gets_sigterm_before_it_is_killed(
    script: Script, tmp_path: Path
) -> None:
    recorded = tmp_path / "recorded"
    text = (
        f"trap 'echo failed > {recorded}; exit 1' TERM; echo $$ > {tmp_path}/ids; "
        "while :; do sleep 0.1; done"
    )
    async with running(made(script(text), tmp_path, term_seconds=60), "upgrade") as run:
        await numbers_in(tmp_path / "ids")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert recorded.read_text() == "failed\n"


@pytest.mark.slow
async def test_further_cancellations_while_helm_is_being_ended_leave_no_process(
    script: Script, tmp_path: Path
) -> None:
    """The script ends when the test lets it, and its child only by a kill.

    No time limit of the run is involved.
    """
    child = f"trap '' TERM; sleep 3600 >/dev/null 2>&1 & echo $! >> {tmp_path}/ids"
    until_let = (
        f"echo $$ >> {tmp_path}/ids; until [ -e {tmp_path}/let ]; do sleep 0.1; done"
    )
    text = f"{child}; trap 'echo asked > {tmp_path}/asked' TERM; {until_let}"
    async with running(
        made(script(text), tmp_path, term_seconds=2 * TIMEOUT_SECONDS), "upgrade"
    ) as run:
        pids = await numbers_in(tmp_path / "ids", 2)
        run.cancel()
        await eventually((tmp_path / "asked").exists)
        for _ in range(3):
            run.cancel()
            await asyncio.sleep(0.05)
        assert not run.done()
        (tmp_path / "let").touch()
        with pytest.raises(asyncio.CancelledError):
            await run
    await ended(*pids)


async def test_remaining_children_are_ended_with_their_run(
    script: Script, tmp_path: Path
) -> None:
    helm = made(
        script(f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/ids; echo done"),
        tmp_path,
    )
    assert await helm.run(["upgrade"]) == b"done\n"
    await ended(*await numbers_in(tmp_path / "ids"))


async def test_a_failed_run_carries_its_output_but_not_in_the_message(
    script: Script, tmp_path: Path
) -> None:
    with pytest.raises(HelmFailed) as raised:
        await made(script("echo out; echo 'Error: hunter2' >&2; exit 3"), tmp_path).run(
            ["upgrade"]
        )
    assert (str(raised.value), raised.value.stderr) == (
        "helm upgrade failed with exit code 3",
        "Error: hunter2\n",
    )


async def test_unread_values_are_not_an_error(script: Script, tmp_path: Path) -> None:
    helm = made(script("exec 0<&-; echo 'Error: no' >&2; exit 1"), tmp_path)
    with pytest.raises(HelmFailed) as raised:
        await helm.run(["upgrade"], b"x" * (4 << 20))
    assert raised.value.stderr == "Error: no\n"


# Size


@pytest.mark.slow
async def test_output_beyond_the_bound_ends_the_run(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_OUTPUT_MAX", 1 << 20)
    with pytest.raises(AnswerTooLarge) as raised:
        await made(script(f"echo $$ > {tmp_path}/ids; exec yes"), tmp_path).run(["get"])
    assert raised.value.message == "helm get wrote more than 1 MiB and was stopped"
    await ended(*await numbers_in(tmp_path / "ids"))


async def test_of_a_long_text_of_errors_the_end_is_kept(
    script: Script, tmp_path: Path
) -> None:
    with pytest.raises(HelmFailed) as raised:
        await made(
            script("yes warning | head -c 3000000 >&2; echo 'Error: last' >&2; exit 1"),
            tmp_path,
        ).run(["upgrade"])
    assert len(raised.value.stderr) <= 64 << 10
    assert raised.value.stderr.endswith("warning\nError: last\n")


async def test_large_values_and_output_pass_at_once(
    script: Script, tmp_path: Path
) -> None:
    given = b"x" * (5 << 20)
    assert await made(script("cat"), tmp_path).run(["template"], given) == given


# Secrets


async def test_values_are_on_standard_input_and_nothing_secret_where_other_users_see_it(
    script: Script,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-worker")
    for name in (
        "HELM_KUBETOKEN",
        "HELM_NAMESPACE",
        "HELM_DRIVER",
        "HELM_PLUGINS",
        "KUBECONFIG",
    ):
        monkeypatch.setenv(name, "of-the-worker")
    caplog.set_level(logging.DEBUG)
    cat = (
        f"tr '\\0' '\\n' < /proc/$$/cmdline > {tmp_path}/seen; env >> "
        f"{tmp_path}/seen; cat > {tmp_path}/values; echo '{{}}'"
    )
    helm = made(script(cat), tmp_path)
    await helm.install_or_upgrade(
        "mp-lws", "/chart.tgz", {"password": "hunter2-hunter2"}, namespace="lws"
    )
    assert json.loads((tmp_path / "values").read_text()) == {
        "password": "hunter2-hunter2"
    }
    seen = (tmp_path / "seen").read_text()
    assert "mp-lws" in seen
    assert "PATH=" in seen
    for text in (seen, caplog.text, *capfd.readouterr()):
        assert "hunter2" not in text
        assert "of-the-worker" not in text


def test_helm_has_the_proxies_and_authorities_of_the_worker_and_a_home_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, f"the-{name}")
    monkeypatch.setenv("HELM_CACHE_HOME", "/of/the/worker")
    variables = environment(tmp_path)
    assert {
        name: variables[name]
        for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE")
    } == {
        name: f"the-{name}"
        for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "SSL_CERT_FILE")
    }
    homes = {
        name: Path(variables[name])
        for name in variables
        if name.endswith("_HOME") or name in ("HOME", "KUBECACHEDIR")
    }
    assert set(homes) == {
        "HELM_CACHE_HOME",
        "HELM_CONFIG_HOME",
        "HELM_DATA_HOME",
        "HOME",
        "KUBECACHEDIR",
    }
    assert all(path.is_relative_to(tmp_path) for path in homes.values())


# Values

CHARACTERS = [
    "é",
    "\u2028",
    "\x85",
    "\ufeff",
    "😀",
    "😀😁",
    "\\ud83d\\ude00",
    "\\\\😀",
    '"😀"',
    "\x7f",
    "\U0010ffff",
]


@pytest.mark.parametrize("text", CHARACTERS, ids=ascii)
async def test_values_of_any_content_stay_json(
    script: Script, tmp_path: Path, text: str
) -> None:
    given = json.dumps({text: [text]}).encode()
    passed = await made(script("cat"), tmp_path).run(["upgrade"], given)
    assert json.loads(passed) == {text: [text]}
    assert b"\\ud83d" not in passed.replace(b"\\\\ud83d", b"")


@pytest.mark.testbed("shared")
def test_helm_takes_all_characters_that_are_passed_to_it(
    helm_path: str, tmp_path: Path
) -> None:
    archive = tmp_path / "c.tgz"
    archive.write_bytes(
        chart("c", templates={"a.yaml": "text: {{ .Values.text | b64enc }}"}).archive
    )
    values = command._as_yaml(json.dumps({"text": "".join(CHARACTERS)}).encode())
    run = [helm_path, "template", "r", str(archive), "--values", "-"]
    output = subprocess.run(
        run, input=values, capture_output=True, check=True, env=environment(tmp_path)
    ).stdout
    assert base64.b64decode(output.split()[-1]).decode() == "".join(CHARACTERS)


# Turns


async def test_a_fresh_credential_is_seen_to_before_each_run_and_not_while_waiting_for_a_turn(
    script: Script, tmp_path: Path
) -> None:
    prepared = list[str]()

    async def prepare() -> None:
        prepared.append("now")

    limits = HelmLimits(1)
    helm = HelmCommand(
        script("cat"), environment(tmp_path), limits, cluster="eu-1", prepare=prepare
    )
    async with limits.turn("us-1"):
        waiting = asyncio.create_task(helm.run(["get"]))
        await asyncio.sleep(0.05)
        assert prepared == []
    await waiting
    await helm.run(["get"])
    assert prepared == ["now", "now"]


async def test_one_cluster_has_at_most_three_turns_at_once() -> None:
    limits, held = HelmLimits(5), list[str]()
    stop = asyncio.Event()

    async def hold(cluster: str) -> None:
        async with limits.turn(cluster):
            held.append(cluster)
            await stop.wait()

    async with asyncio.TaskGroup() as group:
        for cluster in ["busy"] * 6 + ["other"] * 3:
            group.create_task(hold(cluster))
        await eventually(lambda: len(held) == 5)
        await asyncio.sleep(0)
        assert sorted(held) == ["busy"] * 3 + ["other"] * 2
        stop.set()
    assert len(held) == 9
    assert not limits._clusters


async def test_a_run_cancelled_during_its_wait_releases_its_turn(
    script: Script, tmp_path: Path
) -> None:
    limits = HelmLimits(1)
    helm = HelmCommand(script("cat"), environment(tmp_path), limits, cluster="eu-1")
    async with limits.turn("eu-1"):
        waiting = asyncio.create_task(helm.run(["get"]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await asyncio.wait_for(helm.run(["get"]), 60) == b""
