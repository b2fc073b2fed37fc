"""What a run would cost, where the model's prices are known.

The prices are the service's published ones, as the cookbook (0.6 and later) reads them; an older
cookbook, an unlisted model or no network means no estimate, never a wrong one. A reply is counted
at `max_tokens`, so the estimate of an RL run is the most that its training can cost.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import TYPE_CHECKING, Any

from tinker_cli.spec.checked import Spec, batch_size
from tinker_cli.spec.models import is_local_model

if TYPE_CHECKING:
    from tinker_cli.spec.check import DataReport

SECONDS = 2.0  # to wait for the price list
_MODULE = "tinker_cookbook.utils.cost_estimation"


def estimated_usd(spec: Spec, report: DataReport) -> float | None:
    """US dollars for the whole run, or None where nobody knows.

    SL: trained tokens of all epochs. RL: a step's rollouts are batch_size x group_size, each
    prefilled, sampled to `max_tokens` and trained.
    """
    if spec.is_local:
        return None
    rates = _rates(spec.model_name)
    tokens = _usage(spec, report)
    if rates is None or tokens is None:
        return None
    prefill, sampled, trained = tokens
    usd: float = (
        prefill * rates.prefill_usd_per_million
        + sampled * rates.sample_usd_per_million
        + trained * rates.train_usd_per_million
    ) / 1e6
    return usd


def training_usd(model: str, tokens: float) -> float | None:
    """US dollars to train on so many tokens, or None where nobody knows."""
    rates = None if is_local_model(model) else _rates(model)
    return None if rates is None else float(tokens * rates.train_usd_per_million / 1e6)


def _rates(model: str) -> Any:
    if importlib.util.find_spec(_MODULE) is None:
        return None
    logging.getLogger(_MODULE).setLevel(logging.ERROR)
    module = importlib.import_module(_MODULE)
    module.load_model_pricing(timeout=SECONDS)
    return module.fetch_model_pricing(model)


def _usage(spec: Spec, report: DataReport) -> tuple[float, float, float] | None:
    """(prefilled, sampled, trained) tokens of the run."""
    if spec.kind == "sl":
        if report.tokens is None or not report.batches:
            return None
        return 0.0, 0.0, report.tokens / report.batches * report.steps
    builder = spec.config_values["dataset_builder"]
    size, group = batch_size(builder), getattr(builder, "group_size", None)
    if size is None or not isinstance(group, int) or report.prompt_tokens is None:
        return None
    rollouts = report.steps * size * group
    sampled = rollouts * int(spec.config_values["max_tokens"])
    prefill = rollouts * report.prompt_tokens
    return prefill, sampled, prefill + sampled
