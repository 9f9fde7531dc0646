"""The settings of the HTTP front."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from api_types.sections.base import Section
from api_types.setting_types import Address, OptionalAddress, OptionalObjectName, Seconds

SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Those by which nobody signs who can only check: none has a shared secret."""


class FrontSettings(Section):
    """The HTTP front, `modelplane-front`: a Kubernetes API for tenants and their tools."""

    listen: Address = "127.0.0.1:8443"
    access_file: Path | None = Field(
        default=None, description="Users with hashes of their tokens, and rules; only loopback may do without."
    )
    tls_cert: Path | None = None
    tls_key: Path | None = None
    webhook_keys: Path | None = Field(default=None, description="Programs whose signed requests scale deployments, with their keys.")
    webhook_audience: OptionalObjectName = Field(
        default="", description="Name of this control plane in what these programs sign, such as the host that they call."
    )
    metrics_max_age: Seconds = Field(default=120, description="Seconds after which numbers told of a deployment are not given.")
    scrape_file: Path | None = Field(default=None, description="Deployments whose numbers are scraped, each with addresses and metrics.")
    scrape_interval: Seconds = Field(default=15, ge=1, description="Seconds between two scrapes of a deployment.")
    scrape_ca_file: Path | None = Field(
        default=None, description="Authorities that certificates of these addresses are checked with, in PEM; without it, the machine's."
    )
    scaler_listen: OptionalAddress = Field(default="", description="Address of the external scaler of KEDA; empty: there is none.")
    scaler_client_ca: Path | None = Field(
        default=None, description="Certificates of the authorities that sign the certificates of KEDA, in PEM."
    )
    client_ca: Path | None = Field(
        default=None, description="Authorities that sign certificates of users: the common name is the user, organizations are its groups."
    )
    request_header_ca: Path | None = Field(
        default=None, description="Authorities that sign certificates of API servers with an APIService for this front, in PEM."
    )
    request_header_names: tuple[str, ...] = Field(
        default=("front-proxy-client",), min_length=1, description="Common names of these certificates."
    )
    review_kubeconfig: str = Field(
        default="", description="Kubeconfig of the API server that says what users may do, or `in-cluster`; empty: the access file alone."
    )
    oidc_issuer_url: str = Field(
        default="", max_length=2048, description="Issuer of OpenID Connect whose tokens are taken, as its tokens name it; empty: none."
    )
    oidc_client_id: str = Field(default="", max_length=1024, description="Audience that its tokens must be for.")
    oidc_ca_file: Path | None = Field(
        default=None, description="Authorities that the issuer's certificate is checked with, in PEM; without it, those of the machine."
    )
    oidc_username_claim: str = Field(default="sub", min_length=1, max_length=256, description="Claim with the name of the user.")
    oidc_username_prefix: str = Field(
        default="",
        max_length=128,
        description="What is put before it; empty: the issuer and #, but for the claim email; `-`: nothing.",
    )
    oidc_groups_claim: str = Field(default="", max_length=256, description="Claim with the groups of the user; empty: they have none.")
    oidc_groups_prefix: str = Field(default="", max_length=128, description="What is put before each group.")
    oidc_required_claims: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="Claims that its tokens must have, with their values, which are texts."
    )
    oidc_signing_algs: tuple[SigningAlgorithm, ...] = Field(
        default=("RS256",), min_length=1, description="Algorithms by which its tokens may be signed."
    )
    audit_file: str = Field(default="-", min_length=1, description="Where each write is recorded as a line of JSON; - is standard output.")
    requests_per_second: float = Field(default=50, gt=0, le=100_000, description="Of one user, and of one address without a valid token.")
    burst: int = Field(default=200, ge=1, le=1_000_000, description="Requests of one user at once after a pause.")
    max_concurrent_requests: int = Field(default=50, ge=1, description="Requests of one user that are answered at once, without watches.")
    max_watches: int = Field(default=100, ge=1, description="Watches of one user.")
