"""All calls to a fake cloud, for assertions such as "exactly one CreateVpc"."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

HIDDEN = "(not recorded)"
# The product never sends these characters, so a test that searches the ledger for
# secrets finds none by accident.
_SECRET = ("secret", "password", "sessiontoken")


@dataclass(frozen=True)
class AwsCall:
    """One call.

    `answer_id` is the id or name of the created object, `error` the code of a refusal,
    and `lost` means that the answer was cut off.
    """

    number: int
    service: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    principal: str = ""
    answer_id: str = ""
    error: str = ""
    lost: bool = False
    replayed: bool = False

    @property
    def effective(self) -> bool:
        """Whether the call had an effect: not refused, and not repeated by its token."""
        return not self.error and not self.replayed

    def document(self) -> dict[str, Any]:
        """The entry as JSON."""
        return asdict(self)


class AwsLedger:
    """Entries in the order of the calls."""

    def __init__(self) -> None:
        self.entries: list[AwsCall] = []

    def add(
        self, service: str, operation: str, parameters: Mapping[str, Any], **more: Any
    ) -> AwsCall:
        """Record a call. `more` are fields of Entry."""
        entry = AwsCall(
            len(self.entries) + 1, service, operation, _public(parameters), **more
        )
        self.entries.append(entry)
        return entry


def _public(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: HIDDEN
            if any(word in str(key).lower() for word in _SECRET)
            else _public(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_public(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
