"""The wanted chart is older than the installed one."""

import pytest

from activities.render.stack import components
from api_types.pins import charts
from tests.activities.stack.stack_under_test import DEFINITIONS, StackUnderTest
from tests.environment.stack_charts import (
    cert_manager,
    envoy_gateway,
    leader_worker_set,
)

LWS, CERTS = components.LEADER_WORKER_SET, components.CERT_MANAGER
PROXIES = f"{DEFINITIONS}/envoyproxies.gateway.envoyproxy.io"


@pytest.mark.parametrize(
    ("version", "other", "older"),
    [
        ("v1.2.3", "1.2.4", True),
        ("1.10.0", "v1.9.9", False),
        ("v1.2.3", "1.2.3", False),
        ("v1.2.3-rc.1", "v1.2.3", True),
        ("v1.2.3", "v1.2.3-rc.1", False),
        ("v1.2.3-rc.1", "v1.2.2", False),
        ("latest", "v1.2.3", False),
        ("v1.2.3", "", False),
    ],
)
def test_which_of_two_versions_is_older(
    version: str, other: str, *, older: bool
) -> None:
    assert charts.is_older(version, other) is older


@pytest.mark.long
@pytest.mark.testbed("shared")
async def test_an_older_chart_with_other_definitions_is_refused_and_one_with_the_same_is_installed(
    stack: StackUnderTest,
) -> None:
    stack.world.charts.add(leader_worker_set("v0.8.20", field="newField"))
    stack.world.charts.add(
        leader_worker_set("v0.8.19", field="newField", image="older")
    )
    newer = stack.with_settings(versions={"leaderWorkerSet": "v0.8.20"})
    plan = await newer.plan()
    await newer.crds(plan, LWS.key)
    installed = await newer.ensure(plan, LWS.key)

    older = await stack.plan(installed=[installed.name])
    assert older.kept == {
        LWS.key: "Rejected: leader-worker-set stays at v0.8.20: v0.8.0 is older "
        "and has other definitions "
        "(leaderworkersets.leaderworkerset.x-k8s.io), which cannot be "
        "downgraded; set stack.versions.leaderWorkerSet to v0.8.20 or a newer version"
    }
    assert older.releases[LWS.key].version == "v0.8.20"
    assert await stack.ensure(older, LWS.key) == installed, "nothing is written"
    assert (await stack.look(older)).wanted == older.digest, (
        "it is no other plan than the one that the settings make"
    )

    same = stack.with_settings(versions={"leaderWorkerSet": "v0.8.19"})
    back = await same.plan(installed=[installed.name])
    assert back.kept == {}
    after = await same.ensure(back, LWS.key)
    assert (after.version, after.revision) == ("v0.8.19", installed.revision + 1)

    # A check also reports settings without a valid plan, and how many upgrades run at
    # once.
    untested = stack.with_settings(
        versions={"envoyGateway": "v1.9.0"}, upgrade_parallelism=3
    )
    seen = await untested.look(back)
    assert (seen.wanted, seen.upgrades_at_once) == (back.digest, 3)
    assert any(
        note.startswith(
            "the stack is not changed: ChartInvalid: Envoy Gateway v1.9.0 was not tested"
        )
        for note in seen.notes
    )
    assert (
        await untested.with_settings(allow_untested_pair=True).look(back)
    ).wanted != back.digest


@pytest.mark.long
@pytest.mark.testbed("shared")
async def test_definitions_of_the_installed_release_alone_are_kept(
    stack: StackUnderTest,
) -> None:
    stack.world.charts.add(cert_manager("v1.17.9", also="Issuer"))
    newer = stack.with_settings(versions={"certManager": "v1.17.9"})
    installed = await newer.ensure(await newer.plan(), CERTS.key)
    older = await stack.plan(installed=[installed.name])
    assert list(older.kept) == [CERTS.key]
    assert "(issuers.cert-manager.io)" in older.kept[CERTS.key]


@pytest.mark.long
@pytest.mark.testbed("shared")
async def test_gateways_with_paired_versions_stay_together(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    together = (components.AI_GATEWAY_CRDS.key, *components.PAIR)
    await stack.crds(plan, components.ENVOY_GATEWAY.key)
    installed = [(await stack.ensure(plan, key)).name for key in together]
    assert (await stack.plan(installed=installed)).kept == {}
    release = plan.releases[components.ENVOY_GATEWAY.key]
    # Now the definition differs, as after an earlier version of the same release.
    found = stack.world.get(PROXIES)
    assert found
    versions = found["spec"]["versions"]
    stack.world.patch(
        PROXIES, {"spec": {"versions": [{**versions[0], "deprecated": True}]}}
    )
    stack.world.charts.add(envoy_gateway("v1.8.0"))
    older = stack.with_settings(versions={"envoyGateway": "v1.8.0"})
    kept = (await older.plan(installed=installed)).kept
    assert sorted(kept) == sorted(together)
    assert (
        f"envoy-gateway stays at {release.version}"
        in kept[components.ENVOY_GATEWAY.key]
    )
    assert (
        kept[components.AI_GATEWAY.key]
        == "ai-gateway stays at v0.7.0, because it must match envoy-gateway"
    )
