"""Messages between workflows and activities.

They are the arguments of signals, queries and updates, and the input and output of
activities. Every model derives from `api_types.base.Message` and stays readable for old
histories: a change may add a field with a default, but never changes a JSON name. Not
here: manifests (`resources`) and their checks (`validation`). May import `resources`
and the root modules of `api_types`.
"""
