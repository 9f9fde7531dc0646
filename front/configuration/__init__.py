"""Builds the parts of the front from its settings.

Each function raises `Refused` for settings that contradict each other or cannot be used,
with the setting to change.
"""
