"""The identities and places that an administrator lets credentials use.

A credential in a Secret is untrusted input. By itself it contains everything that it
needs. The worker's own identity, and tokens in files or at URLs, belong to the worker:
a credential that uses them could act as the worker in the account of somebody else,
read a file, or reach an address. So settings name every account, file and URL.
"""

from dataclasses import dataclass

from api_types.errors import CredentialsInvalid
from api_types.sections.clouds import ProvisionSettings

ACCOUNTS, FILES, URLS = (
    "provision.workerIdentityAccounts",
    "provision.tokenFiles",
    "provision.tokenUrls",
)


@dataclass(frozen=True)
class PermittedSources:
    """AWS accounts and Google projects for the worker's identity; files and URLs."""

    accounts: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()

    def check_account(self, account: str, field: str) -> None:
        """Raise CredentialsInvalid unless the worker's identity may act in an account."""
        if account not in self.accounts:
            raise CredentialsInvalid(
                f"{field} makes the credential use the worker's own identity in account or "
                f'project "{account}", which {ACCOUNTS} does not name: an administrator of '
                "the control plane adds it there, or use another credential"
            )

    def check_file(self, path: str, field: str) -> None:
        """Raise CredentialsInvalid unless tokens may be read from this file."""
        if path not in self.files:
            raise CredentialsInvalid(
                f'{field} names the file "{path[:200]}", which {FILES} does not name: an '
                "administrator of the control plane adds it there"
            )

    def check_url(self, url: str, field: str) -> None:
        """Raise CredentialsInvalid unless tokens may be read from this URL."""
        if url not in self.urls:
            raise CredentialsInvalid(
                f'{field} names the URL "{url[:200]}", which {URLS} does not name: an '
                "administrator of the control plane adds it there"
            )


def permitted_sources(settings: ProvisionSettings) -> PermittedSources:
    return PermittedSources(
        frozenset(settings.worker_identity_accounts),
        frozenset(settings.token_files),
        frozenset(settings.token_urls),
    )
