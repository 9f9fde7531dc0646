"""What the activities of `EntityClient` take and give, signals aside: those are in `api_types.messages.delivery`."""

from typing import Any

from pydantic import Field

from api_types.base import Id, Message


class ReadMemo(Message):
    """Which key to read of which entity's memo."""

    workflow_id: Id
    key: Id


class MemoValue(Message):
    """What a memo holds, None if it has no such key; `found` False when no such entity runs: then it is that of the last one, if any."""

    found: bool
    value: Any = None


class Survey(Message):
    """Find entities in visibility and send each one the same query.

    Empty fields do not narrow. `query` empty: only the ids are wanted. `after` is the page token of the last answer; `left` are the
    entities that it did not reach: they are queried first. `ended`: those that were terminated or failed are named. `quick`: the round ends
    a second after the last answer.
    """

    kinds: list[Id]
    namespace: Id = ""
    cluster: Id = ""
    deployment: Id = ""
    ended: bool = False
    query: Id = ""
    quick: bool = False
    page_size: int = 500
    after: str = ""
    left: dict[str, str] = Field(default_factory=dict)


class QueryEach(Message):
    """The same query to several entities."""

    workflow_ids: list[Id]
    query: Id


class SurveyResult(Message):
    """The answers by workflow id, as many as fit one payload.

    `unresponsive`: the ids of those that run but did not answer in time, with their clusters; `left`: those that were not queried yet;
    `ended`: those that were terminated or failed, and are not queried.
    """

    answers: dict[str, Any] = Field(default_factory=dict)
    unresponsive: dict[str, str] = Field(default_factory=dict, alias="silent")
    left: dict[str, str] = Field(default_factory=dict)
    ended: list[str] = Field(default_factory=list)
    after: str = ""


class AwaitRunning(Message):
    """Wait until an entity runs."""

    workflow_id: Id


class CheckReceivers(Message):
    """Find out whether entities still run. `known`: ids with the first run of each as it was last seen, empty if it was not seen yet."""

    known: dict[str, str] = Field(default_factory=dict)
    others: list[str] = Field(default_factory=list)


class ReceiverChanges(Message):
    """Which of the `known` have another first run than before, so that they know nothing of what the earlier one was sent.

    `missing`: which of all do not run.
    """

    changed: dict[str, str] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
