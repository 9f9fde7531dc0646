"""What the activities of `EntityClient` take and give, signals aside: those are in `api_types.messages.delivery`."""

from typing import Any

from pydantic import Field

from api_types.base import Message


class ReadMemo(Message):
    """Which key to read of which entity's memo."""

    workflow_id: str
    key: str


class MemoValue(Message):
    """What a memo holds, None if it has no such key; `found` False when no such entity runs."""

    found: bool
    value: Any = None


class Survey(Message):
    """Find entities in visibility and send each one the same query.

    Empty fields do not narrow. `query` empty: only the ids are wanted. `after` is the page token of the last answer.
    """

    kinds: list[str]
    namespace: str = ""
    cluster: str = ""
    deployment: str = ""
    query: str = ""
    page_size: int = 500
    after: str = ""


class QueryEach(Message):
    """The same query to several entities."""

    workflow_ids: list[str]
    query: str


class SurveyResult(Message):
    """The answers by workflow id; `unresponsive`: the ids of those that run but did not answer in time, with their clusters."""

    answers: dict[str, Any] = Field(default_factory=dict)
    unresponsive: dict[str, str] = Field(default_factory=dict, alias="silent")
    after: str = ""
