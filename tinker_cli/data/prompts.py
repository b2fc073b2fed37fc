"""RL on your own prompts: JSONL rows with a prompt, an answer, and a reward that scores replies.

The environment is the cookbook's single-turn ProblemEnv; the reward of a named check is
correct + format_coef * (format - 1), where format also requires that the reply ended by itself.
A reward function gives the whole reward.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import chz
import tinker
from tinker_cookbook import renderers
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)
from tinker_cookbook.tokenizer_utils import get_tokenizer
from tinker_cookbook.utils import logtree
from tinker_cookbook.utils.logtree_formatters import ConversationFormatter

from tinker_cli.data.rewards import Reward, resolve_reward
from tinker_cli.data.rows import Row, require, sound_rows
from tinker_cli.errors import Fault, UsageError


class PromptEnv(ProblemEnv):
    """One prompt, one reply, one reward."""

    def __init__(
        self,
        row: Row,
        question: str,
        reward: Reward,
        renderer: renderers.Renderer,
        convo_prefix: list[renderers.Message],
        format_coef: float,
    ):
        super().__init__(renderer, convo_prefix, format_coef=format_coef)
        self.row, self.question, self.reward = row, question, reward

    def get_question(self) -> str:
        """The prompt's text."""
        return self.question

    def check_answer(self, sample_str: str) -> bool:
        """Not used: `step` awaits the reward instead."""
        raise NotImplementedError

    def check_format(self, sample_str: str) -> bool:
        """The form of a reply is whatever the reward asks for."""
        return True

    def get_reference_answer(self) -> str:
        """The row's answer, for the logs."""
        return str(self.row.value.get("answer", ""))

    async def score(self, action: Action) -> tuple[float, dict[str, float], renderers.Message]:
        """The reward of the sampled tokens, its metrics, and the parsed message."""
        message, termination = self.renderer.parse_response(list(action))
        content = renderers.get_text_content(message)
        where = f"{self.row.file}:{self.row.line}"
        got = await self.reward(content, self.row.value, where)
        formed = float(termination.is_stop_sequence)
        metrics = {**got.metrics, "format": formed}
        if self.reward.is_whole:
            return got.value, metrics, message
        metrics["correct"] = got.value
        return got.value + self.format_coef * (formed - 1), metrics, message

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Score the reply and end the episode."""
        total, metrics, message = await self.score(action)
        convo = [*self.convo_prefix, {"role": "user", "content": self.question}]
        with logtree.scope_header("Prompt"):
            logtree.log_formatter(ConversationFormatter(messages=convo))
        with logtree.scope_header("Policy Response"):
            logtree.log_formatter(ConversationFormatter(messages=[message]))
        with logtree.scope_header("Reward"):
            facts = {"reference_answer": self.get_reference_answer(), "reward": f"{total:.3f}"}
            logtree.table_from_dict({**facts, **metrics}, caption="Reward components")
        return StepResult(
            reward=total,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self.stop_condition,
            metrics=metrics,
        )


class PromptDataset(RLDataset):
    """Rows in batches of groups; a last partial batch is dropped."""

    def __init__(self, groups: Sequence[EnvGroupBuilder], batch_size: int):
        self._groups, self._batch_size = groups, batch_size

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """The groups of batch `index`."""
        start = index * self._batch_size
        return self._groups[start : start + self._batch_size]

    def __len__(self) -> int:
        """Full batches."""
        return len(self._groups) // self._batch_size


@chz.chz
class PromptsBuilder(RLDatasetBuilder):
    """Prompts from a JSONL file (`file_path`) or a dataset of the hub, a folder or a file (`path`).

    `prompt_template` may use any column in braces.
    """

    batch_size: int
    group_size: int
    model_name_for_tokenizer: str
    renderer_name: str
    file_path: str | None = None
    path: str | None = None
    name: str | None = None
    split: str = "train"
    test_split: str | None = None
    answer_column: str = "answer"
    reward: Any = "exact"
    prompt_template: str = "{prompt}"
    system_prompt: str | None = None
    fewshot: list[dict[str, str]] = chz.field(default_factory=list)
    test_file_path: str | None = None
    test_size: int = 0
    test_group_size: int = 1
    num_epochs: int = 1
    shuffle_seed: int | None = 0
    format_coef: float = 0.1

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """The training dataset, each epoch in an order of its own, and the held-out one."""
        train, test = self.split_rows()
        groups: list[EnvGroupBuilder] = []
        for epoch in range(self.num_epochs):
            order = list(train)
            if self.shuffle_seed is not None:
                random.Random(f"{self.shuffle_seed} {epoch}").shuffle(order)
            groups += [self._group(row, self.group_size) for row in order]
        held = [self._group(row, self.test_group_size) for row in test]
        return (
            PromptDataset(groups, self.batch_size),
            PromptDataset(held, len(held)) if held else None,
        )

    def split_rows(self) -> tuple[list[Row], list[Row]]:
        """(train, held out); raises InputFaults for rows that lack a column."""
        faults: list[Fault] = []
        rows, test = self._read(faults)
        needed = self._columns()
        faults += [fault for row in [*rows, *test] for fault in _missing(row, needed)]
        require(faults, f"in {self.file_path or self.path}")
        if not test and self.test_size:
            order = list(range(len(rows)))
            random.Random(self.shuffle_seed or 0).shuffle(order)
            held = set(order[: self.test_size])
            test = [row for i, row in enumerate(rows) if i in held]
            rows = [row for i, row in enumerate(rows) if i not in held]
        return rows, test

    def _read(self, faults: list[Fault]) -> tuple[list[Row], list[Row]]:
        """The rows of the source, and those of the held-out one if it has one of its own."""
        if (self.file_path is None) == (self.path is None):
            raise UsageError("prompts needs either file_path or path")
        test = sound_rows(self.test_file_path, faults) if self.test_file_path else []
        if self.file_path is not None:
            return self._answered(sound_rows(self.file_path, faults)), self._answered(test)
        table = partial(_table_rows, str(self.path), self.name)
        if self.test_split:
            test = table(self.test_split)
        return self._answered(table(self.split)), self._answered(test)

    def _answered(self, rows: list[Row]) -> list[Row]:
        """Rows whose answer is under `answer`, whatever column holds it."""
        if self.answer_column == "answer":
            return rows
        named = self.answer_column
        return [
            Row(row.file, row.line, {**row.value, "answer": row.value.get(named)}) for row in rows
        ]

    def environment(self, row: Row) -> PromptEnv:
        """The environment of one row."""
        environment: PromptEnv = self._thunk(row)()
        return environment

    def _columns(self) -> list[str]:
        named = [name for _, name, _, _ in string.Formatter().parse(self.prompt_template) if name]
        return [*named] if self._reward.is_whole else [*named, "answer"]

    @cached_property
    def _reward(self) -> Reward:
        return resolve_reward(self.reward)

    @cached_property
    def _renderer(self) -> renderers.Renderer:
        tokenizer = get_tokenizer(self.model_name_for_tokenizer)
        return renderers.get_renderer(self.renderer_name, tokenizer)

    def _prefix(self) -> list[renderers.Message]:
        prefix: list[renderers.Message] = []
        if self.system_prompt:
            prefix.append({"role": "system", "content": self.system_prompt})
        for message in self.fewshot:
            prefix.append({"role": message["role"], "content": message["content"]})
        return prefix

    def _thunk(self, row: Row) -> Any:
        question = self.prompt_template.format_map(_Columns(row.value))
        return partial(
            PromptEnv,
            row,
            question,
            self._reward,
            self._renderer,
            self._prefix(),
            self.format_coef,
        )

    def _group(self, row: Row, size: int) -> ProblemGroupBuilder:
        return ProblemGroupBuilder(
            env_thunk=self._thunk(row), num_envs=size, dataset_name="prompts"
        )


class _Columns(dict[str, Any]):
    def __init__(self, value: Mapping[str, Any]):
        super().__init__({key: str(item) for key, item in value.items()})


def _table_rows(path: str, name: str | None, split: str) -> list[Row]:
    from tinker_cli.data.huggingface import load_table

    table = load_table(path, name, split)
    return [Row(path, index, dict(value)) for index, value in enumerate(table, 1)]


def _missing(row: Row, needed: Sequence[str]) -> list[Fault]:
    return [
        Fault("missing", file=row.file, line=row.line, key=column)
        for column in needed
        if row.value.get(column) is None
    ]
