"""The audit log of attempted writes.

It contains no values that may be secret. Other packages define the behaviour of objects
and authorize requests.
"""
