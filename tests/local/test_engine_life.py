"""The engine as a process: starting, refusing to, ending, being killed, coming back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tinker import types

from tinker_cli.engine import start_engine
from tinker_cli.errors import UsageError

pytestmark = [
    pytest.mark.xdist_group("engine-life"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ADAM = types.AdamParams(learning_rate=1e-3)


def data() -> list[types.Datum]:
    return [
        types.Datum(
            model_input=types.ModelInput.from_ints(list(range(first, first + 20))),
            loss_fn_inputs={
                "target_tokens": np.arange(first + 1, first + 21),
                "weights": np.ones(20, np.float32),
            },
        )
        for first in (100, 400, 900)
    ]


def client(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    import tinker

    monkeypatch.setenv("TINKER_API_KEY", engine.key)
    return tinker.ServiceClient(base_url=engine.url)


def train(trainer: Any, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        losses.append(trainer.forward_backward(data(), "cross_entropy").result())
        trainer.optim_step(ADAM).result()
    return [output.metrics["loss:sum"] for output in losses]


def test_a_run_continued_in_a_new_process_equals_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = types.ModelInput.from_ints([5, 6, 7])
    free = types.SamplingParams(max_tokens=12, stop=[])
    store = tmp_path / "store"
    with start_engine(threads=1, store=store) as engine:
        service = client(engine, monkeypatch)
        whole = service.create_lora_training_client(base_model="tiny", rank=4, seed=2).result()
        expected = train(whole, 6)
        sampled = (
            whole.save_weights_and_get_sampling_client().result().sample(prompt, 2, free).result()
        )
        half = service.create_lora_training_client(base_model="tiny", rank=4, seed=2).result()
        before = train(half, 3)
        path = half.save_state("half").result().path
        service.close("success").result()
    with start_engine(threads=1, store=store) as engine:
        service = client(engine, monkeypatch)
        rest = service.create_training_client_from_state_with_optimizer(path).result()
        assert before + train(rest, 3) == expected
        again = (
            rest.save_weights_and_get_sampling_client().result().sample(prompt, 2, free).result()
        )
        assert [s.tokens for s in again.sequences] == [s.tokens for s in sampled.sequences]
        assert [s.logprobs for s in again.sequences] == [s.logprobs for s in sampled.sequences]
        service.close("success").result()


def test_killed_while_saving_it_leaves_whole_checkpoints_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    acknowledged: list[str] = []
    for round_ in range(3):
        with start_engine(threads=1, store=store) as engine:
            service = client(engine, monkeypatch)
            if acknowledged:
                for path in acknowledged[-2:]:
                    service.create_training_client_from_state_with_optimizer(path).result()
            trainer = service.create_lora_training_client(base_model="tiny", rank=64).result()
            train(trainer, 1)
            threading.Timer(0.15 + 0.1 * round_, os.kill, (engine.pid, signal.SIGKILL)).start()
            for number in range(2000):
                if not engine.alive():
                    break
                name = f"{number % 3}"  # written over, again and again
                future = trainer.save_state(name)
                try:
                    acknowledged.append(future.result(timeout=2).path)
                except Exception:  # whatever the SDK makes of a server that is gone
                    break
            service.holder.close() if hasattr(service.holder, "close") else None
    assert acknowledged
    with start_engine(threads=1, store=store) as engine:
        service = client(engine, monkeypatch)
        listed = service.create_rest_client().list_user_checkpoints(limit=100).result()
        paths = {checkpoint.tinker_path for checkpoint in listed.checkpoints}
        assert set(acknowledged) <= paths
        for path in paths:
            service.create_training_client_from_state_with_optimizer(path).result()
        service.close("success").result()


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    with start_engine(threads=1, store=tmp_path) as engine:
        process = psutil.Process(engine.pid)
        process.terminate()
        assert engine._process is not None
        assert engine._process.wait(10) == 0
        assert not engine.alive()


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tinker_cli.engine import start_engine\n"
        f"with start_engine(threads=1, store=Path({str(tmp_path)!r})) as engine:\n"
        "    print(engine.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    engine = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    engine.wait(10)  # psutil raises TimeoutExpired if it goes on


def test_a_port_that_is_taken_and_a_model_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"port {port} .* can't be used"),
            start_engine(store=tmp_path, port=port),
        ):
            pass
    (tmp_path / "empty").mkdir()
    for model in (str(tmp_path / "nowhere"), str(tmp_path / "empty"), "no/such-model"):
        with pytest.raises(UsageError) as refused, start_engine(model=model, store=tmp_path):
            pass
        assert model in refused.value.message
        assert len(refused.value.message.splitlines()) == 1


def test_idle_it_costs_nothing(tmp_path: Path) -> None:
    with start_engine(threads=1, store=tmp_path) as engine:
        process = psutil.Process(engine.pid)
        time.sleep(0.5)
        before = sum(process.cpu_times()[:2])
        time.sleep(2)
        assert sum(process.cpu_times()[:2]) - before < 0.1


def test_serve_announces_itself_and_ends_with_sigterm(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "tinker_cli", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*serve, "--store", str(tmp_path), "--key", "tml-mine", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["key"] == "tml-mine"
    with urllib.request.urlopen(f"{said['url']}/api/v1/status") as answer:
        assert json.load(answer)["models"] == ["tiny"]
    port = said["url"].rsplit(":", 1)[1]
    done = subprocess.run(
        [*serve[:4], "--status", "--port", port], capture_output=True, text=True, check=True
    )
    assert "tiny" in done.stdout
    process.terminate()
    assert process.wait(15) == 0


def test_serve_says_what_is_wrong(tmp_path: Path) -> None:
    def serve(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tinker_cli", "serve", *arguments],
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr

    code, said = serve("--key", "secret")
    assert code == 2
    assert "tml-" in said
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        code, said = serve("--status", "--port", str(free.getsockname()[1]))
    assert code == 4
    assert "no engine answers" in said
