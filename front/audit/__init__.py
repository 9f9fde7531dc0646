"""The audit log: who wrote what, or tried to. Neither objects nor rights are decided here, and no value that may be a secret is written."""
