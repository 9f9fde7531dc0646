"""Plans and explanations on this machine: a read-only copy of the live fleet, hypotheses, rendering without a server."""
