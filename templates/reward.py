"""The reward of rl_reward.yaml: how near the answer is, and whether it is short."""

from __future__ import annotations

import re
from typing import Any


def score(response: str, row: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Score one reply to one row of the data; the metrics appear as env/all/NAME."""
    found = re.search(r"-?\d+", response)
    if found is None:
        return -0.1, {"correct": 0.0, "has_number": 0.0}
    off = abs(int(found[0]) - int(row["answer"]))
    return 1.0 / (1.0 + off), {"correct": float(off == 0), "has_number": 1.0}
