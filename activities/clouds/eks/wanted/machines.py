"""Facts about the machine types of EC2: GPUs, processors, and network cards for EFA."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

EFA, EFA_ONLY, PLAIN = "efa", "efa-only", "interface"


@dataclass(frozen=True)
class CardInterface:
    """The network interface of a node on one network card.

    `type` is the type of interface at EC2.
    """

    card: int
    device: int
    type: str


@dataclass(frozen=True)
class Ec2Machine:
    """A machine type. None stands for an unknown value."""

    gpus: int | None = None
    arm: bool | None = None
    interfaces: tuple[CardInterface, ...] = ()
    """The interfaces of a node with EFA, or none if they are unknown."""


# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
CARDS: Final[Mapping[str, int]] = {
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
}
_ONE_GPU = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
GPUS: Final[Mapping[str, int]] = {
    **dict.fromkeys(CARDS, 8),
    **{f"{family}.{size}": 1 for family in ("g5", "g6", "g6e") for size in _ONE_GPU},
    **{
        f"{family}.{size}": count
        for family in ("g5", "g6", "g6e")
        for size, count in (("12xlarge", 4), ("24xlarge", 4), ("48xlarge", 8))
    },
}
# Names of families with ARM processors, such as m7g, c7gn, g5g and p6e-gb200.
_ARM = re.compile(r"a1\.|[a-z]+[0-9]+g[a-z]*\.|(u-)?p[0-9]+e-gb[0-9]+")


def known_machine(name: str) -> Ec2Machine:
    """Return a machine type from the table of known types."""
    cards = CARDS.get(name, 0)
    return Ec2Machine(
        GPUS.get(name), _ARM.match(name) is not None, interfaces_on(cards)
    )


def described_machine(item: Mapping[str, Any]) -> Ec2Machine:
    """Return a type as EC2 describes it."""
    gpus = item.get("GpuInfo", {}).get("Gpus", ())
    processors = item.get("ProcessorInfo", {}).get("SupportedArchitectures")
    return Ec2Machine(
        sum(int(each.get("Count", 0)) for each in gpus) if gpus else None,
        "arm64" in processors if processors else None,
        _described(item.get("NetworkInfo", {})),
    )


def interfaces_on(cards: int) -> tuple[CardInterface, ...]:
    """Return the interfaces of a node with so many equal network cards.

    Only the first interface has addresses, because the first boot of a node would wait
    for the addresses of the others.
    """
    return tuple(
        CardInterface(card, min(card, 1), EFA_ONLY if card else EFA)
        for card in range(cards)
    )


def _described(network: Mapping[str, Any]) -> tuple[CardInterface, ...]:
    """Return the interfaces for the network cards that EC2 describes.

    A card that takes one interface has only the device 0. If one card less supports EFA,
    the first card has the addresses and no EFA.
    """
    cards: Sequence[Mapping[str, Any]] = network.get("NetworkCards", ())
    count = int(
        network.get("EfaInfo", {}).get("MaximumEfaInterfaces")
        or network.get("MaximumNetworkCards")
        or 0
    )
    if not network.get("EfaSupported") or not count:
        return ()
    if len(cards) not in (count, count + 1) or count == 1:
        return interfaces_on(count)
    first = PLAIN if len(cards) > count else EFA
    found = [CardInterface(0, 0, first)]
    for each in cards[1:]:
        device = 1 if int(each.get("MaximumNetworkInterfaces", 2)) > 1 else 0
        found.append(CardInterface(int(each["NetworkCardIndex"]), device, EFA_ONLY))
    return tuple(found)


def to_text(interfaces: Sequence[CardInterface]) -> str:
    """Return interfaces as a fact of an object."""
    return " ".join(f"{each.card}:{each.device}:{each.type}" for each in interfaces)


def from_text(text: str) -> tuple[CardInterface, ...]:
    """Return the interfaces of a fact. A malformed fact has none."""
    found = []
    for each in text.split():
        card, _, rest = each.partition(":")
        device, _, kind = rest.partition(":")
        if not (card.isdecimal() and device.isdecimal()):
            return ()
        found.append(CardInterface(int(card), int(device), kind))
    return tuple(found)
