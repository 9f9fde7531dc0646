"""The arguments and results of the activities of `EntityClient`.

The messages of signals are in `api_types.messages.delivery`.
"""

from typing import Any

from pydantic import Field

from api_types.base import Id, Message


class ReadMemo(Message):
    """Read one key of an entity's memo."""

    workflow_id: Id
    key: Id


class MemoValue(Message):
    """The value in a memo; None if it has no such key.

    `found` is False if the entity does not run. The value is then from the memo of its
    last run, if there was one.
    """

    found: bool
    value: Any = None


class Survey(Message):
    """Find entities in visibility and send each one the same query.

    Empty fields do not restrict the search. With an empty `query` only the ids are
    returned. `after` is the page token of the last response. `left` are the entities
    that the last round did not reach; they are queried first. With `ended`, entities
    that were terminated or failed are listed too. With `quick`, the round ends one
    second after the last response. `argument` goes to the query, unless it is empty.
    """

    kinds: list[Id]
    namespace: Id = ""
    cluster: Id = ""
    deployment: Id = ""
    ended: bool = False
    query: Id = ""
    argument: Id = ""
    quick: bool = False
    page_size: int = 500
    after: str = ""
    left: dict[str, str] = Field(default_factory=dict)


class QueryEach(Message):
    """The same query to several entities."""

    workflow_ids: list[Id]
    query: Id


class SurveyResult(Message):
    """The responses by workflow id, as many as fit into one payload.

    `unresponsive` are running entities that did not respond in time, with their
    clusters. `left` are entities that were not queried yet. `ended` are entities that
    were terminated or failed; they are not queried.
    """

    answers: dict[str, Any] = Field(default_factory=dict)
    unresponsive: dict[str, str] = Field(default_factory=dict)
    left: dict[str, str] = Field(default_factory=dict)
    ended: list[str] = Field(default_factory=list)
    after: str = ""


class AwaitRunning(Message):
    """Wait until an entity runs."""

    workflow_id: Id


class CountEntities(Message):
    """Count the running entities of a kind."""

    kind: Id


class EntityCount(Message):
    """The number of running entities, and of those among them whose `Ready` is Unknown."""

    running: int
    unknown: int


class CheckReceivers(Message):
    """Find out whether entities still run.

    `known` maps ids to the first run that was last seen, or to "" if none was seen yet.
    """

    known: dict[str, str] = Field(default_factory=dict)
    others: list[str] = Field(default_factory=list)


class ReceiverChanges(Message):
    """The entities of `known` with another first run than before.

    The new run has none of the messages that the earlier run received. `missing` are
    the entities that do not run.
    """

    changed: dict[str, str] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
