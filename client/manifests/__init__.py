"""Reading files: documents, the policy file, exported status, Secrets for the secret store."""
