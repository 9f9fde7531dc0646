"""The pods of engines: which there are, and their logs, commands and ports.

The commands open the API server of a cluster themselves, with the kubeconfig in the
secret store. The front serves none of this.
"""
