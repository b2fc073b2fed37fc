"""Reinforcement learning in one flat loop, in the manner of the cookbook's `recipes/rl_loop.py`.

Takes the folder to log to; finds the service by TINKER_BASE_URL and TINKER_API_KEY alone.
"""

from __future__ import annotations

import sys

import tinker
import torch
from tinker import TensorData, types
from tinker_cookbook import checkpoint_utils, renderers
from tinker_cookbook.utils import ml_log

STEPS, PROMPTS, GROUP = 3, 3, 4


def main(log_path: str) -> None:
    logger = ml_log.setup_logging(log_dir=log_path, do_configure_logging_module=False)
    service = tinker.ServiceClient(user_metadata={"recipe": "rl_loop"})
    training_client = service.create_lora_training_client(base_model="tiny", rank=8).result()
    renderer = renderers.get_renderer("qwen3_instruct", training_client.get_tokenizer())
    params = types.SamplingParams(max_tokens=8, stop=renderer.get_stop_sequences())
    adam = types.AdamParams(learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-8)
    for step in range(STEPS):
        sampler = training_client.save_weights_and_get_sampling_client().result()
        asked = []
        for i in range(PROMPTS):
            question = {"role": "user", "content": f"What is {step} + {i}?"}
            prompt = renderer.build_generation_prompt([question])
            asked.append((prompt, sampler.sample(prompt, GROUP, params)))
        datums, rewards = [], []
        for prompt, future in asked:
            sequences = future.result().sequences
            group = [float(sum(sequence.tokens) % 7) for sequence in sequences]
            mean = sum(group) / len(group)
            rewards.append(mean)
            for sequence, reward in zip(sequences, group, strict=True):
                before = prompt.length - 1
                tokens = list(sequence.tokens)
                whole = prompt.append(types.EncodedTextChunk(tokens=tokens[:-1]))
                columns = {
                    "target_tokens": [0] * before + tokens,
                    "logprobs": [0.0] * before + list(sequence.logprobs or []),
                    "advantages": [0.0] * before + [reward - mean] * len(tokens),
                }
                inputs = {
                    name: TensorData.from_torch(torch.tensor(column))
                    for name, column in columns.items()
                }
                datums.append(types.Datum(model_input=whole, loss_fn_inputs=inputs))
        forward = training_client.forward_backward(datums, loss_fn="importance_sampling")
        update = training_client.optim_step(adam)
        forward.result()
        metrics = dict(update.result().metrics or {})
        metrics["reward/total"] = sum(rewards) / len(rewards)
        logger.log_metrics(metrics, step=step)
    checkpoint_utils.save_checkpoint(
        training_client=training_client,
        name="final",
        log_path=log_path,
        kind="both",
        loop_state={"batch": STEPS},
        ttl_seconds=None,
    )
    logger.close()


if __name__ == "__main__":
    main(sys.argv[1])
