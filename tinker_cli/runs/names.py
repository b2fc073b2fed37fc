"""What people call a metric -> the key that it has in the file."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tinker_cli.errors import UsageError, nearest

ALIASES: dict[str, tuple[str, ...]] = {
    "reward": ("env/all/reward/total",),
    "reward/total": ("env/all/reward/total",),
    "test_reward": ("test/env/all/reward/total",),
    "kl": ("optim/kl_sample_train_v2", "optim/kl_sample_train_v1"),
    "kl_v1": ("optim/kl_sample_train_v1",),
    "kl_v2": ("optim/kl_sample_train_v2",),
    "kl_sample_train_v1": ("optim/kl_sample_train_v1",),
    "kl_sample_train_v2": ("optim/kl_sample_train_v2",),
    "kl_ref": ("kl_policy_base",),
    "entropy": ("optim/entropy",),
    "loss": ("train_mean_nll", "loss:sum", "loss"),
    "nll": ("train_mean_nll", "test/nll"),
    "test_nll": ("test/nll",),
    "lr": ("optim/lr", "learning_rate"),
    "correct": ("env/all/correct",),
    "format": ("env/all/format",),
    "cost": ("cost/cumulative_usd",),
    "tokens": ("tokens/cumulative/trained", "tokens/cumulative/sampled"),
    "ac_tokens_per_turn": ("env/all/ac_tokens_per_turn",),
    "time": ("seconds/step",),
    "tok/s": ("tokens/s",),
}
# What a value is counted in, by a part of its metric's name; the first that fits.
_UNITS = (
    (":count", ""),
    ("progress/batch", ""),
    ("time/", "s"),
    ("seconds", "s"),
    ("usd", "$"),
    ("kl_", "nats"),
    ("entropy", "nats"),
    ("nll", "nats/token"),
    ("bpb", "bits/byte"),
    ("tokens/s", "tokens/s"),
    ("tokens_per_turn", "tokens/turn"),
    ("tokens", "tokens"),
    ("frac", "share"),
    ("progress", "share"),
    ("correct", "share"),
    ("sequences", "sequences"),
    ("episodes", "episodes"),
    ("turns_per_episode", "turns/episode"),
)
SHOWN_BY_DEFAULT = ("reward", "test_reward", "kl_v1", "kl_v2", "entropy", "nll", "test_nll", "lr")


def resolve_name(word: str, keys: Sequence[str]) -> str:
    """The key that `word` means: itself, an alias, or a unique ending; UsageError otherwise."""
    if word in keys:
        return word
    for key in ALIASES.get(word, ()):
        if key in keys:
            return key
    ends = [key for key in keys if key.endswith(f"/{word}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        shortest = min(ends, key=lambda key: (key.count("/"), key))
        raise UsageError(
            f"{word!r} fits {len(ends)} metrics: {', '.join(ends[:4])}", hint=f"say {shortest}"
        )
    near = nearest(word, [*keys, *(alias for alias in ALIASES if _known(alias, keys))])
    hint = f"did you mean {near}?" if near else "--keys lists the metrics there are"
    raise UsageError(f"no metric {word!r}", hint=hint)


def _known(alias: str, keys: Sequence[str]) -> bool:
    return any(key in keys for key in ALIASES[alias])


def resolve_names(words: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The keys that the words mean; a word with `*`, `?` or `[` that is no key is a pattern."""
    found: list[str] = []
    for word in words:
        if word not in keys and any(sign in word for sign in "*?["):
            matched = [key for key in keys if fnmatchcase(key, word)]
            if not matched:
                raise UsageError(f"no metric matches {word!r}", hint="--keys lists them")
            found += matched
        else:
            found.append(resolve_name(word, keys))
    return list(dict.fromkeys(found))


def default_names(keys: Sequence[str]) -> list[str]:
    """What a person looks at first, of what there is."""
    chosen = []
    for alias in SHOWN_BY_DEFAULT:
        key = next((key for key in ALIASES[alias] if key in keys), None)
        if key is not None and key not in chosen:
            chosen.append(key)
    return chosen or list(keys)[:6]


def unit(key: str) -> str:
    """What the metric's values are counted in; "" where that is nothing or isn't known."""
    return next((name for part, name in _UNITS if part in key), "")


def label(key: str) -> str:
    """A short name for a column or panel."""
    for alias in (*SHOWN_BY_DEFAULT, "correct", "format", "cost"):
        if key in ALIASES[alias][:1]:
            return {"kl_v1": "KL v1", "kl_v2": "KL v2", "nll": "train NLL", "test_nll": "test NLL",
                    "test_reward": "test reward"}.get(alias, alias)  # fmt: skip
    return key
