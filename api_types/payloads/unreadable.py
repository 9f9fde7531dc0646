"""A placeholder for a payload that cannot be decrypted or is unexpectedly unencrypted.

A codec that raises would block the receiving workflow permanently, so the codec
replaces such a payload by this placeholder. A receiver of messages rejects it with an
error text. A caller that needs the result of its own activity cannot continue without
it: there the converter raises, and Temporal retries the task until the key is available
again.
"""

ENCODING = b"modelplane/unreadable"
"""The encoding of such a payload. Its data is the unencrypted payload, or empty."""

PROBLEM = "problem"
"""The metadata key of the error text."""

ARRIVAL_ID = "modelplane-arrival-id"
"""The metadata key of an id that distinguishes payloads from a codec.

A workflow records the ids of the payloads that it has rejected.
"""


class UnreadablePayload(ValueError):
    """A payload that cannot be decrypted."""
