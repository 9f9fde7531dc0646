"""The settings of the HTTP front."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Address,
    OptionalAddress,
    OptionalObjectName,
    OptionalUrl,
    Seconds,
)

SigningAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"
]
"""Asymmetric algorithms only: a verifier of tokens cannot sign them."""


class FrontSettings(SettingsSection):
    """The HTTP front, `modelplane-front`: a Kubernetes API for tenants and their tools."""

    listen: Address = Field(
        default="127.0.0.1:8443",
        description="Address of `modelplane-front`.",
    )
    access_file: Path | None = Field(
        default=None,
        description=(
            "File with users, hashes of their tokens, and rules. It is optional "
            "only on a loopback address."
        ),
    )
    tls_cert: Path | None = Field(
        default=None,
        description="File with the certificate of the front, in PEM.",
    )
    tls_key: Path | None = Field(
        default=None,
        description="File with the key of the certificate.",
    )
    webhook_keys: Path | None = Field(
        default=None,
        description=(
            "File with the programs whose signed requests scale deployments, and "
            "their keys."
        ),
    )
    webhook_audience: OptionalObjectName = Field(
        default="",
        description=(
            "Name of this control plane in the signatures of these programs, such "
            "as its host name. It is required with `front.webhookKeys`, and equal "
            "on all fronts of this control plane."
        ),
    )
    metrics_max_age: Seconds = Field(
        default=120,
        description=(
            "Age in seconds after which pushed metrics are no longer served to "
            "autoscalers."
        ),
    )
    scrape_file: Path | None = Field(
        default=None,
        description=(
            "File with the deployments whose metrics the front scrapes, each with "
            "addresses and metric names."
        ),
    )
    scrape_interval: Seconds = Field(
        default=15,
        ge=1,
        description="Time in seconds between two scrapes of a deployment.",
    )
    scrape_ca_file: Path | None = Field(
        default=None,
        description=(
            "File with the authorities that verify the certificates of these "
            "addresses, in PEM. Unset: the authorities of the machine."
        ),
    )
    prometheus_url: OptionalUrl = Field(
        default="",
        description=(
            "Address of a Prometheus with the metrics of the control cluster's Envoy, "
            "from which the web page shows traffic, such as "
            "`http://prometheus.monitoring:9090`. Empty: the page shows no traffic."
        ),
    )
    prometheus_ca_file: Path | None = Field(
        default=None,
        description=(
            "File with the authorities that verify the certificate of this address, "
            "in PEM. Unset: the authorities of the machine."
        ),
    )
    scaler_listen: OptionalAddress = Field(
        default="",
        description=(
            "Address of the external scaler for KEDA (gRPC). Empty: no external scaler."
        ),
    )
    scaler_client_ca: Path | None = Field(
        default=None,
        description=(
            "File with the authorities of KEDA's client certificates, in PEM. It "
            "is required with an access file."
        ),
    )
    client_ca: Path | None = Field(
        default=None,
        description=(
            "File with the authorities of users' client certificates, in PEM. The "
            "common name is the user, and the organizations are the groups."
        ),
    )
    request_header_ca: Path | None = Field(
        default=None,
        description=(
            "File with the authorities of client certificates of API servers "
            "whose APIService points to this front, in PEM."
        ),
    )
    request_header_names: tuple[str, ...] = Field(
        default=("front-proxy-client",),
        min_length=1,
        description="Accepted common names of these certificates.",
    )
    review_kubeconfig: str = Field(
        default="",
        description=(
            "Kubeconfig of the API server that decides about users' permissions "
            "(SubjectAccessReview), or `in-cluster`. Empty: only the access file "
            "decides."
        ),
    )
    oidc_issuer_url: str = Field(
        default="",
        max_length=2048,
        description=(
            "OpenID Connect issuer whose tokens are accepted, as its tokens name "
            "it. Empty: none."
        ),
    )
    oidc_client_id: str = Field(
        default="",
        max_length=1024,
        description="Audience that the tokens must have.",
    )
    oidc_ca_file: Path | None = Field(
        default=None,
        description=(
            "File with the authorities that verify the issuer's certificate, in "
            "PEM. Unset: the authorities of the machine."
        ),
    )
    oidc_username_claim: str = Field(
        default="sub",
        min_length=1,
        max_length=256,
        description="Claim with the name of the user.",
    )
    oidc_username_prefix: str = Field(
        default="",
        max_length=128,
        description=(
            "Prefix of the name. Empty: the issuer and `#`, except for the claim "
            "`email`. `-`: no prefix."
        ),
    )
    oidc_groups_claim: str = Field(
        default="",
        max_length=256,
        description="Claim with the groups of the user. Empty: users have no groups.",
    )
    oidc_groups_prefix: str = Field(
        default="",
        max_length=128,
        description="Prefix of each group.",
    )
    oidc_required_claims: dict[str, str] = Field(
        default_factory=dict,
        max_length=32,
        description=(
            "Claims that the tokens must have, with their text values, such as "
            '`{"hd": "example.com"}`.'
        ),
    )
    oidc_signing_algs: tuple[SigningAlgorithm, ...] = Field(
        default=("RS256",),
        min_length=1,
        description="Accepted signing algorithms of the tokens.",
    )
    audit_file: str = Field(
        default="-",
        min_length=1,
        description=(
            "File to which the front appends each write as a line of JSON. `-`: "
            "standard output."
        ),
    )
    requests_per_second: float = Field(
        default=50,
        gt=0,
        le=100_000,
        description=(
            "Sustained requests per second of one user, or of one address without "
            "a valid token."
        ),
    )
    burst: int = Field(
        default=200,
        ge=1,
        le=1_000_000,
        description="Requests of one user, or address, at once after a pause.",
    )
    max_concurrent_requests: int = Field(
        default=50,
        ge=1,
        description="Concurrent requests of one user, without watches.",
    )
    max_watches: int = Field(
        default=100,
        ge=1,
        description="Concurrent watches of one user.",
    )
