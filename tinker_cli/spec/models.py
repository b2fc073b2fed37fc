"""Models by name: the renderer that fits, the tokenizer, a learning rate.

Knows `tiny`, folders (whose code is never run) and the cookbook's table. Never waits on a host that
can't be reached: a hub name is in the cache, or in a package, or the answer is no.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from tinker_cli import tiny
from tinker_cli.errors import UsageError
from tinker_cli.spec.hub import mind_the_hub

TINY_LEARNING_RATE = 1e-3  # measured: rewards rise steadily on `tiny`; 3e-3 is unstable


def is_local_model(name: str) -> bool:
    """True for `tiny` and for a model's folder."""
    return name == tiny.NAME or Path(name).expanduser().is_dir()


def recommended_renderer(model_name: str) -> str:
    """The renderer that the model was trained with; UsageError if nobody knows."""
    if model_name == tiny.NAME:
        return tiny.RENDERER
    try:
        from tinker_cookbook import model_info

        return str(model_info.get_recommended_renderer_name(model_name))
    except Exception as error:  # ConfigurationError, KeyError or ValueError, by version
        if type(error).__name__ not in ("ConfigurationError", "KeyError", "ValueError"):
            raise
        raise UsageError(f"{model_name} has no recommended renderer; set renderer_name") from None


def recommended_learning_rate(model_name: str) -> float:
    """The cookbook's `get_lr`: 5e-5 x 10 for LoRA x (2000 / hidden size) ^ family exponent."""
    if model_name == tiny.NAME:
        return TINY_LEARNING_RATE
    from tinker_cookbook.hyperparam_utils import get_lr

    try:
        return float(get_lr(model_name))
    except (NotImplementedError, OSError, KeyError, ValueError) as error:
        raise UsageError(f"no learning rate is known for {model_name}: {error}") from None
    except Exception as error:  # the cookbook's ConfigurationError
        if type(error).__name__ != "ConfigurationError":
            raise
        raise UsageError(f"no learning rate is known for {model_name}: {error}") from None


def register_tokenizers() -> None:
    """Let the cookbook's `get_tokenizer("tiny")` find the built-in model."""
    from tinker_cookbook.tokenizer_utils import is_tokenizer_registered, register_tokenizer

    if not is_tokenizer_registered(tiny.NAME):
        register_tokenizer(tiny.NAME, lambda: _from_folder(tiny.FOLDER))


def load_tokenizer(model_name: str) -> Any:
    """The model's tokenizer; UsageError in one sentence if it can't be had here and now."""
    register_tokenizers()
    folder = Path(model_name).expanduser()
    if folder.is_dir():
        return _from_folder(folder)
    mind_the_hub()
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    try:
        return get_tokenizer(model_name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        offline = " (offline)" if os.environ.get("HF_HUB_OFFLINE") == "1" else ""
        raise UsageError(
            f"the tokenizer of {model_name} can't be loaded{offline}: {first}",
            hint="give a folder that holds it, or use a model whose tokenizer is cached",
        ) from None


@functools.cache  # the cookbook asks once a row
def _from_folder(folder: Path) -> Any:
    try:
        return _loader(folder).from_pretrained(str(folder), trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{folder} holds no tokenizer: {str(error).splitlines()[0]}") from None


def _loader(folder: Path) -> Any:
    """The class that loads a folder's tokenizer; that of `tiny` is known, and loads sooner.

    `AutoTokenizer` imports the code of models too: 1.5 s of CPU.
    """
    if folder == tiny.FOLDER:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer
