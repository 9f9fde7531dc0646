"""Sending a change and following it until it is applied, Ready, drained or gone.

Not here: options and summaries of single commands (`commands`), tables and progress
lines (`output`). May import `output`, `manifests` and `fleet_client`, never `commands`
or `planning`.
"""
