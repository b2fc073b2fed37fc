"""Specs: YAML -> located values -> a checked `Spec` -> the cookbook's Config.

`load_spec` reads and checks the form, `check.check_data` the data, `config.build_config` makes the
Config, `write.dump` writes the resolved spec. Creates nothing remote.
"""

from tinker_cli.spec.checked import GuardSpec, LocalOptions, Spec
from tinker_cli.spec.load import load_spec

__all__ = ["GuardSpec", "LocalOptions", "Spec", "load_spec"]
