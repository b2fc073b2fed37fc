"""Random models small enough for finite differences, in the architectures that tests name."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tinker_cli import tiny
from tinker_cli.local.lora import BaseModel

SIZES: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "eos_token_id": 2041,
    "bos_token_id": None,
    "pad_token_id": 2039,
}


def small_network(kind: str = "qwen3", *, seed: int = 0, **changes: Any) -> Any:
    """A random network; weights larger than usual, so that no probability is near uniform."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **{**SIZES, **changes})
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    return network


def small_base_model(
    kind: str = "qwen3", *, dtype: torch.dtype = torch.float32, **changes: Any
) -> BaseModel:
    """A random base model with the tokenizer of `tiny`."""
    network = small_network(kind, **changes).to(dtype)
    return BaseModel(kind, "nowhere", network, AutoTokenizer.from_pretrained(tiny.FOLDER))


def shaken_adapter(model: BaseModel, rank: int = 4, *, seed: int = 0, scale: float = 0.05) -> Any:
    """An adapter whose B is not zero, as after some training."""
    from tinker_cli.local.lora import LoraShape

    adapter = model.new_adapter(LoraShape(rank), seed)
    random = torch.Generator().manual_seed(seed + 1)
    for name, b in adapter.b.items():
        adapter.b[name] = torch.randn(b.shape, generator=random).to(b.dtype) * scale
    return adapter
