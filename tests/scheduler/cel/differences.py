"""The differences between the outcome of a selector here and in Kubernetes.

All of them are safe: a selector is refused or does not match although Kubernetes would
match. The other direction has no entry, because it pins a replica where its pods wait
without end.
"""

from dataclasses import dataclass

from scheduler.cel import SelectorError, compile_selector
from scheduler.model.devices import DeviceEntry

KUBERNETES_COST_MAX = 1_000_000
# The oracle's answer if the code of Kubernetes panicked, which is nothing to compare
# with.
PANIC = "panic"


@dataclass(frozen=True)
class Difference:
    """A difference, recognised by the text of our refusal or error."""

    why: str
    says: tuple[str, ...]


DIFFERENCES = [
    Difference(
        "protobuf messages, which describe no property of a device",
        ("messages cannot be built",),
    ),
    Difference(
        "functions of an authorizer, of which a selector has none",
        ("device selectors have no authorizer",),
    ),
    Difference(
        "adding to a variable that is an empty list changes the variable in Kubernetes",
        ("would change a variable that is an empty list",),
    ),
    Difference(
        "a list of quantities in an optional variable, which Kubernetes loses if it was added up",
        ("from a variable or branch that is optional",),
    ),
    Difference(
        "a format with more than a hundred digits",
        ("a precision above 100 is not supported",),
    ),
    Difference(
        "Go sorts many elements with equal keys in an order that is an accident",
        ("has no defined order in Kubernetes",),
    ),
    Difference(
        "a URL with escaped bytes that are no text",
        ("a part of the URL is no UTF-8 text",),
    ),
    Difference(
        "Kubernetes gives an optional instead of a bool for has() in a branch",
        ("has() of an optional path cannot be a branch",),
    ),
    Difference(
        "a suffix or sign alone is zero to Kubernetes and a typo to people",
        ("is not a Kubernetes quantity",),
    ),
    Difference(
        "an exponent beyond 4,096 would be a denial of service", ("the exponent of",)
    ),
    Difference(
        "Kubernetes would change the device for every later selector",
        ("would change the device",),
    ),
    Difference(
        "numbers as Go programs write them, such as 0x1p-2 or 1_0",
        ("type conversion error from 'string' to 'double'",),
    ),
    Difference(
        "timestamps that Go reads although RFC 3339 does not allow them",
        ("is not an RFC 3339 timestamp",),
    ),
    Difference(
        "map keys that the CEL specification does not allow",
        ("unsupported key type", "repeated key"),
    ),
    Difference(
        "a leading dot must not be read as the loop variable of the same name",
        ("is hidden by a variable of the same name",),
    ),
    Difference(
        "cel-go takes `.x` as the name of a loop variable and then cannot find it",
        ("macro must be a plain name",),
    ),
    Difference(
        "nesting is counted over all rules of the grammar together",
        ("nests deeper than",),
    ),
]


def explains(reason: str) -> Difference | None:
    """Return the difference that a refusal or error belongs to."""
    return next(
        (each for each in DIFFERENCES if any(part in reason for part in each.says)),
        None,
    )


@dataclass(frozen=True)
class Verdict:
    """The outcome of a selector on one device.

    Attributes:
        outcome: True, False, "error" or "refused".
        reason: the message of the last two.
    """

    outcome: bool | str
    reason: str = ""


def verdicts_of(selector: str, devices: list[DeviceEntry]) -> list[Verdict]:
    """Evaluate here, with the limits of Kubernetes instead of the fleet's."""
    try:
        compiled = compile_selector(selector, max_cost=KUBERNETES_COST_MAX)
    except SelectorError as refusal:
        verdicts = [Verdict("refused", str(refusal))] * len(devices)
    else:
        matches = [compiled.match(device) for device in devices]
        verdicts = [
            Verdict("error", match.error) if match.error else Verdict(match.matched)
            for match in matches
        ]
    assert not any("internal error" in verdict.reason for verdict in verdicts), (
        f"{selector!r} met a bug: {verdicts}"
    )
    return verdicts


def kubernetes_outcomes(answer: dict[str, object], devices: int) -> list[bool | str]:
    """Return the oracle's answer as outcomes.

    The API server refuses a selector above the limit.
    """
    if str(answer.get("error", "")).startswith(PANIC):
        return [PANIC] * devices
    if answer.get("error") or int(str(answer["max_cost"])) > KUBERNETES_COST_MAX:
        return ["refused"] * devices
    outcomes = answer["devices"]
    assert isinstance(outcomes, list)
    return [
        "error" if outcome.get("error") else bool(outcome["matched"])
        for outcome in outcomes
    ]


def disagreement(
    selector: str, device: DeviceEntry, verdict: Verdict, in_kubernetes: bool | str
) -> str:
    """Return a description of an unlisted difference, or an empty text."""
    if verdict.outcome == in_kubernetes or (
        in_kubernetes == PANIC and verdict.outcome is not True
    ):
        return ""
    if verdict.outcome in ("refused", "error") and explains(verdict.reason):
        return ""
    return f"{selector!r} on {device}: {verdict} here, {in_kubernetes} in Kubernetes"
