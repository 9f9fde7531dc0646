"""When an InferenceCluster repeats a report to its caches.

These tests need no server.
"""

import asyncio

import pytest

from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster
from workflows.entity.calls.sending import REPEAT_BROADCAST
from workflows.inference_cluster.workflow import InferenceClusterWorkflow

SOON = REPEAT_BROADCAST / 10


def test_a_report_to_caches_is_repeated_once_when_visibility_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cache that continued as new a moment ago is in no listing."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {"broadcast": None}
    cluster = InferenceClusterWorkflow(a_cluster())
    sent = []
    for pause in (0 * SOON, SOON, SOON, REPEAT_BROADCAST, REPEAT_BROADCAST):
        temporal.now += pause
        temporal.executed.clear()
        cluster.context.requeue_time = None
        asyncio.run(cluster.reporter.report_to_caches())
        sent.append(len(temporal.executed))
        if pause == SOON:
            assert cluster.context.requeue_time is not None
    assert sent == [1, 0, 0, 1, 0]
