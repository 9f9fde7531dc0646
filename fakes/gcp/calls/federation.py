"""Workload identity federation, impersonation, and the identity of a machine.

Each returns a principal, for which `GcpTokens` issues an access token. Texts of errors
are Google's.
"""

from dataclasses import dataclass, field

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
POOL_NUMBER = "100000000001"
IMPERSONATION_DENIED = (
    "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not "
    "exist)."
)
_POOL = f"//iam.googleapis.com/projects/{POOL_NUMBER}/locations/global/workloadIdentityPools"
_NO_TARGET = (
    'The target service indicated by the "audience" parameters is invalid. This might '
    "either be because the pool or provider is disabled or deleted or because it doesn't "
    "exist."
)


class ExchangeRefused(Exception):
    """No token is exchanged. `error` is the code of OAuth2, the text its description."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(text)
        self.error = error


@dataclass
class Federation:
    """Pools with their accepted tokens, and the allowed impersonations."""

    subjects: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Subjects by audience and token."""
    impersonators: set[tuple[str, str]] = field(default_factory=set)
    """Principals with the accounts that they may impersonate."""
    worker: str = ""
    """The account of the machine, or empty without one."""

    def accept(self, pool: str, token: str, subject: str) -> tuple[str, str]:
        """Accept a token of an identity provider.

        Return the audience and the principal.
        """
        audience = f"{_POOL}/{pool}/providers/{pool}"
        self.subjects[audience, token] = subject
        return audience, _principal(audience, subject)

    def exchange(self, form: dict[str, str]) -> str:
        """Return the principal of a token exchange. Raise ExchangeRefused."""
        if form.get("grant_type") != EXCHANGE:
            raise ExchangeRefused("unsupported_grant_type", "Invalid grant_type")
        audience, token = form.get("audience", ""), form.get("subject_token", "")
        if audience not in {each for each, _ in self.subjects}:
            raise ExchangeRefused("invalid_target", _NO_TARGET)
        if (audience, token) not in self.subjects:
            raise ExchangeRefused("invalid_grant", "The given credential is rejected.")
        return _principal(audience, self.subjects[audience, token])


def _principal(audience: str, subject: str) -> str:
    pool = audience.partition("/providers/")[0]
    return f"principal:{pool}/subject/{subject}"
