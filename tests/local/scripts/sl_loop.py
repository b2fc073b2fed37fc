"""Supervised training in one flat loop, in the manner of the cookbook's `recipes/sl_loop.py`.

Takes the folder to log to; finds the service by TINKER_BASE_URL and TINKER_API_KEY alone.
"""

from __future__ import annotations

import sys

import tinker
from tinker_cookbook import checkpoint_utils, renderers
from tinker_cookbook.supervised.common import compute_mean_nll
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.utils import ml_log

STEPS, BATCH = 3, 4


def main(log_path: str) -> None:
    logger = ml_log.setup_logging(log_dir=log_path, do_configure_logging_module=False)
    service = tinker.ServiceClient(user_metadata={"recipe": "sl_loop"})
    training_client = service.create_lora_training_client(base_model="tiny", rank=8).result()
    renderer = renderers.get_renderer("qwen3_instruct", training_client.get_tokenizer())
    talks = [
        [
            {"role": "user", "content": f"What is {i} + {i}?"},
            {"role": "assistant", "content": f"It is {2 * i}, as anyone can see."},
        ]
        for i in range(STEPS * BATCH)
    ]
    for step in range(STEPS):
        batch = [
            conversation_to_datum(talk, renderer, 128, renderers.TrainOnWhat.ALL_ASSISTANT_MESSAGES)
            for talk in talks[step * BATCH : (step + 1) * BATCH]
        ]
        rate = 5e-3 * (1 - step / STEPS)
        adam = tinker.AdamParams(learning_rate=rate, beta1=0.9, beta2=0.95, eps=1e-8)
        forward = training_client.forward_backward(batch, loss_fn="cross_entropy")
        update = training_client.optim_step(adam)
        result = forward.result()
        metrics = dict(update.result().metrics or {})
        logprobs = [output["logprobs"] for output in result.loss_fn_outputs]
        weights = [datum.loss_fn_inputs["weights"] for datum in batch]
        metrics["train_mean_nll"] = compute_mean_nll(logprobs, weights)
        logger.log_metrics(metrics=metrics, step=step)
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
