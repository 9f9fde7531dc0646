"""Verbs that send a change: apply, delete, scale, rollout, drain, retry, policy."""
