"""The implementations of `SecretStore`: a directory of files, or Secrets of the control cluster."""
