"""The implementations of `SecretStore`: a directory, or Secrets of the control cluster."""
