"""Every way in which the outcome of a selector may differ from that in Kubernetes, and why.

All of them err on the safe side: a selector is refused or does not match although Kubernetes would match. The other direction
has no entry and never gets one, because it pins a replica where its pods wait for ever.
"""

from dataclasses import dataclass

from scheduler.cel import SelectorError, compile_selector
from scheduler.model.devices import DeviceEntry

KUBERNETES_COST_MAX = 1_000_000
# What the oracle says when Kubernetes' own code panicked, which is no answer to compare with.
PANIC = "panic"


@dataclass(frozen=True)
class Difference:
    """A difference, recognised by what our refusal or error says."""

    why: str
    says: tuple[str, ...]


DIFFERENCES = [
    Difference(
        "tier 3: rarely written and expensive to evaluate faithfully",
        ("is not supported by the fleet scheduler", "optional syntax", "messages cannot be built"),
    ),
    Difference("Kubernetes takes a null that is indexed for an optional", ("operator [_] does not take null_type",)),
    Difference("a suffix or sign alone is zero to Kubernetes and a typo to people", ("is not a Kubernetes quantity",)),
    Difference("an exponent beyond 4,096 would be a denial of service", ("the exponent of",)),
    Difference("Kubernetes would change the device for every later selector", ("would change the device",)),
    Difference("numbers as Go programs write them, such as 0x1p-2 or 1_0", ("type conversion error from 'string' to 'double'",)),
    Difference("timestamps that Go reads although RFC 3339 does not allow them", ("is not an RFC 3339 timestamp",)),
    Difference("map keys that the CEL specification does not allow", ("unsupported key type", "repeated key")),
    Difference("a leading dot must not be read as the loop variable of the same name", ("is hidden by a variable of the same name",)),
    Difference("cel-go takes `.x` as the name of a loop variable and then cannot find it", ("macro must be a plain name",)),
    Difference("nesting is counted over all rules of the grammar together", ("nests deeper than",)),
]


def explains(reason: str) -> Difference | None:
    """The difference that a refusal or error belongs to."""
    return next((each for each in DIFFERENCES if any(part in reason for part in each.says)), None)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a selector on one device.

    Attributes:
        outcome: True, False, "error" or "refused".
        reason: our own words for the last two.

    """

    outcome: bool | str
    reason: str = ""


def verdicts_of(selector: str, devices: list[DeviceEntry]) -> list[Verdict]:
    """Decide here, with the limits of Kubernetes instead of the fleet's."""
    try:
        compiled = compile_selector(selector, max_cost=KUBERNETES_COST_MAX)
    except SelectorError as refusal:
        verdicts = [Verdict("refused", str(refusal))] * len(devices)
    else:
        matches = [compiled.match(device) for device in devices]
        verdicts = [Verdict("error", match.error) if match.error else Verdict(match.matched) for match in matches]
    assert not any("internal error" in verdict.reason for verdict in verdicts), f"{selector!r} met a bug: {verdicts}"
    return verdicts


def kubernetes_outcomes(answer: dict[str, object], devices: int) -> list[bool | str]:
    """The oracle's answer in the same words. A selector above the cost limit is refused by the API server."""
    if str(answer.get("error", "")).startswith(PANIC):
        return [PANIC] * devices
    if answer.get("error") or int(str(answer["max_cost"])) > KUBERNETES_COST_MAX:
        return ["refused"] * devices
    outcomes = answer["devices"]
    assert isinstance(outcomes, list)
    return ["error" if outcome.get("error") else bool(outcome["matched"]) for outcome in outcomes]


def disagreement(selector: str, device: DeviceEntry, verdict: Verdict, in_kubernetes: bool | str) -> str:
    """What is wrong with a verdict, or an empty text if it is right or a difference that is listed."""
    if verdict.outcome == in_kubernetes or (in_kubernetes == PANIC and verdict.outcome is not True):
        return ""
    if verdict.outcome in ("refused", "error") and explains(verdict.reason):
        return ""
    return f"{selector!r} on {device}: {verdict} here, {in_kubernetes} in Kubernetes"
