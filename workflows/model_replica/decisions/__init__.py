"""Decisions and conclusions of a ModelReplica: pure functions of state, observation and time.

They import no part of the workflow, wait for nothing and change nothing.
"""
