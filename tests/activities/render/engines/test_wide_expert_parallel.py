"""Followers serve, or do not, as the three shapes of wide expert parallelism need it."""

from typing import Any

import pytest

from activities.render.objects.rendered import Rendered
from api_types import labels
from tests.activities.render.builders import a_gang, container, pod, render, the

PROBES = {"startupSeconds": 1200, "liveness": {}}


def shaped(shape: str | None, **fields: Any) -> Rendered:
    parallel = {"size": 4} | ({"loadBalancing": shape} if shape else {})
    gang = a_gang(dataParallel=parallel, **fields)
    leader, worker = gang["members"]
    return render({**gang, "members": [{**leader, "probes": PROBES}, worker]})


def opened(found: Rendered, role: str) -> list[int]:
    return [
        port["containerPort"] for port in container(found, role=role).get("ports", ())
    ]


FOUR = [8000, 8001, 8002, 8003]


@pytest.mark.parametrize(
    ("shape", "leader", "worker"),
    [
        (None, FOUR, []),
        ("Internal", [8000], []),
        ("Hybrid", [8000], [8000]),
        ("External", FOUR, FOUR),
    ],
)
def test_pods_open_the_ports_of_their_shape(
    shape: str | None, leader: list[int], worker: list[int]
) -> None:
    found = shaped(shape)
    assert (opened(found, "Leader"), opened(found, "Worker")) == (leader, worker)
    targets = the(found, "inference-pool")["spec"]["targetPorts"]
    assert [port["number"] for port in targets] == leader


@pytest.mark.parametrize("shape", ["Hybrid", "External"])
def test_followers_that_serve_are_selected_probed_and_read_like_their_leader(
    shape: str,
) -> None:
    found = shaped(shape)
    leader, worker = (pod(found, role=role) for role in ("Leader", "Worker"))
    selector = the(found, "inference-pool")["spec"]["selector"]["matchLabels"]
    for template in (leader, worker):
        assert selector.items() <= template["metadata"]["labels"].items()
    differing = {labels.LWS_ROLE: "worker"}
    assert worker["metadata"]["labels"] == leader["metadata"]["labels"] | differing
    probes = {
        name: probe
        for name, probe in container(found).items()
        if name.endswith("Probe")
    }
    assert set(probes) == {"readinessProbe", "startupProbe", "livenessProbe"}
    assert probes.items() <= container(found, role="Worker").items()


def test_followers_that_do_not_serve_have_no_label_of_the_pool() -> None:
    assert "labels" not in pod(shaped("Internal"), role="Worker")["metadata"]
    assert "readinessProbe" not in container(shaped("Internal"), role="Worker")
