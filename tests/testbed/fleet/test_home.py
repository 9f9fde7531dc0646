"""A testbed's folder keeps its ports and addresses between runs."""

import ipaddress
import socket
from pathlib import Path

import pytest

from testbed.fleet.home import POD_NETWORK, PORTS, SERVICE_NETWORK, Home, HomeBusy
from testbed.programs.install import PROGRAMS_VARIABLE


def test_ports_are_chosen_once_and_remembered(tmp_path: Path) -> None:
    said: list[str] = []
    first = Home(tmp_path)
    first.choose_ports(["a", "b"], said.append)
    again = Home(tmp_path)
    again.choose_ports(["a", "b", "c"], said.append)
    assert (first.port("a"), first.port("b")) == (again.port("a"), again.port("b"))
    assert len({again.port(name) for name in "abc"} & set(PORTS)) == 3
    assert said == []


def test_a_port_taken_by_another_process_is_replaced_and_reported(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    first = Home(tmp_path)
    first.choose_ports(["a", "b"], said.append)
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", first.port("a")))
        squatter.listen()
        again = Home(tmp_path)
        again.choose_ports(["a", "b"], said.append)
    assert again.port("a") != first.port("a")
    assert again.port("b") == first.port("b")
    assert said == [
        (
            f"port {first.port('a')} of a was taken by another program; the new port "
            f"is {again.port('a')}"
        )
    ]


def few_ports(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Leave only so many free ports, which no other testbed takes or has taken."""
    monkeypatch.setenv(PROGRAMS_VARIABLE, str(folder / "cache"))
    monkeypatch.setattr(
        "testbed.fleet.home.PORTS", range(PORTS.start - count, PORTS.start)
    )


def test_two_testbeds_that_choose_before_either_listens_choose_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_ports(tmp_path, monkeypatch, 8)
    homes = [Home(tmp_path / name) for name in ("one", "two")]
    for home in homes:
        home.folder.mkdir()
        home.choose_ports(["a", "b", "c"], print)
    assert len({home.port(name) for home in homes for name in "abc"}) == 6


def test_the_ports_of_a_testbed_that_is_gone_are_anybody_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_ports(tmp_path, monkeypatch, 3)
    for name in ("one", "two"):
        home = Home(tmp_path / name)
        home.folder.mkdir()
        home.choose_ports(["a", "b", "c"], print)
        home.folder.joinpath("state.json").unlink()
        home.folder.rmdir()


def test_addresses_of_a_cluster_stay_when_the_fleet_changes(tmp_path: Path) -> None:
    before = Home(tmp_path)
    before.number_clusters(["control", "old", "kept"])
    after = Home(tmp_path)
    after.number_clusters(["control", "new", "kept"])
    assert after.pod_cidr("kept") == before.pod_cidr("kept")
    assert after.gateway_address("kept") == before.gateway_address("kept")


def test_addresses_of_clusters_never_overlap_and_run_out_with_an_error(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    names = [f"cluster-{number}" for number in range(33)]
    home.number_clusters(names)
    for network_of, whole in (
        (home.pod_cidr, POD_NETWORK),
        (home.service_cidr, SERVICE_NETWORK),
    ):
        networks = [ipaddress.IPv4Network(network_of(name)) for name in names[:32]]
        assert all(network.subnet_of(whole) for network in networks)
        assert not any(
            one.overlaps(other)
            for one in networks
            for other in networks
            if one is not other
        )
    assert len({home.gateway_address(name) for name in names[:32]}) == 32
    with pytest.raises(HomeBusy, match="no addresses left"):
        home.pod_cidr(names[32])


def test_two_commands_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Home(tmp_path).changing(),
        pytest.raises(HomeBusy, match="another command"),
        Home(tmp_path).changing(),
    ):
        pass
    with Home(tmp_path).changing():
        pass
