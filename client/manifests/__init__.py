"""Files and the secret store: manifests, the policy, prices, exported status, Secrets.

Not here: rules of admission (`api_types.validation`), anything sent to Temporal
(`follow`, `fleet_client`).
"""
