"""Rules of Kubernetes that are reimplemented exactly: quantities, semantic versions, taints and tolerations.

Their expected values in tests come from the real Go code.
"""
