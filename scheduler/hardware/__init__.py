"""Whether a node's devices satisfy an engine, and how many nodes that takes.

Pure matching per arrangement of pools; no cluster, no ledger.
"""
