"""Files whose tests all have a mark that the run leaves out. No process has to import them."""

import re

# Only of such an expression follows from one mark of a test that the test is left out.
_NEGATIONS = re.compile(r"not \w+( and not \w+)*")
_ALL_TESTS = re.compile(r"^pytestmark = (\[[^]]*\]|.*)$", re.MULTILINE)
_MARK = re.compile(r"\bmark\.(\w+)")


def left_out_by(expression: str, text: str) -> str | None:
    """Return the mark of all tests in a file's text by which `-m expression` leaves them out."""
    if not _NEGATIONS.fullmatch(expression):
        return None
    left_out = set(expression.split()) - {"not", "and"}
    marks = [mark for each in _ALL_TESTS.finditer(text) for mark in _MARK.findall(each[0])]
    return next((mark for mark in marks if mark in left_out), None)
