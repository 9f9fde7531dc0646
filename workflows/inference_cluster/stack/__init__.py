"""The serving stack of a managed cluster: installed, kept as planned, upgraded and removed by its InferenceCluster.

`plan` says what is to be done next and what a look has shown, `verdict` what conditions say of it; both are pure. `installer` and `removal`
carry it out, with calls in the background.
"""
