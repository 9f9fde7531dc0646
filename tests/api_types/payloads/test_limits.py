"""Batches for payloads: in order, complete, minimal in number, and measured in JSON."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.payloads.limits import (
    CODEC_BYTES,
    LIST_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SERVER_MESSAGE_BYTES,
    SERVER_PAYLOAD_BYTES,
    TooLargeToSend,
    split_by_size,
    wire_size,
)
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.random_cases import random_cases

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def on_the_wire(value: Any) -> int:
    """Return the size of a value as the payload converter writes it."""
    return len(DATA_CONVERTER.payload_converter.to_payload(value).data)


def test_our_limits_leave_half_of_the_servers() -> None:
    assert PAYLOAD_BYTES_MAX + CODEC_BYTES <= SERVER_PAYLOAD_BYTES / 2
    assert REQUEST_BYTES_MAX + CODEC_BYTES <= SERVER_MESSAGE_BYTES / 2


@random_cases(200)
@given(JSON_VALUES)
def test_a_value_is_as_large_as_the_converter_writes_it(value: Any) -> None:
    assert wire_size([value]) == on_the_wire([value])


@pytest.mark.parametrize(
    "text", ["ascii", "Müller", "模型", "\U0001f600", '"quoted"\n\x00']
)
def test_a_message_is_as_large_as_the_converter_writes_it(text: str) -> None:
    request = SignalRequest(
        workflow_id=text, signal="s", payload={text: [text, None, 1.5]}
    )

    assert wire_size(request) == on_the_wire(request)


@random_cases(200)
@given(
    st.lists(JSON_VALUES, max_size=30),
    st.integers(150, 2_000),
    st.none() | st.integers(1, 7),
)
def test_batches_are_the_items_in_order_and_each_fits(
    items: list[Any], bytes_max: int, count_max: int | None
) -> None:
    items = [item for item in items if on_the_wire([item]) <= bytes_max]

    batches = split_by_size(items, name=str, bytes_max=bytes_max, count_max=count_max)

    assert [item for batch in batches for item in batch] == items
    assert all(on_the_wire(batch) <= bytes_max for batch in batches)
    assert all(1 <= len(batch) <= (count_max or len(items)) for batch in batches)


@random_cases(200)
@given(
    st.lists(JSON_VALUES, max_size=30),
    st.integers(150, 2_000),
    st.none() | st.integers(1, 7),
)
def test_a_batch_ends_only_where_the_next_item_has_no_room(
    items: list[Any], bytes_max: int, count_max: int | None
) -> None:
    items = [item for item in items if on_the_wire([item]) <= bytes_max]

    batches = split_by_size(items, name=str, bytes_max=bytes_max, count_max=count_max)

    for batch, following in pairwise(batches):
        assert (
            len(batch) == count_max or on_the_wire([*batch, following[0]]) > bytes_max
        )


def test_an_item_that_fits_exactly_is_a_batch() -> None:
    item = "x" * 94  # with quotes and brackets: 98 bytes

    assert split_by_size([item, item], name=str, bytes_max=98) == [[item], [item]]
    with pytest.raises(TooLargeToSend):
        split_by_size([item], name=str, bytes_max=97)


def test_an_item_that_is_too_large_is_named_with_its_size_and_the_limit() -> None:
    signals = [
        SignalRequest(
            workflow_id=f"modelreplica/ml/r{n}", signal="set_template", payload="x" * n
        )
        for n in (10, 2_000_000)
    ]

    with pytest.raises(TooLargeToSend) as refused:
        split_by_size(signals, name=str)

    assert refused.value.what == "signal set_template to modelreplica/ml/r2000000"
    assert refused.value.limit == LIST_BYTES_MAX
    assert str(refused.value) == (
        f"{refused.value.what} is {wire_size(signals[1])} bytes of JSON; at most "
        f"{LIST_BYTES_MAX} can be sent"
    )


def test_a_full_batch_of_signals_is_a_payload_that_may_be_sent() -> None:
    signals = [
        SignalRequest(
            workflow_id=f"modelreplica/ml/r{n}",
            signal="set_template",
            payload={"spec": "é" * 5_000},
        )
        for n in range(400)
    ]

    batches = split_by_size(signals, name=str)

    assert len(batches) == -(-wire_size(signals) // LIST_BYTES_MAX)
    assert all(
        on_the_wire(SignalBatch(signals=batch)) <= PAYLOAD_BYTES_MAX
        for batch in batches
    )


def test_no_items_make_no_batch() -> None:
    assert split_by_size([], name=str) == []
