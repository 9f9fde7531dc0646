"""Programs that measure the code and the text of this repository."""
