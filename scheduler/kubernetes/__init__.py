"""Rules of Kubernetes that are reimplemented exactly: semantic versions, taints and tolerations.

Their expected values in tests come from the real Go code.
"""
