"""Releases are installed, compared, upgraded and removed by real helm on a real API server."""

import asyncio
import base64
import dataclasses
import itertools
import json
from typing import Any

import pytest

from activities.clients.helm.charts import source
from activities.clients.helm.client import _check_name
from activities.clients.helm.command import HelmCommand, HelmFailed
from activities.clients.helm.pool import HelmClients
from activities.clients.helm.port import Chart, Release, ReleaseState, values_digest
from activities.render.stack.components import COMPONENTS
from api_types.errors import InvalidInput, ReleasePending
from api_types.messages.cluster_work import Connection
from api_types.sections.stacks import StackSettings
from tests.activities.clients.helm.conftest import CONFIG, OnCluster
from tests.environment.charts import chart
from tests.random_cases import cases, generator

pytestmark = pytest.mark.testbed("shared")

PURGED = (
    "Error: uninstall: Failed to purge the release: secrets "
    '"sh.helm.release.v1.mp-demo.v1" not found\n'
)
CONNECTION = Connection(
    cluster="prod-eu", namespace="modelplane-system", name="prod-eu-kubeconfig"
)


# Ensure


async def test_a_release_that_is_not_there_is_installed_with_its_namespace(
    here: OnCluster,
) -> None:
    wanted = dataclasses.replace(
        here.release(text="x"), namespace=f"{here.namespace}-new"
    )
    try:
        state = await here.helm.ensure(wanted)
        assert state.status == "deployed"
        assert here.core.read_namespaced_config_map("mp-demo", wanted.namespace).data
    finally:
        here.core.delete_namespace(wanted.namespace)


async def test_a_release_that_is_already_deployed_is_not_written(
    here: OnCluster,
) -> None:
    wanted = here.release(
        here.publish(version="v1.17.1", templates={"config.yaml": CONFIG}),
        text="x",
        number=1.0,
    )
    first = await here.helm.ensure(wanted)
    requests = len(here.repository.requests)
    for chart_version, number in (("v1.17.1", 1), ("1.17.1", 1.0)):
        again = dataclasses.replace(
            wanted,
            chart=dataclasses.replace(wanted.chart, version=chart_version),
            values={"number": number, "text": "x"},
        )
        assert await here.helm.ensure(again) == first
    assert here.revisions() == {1: "deployed"}
    # The chart is not fetched either.
    assert len(here.repository.requests) == requests


async def test_one_changed_value_is_one_upgrade(here: OnCluster) -> None:
    wanted = here.release(text="x", other=[1, 2])
    assert (await here.helm.ensure(wanted)).revision == 1
    changed = dataclasses.replace(wanted, values={"text": "y", "other": [1, 2]})
    assert (await here.helm.ensure(changed)).revision == 2
    assert here.values() == {"text": "y", "other": [1, 2]}
    assert here.revisions() == {1: "superseded", 2: "deployed"}


async def test_another_version_or_chart_is_an_upgrade(here: OnCluster) -> None:
    first = here.publish(version="1.0.0", templates={"config.yaml": CONFIG})
    newer = dataclasses.replace(first, version="1.0.1")
    here.repository.add(
        chart(newer.name, newer.version, templates={"config.yaml": CONFIG})
    )
    other = here.publish(version="1.0.1", templates={"config.yaml": CONFIG})
    for number, wanted in enumerate((first, newer, other), start=1):
        state = await here.helm.ensure(here.release(wanted))
        assert (state.revision, state.chart, state.chart_version) == (
            number,
            wanted.name,
            wanted.version,
        )


async def test_removed_values_return_to_the_charts_defaults(
    here: OnCluster,
) -> None:
    published = here.publish(
        templates={"config.yaml": CONFIG}, values={"text": "of the chart"}
    )
    await here.helm.ensure(here.release(published, text="set", more={"a": 1}))
    assert here.values() == {"text": "set", "more": {"a": 1}}
    state = await here.helm.ensure(here.release(published))
    assert here.values() == {"text": "of the chart"}
    assert (state.revision, state.values_digest) == (2, values_digest({}))
    assert (await here.helm.ensure(here.release(published))).revision == 2


async def test_a_field_that_someone_changed_by_hand_is_put_back_by_the_next_upgrade(
    here: OnCluster,
) -> None:
    wanted = here.release(text="x")
    await here.helm.ensure(wanted)
    here.core.patch_namespaced_config_map(
        "mp-demo",
        here.namespace,
        {"data": {"values": "by hand"}},
        field_manager="kubectl-edit",
    )
    await here.helm.ensure(dataclasses.replace(wanted, values={"text": "y"}))
    assert here.values() == {"text": "y"}


async def test_a_failed_release_is_upgraded_even_without_changes(
    here: OnCluster,
) -> None:
    wanted = here.release(text="x")
    await here.helm.ensure(wanted)
    here.rewrite(1, "failed", seconds_ago=1)
    state = await here.helm.ensure(wanted)
    assert (state.status, state.revision) == ("deployed", 2)


async def test_a_first_installation_that_failed_is_tried_again(here: OnCluster) -> None:
    published = here.publish(
        templates={
            "bad.yaml": CONFIG.replace("{{ .Release.Name }}", "{{ .Values.name }}")
        }
    )
    with pytest.raises(InvalidInput):
        await here.helm.ensure(
            Release("mp-demo", here.namespace, published, {"name": "UPPER"})
        )
    assert here.revisions() == {1: "failed"}
    state = await here.helm.ensure(
        Release("mp-demo", here.namespace, published, {"name": "lower"})
    )
    assert state.status == "deployed"
    assert here.config("lower") is not None


async def test_a_reported_state_has_neither_manifest_nor_values(
    here: OnCluster,
) -> None:
    wanted = here.release(password="hunter2-hunter2")  # noqa: S106
    ensured = await here.helm.ensure(wanted)
    assert ensured == ReleaseState(
        name="mp-demo",
        namespace=here.namespace,
        revision=1,
        status="deployed",
        chart=wanted.chart.name,
        chart_version="1.0.0",
        values_digest=values_digest({"password": "hunter2-hunter2"}),
    )
    assert await here.helm.status("mp-demo", here.namespace) == ensured
    assert "hunter2" not in repr(wanted) + repr(ensured)


async def test_two_that_ensure_one_release_at_once_write_it_once(
    here: OnCluster,
) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(2):  # An installation, then an upgrade
        wanted = here.release(published, number=number)
        results = await asyncio.gather(
            *(here.helm.ensure(wanted) for _ in range(3)), return_exceptions=True
        )
        states = [each for each in results if isinstance(each, ReleaseState)]
        others = [each for each in results if not isinstance(each, ReleaseState)]
        assert states
        assert {each.status for each in states} == {"deployed"}
        assert [type(each) for each in others] == [ReleasePending] * len(others), others
        state = await here.helm.ensure(wanted)
        assert here.values() == {"number": number}
        assert state.status == "deployed"


# Names


def test_the_releases_of_the_stack_are_called_after_their_charts() -> None:
    for pin in (component.pin for component in COMPONENTS):
        assert pin.release == f"mp-{pin.chart}"
        _check_name(pin.release)
        assert source(Chart(pin.chart, pin.repository, pin.version))


async def test_names_that_are_none_are_refused_before_helm_sees_them(
    here: OnCluster,
) -> None:
    for name in ("", "-x", "--help", "A", "a_b", "a.b", "a/b", "x" * 54, "a\n"):
        wanted = dataclasses.replace(here.release(), name=name)
        for asked in (
            here.helm.ensure(wanted),
            here.helm.render(wanted),
            here.helm.status(name, here.namespace),
            here.helm.uninstall(name, here.namespace),
        ):
            with pytest.raises(InvalidInput) as raised:
                await asked
            assert "is not the name of a release" in raised.value.message


async def test_a_name_of_the_longest_length_is_one(here: OnCluster) -> None:
    name = "x" * 53
    assert (await here.helm.ensure(here.release(name=name))).name == name


# Values

VALUES: dict[str, Any] = {
    "whole": [
        0,
        1,
        -1,
        2**31,
        2**53,
        2**53 + 1,
        2**63,
        2**64 + 1,
        10**20,
        10**21,
        10**30,
        -(10**22),
    ],
    "fractions": [
        0.5,
        1.0,
        -0.0,
        1e-7,
        1.5e300,
        5e-324,
        0.1,
        1 / 3,
        1e21,
        123456789.125,
        1e16,
    ],
    "text": [
        "",
        "yes",
        "on",
        "null",
        "~",
        "1.30",
        "0x10",
        "1e3",
        "2001-01-01",
        "é",
        "😀",
        "\u2028",
        "\x85",
        "\x7f",
        "a\nb",
        "\t",
        "'\"\\",
    ],
    "other": [True, False, None, [], {}, [[]], {"": ""}],
    "keys": {
        "a.b": 1,
        "yes": 2,
        "1": 3,
        "é": 4,
        "😀": 5,
        "a b": {"c": {"d": [{"e": "f"}]}},
    },
}


async def test_the_digest_of_values_is_equal_before_and_after_they_are_stored(
    here: OnCluster,
) -> None:
    # A null deletes a value of the chart, so it is stored in lists only.
    state = await here.helm.ensure(here.release(**VALUES))
    assert state.values_digest == values_digest(VALUES)
    assert await here.helm.status("mp-demo", here.namespace) == state
    assert here.values()["text"] == VALUES["text"]
    assert here.values()["keys"] == VALUES["keys"]


@pytest.mark.random
async def test_random_values_are_written_once(here: OnCluster) -> None:
    random, published = generator(), here.publish(templates={"config.yaml": CONFIG})
    leaves = [
        each
        for values in VALUES.values()
        for each in (values if isinstance(values, list) else values.values())
        if each is not None
    ]

    def tree(depth: int) -> Any:
        if depth and random.random() < 0.6:
            children = [tree(depth - 1) for _ in range(random.randrange(4))]
            return (
                children
                if random.random() < 0.5
                else {f"k{number}": child for number, child in enumerate(children)}
            )
        return random.choice(
            [*leaves, random.uniform(-1e9, 1e9), random.randrange(-(2**70), 2**70)]
        )

    for _ in range(cases(1)):
        wanted = here.release(
            published, **{f"v{number}": tree(4) for number in range(40)}
        )
        state = await here.helm.ensure(wanted)
        assert await here.helm.ensure(wanted) == state


async def test_a_value_that_is_null_is_not_written_again_and_again(
    here: OnCluster,
) -> None:
    published = here.publish(
        templates={"config.yaml": CONFIG}, values={"removed": "of the chart", "kept": 1}
    )
    wanted = here.release(
        published, removed=None, nothing=None, inner={"nothing": None}
    )
    state = await here.helm.ensure(wanted)
    assert here.values()["kept"] == 1
    assert here.values().get("removed") is None
    assert await here.helm.ensure(wanted) == state


# Status, uninstall, releases


async def test_a_release_that_does_not_exist_has_no_status_and_is_removed(
    here: OnCluster,
) -> None:
    assert await here.helm.status("mp-demo", here.namespace) is None
    await here.helm.uninstall("mp-demo", here.namespace)
    assert await here.helm.status("mp-demo", f"{here.namespace}-none") is None
    await here.helm.uninstall("mp-demo", f"{here.namespace}-none")


async def test_an_uninstalled_release_leaves_nothing_and_may_be_uninstalled_twice(
    here: OnCluster,
) -> None:
    await here.helm.ensure(here.release())
    await here.helm.uninstall("mp-demo", here.namespace)
    assert (here.config(), here.revisions()) == (None, {})
    await here.helm.uninstall("mp-demo", here.namespace)


async def test_two_that_uninstall_one_release_at_once_both_see_it_gone(
    here: OnCluster,
) -> None:
    published = here.publish(templates={"config.yaml": CONFIG})
    for number in range(2):
        await here.helm.ensure(here.release(published, number=number))
    # Each helm deletes all revisions in order: some are gone already when it reaches
    # them.
    await asyncio.gather(
        *(here.helm.uninstall("mp-demo", here.namespace) for _ in range(3))
    )
    assert (here.config(), here.revisions()) == (None, {})


async def test_leftovers_of_a_killed_helm_are_removed_too(
    here: OnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.helm.ensure(here.release())
    really = HelmCommand.uninstall
    said: list[str] = []

    async def uninstall(command: HelmCommand, *arguments: Any, **options: Any) -> None:
        if not said:
            said.append(PURGED)
            raise HelmFailed("uninstall", 1, PURGED)
        await really(command, *arguments, **options)

    monkeypatch.setattr(HelmCommand, "uninstall", uninstall)
    await here.helm.uninstall("mp-demo", here.namespace)
    assert (here.config(), here.revisions(), said) == (None, {}, [PURGED])


async def test_a_release_that_failed_is_uninstalled_too(here: OnCluster) -> None:
    await here.helm.ensure(here.release())
    here.rewrite(1, "failed", seconds_ago=400)
    await here.helm.uninstall("mp-demo", here.namespace)
    assert (here.config(), here.revisions()) == (None, {})


async def test_releases_of_all_states_are_listed_by_their_prefix(
    here: OnCluster,
) -> None:
    prefix = f"{here.namespace}-"
    published = here.publish(templates={"config.yaml": CONFIG})
    statuses = {
        "b": "deployed",
        "a": "failed",
        "c": "pending-install",
        "d": "uninstalling",
        "e": "pending-upgrade",
    }
    async with asyncio.TaskGroup() as group:
        for name in statuses:
            group.create_task(
                here.helm.ensure(here.release(published, name=prefix + name, of=name))
            )
    await here.helm.ensure(here.release(published, name=f"x{prefix}other"[:53]))
    for name, status in statuses.items():
        if status != "deployed":
            here.rewrite(1, status, seconds_ago=1, name=prefix + name)
    listed = await here.helm.releases(prefix)
    assert [(each.name.removeprefix(prefix), each.status) for each in listed] == sorted(
        statuses.items()
    )
    assert [each.values_digest for each in listed] == [
        values_digest({"of": name}) for name in sorted(statuses)
    ]
    # The prefix is text, not a pattern.
    assert await here.helm.releases(prefix.replace("-", ".")) == []
    assert len(await here.helm.releases("")) >= len(statuses) + 1


# Render

NOWHERE = "https://127.0.0.1:9"


async def test_a_chart_is_rendered_without_a_cluster_and_without_its_definitions(
    here: OnCluster,
) -> None:
    hook = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: hook\n  annotations: "
        "{helm.sh/hook: pre-install}\n"
    )
    published = here.publish(
        templates={
            "config.yaml": CONFIG,
            "hook.yaml": hook,
            "none.yaml": "# nothing\n",
        },
        crds={"a.yaml": hook},
    )
    async with here.client(dataclasses.replace(here.access, server=NOWHERE)) as helm:
        found = await helm.render(here.release(published, text="😀"))
    kinds = {each["kind"]: each for each in found}
    assert sorted(kinds) == ["ConfigMap", "Pod"]
    assert json.loads(base64.b64decode(kinds["ConfigMap"]["data"]["values"])) == {
        "text": "😀"
    }
    assert len(await here.helm.crds(published)) == 1


async def test_a_template_that_renders_no_yaml_is_invalid(here: OnCluster) -> None:
    with pytest.raises(InvalidInput) as raised:
        await here.helm.render(
            here.release(
                here.publish(templates={"a.yaml": "a: {{ .Values.text }}"}),
                text="[hunter2-hunter2",
            )
        )
    assert "hunter2" not in raised.value.message


# The pool


async def test_the_pool_gives_helm_for_a_connection(here: OnCluster) -> None:
    class OneAccess:
        async def access(self, _: Connection) -> Any:
            return here.access

    pool = HelmClients(OneAccess(), StackSettings(helm=here.tools.helm.path))
    await pool.start(serves_clusters=True)
    async with pool.at(CONNECTION) as helm:
        assert (await helm.ensure(here.release())).status == "deployed"
        assert [
            each.namespace
            for each in itertools.islice(await helm.releases("mp-demo"), 1)
        ]
    pool.close()
