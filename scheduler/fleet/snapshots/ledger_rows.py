"""Pack ledger entries into columns.

Shared values are written once; values that can be derived are not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api_types.names import replica_name
from scheduler.model.decision import EnginePlacement
from scheduler.model.identity import replica_uid
from scheduler.model.inputs import LedgerEntry
from scheduler.model.wire import codec

_READY, _SERVING = 1, 2


class _Table:
    """Values by number, each written once. Known objects are not hashed again."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self._seen: dict[int, tuple[Any, int]] = {}

    def number(self, value: Any) -> int:
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = (
                value,
                self.numbers.setdefault(value, len(self.numbers)),
            )
        return known[1]


def pack_rows(entries: Sequence[LedgerEntry]) -> dict[str, Any]:
    """Return a tree from which `unpack_rows` makes equal entries in the same order."""
    texts, placed, rest = _Table(), _Table(), _Table()
    rows = [_row(entry, texts, placed, rest) for entry in entries]
    write = codec(tuple[EnginePlacement, ...])[0]
    return {
        "texts": list(texts.numbers),
        "stamps": [write(engines) for engines in placed.numbers],
        "rest": list(rest.numbers),
        "columns": [list(column) for column in zip(*rows, strict=True)],
    }


def _row(entry: LedgerEntry, texts: _Table, placed: _Table, rest: _Table) -> list[Any]:
    identity = (entry.namespace, entry.deployment, entry.cluster, entry.index)
    made_name = replica_name(*identity, entry.name_counter)
    made_uid = replica_uid(*identity[:2], entry.origin, *identity[2:])
    return [
        "" if entry.uid == made_uid else entry.uid,
        texts.number(entry.origin[0]),
        texts.number(entry.origin[1]),
        texts.number(entry.namespace),
        texts.number(entry.deployment),
        texts.number(entry.cluster),
        entry.index,
        "" if entry.name == made_name else entry.name,
        placed.number(entry.engines),
        texts.number(entry.state),
        entry.priority,
        entry.since,
        _READY * entry.ready + _SERVING * entry.serving,
        texts.number(entry.template),
        entry.name_counter,
        entry.min_available,
        # Most entries have none of these, and the entries of one deployment share them.
        rest.number(
            (
                entry.reuse,
                entry.labels,
                entry.avoids,
                entry.nominated_for,
                entry.priority_class,
                placed.number(entry.held) if entry.held else -1,
                entry.held_until,
                entry.after,
            )
        ),
    ]


def unpack_rows(tree: Mapping[str, Any]) -> Iterator[LedgerEntry]:
    """Yield the entries that `pack_rows` wrote."""
    texts: list[str] = tree["texts"]
    read = codec(tuple[EnginePlacement, ...])[1]
    placed = [read(engines) for engines in tree["stamps"]]
    rest = [_rest(item) for item in tree["rest"]]
    for row in zip(*tree["columns"], strict=True):
        (
            uid,
            owner_uid,
            request,
            namespace,
            deployment,
            cluster,
            index,
            name,
            engines,
        ) = row[:9]
        state, priority, since, health, template, counter, least, more = row[9:]
        identity = (texts[namespace], texts[deployment], texts[cluster], index)
        origin = (texts[owner_uid], texts[request])
        reuse, labels, avoids, nominated_for, priority_class, *later = rest[more]
        held, held_until, after = later
        yield LedgerEntry(
            uid or replica_uid(*identity[:2], origin, *identity[2:]),
            *identity,
            name=name or replica_name(*identity, counter),
            engines=placed[engines],
            state=texts[state],
            priority=priority,
            since=since,
            ready=bool(health & _READY),
            serving=bool(health & _SERVING),
            template=texts[template],
            name_counter=counter,
            reuse=reuse,
            labels=labels,
            min_available=least,
            avoids=avoids,
            nominated_for=nominated_for,
            origin=origin,
            priority_class=priority_class,
            held=placed[held] if held >= 0 else (),
            held_until=held_until,
            after=after,
        )


def _rest(item: Sequence[Any]) -> tuple[Any, ...]:
    # Rows of an older scheduler end earlier.
    reuse, labels, avoids, nominated_for, *others = item
    defaults: tuple[Any, ...] = ("", -1, "", ())
    priority_class, held, held_until, after = (*others, *defaults[len(others) :])
    return (
        tuple((pool, nodes) for pool, nodes in reuse),
        tuple((key, value) for key, value in labels),
        tuple(
            (key, tuple(namespaces), tuple((a, b) for a, b in wanted))
            for key, namespaces, wanted in avoids
        ),
        (nominated_for[0], nominated_for[1]) if nominated_for else None,
        priority_class,
        held,
        held_until,
        tuple(after),
    )
