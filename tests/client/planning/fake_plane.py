"""A control plane of objects and a scheduler that answer from memory."""

from collections.abc import AsyncIterator
from typing import Any

from api_types.payloads.packing import pack
from api_types.resources.kinds import KindInfo
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from scheduler import Fleet, decision_state, pack_rows, write_policy
from tests.client.fleetfiles import Tree


class FakePlane:
    """Objects that describe themselves, and a scheduler that returns one replica of its
    ledger per page.
    """

    def __init__(
        self,
        fleet: Fleet,
        *trees: Tree,
        without_state: bool = False,
        changing: bool = False,
        incomplete_reads: int = 0,
        page: int = 1,
    ) -> None:
        self.fleet = fleet
        self.trees = trees
        self.without_state = without_state
        self.changing = changing
        self.incomplete_reads = incomplete_reads
        self.rebuilding_reads = 0
        self.page = page
        self.accounts: dict[str, Tree] = {}
        """The manifests that clusters with a capacity adapter report, by name."""
        self.asked: list[str] = []
        """The names of the queries."""

    async def list(self, kind: KindInfo, namespace: str | None) -> list[ListedObject]:
        del namespace
        found = [tree for tree in self.trees if tree["kind"] == kind.kind]
        return [
            ListedObject(
                Target.of(
                    kind, tree["metadata"].get("namespace"), tree["metadata"]["name"]
                ),
                tree,
            )
            for tree in found
        ]

    async def query(self, target: Target, name: str, after: str = "") -> Any:
        self.asked.append(name)
        if name == "account":
            return {"manifest": self.accounts[target.name]}
        if name == "policy":
            return {"policy": write_policy(self.fleet.options)}
        if name == "describe":
            self.rebuilding_reads -= 1
            return {"status": {"rebuilding": self.rebuilding_reads >= 0}}
        if self.changing:
            self.fleet.version += 1
        left = sorted(
            (entry for entry in self.fleet.entries() if entry.uid > after),
            key=lambda entry: entry.uid,
        )
        if self.incomplete_reads:
            self.incomplete_reads -= 1
            return {
                "version": self.fleet.version,
                "complete": False,
                "entries": pack(pack_rows([])),
                "after": "",
            }
        page = {
            "version": self.fleet.version,
            "entries": pack(pack_rows(left[: self.page])),
            "after": left[self.page - 1].uid if len(left) > self.page else "",
        }
        return (
            page
            if after or self.without_state
            else {**page, "state": pack(decision_state(self.fleet))}
        )

    async def rows(self, query: str) -> AsyncIterator[Any]:
        del query
        nothing: tuple[Any, ...] = ()
        for row in nothing:
            yield row
