"""A checked spec -> the cookbook's Config object."""

from __future__ import annotations

from typing import Any

from tinker_cli.spec.checked import Spec
from tinker_cli.spec.load import config_class
from tinker_cli.spec.models import register_tokenizers


def build_config(spec: Spec, *, base_url: str | None = None) -> Any:
    """The `supervised.train.Config` or `rl.train.Config` of the spec, at `base_url` if given."""
    register_tokenizers()
    values = dict(spec.config_values)
    values["base_url"] = base_url or spec.base_url
    return config_class(spec.kind)(**values)
