"""Guards: what fires, when, and what it asks for."""

from __future__ import annotations

import math

from tinker_cli.trainer.guards import Guards


def actions(guards: Guards, row: dict[str, object], step: int = 0) -> list[str]:
    return [verdict.action for verdict in guards.look(row, step)]


def test_high_kl_warns() -> None:
    row = {"optim/kl_sample_train_v2": 0.0112, "optim/kl_sample_train_v1": 0.001}
    (verdict,) = Guards().look(row, 139)
    assert verdict.action == "warn"
    assert verdict.message == "KL v2 0.0112 > 0.01 at step 139"
    assert actions(Guards(), {"optim/kl_sample_train_v2": 0.0099}) == []


def test_nan_loss_or_reward_stops_without_saving() -> None:
    for key in ("train_mean_nll", "env/all/reward/total"):
        (verdict,) = Guards().look({key: math.nan}, 3)
        assert (verdict.action, verdict.poisoned) == ("stop", True)
    assert actions(Guards(), {"test/nll": 1.0, "optim/entropy": math.nan}) == []


def test_cost_that_reaches_its_limit_stops() -> None:
    guards = Guards(max_usd=2.0)
    assert actions(guards, {"cost/cumulative_usd": 1.99}) == []
    assert actions(guards, {"cost/cumulative_usd": 2.0}) == ["stop"]
    assert actions(guards, {}) == ["stop"]  # unknown: rather stop than spend unseen
