"""Find files whose tests all have a mark that the run deselects.

No process has to import such a file.
"""

import re

# One mark deselects a test only if the expression has this form.
_NEGATIONS = re.compile(r"not \w+( and not \w+)*")
_ALL_TESTS = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)
_MARK = re.compile(r"\bmark\.(\w+)")


def left_out_by(expression: str, text: str) -> str | None:
    """Return the mark with which `-m expression` deselects a whole file, or None."""
    if not _NEGATIONS.fullmatch(expression):
        return None
    left_out = set(expression.split()) - {"not", "and"}
    marks = [
        mark for each in _ALL_TESTS.finditer(text) for mark in _MARK.findall(each[0])
    ]
    return next((mark for mark in marks if mark in left_out), None)
