"""Trains the built-in model `tiny` from nothing: tokenizer, weights, chat template, in one folder.

    python scripts/pretrain_tiny.py --out tinker_cli/tiny

The text is made by `tiny_corpus`; nothing is downloaded. Two phases: first right arithmetic, then
a shorter one whose arithmetic answers are near misses with probability `SLIP`. It leaves a model
that knows the sums (greedy) and still misses most of them when sampled at temperature 1, which is
where reinforcement learning starts. Prints the held-out loss, the accuracy and the format rate.

The same seed, thread count and torch version give the same weights. Takes about 16 minutes on two
cores. Knows nothing about the tool, the engine or LoRA.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import tiny_corpus
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SEED = 20240
VOCABULARY = 2048  # tokens, special ones included
ROW = 128  # tokens in a training row
ROWS = 64  # rows in a step
STEPS = 1200
SECOND_PHASE = 0.2  # share of the steps with slips
SLIP = 0.6  # probability of a near miss in the second phase
SUMS = (0.35, 0.25)  # share of bare additions in the two phases
MATRIX_RATE = 0.02  # Muon, for the matrices inside the layers
OTHER_RATE = 3e-3  # AdamW, for embeddings and norms
PROMPT_WEIGHT = 0.2  # loss weight of tokens that the user wrote; the assistant's weigh 1

# Qwen's own splitting rule: words with one leading space, every digit by itself.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
# Every chat has these, so each is worth a token of its own.
ROLES = ["user", "assistant", "system"] * 20_000


def train_tokenizer(rng: Random) -> PreTrainedTokenizerFast:
    """A byte-level BPE: any text survives encoding and decoding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [text for _ in range(40_000) for _, text in tiny_corpus.chat(rng, sums=0.05, slip=0.0)]
    tokenizer.train_from_iterator(texts + ROLES, trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in SPECIAL])
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            attn_implementation="eager",  # its backward pass is the fastest at this size
            vocab_size=len(tokenizer),
            hidden_size=160,
            intermediate_size=448,
            num_hidden_layers=4,
            num_attention_heads=5,
            num_key_value_heads=5,
            head_dim=32,
            max_position_embeddings=4096,
            rope_theta=10_000.0,
            tie_word_embeddings=True,
            initializer_range=0.02,
            bos_token_id=None,
            eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
            pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
            use_cache=True,
        )
    )


def rows(tokenizer: PreTrainedTokenizerFast, rng: Random, count: int, sums: float, slip: float):
    """`count` rows of whole chats: ids and loss weights, both [count, ROW]; 0 weight pads."""
    ids = np.full((count, ROW), tokenizer.pad_token_id, dtype=np.int64)
    weights = np.zeros((count, ROW), dtype=np.float32)
    stream = encoded_chats(tokenizer, rng, sums, slip)
    waiting = [next(stream) for _ in range(16)]  # a choice of chats, so that rows fill up
    for row in range(count):
        filled = 0
        while fits := [i for i, chat in enumerate(waiting) if filled + len(chat[0]) <= ROW]:
            chat_ids, chat_weights = waiting[fits[0]]
            ids[row, filled : filled + len(chat_ids)] = chat_ids
            weights[row, filled : filled + len(chat_ids)] = chat_weights
            filled += len(chat_ids)
            waiting[fits[0]] = next(stream)
    return torch.from_numpy(ids), torch.from_numpy(weights)


def encoded_chats(
    tokenizer: PreTrainedTokenizerFast, rng: Random, sums: float, slip: float
) -> Iterator[tuple[list[int], list[float]]]:
    """Chats as (ids, weights), those that fit a row; encoded in blocks for speed."""
    backend = tokenizer.backend_tokenizer
    newline = tokenizer.encode("\n")
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    while True:
        chats = [tiny_corpus.chat(rng, sums=sums, slip=slip) for _ in range(1000)]
        turns = [f"{role}\n{text}" for chat in chats for role, text in chat]
        encoded = iter(backend.encode_batch_fast(turns))
        for chat in chats:
            ids: list[int] = []
            weights: list[float] = []
            for index, (role, _) in enumerate(chat):
                said = next(encoded).ids
                body = (newline if index else []) + [start, *said, end]
                ids += body
                weights += [1.0 if role == "assistant" else PROMPT_WEIGHT] * len(body)
            if len(ids) <= ROW:
                yield ids, weights


def weighted_loss(model: Qwen3ForCausalLM, ids: torch.Tensor, weights: torch.Tensor):
    """Mean NLL in nats over the tokens by weight; ids and weights [rows, ROW]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]  # [rows, ROW - 1, vocabulary]
    flat = functional.cross_entropy(
        logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    weight = weights[:, 1:].flatten()
    return (flat * weight).sum() / weight.sum()


def rate_at(step: int, steps: int) -> float:
    """Share of the peak rate: 5 % linear warm-up, then flat, then linear to zero from 40 %."""
    done = step / steps
    return min(1.0, done / 0.05, (1.0 - done) / 0.6)


def train(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int) -> None:
    matrices = [p for n, p in model.model.layers.named_parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in inside]
    optimizers = [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    rng = Random(SEED + 1)
    turn = int(steps * (1 - SECOND_PHASE))
    started = time.monotonic()
    model.train()
    for step in range(steps):
        second = step >= turn
        ids, weights = rows(tokenizer, rng, ROWS, SUMS[second], SLIP if second else 0.0)
        loss = weighted_loss(model, ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate_at(step, steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step == steps - 1:
            seconds = time.monotonic() - started
            print(f"step {step:5d}  loss {loss.item():.3f}  {seconds:.0f} s", flush=True)
        if step % 250 == 249:
            print(f"  {report(model, tokenizer)}", flush=True)
            model.train()


@torch.inference_mode()
def answers(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: list[str],
    temperature: float,
    seed: int,
) -> list[str]:
    """Replies to framed prompts, 24 tokens at most, cut at the end mark; '...' without one."""
    encoded = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    torch.manual_seed(seed)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
    out = model.generate(
        **encoded, max_new_tokens=24, **({"do_sample": False, "temperature": None} | how)
    )
    replies = tokenizer.batch_decode(out[:, encoded["input_ids"].shape[1] :])
    return [r.split("<|im_end|>")[0] if "<|im_end|>" in r else "..." for r in replies]


def frame(*turns: tuple[str, str]) -> str:
    body = "\n".join(f"<|im_start|>{role}\n{text}<|im_end|>" for role, text in turns)
    return f"{body}\n<|im_start|>assistant\n"


def report(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    """Held-out loss (nats a token), accuracies and format rate, each in 0..1."""
    model.eval()
    rng = Random(SEED + 2)
    with torch.no_grad():
        held_out = weighted_loss(model, *rows(tokenizer, rng, 64, 0.0, 0.0)).item()
    pairs = [(rng.randrange(101), rng.randrange(101)) for _ in range(400)]
    prompts = [
        frame(("user", "What is 4 + 5?"), ("assistant", "9"), ("user", f"What is {x} + {y}?"))
        for x, y in pairs
    ]
    found = {"held_out": held_out}
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        replies = answers(model, tokenizer, prompts, temperature, SEED)
        found[name] = sum(r == str(x + y) for r, (x, y) in zip(replies, pairs, strict=True)) / 400
        found[f"{name}_number"] = sum(r.isdigit() for r in replies) / 400
    boxed = [
        frame(("user", f"What is {x} + {y}? Put the answer in \\boxed{{}}.")) for x, y in pairs
    ]
    replies = answers(model, tokenizer, boxed, 0.0, SEED)
    found["boxed_format"] = sum(r[:7] == "\\boxed{" and r[-1] == "}" for r in replies) / 400
    return {name: round(value, 4) for name, value in found.items()}


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights as bfloat16, config as float32: half the size, and a load widens them."""
    folder.mkdir(parents=True, exist_ok=True)
    template = Path(__file__).with_name("tiny_chat_template.jinja").read_text()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(SEED)
    tokenizer = train_tokenizer(Random(SEED))
    model = build_model(tokenizer)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters, {len(tokenizer)} tokens", flush=True)
    train(model, tokenizer, chosen.steps)
    save(model, tokenizer, chosen.out)
    print(json.dumps(report(Qwen3ForCausalLM.from_pretrained(chosen.out), tokenizer)))


if __name__ == "__main__":
    main()
