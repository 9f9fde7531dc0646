"""The fleet file is small and strict, and all its errors are reported at once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.fleet.fleet_file import FleetFile, FleetFileError

GOOD = """
classes:
  small:
    devices:
      - {name: gpu, driver: gpu.example.com, deviceClassName: gpu.example.com, count: 2}
clusters:
  - name: here
    pools: [{name: gpus, class: small, nodes: 1}]
"""


@dataclass(frozen=True)
class Fault:
    story: str
    old: str
    new: str
    says: tuple[str, ...]


FAULTS = [
    Fault(
        "a misspelt field",
        "nodes: 1",
        "nodes: 1, node: 2",
        (
            "clusters[0].pools[0].node: no such field; remove it or correct its spelling",
        ),
    ),
    Fault(
        "a missing field",
        ", nodes: 1",
        "",
        ("clusters[0].pools[0].nodes: is missing; add it",),
    ),
    Fault(
        "a class that is not described",
        "class: small",
        "class: large",
        (
            "clusters.here.pools.gpus.class: large is not under classes, which has small",
        ),
    ),
    Fault(
        "a negative count",
        "nodes: 1",
        "nodes: -1",
        (
            "clusters[0].pools[0].nodes: input should be greater than or equal to 0, got -1",
        ),
    ),
    Fault(
        "text for a number",
        "count: 2",
        'count: "2"',
        ("classes.small.devices[0].count: input should be a valid integer, got '2'",),
    ),
    Fault(
        "the reserved name",
        "name: here",
        "name: control",
        (
            "clusters: control is the name of the testbed's own control cluster; rename this one",
        ),
    ),
    Fault(
        "DRA without a class",
        "deviceClassName: gpu.example.com, ",
        "",
        ("classes.small.devices[0]: deviceClassName is needed when claim is DRA",),
    ),
    Fault(
        "an attribute with two values",
        "count: 2",
        "count: 2, attributes: {ecc: {bool: true, int: 1}}",
        (
            (
                "classes.small.devices[0].attributes.ecc: exactly one of string, "
                "version, bool and int must be set"
            ),
        ),
    ),
    Fault(
        "a quantity with a made-up unit",
        "count: 2",
        "count: 2, capacity: {memory: {value: 80GB}}",
        (
            "classes.small.devices[0].capacity.memory.value: string should match pattern",
            "got '80GB'",
        ),
    ),
    Fault(
        "two faults at once",
        "name: here\n    pools: [{name: gpus, class: small, nodes: 1}]",
        "name: Here\n    pools: []",
        ("has 2 fault(s)", "clusters[0].name:", "clusters[0].pools:"),
    ),
]


def test_the_built_in_fleet_has_two_clusters_with_two_pools_each() -> None:
    fleet = FleetFile.load()
    assert {
        cluster.name: [pool.name for pool in cluster.pools]
        for cluster in fleet.clusters
    } == {
        "prod-eu": ["h100", "l40s"],
        "prod-us": ["h200", "l40s"],
    }


def test_a_small_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(GOOD)
    fleet = FleetFile.load(tmp_path / "fleet.yaml")
    assert fleet.clusters[0].pools[0].nodes == 1
    assert fleet.classes["small"].devices[0].claim == "DRA"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.story)
def test_a_faulty_file_is_refused_with(fault: Fault, tmp_path: Path) -> None:
    assert fault.old in GOOD
    (tmp_path / "fleet.yaml").write_text(GOOD.replace(fault.old, fault.new))
    with pytest.raises(FleetFileError) as refusal:
        FleetFile.load(tmp_path / "fleet.yaml")
    assert [part for part in fault.says if part not in str(refusal.value)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a: [", "is not YAML", id="broken YAML"),
        pytest.param("a: 1\na: 2\n", "is not YAML", id="the same key twice"),
        pytest.param("", "must hold one document", id="nothing"),
        pytest.param("- 1", "must hold one document", id="a list"),
        pytest.param("a: 1\n---\nb: 1\n", "must hold one document", id="two documents"),
    ],
)
def test_an_invalid_fleet_file_is_rejected(
    text: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "fleet.yaml").write_text(text)
    with pytest.raises(FleetFileError, match=says):
        FleetFile.load(tmp_path / "fleet.yaml")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_bytes(b"\xa7\x00\xff")
    with pytest.raises(FleetFileError, match=r"fleet\.yaml is not UTF-8 text"):
        FleetFile.load(tmp_path / "fleet.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FleetFileError, match=r"nowhere\.yaml: No such file"):
        FleetFile.load(tmp_path / "nowhere.yaml")
