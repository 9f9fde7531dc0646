"""Earlier templates of a deployment, for rollbacks, within the size of a carried state."""

import json
from collections.abc import Sequence
from typing import Any

from api_types.base import Message

REVISIONS_MAX = 5
# A manifest may have 256 KiB. Everything that continue-as-new carries shares 2 MiB.
BYTES_MAX = 512 * 1024


class TemplateRevision(Message):
    """A replaced template, its generation, and the time of its replacement (RFC 3339)."""

    generation: int
    replaced: str
    template: dict[str, Any]


def remember(
    kept: Sequence[TemplateRevision],
    generation: int,
    template: dict[str, Any],
    replaced: str,
) -> list[TemplateRevision]:
    """Add a replaced template.

    Remove the oldest ones above the limits of number and size.
    """
    revisions = [
        *kept,
        TemplateRevision(generation=generation, replaced=replaced, template=template),
    ][-REVISIONS_MAX:]
    while (
        len(revisions) > 1
        and sum(len(json.dumps(revision.template)) for revision in revisions)
        > BYTES_MAX
    ):
        revisions = revisions[1:]
    return revisions
