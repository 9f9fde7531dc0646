"""What a deployment's template was before: enough to go back to it, and no more than a carried state can bear."""

import json
from collections.abc import Sequence
from typing import Any

from api_types.base import Message

REVISIONS_MAX = 5
# A manifest may have 256 KiB; what is carried over a continue-as-new shares 2 MiB with everything else.
BYTES_MAX = 512 * 1024


class Revision(Message):
    """A template that was replaced: the generation that brought it, when it was replaced (RFC 3339), and the template's spec."""

    generation: int
    replaced: str
    template: dict[str, Any]


def remember(kept: Sequence[Revision], generation: int, template: dict[str, Any], replaced: str) -> list[Revision]:
    """Add a replaced template; the oldest go when there are too many or they are too large together."""
    revisions = [*kept, Revision(generation=generation, replaced=replaced, template=template)][-REVISIONS_MAX:]
    while len(revisions) > 1 and sum(len(json.dumps(revision.template)) for revision in revisions) > BYTES_MAX:
        revisions = revisions[1:]
    return revisions
