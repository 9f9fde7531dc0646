"""Settings of Temporal: the connection, the encryption of payloads, and the queues."""

from pathlib import Path

from pydantic import Field

from api_types import labels
from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    Address,
)


class TemporalSettings(SettingsSection):
    """The connection to Temporal."""

    address: Address = Field(
        default="127.0.0.1:7233",
        description="Address of the Temporal frontend.",
    )
    namespace: str = Field(
        default="default",
        description="The Temporal namespace.",
    )
    tls: bool = Field(
        default=False,
        description="Connect with TLS.",
    )
    tls_server_ca: Path | None = Field(
        default=None,
        description="File with the authority of the server certificate, in PEM.",
    )
    tls_client_cert: Path | None = Field(
        default=None,
        description="File with the client certificate, in PEM. It excludes an API key.",
    )
    tls_client_key: Path | None = Field(
        default=None,
        description="File with the key of the client certificate.",
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File with an API key. A file is not visible in process listings.",
    )
    ui: str = Field(
        default="",
        description=(
            "Address of the Temporal UI, for the links that commands and the "
            "front show."
        ),
    )


class EncryptionSettings(SettingsSection):
    """Encryption of payloads in Temporal."""

    keys: dict[str, Path] = Field(
        default_factory=dict,
        description=(
            "Maps a key ID to a file with 32 bytes in base64. All keys decrypt. "
            "Without keys, payloads in Temporal are not encrypted."
        ),
    )
    active_key: str = Field(
        default="",
        description="ID of the key that encrypts.",
    )
    required: bool = Field(
        default=False,
        description=(
            "Reject messages that are not encrypted. By default they are "
            "accepted, even with keys."
        ),
    )


class QueueSettings(SettingsSection):
    """The task queues that this worker serves."""

    serve: tuple[str, ...] = Field(
        default=(),
        description=(
            "Task queues that this worker serves: `modelplane` and "
            "`modelplane-scheduler` (workflows), `modelplane-cloud`, "
            "`modelplane-clusters`, or the value of a cluster's annotation "
            f"`{labels.TASK_QUEUE}`. A base queue for clusters includes the "
            "queues of all classes of work. Empty: all queues."
        ),
    )
