"""Datasets and rewards that a spec can name: builders on top of the cookbook's classes.

`rows` reads files, `conversations` makes messages of rows, `supervised` and `prompts` are the
builders, `rewards` scores answers. Knows nothing of specs or runs.
"""
