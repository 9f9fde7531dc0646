"""The common parts of every call: tokens, faults and the ledger. Imports no service."""
