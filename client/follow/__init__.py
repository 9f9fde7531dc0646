"""Sending a change and following it: apply manifests, edit an object, wait until a request is applied, wait until Ready, drained or gone.

Not here: options and summaries of single commands (`commands`), how tables and progress look (`output`). May import `output`, `manifests`,
`temporal` and `refs`, never `commands` or `planning`.
"""
