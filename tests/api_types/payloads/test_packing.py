"""Shared, packed and compacted values are restored unchanged, and are small."""

import base64
import json
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api_types.base import Message
from api_types.messages.scheduling import PlacementResponse, ReplicaPlacement
from api_types.payloads.limits import wire_size
from api_types.payloads.packing import (
    EXPANDED_BYTES_MAX,
    PLAIN_BYTES_MAX,
    Compact,
    compact,
    expand,
    pack,
    share,
    unpack,
    unshare,
)
from fleet_client.temporal.converter import DATA_CONVERTER
from tests.random_cases import random_cases

# A few different texts, so that subtrees repeat. Some are too short for a reference.
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "x" * 39,
        "x" * 60,
        "device.attributes['gpu.nvidia.com'].productName == 'H100'",
    ]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([0.0, 1.0]) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=60,
)


def a_tree(replica: int, text: str) -> dict[str, Any]:
    """The shape of a ledger entry: an identity, and parts that all replicas have."""
    return {
        "uid": f"{replica:036d}",
        "engines": [
            {
                "members": [
                    {"pool": f"pool-{replica % 3}", "requests": [{"selectors": [text]}]}
                ]
            }
        ],
    }


class Holder(Message):
    """A message with a small list and a list that may be large."""

    items: Compact[list[dict[str, Any]]]
    name: str = ""


@random_cases(300)
@given(TREES)
def test_a_shared_tree_comes_back_with_the_same_types(tree: Any) -> None:
    sent = json.loads(json.dumps(share(tree)))

    assert json.dumps(unshare(sent)) == json.dumps(tree)
    assert json.dumps(unshare(unpack(pack(share(tree))))) == json.dumps(tree)


def test_repeated_values_are_written_once() -> None:
    text = "device.capacity['gpu.nvidia.com'].memory >= quantity('80Gi')"
    written = json.dumps(share([a_tree(replica, text) for replica in range(100)]))

    assert written.count(text) == 1
    assert written.count("pool-1") == 1


def test_a_small_value_stays_readable_and_a_large_one_is_packed() -> None:
    few = [a_tree(replica, "cel") for replica in range(10)]
    many = [a_tree(replica, "cel" * 10_000) for replica in range(1_000)]

    assert Holder(items=few).wire()["items"] == few == compact(few)
    assert list(Holder(items=many, name="n").wire()["items"]) == ["$packed"]
    assert wire_size(Holder(items=many)) < PLAIN_BYTES_MAX < wire_size(many)
    assert expand(compact(many)) == many


@pytest.mark.slow
def test_a_compact_field_is_read_in_full_after_the_converter() -> None:
    converter = DATA_CONVERTER.payload_converter
    for size in (1, 1_000):
        held = Holder(
            items=[a_tree(replica, "cel" * 100) for replica in range(size)], name="n"
        )
        assert converter.from_payload(converter.to_payload(held), Holder) == held
        assert Holder.model_validate(held.wire()) == held


@pytest.mark.slow
def test_a_response_with_a_thousand_large_entries_is_one_payload_and_unchanged() -> (
    None
):
    placements = [
        ReplicaPlacement(
            uid=f"{n:036d}",
            name="r" * 63,
            cluster=f"c{n}",
            index=n,
            action="Create",
            entry=a_tree(n, "cel" * 10_000),
        )
        for n in range(1_000)
    ]
    answer = PlacementResponse(
        request_id="r", epoch=1, generation=1, placements=placements
    )

    assert wire_size(answer.wire()) < PLAIN_BYTES_MAX
    assert PlacementResponse.model_validate(answer.wire()) == answer


def b85(data: bytes) -> str:
    return base64.b85encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    "packed",
    [
        None,
        7,
        "",
        "nonsense",
        "\u00e4",
        base64.b85encode(b"not compressed").decode(),
        b85(b"not JSON"),
        b85(b'{"shared":[],"tree":[]}')[:-5],
        pack([1]),
        pack({"tree": []}),
        pack({"shared": [], "tree": [{"$shared": 5}]}),
        pack({"shared": [], "tree": [{"$shared": "x"}]}),
        b85(b'{"shared":[],"tree":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ],
    ids=lambda packed: str(packed)[:16],
)
def test_a_field_that_cannot_be_unpacked_is_a_validation_error(
    packed: Any,
) -> None:
    """The receiver reports a ValidationError.

    Any other error would stop the receiving workflow for good.
    """
    with pytest.raises(ValidationError, match=r"items\n.*cannot be unpacked"):
        Holder.model_validate({"items": {"$packed": packed}})


@pytest.mark.slow
def test_a_short_text_that_unpacks_to_gigabytes_is_refused_before_it_takes_the_memory() -> (
    None
):
    bomb = b85(b'{"shared":[],"tree":[' + b" " * 16 * EXPANDED_BYTES_MAX + b"]}")
    assert len(bomb) < PLAIN_BYTES_MAX * 16
    tracemalloc.start()
    with pytest.raises(ValidationError, match="or has more than 33554432 bytes"):
        Holder.model_validate({"items": {"$packed": bomb}})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * EXPANDED_BYTES_MAX


def test_references_that_expand_to_billions_of_values_are_rejected() -> None:
    shared: list[Any] = [[1] * 10]
    shared += [[{"$shared": number}] * 10 for number in range(9)]
    with pytest.raises(ValidationError, match="at most 16777216 are read"):
        Holder.model_validate(
            {"items": {"$packed": pack({"shared": shared, "tree": [{"$shared": 9}]})}}
        )


@pytest.mark.slow
def test_a_short_text_of_many_small_values_is_refused_before_they_are_made() -> None:
    bomb = b85(b'{"shared":[],"tree":[' + b",".join([b"[]"] * 10_000_000) + b"]}")
    assert len(bomb) < PLAIN_BYTES_MAX
    tracemalloc.start()
    with pytest.raises(ValidationError, match="at most 1000000 are read"):
        Holder.model_validate({"items": {"$packed": bomb}})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * EXPANDED_BYTES_MAX


@pytest.mark.slow
def test_references_that_double_line_by_line_are_refused_before_their_number_takes_the_memory() -> (
    None
):
    shared: list[Any] = [
        [1, 1],
        *([{"$shared": number}, {"$shared": number}] for number in range(50_000)),
    ]
    packed = pack({"shared": shared, "tree": []})
    tracemalloc.start()
    with pytest.raises(ValidationError, match="at most 16777216 are read"):
        Holder.model_validate({"items": {"$packed": packed}})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * EXPANDED_BYTES_MAX
