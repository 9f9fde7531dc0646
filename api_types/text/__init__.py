"""Text from outside: YAML and JSON, quantities, URLs, and escaping for terminals.

All reading is bounded. Not here: the meaning of the trees (`validation`, `settings`).
"""
