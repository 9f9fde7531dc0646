"""KEDA scales ModelDeployments through an API server in each way of docs/how-to/autoscaling.md."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from api_types.clock import utc_now
from testbed.running import Running
from tests.front.keda.installed_keda import WRITER
from tests.front.keda.keda_and_front import (
    EXAMPLES,
    TEAM,
    KedaAndFront,
    keda_and_front,
    time_of,
)
from tests.workflows.environment.harness import ControlPlane, eventually

pytestmark = [pytest.mark.testbed, pytest.mark.keda, pytest.mark.timeout(900)]

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
"""The user of the HorizontalPodAutoscaler that KEDA creates."""
COOLDOWN = 5


@pytest_asyncio.fixture(scope="module")
async def installed(
    plane: ControlPlane, testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[KedaAndFront]:
    cluster = next(iter(testbed.clusters.values()))
    async with keda_and_front(
        plane, cluster, tmp_path_factory.mktemp("keda")
    ) as installed:
        yield installed


@pytest.mark.long
@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
async def test_kedas_crds_accept_every_example(
    installed: KedaAndFront, file: str
) -> None:
    text = (EXAMPLES / file).read_text().replace("ml-team", TEAM)
    told = await installed.aggregated.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text
    )
    assert "Warning" not in told
    assert all(line.endswith("created (server dry run)") for line in told.splitlines())


async def test_keda_starts_scales_and_stops_a_deployment_and_its_events_are_recorded(
    installed: KedaAndFront,
) -> None:
    async with installed.a_deployment("chat-polled", replicas=0) as chat:
        await chat.tell(queue=0)
        await chat.apply("cloud-events.yaml")
        await chat.apply(
            "external-push.yaml",
            type="external",
            pollingInterval=2,
            cooldownPeriod=COOLDOWN,
        )
        await chat.until_ready()
        recorded = await chat.until_recorded("ScaledObjectReady")
        assert recorded["message"].endswith("(from '/eu-1/keda/keda')")
        # KEDA scales from 0 to 1, then its HorizontalPodAutoscaler takes over: 30
        # requests, 8 per replica.
        await chat.tell(queue=6)
        await chat.until_scaled(1, WRITER)
        await chat.tell(queue=30, running=3)
        seen = await chat.until_scaled(4, AUTOSCALER)
        assert not [
            each
            for each in seen["status"]["conditions"]
            if each["type"] == "ScaledByOne"
        ]
        await chat.tell(queue=0)
        await chat.until_scaled(0, WRITER)
        seen = await chat.deployment()
        orders = [
            each["message"]
            for each in seen["status"]["events"]
            if each["reason"] == "Scaled"
        ]
        assert orders == [
            f"from 0 to 1 by {WRITER}",
            f"from 1 to 4 by {AUTOSCALER}",
            f"from 4 to 0 by {WRITER}",
        ]
        pause = (
            "annotate",
            f"scaledobject/{chat.name}",
            "autoscaling.keda.sh/paused=true",
        )
        await installed.aggregated.kubectl("-n", TEAM, *pause)
        await chat.until_recorded("ScaledObjectPaused")
        removed = ("delete", f"scaledobject/{chat.name}", "--timeout=240s")
        await installed.aggregated.kubectl("-n", TEAM, *removed)
        await chat.until_recorded("ScaledObjectRemoved")


@pytest.mark.long
async def test_nothing_is_scaled_while_metrics_are_unknown(
    installed: KedaAndFront,
) -> None:
    async with installed.a_deployment("chat-silent", replicas=2) as chat:
        await chat.tell(queue=16)
        await chat.apply("cloud-events.yaml")
        await chat.apply(
            "external-push.yaml",
            type="external",
            pollingInterval=2,
            cooldownPeriod=COOLDOWN,
        )
        await chat.until_ready()
        await eventually(
            chat.scaled_object,
            lambda seen: seen["conditions"].get("Active") == "True",
            what="an active ScaledObject",
        )
        del installed.gateway.numbers[chat.name]
        seen = await chat.until_ready("False")
        last_active = time_of(seen["status"]["lastActiveTime"])

        async def is_over() -> bool:
            # Twice the time after which KEDA would stop an idle deployment.
            return (
                utc_now() > last_active + timedelta(seconds=2 * COOLDOWN)
                and (await chat.scaled_object())["conditions"]["Ready"] == "False"
            )

        await eventually(is_over, bool, what="the end of the cooldown")
        seen = await chat.deployment()
        assert seen["spec"]["replicas"] == 2
        # KEDA sends no event for a failing trigger.
        assert "ScaledObjectFailed" not in {
            each["reason"] for each in seen["status"]["events"]
        }
        await chat.tell(queue=0)
        await chat.until_scaled(0, WRITER)


@pytest.mark.long
async def test_a_push_wakes_a_deployment_before_the_next_poll(
    installed: KedaAndFront,
) -> None:
    async with installed.a_deployment("chat-pushed", replicas=0) as chat:
        await chat.tell(queue=0)
        await chat.apply("external-push.yaml", pollingInterval=600)
        await chat.until_ready()
        # A poll that finds the new metrics would scale the deployment too.
        await eventually(chat.polled, bool, what="the first poll")
        began = time.monotonic()
        await chat.tell(queue=1)
        await chat.until_scaled(1, WRITER, within=60)
        print(f"woken after {time.monotonic() - began:.1f} s")  # noqa: T201


@pytest.mark.long
async def test_keda_reads_metrics_over_http(installed: KedaAndFront) -> None:
    async with installed.a_deployment("chat-asked", replicas=1) as chat:
        await chat.tell(queue=0, running=70)
        await chat.apply("metrics-api.yaml")
        await chat.until_ready()
        # 70 requests, 32 per replica.
        await chat.until_scaled(3, AUTOSCALER)
