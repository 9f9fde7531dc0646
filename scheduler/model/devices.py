"""The device that a selector reads: one entry of an InferenceClass, as plain data.

It is apart from the other types of the scheduler because CEL evaluation, the fleet view and the explanation all need it and
nothing else. Entries with equal content have equal digests wherever they were published, so one evaluation of a selector
serves every cluster that uses the same class.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """One kind of device on a node of a pool.

    Attributes:
        name: name of the entry in its class.
        claim: how pods get it: `DRA`, `DevicePlugin` or `Synthetic`.
        driver: DRA driver name; also the domain of attribute and capacity names written without one.
        device_class: DeviceClass to claim from (`DRA` only), else empty.
        count: devices per node, 0 or more.
        attributes: `(name, type, value)` sorted by name; type is `string`, `version`, `bool` or `int`.
        capacity: `(name, Kubernetes quantity text)` sorted by name.
        resource_name: extended resource (`DevicePlugin` only), else empty.

    """

    name: str
    claim: str
    driver: str
    device_class: str
    count: int
    attributes: tuple[tuple[str, str, object], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    resource_name: str = ""
    # What a selector can see; `count`, `claim` and the names are invisible to CEL and stay out, so more entries share a result.
    selector_digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Digest what selectors see, once, since every evaluation is cached by it."""
        visible = json.dumps([self.driver, self.attributes, self.capacity], separators=(",", ":"), default=str)
        digest = hashlib.blake2b(visible.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        object.__setattr__(self, "selector_digest", digest)
