"""What stands for a payload that could not be decrypted, or that should have been encrypted and is not.

A codec that raises stops the workflow for good to which the payload was sent, so it gives such a payload a form of its own. Who takes
messages refuses it in words. Who reads what it ordered itself, such as an activity's result, cannot go on without it: there the converter
raises, and the task is tried again until the key is back.
"""

ENCODING = b"modelplane/unreadable"
"""The encoding of such a payload. Its data is the payload that was not encrypted, or empty."""

PROBLEM = "problem"
"""The metadata with the words in which it is refused."""

ARRIVAL_ID = "modelplane-arrival-id"
"""The metadata that tells payloads apart which came through a codec; a workflow records by it which of them it refused."""


class UnreadablePayload(ValueError):
    """A payload that cannot be decrypted."""
