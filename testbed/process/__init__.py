"""The supervisor: starts processes, restarts them, ends them."""
