"""Packed forms of a fleet, and the digest of a decision's inputs.

A fleet is packed for another process or for the next run of the scheduler. These
modules change a fleet only to restore it.
"""
