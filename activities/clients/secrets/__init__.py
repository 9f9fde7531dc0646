"""The implementations of the secret store: a directory, or Secrets of the control cluster."""
