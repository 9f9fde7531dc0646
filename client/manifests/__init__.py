"""Files and the secret store: manifests, the policy file, exported status, Secrets.

Not here: rules of admission (`api_types.validation`), anything sent to Temporal (`follow`, `temporal`). May import `refs`.
"""
