"""Any user who may write Secrets on the cluster controls the Secret of a release."""

from datetime import timedelta
from typing import Any, cast

import pytest

from activities.clients.helm.client import HelmClient, HelmTools
from activities.clients.helm.command import HelmCommand
from activities.clients.helm.kubeconfig_file import KubeconfigFile
from activities.clients.helm.port import HelmPort
from api_types.clock import utc_now
from api_types.errors import ReleasePending, ServerError

ZERO = -62135596800
LAST = 253402300799  # the end of the year 9999
PENDING_SECONDS = 320


class Command:
    """A helm that responds as if it had read one Secret."""

    def __init__(self, about: str, values: str) -> None:
        self.about, self.values = about, values
        self.removed: list[str] = []

    async def run(self, arguments: list[Any]) -> bytes:
        return (self.about if arguments[1] == "all" else self.values).encode()

    async def uninstall(self, name: str, **_: Any) -> None:
        self.removed.append(name)


class _Tools:
    helm, charts, operation_seconds, term_seconds = (
        None,
        None,
        PENDING_SECONDS - 20,
        20.0,
    )


def a_helm(command: Command) -> HelmPort:
    kubeconfig = type("Nothing", (), {"secrets": lambda _: []})()
    return HelmClient(
        "eu",
        cast("HelmCommand", command),
        cast("KubeconfigFile", kubeconfig),
        cast("HelmTools", _Tools()),
    )


def about(
    *,
    chart: str = "lws",
    revision: Any = 1,
    status: str = "deployed",
    deployed: Any = 1_700_000_000,
    deleted: Any = ZERO,
) -> str:
    return f"{chart}\n1.0.0\n{revision}\n{status}\n{deployed}\n{deleted}\n"


UNREADABLE = [
    (about(chart="two\nlines"), "{}"),
    (about(revision="x"), "{}"),
    (about(revision="9" * 5000), "{}"),
    (about(deployed="x"), "{}"),
    (about(deployed=10**30), "{}"),
    (about(deployed=LAST + 1), "{}"),
    (about(), "[1, 2]"),
    (about(), '"text"'),
    (about(), "7"),
    (about(), "{" * 10),
    (about(), "[" * 200_000),
    (about(), '{"a": ' * 900 + "1" + "}" * 900),
    (about(), f'{{"a": 1{"0" * 400}}}'),
]


@pytest.mark.parametrize(("told", "values"), UNREADABLE)
async def test_an_unreadable_release_is_a_clear_error(told: str, values: str) -> None:
    with pytest.raises(ServerError) as caught:
        await a_helm(Command(told, values)).status("mp-lws", "lws-system")
    assert caught.value.message.startswith(
        "cluster eu: release lws-system/mp-lws: get: helm returned invalid output"
    )
    assert len(caught.value.message) < 200


async def test_a_status_of_any_length_is_cut() -> None:
    state = await a_helm(Command(about(status="x" * 100_000), "{}")).status(
        "mp-lws", "lws-system"
    )
    assert state
    assert len(state.status) == 80


async def test_a_release_that_is_pending_since_the_future_is_abandoned() -> None:
    now = utc_now()
    for since in (LAST, int((now + timedelta(days=1)).timestamp())):
        command = Command(about(status="pending-upgrade", deployed=since), "{}")
        await a_helm(command).uninstall("mp-lws", "lws-system")
        assert command.removed == ["mp-lws"]
    for moment in (now + timedelta(minutes=2), now - timedelta(minutes=2)):
        # The clocks of two workers differ.
        command = Command(
            about(status="pending-upgrade", deployed=int(moment.timestamp())), "{}"
        )
        with pytest.raises(ReleasePending):
            await a_helm(command).uninstall("mp-lws", "lws-system")
        assert command.removed == []
