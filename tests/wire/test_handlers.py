"""Every signal handler survives every mistake, and refuses in a few words."""

from collections import Counter
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.signals import receiver_of, signals_of
from fleet_client.temporal.converter import PayloadConverter
from tests.wire.inputs import bad_inputs
from workflows.entity.arguments import PROBLEM_BYTES_MAX
from workflows.registry import WORKFLOWS

NOW = 1_800_000_000.0
HANDLERS = [
    (kind, str(name), definition)
    for kind in WORKFLOWS
    for name, definition in workflow._Definition.must_from_class(kind).signals.items()
]
# Inputs that may be messages: some messages have no fields, and the reader of the inbox
# reads others later.
JSON = {
    "no input",
    "null",
    "null in JSON",
    "text",
    "number",
    "list",
    "fields of wrong types",
    "unknown fields",
    "a long id",
    "the far future",
}


class Reached(Exception):
    """The handler got its message."""


class Stub:
    """Stands in for the workflow.

    Handlers must not use it before they have read the message.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.arrivals: Counter[str] = Counter()

    def refuse_malformed(self, message: type, problems: str) -> None:
        assert message
        self.refused.append(problems)

    def __getattr__(self, name: str) -> Any:
        raise Reached(name)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "payload_converter", PayloadConverter)
    monkeypatch.setattr(workflow, "time", lambda: NOW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "definition"),
    HANDLERS,
    ids=[f"{kind.kind}-{name}" for kind, name, _ in HANDLERS],
)
def test_what_is_no_message_is_refused_and_never_raises(
    kind: Any, name: str, definition: Any
) -> None:
    model = signals_of(receiver_of(kind.kind))[name].message
    for mistake, arguments in bad_inputs(model).items():
        stub = Stub()
        try:
            definition.fn(stub, *arguments)
        except Reached:
            assert mistake in JSON, mistake
            continue
        assert stub.refused, mistake
        assert len(stub.refused[0].encode()) <= PROBLEM_BYTES_MAX, mistake


def test_the_sender_of_a_long_id_or_of_a_number_without_end_is_told_the_field() -> None:
    (definition,) = (
        each
        for kind, name, each in HANDLERS
        if (kind.kind, name) == ("InferenceClass", "class_wanted")
    )
    for message, words in (
        (
            {"cluster": "x" * 100_000},
            "cluster: String should have at most 1024 characters",
        ),
        (
            {"cluster": "eu", "sequence": 2**62},
            f"sequence: Input should be less than or equal to {2**53 - 1}",
        ),
    ):
        stub = Stub()
        definition.fn(stub, message)
        (said,) = stub.refused
        assert said.startswith(words)
    with pytest.raises(Reached):
        # The clock of the sender may be days ahead.
        definition.fn(
            Stub(), {"cluster": "eu", "sequence": int((NOW + 10 * 86_400) * 1000)}
        )
