"""What the container of an engine gets beyond what its user wrote there, one subject per module.

Not here: the pod around it (`pods.py`, which imports these), what an engine may ask for beside its members (`options/`), and what prefill
and decode add (`disaggregation.py`).
"""
