"""The device that a selector reads: one entry of an InferenceClass, as plain data.

The type has its own module because CEL, the fleet and the explanations need it and no
other type. Entries with equal content have equal digests wherever they are published,
so one evaluation of a selector serves every cluster with the same class.
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
        claim: how pods get the device: `DRA`, `DevicePlugin`, `Slot` or `Synthetic`.
        driver: DRA driver name; also the domain of attribute and capacity names without
            one.
        device_class: DeviceClass to claim from (`DRA` only), else empty.
        count: devices per node, 0 or more.
        attributes: `(name, type, value)` sorted by name; type is `string`, `version`,
            `bool` or `int`.
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
    # The digest covers only the fields that CEL can read. `count`, `claim` and the
    # names are not visible to CEL and are left out, so that more entries share a
    # result.
    selector_digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the digest once, because every evaluation is cached by it."""
        visible = json.dumps(
            [self.driver, self.attributes, self.capacity],
            separators=(",", ":"),
            default=str,
        )
        digest = hashlib.blake2b(
            visible.encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        object.__setattr__(self, "selector_digest", digest)
