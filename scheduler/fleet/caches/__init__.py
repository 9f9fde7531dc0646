"""What follows from a fleet's ledger and clusters, kept up to date from their logs of changes: full clusters, use of quotas, victims.

Each could be computed anew for every decision with the same outcome. Not here: the entries themselves (`ledger`).
"""
