"""The data of the web page that no API object has: history, and health of Temporal.

It belongs to the page alone. A user sees the history of the objects that the user may
list. Samples are numbers without names, and stay in the memory of this front.
"""
