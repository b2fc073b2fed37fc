"""The built-in model `tiny`: a transformers model folder that ships inside the package.

Qwen3 architecture, 1.6 million parameters, a byte-level BPE with the ChatML tokens. Made by
`scripts/pretrain_tiny.py`. This module only says where the files are; it loads nothing.
"""

from __future__ import annotations

from pathlib import Path

FOLDER: Path = Path(__file__).resolve().parent / "model"
"""The model folder: `config.json`, `model.safetensors`, tokenizer and chat template."""

NAME = "tiny"
"""What `model_name` says in a spec."""

RENDERER = "qwen3_instruct"
"""The cookbook renderer whose tokens the chat template gives too."""
