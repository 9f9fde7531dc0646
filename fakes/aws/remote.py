"""A fake AWS account in its own process, and its control from another process."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from fakes.aws.faults import AwsFault, VpcLeftover
from fakes.aws.ledger import AwsCall

_SECONDS = 60.0


class RemoteAws:
    """The account at an address, with the methods of `fake.FakeAws`.

    Raise OSError if nothing answers.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        about = self._ask("about")
        self.account, self.region, self.credential = (
            str(about["account"]),
            str(about["region"]),
            str(about["credential"]),
        )

    def ledger(self, operation: str = "", service: str = "") -> list[AwsCall]:
        """Return the calls in order, if given only those of an operation or a service."""
        found = [AwsCall(**each) for each in self._ask("ledger")]
        return [
            each
            for each in found
            if operation in ("", each.operation) and service in ("", each.service)
        ]

    def fault(self, *faults: AwsFault) -> None:
        """Plan faults, after the ones that are planned already."""
        self._ask("fault", {"faults": [each.document() for each in faults]})

    def faults_left(self) -> list[AwsFault]:
        """Return the faults that are not used up."""
        return [AwsFault.parse(each) for each in self._ask("faults")]

    def remains(self) -> list[str]:
        """Return all objects that did not exist at the start, as `service/kind/id`."""
        return [str(each) for each in self._ask("remains")]

    def leave(self, cluster: str, leftover: VpcLeftover) -> str:
        """Create a leftover of a cluster now. Return its id or name."""
        return str(self._ask("leave", {"cluster": cluster, "leftover": leftover}))

    def reset(self) -> None:
        """Return to the start."""
        self._ask("reset")

    def revoke(self) -> None:
        """Refuse all calls with the credential from now on."""
        self._ask("revoke")

    def restore(self) -> None:
        """Accept the credential again."""
        self._ask("restore")

    def plant_reservation(
        self,
        reservation: str,
        zone: str,
        instance_type: str,
        count: int,
        state: str = "active",
    ) -> None:
        """Add a capacity block with so many machines to the account, or change it."""
        given = {
            "reservation": reservation,
            "zone": zone,
            "instance_type": instance_type,
            "count": count,
            "state": state,
        }
        self._ask("plant-reservation", given)

    def plant_endpoint(
        self, cluster: str, endpoint: str, certificate_authority: str
    ) -> None:
        """Set the address and CA certificate (PEM in Base64) of a cluster."""
        self._ask(
            "plant-endpoint",
            {
                "cluster": cluster,
                "endpoint": endpoint,
                "certificate_authority": certificate_authority,
            },
        )

    def _ask(self, command: str, given: Mapping[str, Any] | None = None) -> Any:
        body = json.dumps(dict(given or {})).encode()
        request = urllib.request.Request(  # noqa: S310 -- ours
            f"{self.url}/_fake/{command}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 -- ours
            return json.load(answer)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[RemoteAws]:
    """Run `python -m fakes.aws` as a child until the block ends.

    Raise RuntimeError if it fails.
    """
    command = [sys.executable, "-m", "fakes.aws", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line:
                raise RuntimeError("the fake AWS did not start: its errors are above")
            yield RemoteAws(json.loads(line)["url"])
        finally:
            child.terminate()
