"""Writes of clients: their checks, and their way to the workflow of an object.

A write is fully validated before it is sent. Its response is the object in the state that
its workflow then has.
"""
