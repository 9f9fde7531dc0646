"""Text from outside: read as trees within bounds, quantities as numbers, URLs as parts, and shown so that no terminal obeys it.

Not here: what the trees mean (`validation`, `settings`).
"""
