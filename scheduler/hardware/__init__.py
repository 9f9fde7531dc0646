"""Match a node's devices to engines, and count the nodes that an engine needs.

The package matches devices per arrangement of pools. It does not depend on clusters or
on the ledger.
"""
