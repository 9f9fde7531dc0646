"""A fake AWS account in a process of its own, and what another process tells it."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.clouds.aws.faults import Fault, Leftover
from testbed.clouds.aws.ledger import Entry

_SECONDS = 60.0


class RemoteAws:
    """The account behind an address: the same methods as `fake.FakeAws`, by HTTP. Raises OSError where nothing answers there."""

    def __init__(self, url: str) -> None:
        self.url = url
        about = self._ask("about")
        self.account, self.region, self.credential = str(about["account"]), str(about["region"]), str(about["credential"])

    def ledger(self, operation: str = "", service: str = "") -> list[Entry]:
        """Give the calls that came, in order; only those of an operation or of a service where one is given."""
        found = [Entry(**each) for each in self._ask("ledger")]
        return [each for each in found if operation in ("", each.operation) and service in ("", each.service)]

    def fault(self, *faults: Fault) -> None:
        """Plan faults, after those that are planned already."""
        self._ask("fault", {"faults": [each.document() for each in faults]})

    def faults_left(self) -> list[Fault]:
        """Give the faults that have not been used up."""
        return [Fault.parse(each) for each in self._ask("faults")]

    def remains(self) -> list[str]:
        """Give all that exists and did not at the start, as `service/kind/id`, in order."""
        return [str(each) for each in self._ask("remains")]

    def leave(self, cluster: str, leftover: Leftover) -> str:
        """Let a cluster leave something behind now; gives its id or name."""
        return str(self._ask("leave", {"cluster": cluster, "leftover": leftover}))

    def reset(self) -> None:
        """Go back to the start."""
        self._ask("reset")

    def revoke(self) -> None:
        """Refuse all calls with the credential from now on."""
        self._ask("revoke")

    def restore(self) -> None:
        """Accept the credential again."""
        self._ask("restore")

    def plant_reservation(self, reservation: str, zone: str, instance_type: str, count: int, state: str = "active") -> None:
        """Let the account have a capacity block of so many machines, or change the one that it has."""
        given = {"reservation": reservation, "zone": zone, "instance_type": instance_type, "count": count, "state": state}
        self._ask("plant-reservation", given)

    def plant_endpoint(self, cluster: str, endpoint: str, certificate_authority: str) -> None:
        """Let a cluster hand out this address and CA certificate (PEM in Base64)."""
        self._ask("plant-endpoint", {"cluster": cluster, "endpoint": endpoint, "certificate_authority": certificate_authority})

    def _ask(self, command: str, given: Mapping[str, Any] | None = None) -> Any:
        body = json.dumps(dict(given or {})).encode()
        request = urllib.request.Request(f"{self.url}/_fake/{command}", body, {"Content-Type": "application/json"})  # noqa: S310 -- ours
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- ours
            return json.load(answer)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[RemoteAws]:
    """Run `python -m testbed.clouds.aws` as a child until the block ends. Raises RuntimeError where it does not start."""
    command = [sys.executable, "-m", "testbed.clouds.aws", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line:
                raise RuntimeError("the fake AWS did not start: its errors are above")
            yield RemoteAws(json.loads(line)["url"])
        finally:
            child.terminate()
