"""The child process that drives one cookbook loop inside one run directory.

`launch` is the side of the person who starts a run (light); `python -m tinker_cli.trainer` is the
child. The loops are the cookbook's, unchanged; everything they lack for a run that can't be lost
is put around them from outside, in `saves` and `hooks`.
"""
