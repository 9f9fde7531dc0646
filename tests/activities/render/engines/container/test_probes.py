"""Probes of an engine, which are off unless a member requests them."""

from typing import Any

import pytest

from activities.render.replica import InvalidSpec
from api_types.resources.parts.probes import STARTUP_SECONDS
from tests.activities.render.builders import (
    CLAIM,
    a_gang,
    a_member,
    an_engine,
    container,
    pod,
    render,
)

HEALTH = {"httpGet": {"path": "/health", "port": 8000}}
LIVENESS = {
    **HEALTH,
    "periodSeconds": 30,
    "timeoutSeconds": 20,
    "failureThreshold": 6,
    "terminationGracePeriodSeconds": 5,
}


def with_probes(**probes: Any) -> dict[str, Any]:
    return an_engine("main", {**a_member(), "probes": probes})


def test_members_without_probes_are_not_probed() -> None:
    assert {field for field in container(render()) if field.endswith("Probe")} == {
        "readinessProbe"
    }


@pytest.mark.parametrize(
    ("probes", "replica", "setting", "failures"),
    [
        pytest.param({"startupSeconds": 900}, {}, 0, 90, id="its own time"),
        pytest.param(
            {"startupSeconds": 905}, {}, 0, 91, id="rounded up to whole questions"
        ),
        pytest.param(
            {"startupSeconds": 900},
            {"cache_gib": 850},
            1800,
            90,
            id="its own before the setting and the size",
        ),
        pytest.param(
            {}, {"cache_gib": 850}, 1800, 180, id="the setting before the size"
        ),
        pytest.param(
            {}, {}, 0, 360, id="an hour to download the model, of whatever size"
        ),
        pytest.param({}, {"cache_gib": 1}, 0, 61, id="a small model"),
        pytest.param(
            {}, {"cache_gib": 16}, 0, 70, id="ten minutes, and six seconds for each GiB"
        ),
        pytest.param({}, {"cache_gib": 850}, 0, 675, id="as much as for 1024 GiB"),
        pytest.param(
            {},
            {"cache_gib": 1024},
            0,
            675,
            id="so that a volume that grows changes no pod",
        ),
        pytest.param(
            {},
            {"cache_gib": 100_000},
            0,
            STARTUP_SECONDS[1] // 10,
            id="at most what may be chosen",
        ),
    ],
)
def test_an_engine_may_load_for_long(
    probes: dict[str, Any], replica: dict[str, Any], setting: int, failures: int
) -> None:
    replica = (
        {**replica, "cache": "qwen", "cache_claim": CLAIM}
        if "cache_gib" in replica
        else replica
    )
    rendered = render(
        with_probes(**probes), settings={"startup_seconds_max": setting}, **replica
    )
    startup = {
        **HEALTH,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
    assert container(rendered)["startupProbe"] == startup
    assert "livenessProbe" not in container(rendered)


def test_an_engine_that_hangs_is_restarted_once_it_has_loaded() -> None:
    """Without an earlier startup probe, liveness would restart an engine that loads."""
    engine = container(render(with_probes(liveness={})))
    assert engine["livenessProbe"] == LIVENESS
    assert engine["startupProbe"]["failureThreshold"] == 360


def test_liveness_uses_the_given_limits() -> None:
    liveness = {"periodSeconds": 60, "timeoutSeconds": 45, "failureThreshold": 3}
    assert container(render(with_probes(liveness=liveness)))["livenessProbe"] == {
        **LIVENESS,
        **liveness,
    }


def test_probes_of_decode_ask_the_engine_and_not_the_sidecar() -> None:
    probed: dict[str, Any] = {"probes": {"liveness": {}}}
    decode = an_engine(
        "alpha", {**a_member(args=["--port=9000"]), **probed}, phase="Decode"
    )
    prefill = an_engine("beta", {**a_member(), **probed}, phase="Prefill")
    rendered = render(decode, prefill, mode="PrefillDecode")
    for name, port in (("alpha", 9000), ("beta", 8000)):
        engine = container(rendered, name)
        assert {
            engine[probe]["httpGet"]["port"]
            for probe in ("readinessProbe", "startupProbe", "livenessProbe")
        } == {port}
    assert "livenessProbe" not in pod(rendered, "alpha")["spec"]["initContainers"][0]


def a_probed_gang(role: str) -> dict[str, Any]:
    gang = a_gang()
    return {
        **gang,
        "members": [
            {**member, "probes": {"liveness": {}}} if member["role"] == role else member
            for member in gang["members"]
        ],
    }


def test_in_a_gang_the_leader_is_probed_and_its_group_restarted() -> None:
    rendered = render(a_probed_gang("Leader"))
    assert container(rendered)["livenessProbe"] == LIVENESS
    assert not [
        field for field in container(rendered, role="Worker") if field.endswith("Probe")
    ]
    with pytest.raises(
        InvalidSpec,
        match=(
            "engine main, member Worker: probes: followers listen on no port; set it "
            "on the Leader"
        ),
    ):
        render(a_probed_gang("Worker"))


@pytest.mark.parametrize(
    ("probes", "problem"),
    [
        (
            {"startupSeconds": 29},
            "probes: startupSeconds must be between 30 and 21600, is 29",
        ),
        (
            {"startupSeconds": 21_601},
            "startupSeconds must be between 30 and 21600, is 21601",
        ),
        (
            {"liveness": {"periodSeconds": 4}},
            "probes, liveness: periodSeconds must be between 5 and 300, is 4",
        ),
        (
            {"liveness": {"timeoutSeconds": 0}},
            "timeoutSeconds must be between 1 and 120, is 0",
        ),
        (
            {"liveness": {"failureThreshold": 61}},
            "failureThreshold must be between 1 and 60, is 61",
        ),
        ({"liveness": True}, "liveness must be an object|must be an object, is True"),
    ],
)
def test_unchecked_stored_probes_are_refused_with_a_message(
    probes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidSpec, match=problem):
        render(with_probes(**probes))
