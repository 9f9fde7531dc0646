"""Commands that change objects: apply, delete, scale, rollout, drain, retry, policy."""
