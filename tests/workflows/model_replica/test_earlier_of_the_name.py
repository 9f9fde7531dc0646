"""Late messages to an earlier object of the same name change nothing.

These tests need no server.
"""

import pytest

from api_types.messages.entities import Delete, SetLabels, SetTemplate
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_replica.builders import a_replica
from workflows.model_replica.reducers import messages
from workflows.model_replica.workflow import ModelReplicaWorkflow


@pytest.mark.parametrize(
    ("uid", "meant"), [("u", True), ("earlier", False), ("", True)]
)
def test_a_template_and_labels_reach_only_their_replica(
    uid: str, *, meant: bool
) -> None:
    state = a_replica()
    assert (
        messages.set_template(
            state, SetTemplate(uid=uid, generation=2, spec={"engines": []})
        )
        is meant
    )
    assert (
        messages.set_labels(state, SetLabels(uid=uid, labels={"team": "red"})) is meant
    )
    assert (state.generation == 2, "team" in state.labels) == (meant, meant)


@pytest.mark.parametrize(
    ("uid", "meant"), [("u", True), ("earlier", False), ("", True)]
)
def test_a_deletion_deletes_only_its_object(
    monkeypatch: pytest.MonkeyPatch, uid: str, *, meant: bool
) -> None:
    Serverless(monkeypatch, "modelreplica/ml/qwen-eu-0")
    replica = ModelReplicaWorkflow(a_replica())
    replica.delete(Delete(uid=uid, by="ModelDeployment qwen").wire())
    assert replica.state.deleting is meant
