"""A run's best parameters as a checkpoint of our own: exported, opened, trained on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from engine.data.storybook import write_stories
from engine.errors import TensorstepError, UsageError
from engine.experiments.runs import finished, train
from engine.experiments.sealed import Frozen
from engine.maps import MODEL_STAGES
from engine.runs.checkpoints import checkpoints_in, load_checkpoint
from engine.runs.directory import FINISHED, RunDirectory
from engine.service.control import Control
from engine.service.exporting import export
from engine.service.opened import open_session
from engine.service.options import Options
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.saved import FIXED, SHIPPED, SHIPPED_IN, Saved, saved_in
from engine.service.session import Session
from engine.service.training_run import TrainingRun
from engine.states import drain
from tests.service.runs import made, tiny

LARGEST = 20 * 2**20  # bytes of all that ship


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDirectory:
    """A short run of a kind of model, made in this process."""
    options = tiny({"model": getattr(request, "param", "mlp")})
    run = made(tmp_path / "run", options)
    training = TrainingRun(run, options, Control(), RunSession(options))
    training.begin()
    assert training.go() == FINISHED
    return run


def options_of(saved: Saved | None, **given: object) -> Options:
    assert saved is not None
    return Options.from_json(
        {**saved.options_with(dict(given)), "opened": str(saved.folder)}
    ).check()


@pytest.mark.parametrize("run", MODEL_STAGES, indirect=True)
def test_it_is_opened_as_it_was_trained(run: RunDirectory, tmp_path: Path):
    """The same parameters, the same documents and numbering, the same losses."""
    told = export(run, tmp_path / "out", "mine", "Once")
    saved = saved_in(told["folder"])
    assert saved is not None
    assert (saved.title, saved.prompt, saved.steps) == ("mine", "Once", told["step"])
    session = open_session(options_of(saved))
    model = session.model(session.options.model)
    best = next(each for each in checkpoints_in(run.checkpoints) if each.step == told["step"])
    snapshot, _ = load_checkpoint(best)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, snapshot.tensors[f"parameters.{name}"]), name
    loss = session.split_loss(model, session.options.model, "validation")
    assert loss == pytest.approx(told["losses"]["validation"], rel=1e-6)
    trained = Session(Options.from_json(run.read_config()["run"]["walk"]))
    assert session.prepared.tokenizer.itos == trained.prepared.tokenizer.itos
    assert torch.equal(session.prepared.streams["train"].ids, trained.prepared.streams["train"].ids)


@pytest.mark.parametrize("kind", ["text", "sentence", "corpus"])
def test_texts_of_ones_own(kind: str, tmp_path: Path):
    """It opens on the texts that it was trained on, and writes without them."""
    path = tmp_path / "stories.txt"
    stories = write_stories(40, 3)
    path.write_text("\n".join(stories))
    spec = stories[0] if kind == "sentence" else str(path)
    lines = {} if kind == "sentence" else {"lines": True}
    options = RunOptions.by_protocol(
        {"model": "mlp", kind: spec, "context": 8, "width": 8, "hidden": 16, "batch": 8} | lines,
        steps=4,
        eval_every=2,
        device="cpu",
    )
    run = made(tmp_path / "run", options.check())
    training = TrainingRun(run, options, Control(), RunSession(options))
    training.begin()
    assert training.go() == FINISHED
    saved = saved_in(export(run, tmp_path / "out", None, None)["folder"])
    assert saved is not None
    session = open_session(options_of(saved))
    trained = Session(options.walk)
    assert torch.equal(session.prepared.streams["train"].ids, trained.prepared.streams["train"].ids)
    assert session.corpus_name == trained.prepared.corpus.name
    assert saved.prompt == trained.first_words()
    path.unlink()
    session = open_session(options_of(saved))
    drain(session.generation("mlp").states(1))
    if kind != "sentence":
        with pytest.raises(TensorstepError, match="there is no corpus and no file"):
            session.prepared.streams["train"]


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [("\n\x1b[31m red ball", "characters"), ("zebra yak " + "a ball " * 30, "words")],
    ids=["controls", "unknown words"],
)
def test_a_text_that_begins_with_no_prompt(text: str, tokenizer: str, tmp_path: Path):
    """It is opened on the empty one, and writes."""
    path = tmp_path / "own.txt"
    path.write_text(text)
    given = {"model": "mlp", "corpus": str(path), "tokenizer": tokenizer, "min_freq": 2}
    small = {"context": 4, "width": 8, "hidden": 8, "batch": 4}
    options = RunOptions.by_protocol({**given, **small}, steps=1, device="cpu").check()
    run = made(tmp_path / "run", options)
    training = TrainingRun(run, options, Control(), RunSession(options))
    training.begin()
    assert training.go() == FINISHED
    saved = saved_in(export(run, tmp_path / "out", None, None)["folder"])
    assert saved is not None
    assert saved.prompt == ""
    drain(open_session(options_of(saved)).generation("mlp").states(1))


def test_what_cannot_be_written_on_a_card(run: RunDirectory, tmp_path: Path):
    for title, prompt, why in (
        ("a\nb\x1b[31m", None, "--title holds control characters"),
        ("mine", "\x1b[31m", "--prompt holds control characters"),
        ("mine", "zzz", "the prompt 'zzz' has no token of the vocabulary"),
    ):
        with pytest.raises(UsageError, match=re.escape(why)):
            export(run, tmp_path / "out", title, prompt)
    assert not (tmp_path / "out").exists()


def test_its_training_goes_on(run: RunDirectory, tmp_path: Path):
    """From the exported parameters, with an optimizer that begins anew."""
    told = export(run, tmp_path / "out", None, None)
    saved = saved_in(told["folder"])
    session = open_session(options_of(saved, optimizer="sgd", lr=0.5, clip=None))
    training = session.training("mlp")
    before = {name: value.clone() for name, value in training.parameters.items()}
    loss = drain(training.states(1)).value
    plain = session.model("mlp")
    rows = session.batches().rows(1)
    windows = session.prepared.windows
    logits = plain(windows.contexts[rows])
    wanted = torch.nn.functional.cross_entropy(logits, windows.targets[rows])
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    wanted.backward()
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        moved = before[name] - 0.5 * parameter.grad
        torch.testing.assert_close(training.parameters[name].detach(), moved)


def test_what_the_weights_fix_is_refused(run: RunDirectory, tmp_path: Path):
    told = export(run, tmp_path / "out", None, None)
    saved = saved_in(told["folder"])
    assert saved is not None
    others = {"model": "attention", "tokenizer": "characters"}
    for name in FIXED:
        with pytest.raises(UsageError, match=f"--{name} .* does not fit"):
            saved.options_with({name: others.get(name, 999)})


def test_what_cannot_be_exported(run: RunDirectory, tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match="is there already: give a new folder"):
        export(run, tmp_path / "full", None, None)
    fresh = made(tmp_path / "fresh", tiny())
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        export(fresh, tmp_path / "out", None, None)
    assert not (tmp_path / "out").exists()
    export(run, tmp_path / "full" / "in" / "there", None, None)


def test_damaged_folders(run: RunDirectory, tmp_path: Path):
    """One sentence each, and nothing half-read."""
    out = tmp_path / "out"
    export(run, out, None, None)
    config, weights = out / "config.json", out / "model.safetensors"
    whole = json.loads(config.read_text())
    heads = {**whole["options"], "heads": "<b>"}
    for wrong in ({"format": "tensorstep-9"}, {"options": 3}, {"steps": "x"}, {"options": heads}):
        config.write_text(json.dumps({**whole, **wrong}))
        with pytest.raises(TensorstepError, match=r"config\.json"):
            saved_in(str(out))
    config.write_text(json.dumps({**whole, "options": {**whole["options"], "width": 3}}))
    with pytest.raises(TensorstepError, match="do not fit its config"):
        open_session(options_of(saved_in(str(out)))).model("mlp")
    config.write_text(json.dumps(whole))
    for file in (weights, out / "tokenizer.json"):
        content = file.read_bytes()
        for damaged in (content[:50], content.replace(b"a", b"b", 1)):
            file.write_bytes(damaged)
            with pytest.raises(TensorstepError, match=f"{file.name}' is not the file that its con"):
                open_session(options_of(saved_in(str(out))))
        file.unlink()
        with pytest.raises(TensorstepError, match=r"cannot be read|there is no"):
            open_session(options_of(saved_in(str(out))))
        file.write_bytes(content)


def test_whatever_the_tokenizer_was_fitted_by(tmp_path: Path):
    """Its size and its rarest token are in it already."""
    walk = {"model": "mlp", "corpus": "storybook:60", "max_vocab": 90, "min_freq": 2, "batch": 8}
    own = {"steps": 1, "eval_every": 1, "checkpoint_every": 1, "device": "cpu"}
    options = RunOptions.by_protocol(walk, **own)
    made = train(tmp_path / "run", options, "training", None)
    with pytest.raises(UsageError, match="is part of an experiment whose test side is sealed"):
        export(made, tmp_path / "out", None, None)
    Frozen(made.path, finished(made, None).sealed)
    export(made, tmp_path / "out", "a 'title' & more", None)
    session = open_session(options_of(saved_in(str(tmp_path / "out"))))
    assert len(session.prepared.tokenizer) == 90
    card = (tmp_path / "out" / "card.md").read_text()
    assert "tensorstep export NAME out --title 'a '\"'\"'title'\"'\"' & more'" in card


def test_other_folders_are_not_ours(tmp_path: Path):
    assert saved_in(str(tmp_path)) is None
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert saved_in(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert saved_in(str(tmp_path)) is None
    with pytest.raises(UsageError, match="there is no checkpoint 'nope': use transformer"):
        saved_in("checkpoint:nope")


# --- those that ship -------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_one_that_ships(name: str):
    """It opens, and has the losses of its card; the card says what made it."""
    saved = saved_in(f"checkpoint:{name}")
    session = open_session(options_of(saved))
    facts = json.loads((SHIPPED_IN / name / "config.json").read_text())["facts"]
    model = session.model(session.options.model)
    assert sum(each.numel() for each in model.parameters()) == facts["parameters"]
    for side in ("validation", "test"):
        loss = session.split_loss(model, session.options.model, side)
        if facts["losses"][side] is not None:
            assert loss == pytest.approx(facts["losses"][side], rel=1e-4)
    card = (SHIPPED_IN / name / "card.md").read_text()
    for fact in ("Licence", "Seed", "tensorstep train", "SHA-256", facts["data_sha256"]):
        assert fact in card


def test_together_they_are_small():
    files = [path for path in SHIPPED_IN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
