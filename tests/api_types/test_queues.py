"""The names of task queues: all queues of a cluster are derived from its base queue."""

import pytest

from api_types import queues
from api_types.queues import ClusterWork

CASES = [
    (
        "a base queue stands for all of its classes",
        "eu",
        {
            "eu",
            "eu-watch",
            "eu-apply",
            "eu-teardown",
            "eu-cache",
            "eu-stack",
            "eu-wait",
        },
    ),
    ("the queue of one class stands for itself", "eu-watch", {"eu-watch"}),
    (
        "a name that only resembles a class is a base queue",
        "eu-watchtower",
        {f"eu-watchtower{end}" for end in ("", *queues._SUFFIXES)},
    ),
    (
        "a suffix alone names no base queue, so it is one itself",
        "-watch",
        {f"-watch{end}" for end in ("", *queues._SUFFIXES)},
    ),
]


@pytest.mark.parametrize(
    ("story", "name", "served"), CASES, ids=[case[0] for case in CASES]
)
def test_a_worker_serves_the_queues_of_the_names_that_it_is_given(
    story: str, name: str, served: set[str]
) -> None:
    del story
    assert set(queues.served_queues(name)) == served


def test_no_two_classes_of_work_share_a_queue() -> None:
    assert len(queues.cluster_queues("eu")) == len(ClusterWork)


def test_a_connection_without_a_queue_is_on_the_default_one() -> None:
    assert queues.cluster_queue("", ClusterWork.APPLY) == queues.cluster_queue(
        queues.CLUSTERS, ClusterWork.APPLY
    )


@pytest.mark.parametrize(
    "name", ["", "q" * 251, "é" * 126, "/_sys/x", "a\nb", queues.SCHEDULER, "eu-watch"]
)
def test_a_reserved_name_is_not_a_base_queue(
    name: str,
) -> None:
    assert queues.base_queue_problem(name).startswith("must ")
    assert not queues.base_queue_problem("q" * 250)
