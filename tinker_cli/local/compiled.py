"""Functions of tensors, compiled by TorchScript where this torch can: they run without the
interpreter's lock, so that threads compute side by side. Knows nothing of what they compute.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled once; as it stands if that can't be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: Callable[..., Any] = torch.jit.script(function)
        except (AttributeError, RuntimeError):
            return function
    return script
