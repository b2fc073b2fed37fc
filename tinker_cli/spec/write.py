"""A spec -> YAML in which every default and override is written out, and which runs again."""

from __future__ import annotations

import yaml

from tinker_cli.spec.checked import Spec


class _Dumper(yaml.SafeDumper):
    """Plain YAML; floats with all their digits, text that looks like another type quoted."""


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(value))


_Dumper.add_representer(float, _number)


def dump(spec: Spec) -> str:
    """The resolved spec; loading it gives the same config."""
    text = yaml.dump(spec.values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"# {spec.name}: the spec as it was resolved; `tinker train` runs it again.\n{text}"
