"""The number of clusters that the scheduler counts as Ready."""

from dataclasses import replace

from tests.scheduler.builders import cluster, fleet


def test_a_cluster_counts_while_it_is_ready_and_its_replicas_are_known() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1, ready=False), cluster("c", 1))
    assert world.ready_clusters() == 2
    world.put_cluster(replace(world.clusters["c"].view, accounted=False))
    assert world.ready_clusters() == 1
