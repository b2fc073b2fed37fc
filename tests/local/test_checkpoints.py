"""Checkpoints: the REST client, the SDK's own commands, PEFT, downloads, expiry, crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import shaken_adapter, small_base_model, small_network
from tinker import types

from tinker_cli.local.faults import ClientFault, NotFound
from tinker_cli.local.learner import Moments
from tinker_cli.local.store import Place, Store, parse_uri

pytestmark = [
    pytest.mark.xdist_group("engine"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def trained(service: Any) -> Any:
    trainer = service.create_lora_training_client(
        base_model="tiny", rank=4, user_metadata={"who": "test"}
    ).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(list(range(20))),
        loss_fn_inputs={"target_tokens": np.arange(20), "weights": np.ones(20, np.float32)},
    )
    trainer.forward_backward([datum], "cross_entropy").result()
    trainer.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    return trainer


def test_runs_and_checkpoints_are_listed_changed_and_deleted(service: Any, trained: Any) -> None:
    rest = service.create_rest_client()
    path = trained.save_state("one", ttl_seconds=7200).result().path
    trained.save_weights_for_sampler("two", user_metadata={"k": "v"}).result()
    run = trained.model_id
    listed = {c.checkpoint_id: c for c in rest.list_checkpoints(run).result().checkpoints}
    assert set(listed) == {"weights/one", "sampler_weights/two"}
    assert listed["weights/one"].size_bytes > listed["sampler_weights/two"].size_bytes > 1000
    assert listed["sampler_weights/two"].user_metadata == {"k": "v"}
    left = listed["weights/one"].expires_at - datetime.now(UTC)
    assert timedelta(seconds=7100) < left < timedelta(seconds=7201)
    found = rest.get_training_run_by_tinker_path(path).result()
    assert (found.base_model, found.lora_rank) == ("tiny", 4)
    assert found.user_metadata == {"who": "test"}
    assert found.last_checkpoint.tinker_path == path
    assert run in {r.training_run_id for r in rest.list_training_runs().result().training_runs}
    info = rest.get_weights_info_by_tinker_path(path).result()
    assert (info.base_model, info.lora_rank, info.train_mlp) == ("tiny", 4, True)

    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    rest.publish_checkpoint_from_tinker_path(path).result()
    changed = rest.list_checkpoints(run).result().checkpoints[0]
    assert (changed.expires_at, changed.public) == (None, True)
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    copied = rest.copy_weights(path, "project").result()
    assert copied != path
    rest.delete_checkpoint_from_tinker_path(path).result()
    left_over = [c.checkpoint_id for c in rest.list_checkpoints(run).result().checkpoints]
    assert left_over == ["sampler_weights/two"]
    service.create_training_client_from_state_with_optimizer(copied).result()
    everything = rest.list_user_checkpoints(limit=100).result().checkpoints
    assert copied in {c.tinker_path for c in everything}
    assert path not in {c.tinker_path for c in everything}


def test_sessions_are_listed_and_searched(service: Any, trained: Any) -> None:
    rest = service.create_rest_client()
    session = trained.model_id.split(":")[0]
    assert session in rest.list_sessions().result().sessions
    assert rest.get_session(session).result().training_run_ids == [trained.model_id]
    query = types.SessionSearchRequest(session_id=session)
    assert [s.session_id for s in rest.search_sessions(query).result().sessions] == [session]
    rest.assign_session_project(session, "p").result()
    query = types.SessionSearchRequest(session_id=session, project_ids=["other"])
    assert rest.search_sessions(query).result().sessions == []
    sampler = trained.save_weights_and_get_sampling_client().result()
    known = rest.get_sampler(sampler._sampling_session_id).result()
    assert known.base_model == "tiny"


def test_the_cookbook_downloads_what_was_saved(engine: Any, trained: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file
    from tinker_cookbook import weights

    path = trained.save_state("whole").result().path
    out = weights.download(tinker_path=path, output_dir=str(tmp_path / "a"), base_url=engine.url)
    files = {file.name for file in Path(out).iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json"} <= files
    named = load_file(Path(out) / "adapter_model.safetensors")
    assert all(tensor.isfinite().all() for tensor in named.values())
    plain = trained.save_weights_external("plain").result().path
    again = weights.download(tinker_path=plain, output_dir=str(tmp_path / "b"), base_url=engine.url)
    for name, tensor in load_file(Path(again) / "adapter_model.safetensors").items():
        assert torch.equal(tensor, named[name])


@pytest.mark.parametrize("kind", ["qwen3", "gpt2"])
def test_peft_loads_a_checkpoint_and_computes_the_same(kind: str, tmp_path: Path) -> None:
    from peft import PeftModel

    more = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256} if kind == "gpt2" else {}
    model, adapter = small_base_model(kind, **more), None
    adapter = shaken_adapter(model)
    store = Store(tmp_path / "store")
    facts = store.save(Place("run", "sampler_weights", "x"), model, adapter, None)
    tuned = PeftModel.from_pretrained(small_network(kind, **more), store.folder(facts.place.uri))
    tokens = torch.arange(30)[None]
    with torch.no_grad(), model.wearing(model.fold(adapter)):
        ours = model.network(input_ids=tokens).logits
    with torch.no_grad():
        theirs = tuned.eval()(input_ids=tokens).logits
        base = small_network(kind, **more).eval()(input_ids=tokens).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert (ours - base).abs().max() > 0.05


def sdk(engine: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tinker_cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TINKER_API_KEY": engine.key, "TINKER_BASE_URL": engine.url},
        timeout=120,
    )


def test_the_sdks_own_commands_work(engine: Any, trained: Any, tmp_path: Path) -> None:
    path = trained.save_state("cli").result().path
    run = trained.model_id
    for arguments, word in (
        (("model", "list"), "tiny"),
        (("run", "list"), run),
        (("run", "info", run), "tiny"),
        (("checkpoint", "list"), "weights/cli"),
        (("checkpoint", "info", path), "training"),
        (("checkpoint", "set-ttl", path, "--ttl", "7200"), ""),
    ):
        done = sdk(engine, "-f", "json", *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert word in done.stdout
    out = tmp_path / "downloaded"
    done = sdk(engine, "checkpoint", "download", path, "--output", str(out))
    assert done.returncode in (0, 1), done.stderr  # training checkpoints may need an export first
    assert "Traceback" not in done.stderr
    external = trained.save_weights_external("cli").result().path
    done = sdk(engine, "checkpoint", "download", external, "--output", str(out))
    assert done.returncode == 0, done.stderr
    assert list(out.rglob("adapter_model.safetensors"))
    assert sdk(engine, "checkpoint", "delete", path, "--yes").returncode == 0
    assert sdk(engine, "checkpoint", "info", path).returncode != 0


def test_what_is_saved_is_loaded_exactly(tmp_path: Path, small_model: Any) -> None:
    store, adapter = Store(tmp_path), shaken_adapter(small_model)
    moments = Moments(
        {f"{n}.a": torch.randn_like(t) for n, t in adapter.a.items()},
        {f"{n}.b": torch.rand_like(t) for n, t in adapter.b.items()},
        steps=17,
    )
    facts = store.save(Place("r", "weights", "a.b-c_1"), small_model, adapter, moments)
    loaded, state = store.load(facts.place.uri, small_model)
    assert state is not None
    assert state.steps == 17
    assert loaded.digest() == adapter.digest()
    for kept, own in ((state.first, moments.first), (state.second, moments.second)):
        assert all(torch.equal(kept[name], own[name]) for name in own)
    with pytest.raises(ClientFault, match="was trained on"):
        store.load(facts.place.uri, small_base_model(hidden_size=64))


def test_an_expired_checkpoint_is_gone(tmp_path: Path, small_model: Any) -> None:
    store, adapter = Store(tmp_path), shaken_adapter(small_model)
    facts = store.save(Place("r", "weights", "x"), small_model, adapter, None)
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    store.change(facts.place.uri, expires=past)
    assert list(store.all()) == []
    with pytest.raises(NotFound, match="expired"):
        store.load(facts.place.uri, small_model)
    store.sweep()
    assert not (tmp_path / "r" / "weights" / "x").exists()


def test_a_crash_between_two_renames_loses_nothing(tmp_path: Path, small_model: Any) -> None:
    store, adapter = Store(tmp_path), shaken_adapter(small_model)
    facts = store.save(Place("r", "weights", "x"), small_model, adapter, None)
    folder = tmp_path / "r" / "weights" / "x"
    folder.rename(folder.parent / ".x.0123456789abcdef.old")
    half = folder.parent / ".y.0123456789abcdef.partial"
    half.mkdir()
    (half / "adapter_model.safetensors").write_bytes(b"half")
    Store(tmp_path).sweep()
    assert store.load(facts.place.uri, small_model)[0].digest() == adapter.digest()
    assert half.exists()  # young: perhaps another engine's work
    os.utime(half, (1, 1))
    store.sweep()
    assert not half.exists()
    assert [f.name for f in store.all()] == ["x"]


def test_a_foreign_file_in_the_store_is_passed_over(tmp_path: Path, small_model: Any) -> None:
    store = Store(tmp_path)
    store.save(Place("r", "weights", "x"), small_model, shaken_adapter(small_model), None)
    odd = tmp_path / "r" / "weights" / "odd"
    odd.mkdir()
    (odd / "checkpoint.json").write_text(json.dumps({"run": "r"}))
    assert [facts.name for facts in store.all()] == ["x"]
    store.sweep()


@pytest.mark.parametrize(
    "uri", ["tinker://r/weights", "tinker://r/other/x", "r/weights/x", "tinker://r/weights/x/y"]
)
def test_a_path_has_three_segments_of_known_kinds(uri: str) -> None:
    with pytest.raises(ClientFault, match="checkpoint path"):
        parse_uri(uri)
