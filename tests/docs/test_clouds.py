"""The objects and durations in docs/clouds/ match the code and the clouds."""

import json
import re
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest

from tests.docs.generated import ROOT
from tests.docs.output import PROGRAM, output_of
from workflows.cloud_cluster.shown import _SECONDS

CLOUDS = ROOT / "docs" / "clouds"
TROUBLE = (CLOUDS / "troubleshooting.md").read_text()


def rows(text: str, head: str) -> list[list[str]]:
    """Return the rows of all tables whose first header is `head`."""
    found, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == head:
            inside = True
        elif inside and not set(line) <= set("|-"):
            found.append(cells)
    return found


def planned(cloud: str) -> list[dict[str, Any]]:
    """Return the objects of both examples of a cloud."""
    found: list[dict[str, Any]] = []
    for name in (cloud, f"first-{cloud}"):
        file = f"examples/clouds/{name}.yaml"
        plan = output_of(f"{PROGRAM} plan --offline -f {file} -o json")
        found += json.loads(plan)["clouds"][0]["objects"]
    return found


def keys_in(section: str) -> set[str]:
    """Return the keys of objects in the tables of a section of troubleshooting.md."""
    text = TROUBLE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {
        key for row in rows(text, "Object") for key in re.findall("`([^`]+)`", row[0])
    }


def key_of(each: dict[str, Any]) -> str:
    kind, _, name = str(each["key"]).partition("/")
    named = kind in ("pool", "lt") and name != "system"
    return f"{kind}/NAME" if named else str(each["key"])


# Objects that are made by one call without a state, and fail with the messages of
# "Every cloud" alone.
QUIET = {
    "eks": ("access/", "pia/", "addon/", "sg/efa"),
    "gke": (),
}


@pytest.mark.parametrize("cloud", ["eks", "gke"])
def test_troubleshooting_has_a_row_for_each_object_of_a_plan(
    cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    keys = {key_of(each) for each in planned(cloud)}
    listed = keys_in(cloud.upper()) | keys_in("Every cloud")
    loud = {key for key in keys if not key.startswith(QUIET[cloud] or ("-",))}
    assert (sorted(loud - listed), sorted(keys_in(cloud.upper()) - keys)) == ([], [])


def limits() -> Iterator[tuple[str, float]]:
    """Yield the minutes after which the waiters of AWS give up, by name."""
    session = botocore.session.get_session()
    loader = session.get_component("data_loader")
    for service in ("ec2", "eks"):
        for name, each in loader.load_service_model(service, "waiters-2")[
            "waiters"
        ].items():
            yield name, each["delay"] * each["maxAttempts"] / 60


def test_the_durations_on_eks_are_those_of_the_code_and_of_aws() -> None:
    page = (CLOUDS / "first-cluster-eks.md").read_text()
    shown = {row[0]: row[1:] for row in rows(page, "Objects")}
    waiters = dict(limits())

    def row(work: str, waiter: str) -> list[str]:
        return [f"{_SECONDS[work] // 60} minutes", f"{waiters[waiter]:.0f} minutes"]  # type: ignore[index]

    assert shown == {
        "network, roles": ["1 minute", ""],
        "NAT gateway": row("Medium", "NatGatewayAvailable"),
        "control plane": row("ControlPlane", "ClusterActive"),
        "add-ons, file system": row("Medium", "AddonActive"),
        "system pool, GPU pools": row("NodePool", "NodegroupActive"),
    }


def test_the_durations_on_gke_are_those_of_the_code() -> None:
    page = (CLOUDS / "first-cluster-gke.md").read_text()
    assert {row[0]: row[1] for row in rows(page, "Objects")} == {
        "network, account": "1 minute",
        "cluster with its system pool": f"{_SECONDS['ControlPlane'] // 60} minutes",
        "each GPU pool": f"{_SECONDS['NodePool'] // 60} minutes",
    }
