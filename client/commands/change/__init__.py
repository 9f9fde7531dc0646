"""Commands that change objects: apply, delete, scale, rollout, drain, cordon, retry, policy."""
