"""Histories of workers that did not know a field of a message that they handled: they did as if it were not there, and so does a replay."""

import base64
import copy
import json
from typing import Any

from temporalio.client import WorkflowHistory

from tests.workflows.environment.replaying import replayer
from tests.workflows.histories.recorded import LIFE, recorded

SUPPORTED = {"gatewayClass": "c", "request": True, "backendRequest": True}


class Recorded:
    """A recorded history whose signals can be changed, by the id of their event."""

    def __init__(self, kind: str) -> None:
        self._events: list[dict[str, Any]] = json.loads(recorded(kind, LIFE)[0].read_text())["events"]

    def read(self, event: int, signal: str) -> Any:
        """Read the message of a signal."""
        found = self._events[event - 1]["workflowExecutionSignaledEventAttributes"]
        assert found["signalName"] == signal
        return json.loads(base64.b64decode(found["input"]["payloads"][0]["data"]))

    def write(self, event: int, signal: str, message: Any) -> None:
        """Have a signal with another message."""
        found = self._events[event - 1]["workflowExecutionSignaledEventAttributes"]
        found["signalName"] = signal
        found["input"]["payloads"][0]["data"] = base64.b64encode(json.dumps(message).encode()).decode()

    def insert(self, event: int, signal: str, message: Any) -> None:
        """Have a signal come right before another one. It led to no command."""
        self._events = [_renumbered(each, event) for each in self._events]
        self._events.insert(event - 1, {**copy.deepcopy(self._events[event - 1]), "eventId": str(event)})
        self.write(event, signal, message)

    async def replay(self) -> None:
        """Replay it with the code as it is now."""
        workflow_id = self._events[0]["workflowExecutionStartedEventAttributes"]["workflowId"]
        result = await replayer().replay_workflow(WorkflowHistory.from_json(workflow_id, {"events": self._events}))
        assert result.replay_failure is None


def _renumbered(tree: Any, first: int) -> Any:
    """Raise all ids of events from this one on."""
    if not isinstance(tree, dict):
        return tree
    return {
        key: str(int(value) + 1) if key.lower().endswith("eventid") and int(value) >= first else _renumbered(value, first)
        for key, value in tree.items()
    }


async def test_a_gateway_that_was_not_told_what_its_class_supports_tells_nobody() -> None:
    history = Recorded("InferenceGateway")
    observed = history.read(15, "control_observed")
    # It has users by then, and would report to them what is new.
    history.insert(36, "control_observed", {**observed, "sequence": 2, "gateway": {**observed["gateway"], "timeouts": SUPPORTED}})
    await history.replay()


async def test_a_service_whose_timeouts_were_refused_goes_on_without() -> None:
    history = Recorded("ModelService")
    history.write(18, "gateway_changed", {**history.read(18, "gateway_changed"), "timeouts": SUPPORTED})
    applied = history.read(2, "set_spec")
    spec = {**applied["manifest"]["spec"], "timeouts": {"request": "300s"}}
    # The route would be applied with them.
    history.insert(124, "set_spec", {**applied, "requestId": "later", "manifest": {**applied["manifest"], "spec": spec}})
    await history.replay()
