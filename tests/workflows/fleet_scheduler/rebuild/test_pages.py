"""Which entities a page of accounts names, and the cluster that each of them concerns."""

from typing import Any

import pytest

from activities.messaging.querying import Answers
from api_types.messages.scheduling import ReportClass
from workflows.fleet_scheduler.rebuild.activities import _page

REPLICA, CLUSTER, KNOWN = "modelreplica/ml/qwen-0", "inferencecluster/eu", {"modelreplica/ml/qwen-0": "us"}
CLASS = "inferenceclass/h200"


@pytest.mark.parametrize(
    ("workflow_id", "account", "entities", "cluster"),
    [
        (REPLICA, {"cluster": "eu"}, KNOWN, "eu"),
        (REPLICA, {"cluster": "eu"}, {}, "eu"),
        (REPLICA, {"cluster": ""}, KNOWN, "us"),
        (REPLICA, {"cluster": 7}, KNOWN, "us"),
        (REPLICA, {}, KNOWN, "us"),
        (REPLICA, "rubbish", KNOWN, "us"),
        (REPLICA, {}, {}, ""),
        (CLUSTER, {"cluster": "us"}, {}, "eu"),
        (CLUSTER, "rubbish", {CLUSTER: "us"}, "eu"),
        (CLASS, {}, {}, ""),
    ],
)
def test_an_account_that_cannot_be_read_names_its_cluster_before_visibility_does(
    workflow_id: str, account: Any, entities: dict[str, str], cluster: str
) -> None:
    page, answered = _page(Answers(by_id={workflow_id: account}), entities)
    assert (page.unresponsive, answered) == ({workflow_id: cluster}, [])


def test_an_entity_that_does_not_answer_is_on_the_cluster_that_visibility_names() -> None:
    answer = ReportClass(name="h200", generation=1, epoch=7).wire()
    page, answered = _page(Answers(by_id={CLASS: answer}, unresponsive=[REPLICA, CLUSTER]), KNOWN)
    assert (page.unresponsive, answered) == ({REPLICA: "us", CLUSTER: "eu"}, [CLASS])
    assert page.accounts.epoch == 7
    assert [each.name for each in page.accounts.read_classes()] == ["h200"]
