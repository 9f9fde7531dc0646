"""Caches that are derived from a fleet's ledger and clusters.

Change logs update them. Recomputing a cache for every decision would have the same
result. The ledger entries themselves are in `ledger`.
"""
