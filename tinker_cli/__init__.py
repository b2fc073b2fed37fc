"""`tinker`: write a spec, check it, launch it, watch it, and hear what the model says."""

__version__ = "0.1.0"
