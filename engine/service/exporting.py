"""A training run's best parameters as a checkpoint of our own: a folder that opens anywhere, and
says what made it."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from engine.data.split import TEST, TRAIN, VALIDATION
from engine.errors import TensorstepError, UsageError
from engine.experiments.sealed import is_frozen
from engine.processes import Snapshot
from engine.progress import Tell
from engine.runs import disk
from engine.runs.checkpoints import Checkpoint, best_of, checkpoints_in, load_checkpoint
from engine.runs.directory import RunDirectory
from engine.service.run_options import RunOptions
from engine.service.run_session import RunSession
from engine.service.saved import CARD, CONFIG, TOKENIZER, WEIGHTS, Saved, config_of

PREFIX = "parameters."
# of a walk: what a checkpoint has in its own form
OWN = (
    *("opened", "dtype", "text", "prompt", "rows"),
    *("tokenizer", "max_vocab", "min_freq"),
)
SOURCES = ("sentence", "text", "corpus")
NO_OPTION = ("walk", "tokens", "eval_windows")
REPEATED = {"breaks": "--break", "edits": "--set"}
OFF = {"clip": ["--no-clip"], "nonfinite": ["--no-break-on-nonfinite"]}
LICENCES = {  # of texts, by the first part of a corpus's name
    "storybook": "written by this project, MIT",
    "logs": "made by this project, MIT",
    "tinystories": "TinyStories, CDLA-Sharing-1.0",
}


def export(
    run: RunDirectory, to: Path, title: str | None, prompt: str | None, tell: Tell | None = None
) -> dict[str, Any]:
    """Write the run's best checkpoint by validation (the last, where nothing was validated) to a
    new folder. Returns its `folder`, and the facts of its card.

    Raises TensorstepError where there is none, or the folder is not empty.
    """
    found = checkpoints_in(run.checkpoints)
    chosen = best_of(found) or (found[-1] if found else None)
    if chosen is None:
        raise UsageError(f"the run {run.name!r} has no checkpoint yet: let it train on")
    if run.read_config().get("sealed") and not is_frozen(run):
        raise UsageError(
            f"the run {run.name!r} is part of an experiment whose test side is sealed, and a card"
            " has the loss on it: let `tensorstep reproduce` make its choice first (a sweep"
            " makes none)"
        )
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UsageError(f"{str(to)!r} is there already: give a new folder")
    if title is not None and not title.isprintable():
        raise UsageError("--title holds control characters: leave them out")
    options = RunOptions.from_json(run.read_config()["run"])
    session = RunSession(options, tell)
    prompt = first_prompt(session) if prompt is None else checked(prompt, session)
    snapshot, state = load_checkpoint(chosen)
    facts = facts_of(session, snapshot, chosen, state)
    corpus = session.prepared.corpus.name
    title = title or f"{options.walk.model} on {corpus}"
    saved = Saved(to, title, corpus, chosen.step, options_of(options), prompt, {})
    files = {WEIGHTS: save(parameters_of(snapshot)), TOKENIZER: tokenizer_of(session)}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files |= {CONFIG: config_of(saved, sums, facts), CARD: card_of(saved, facts).encode()}
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.exists():
            to.rmdir()  # empty, as was seen
        disk.write_folder(to, files)
    except OSError as error:
        raise TensorstepError(
            f"{str(to)!r} cannot be written ({error.strerror}): give another folder"
        ) from None
    return {"folder": str(to), **facts}


def checked(prompt: str, session: RunSession) -> str:
    """The prompt. Raises UsageError for one that the model could not go on with."""
    if not prompt.isprintable():
        raise UsageError("--prompt holds control characters: leave them out")
    session.generating(session.model(session.options.model), prompt, cache=False)
    return prompt


def first_prompt(session: RunSession) -> str:
    """What the texts begin with; nothing, where that is no prompt."""
    try:
        return checked(session.first_words(), session)
    except UsageError:  # words that are not in the vocabulary, or line breaks
        return ""


def parameters_of(snapshot: Snapshot) -> dict[str, torch.Tensor]:
    """The parameters alone, in float32, on the CPU."""
    return {
        name.removeprefix(PREFIX): tensor.float().cpu().contiguous()
        for name, tensor in snapshot.tensors.items()
        if name.startswith(PREFIX)
    }


def options_of(options: RunOptions) -> dict[str, Any]:
    """The options of a walk of it: those that were given, without defaults. A text of the user's is
    a corpus like any other: the vocabulary is there, and it is read when it is needed."""
    default = type(options.walk)().to_json()
    told = options.walk.to_json()
    told["corpus"] = told["corpus"] or told.pop("text")
    return {
        name: value
        for name, value in told.items()
        if name == "model" or (name not in OWN and value != default[name])
    }


def tokenizer_of(session: RunSession) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER
        session.prepared.tokenizer.save(path)
        return path.read_bytes()


def facts_of(
    session: RunSession, snapshot: Snapshot, chosen: Checkpoint, state: dict[str, Any]
) -> dict[str, Any]:
    """What a card says: losses over whole splits with these parameters, data, seed, versions."""
    walk = session.options
    model = session.restored(snapshot)
    losses = {
        side: session.split_loss(model, walk.model, side) for side in (TRAIN, VALIDATION, TEST)
    }
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "losses": losses,
        "step": chosen.step,
        "selected": "lowest validation loss" if chosen.val_loss is not None else "the last step",
        "corpus": session.prepared.corpus.name,
        "documents": {s: len(n) for s, n in session.prepared.split.documents.items()},
        "vocabulary": len(session.prepared.tokenizer),
        "data_sha256": state["data_sha256"],
        "licence": licence_of(walk.corpus),
        "seed": walk.seed,
        "command": command_of(session.run, state["threads"]),
        "run": session.run.to_json(),
        "versions": {"tensorstep": version("tensorstep"), "torch": state["torch"]},
        "device": state["device"],
        "threads": state["threads"],
    }


def licence_of(corpus: str | None) -> str:
    return LICENCES.get((corpus or "").split(":")[0], "as that of its texts")


def command_of(options: RunOptions, threads: int) -> str:
    """The command that trains it anew, in as many threads: sums depend on them."""
    said = {name: getattr(options.walk, name) for name in ("model", "optimizer")}
    plain = RunOptions.by_protocol(said)
    usual = {**plain.walk.to_json(), **plain.to_json()}
    told = {**options.walk.to_json(), **options.to_json()}
    words = [word for name in (*said, *SOURCES) for word in written(name, told[name])]
    for name, value in told.items():
        if name not in (*said, *SOURCES, *NO_OPTION) and value != usual[name]:
            words += written(name, value)
    return f"OMP_NUM_THREADS={threads} {shlex.join(['tensorstep', 'train', *words])}"


def written(name: str, value: Any) -> list[str]:
    """An option of `tensorstep train` as it is written."""
    option = f"--{name.replace('_', '-')}"
    if name == "rows":
        return [] if value is None else [option, ",".join(map(str, value))]
    if name in REPEATED:
        return [word for each in value for word in (REPEATED[name], each)]
    if value is None or value is False:
        return OFF.get(name, [])
    if value is True:
        return [option]
    text = str(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def export_command(saved: Saved) -> str:
    """The command that writes this folder."""
    words = ["tensorstep", "export", "NAME", saved.folder.name, "--title", saved.title]
    return shlex.join([*words, *(("--prompt", saved.prompt) if saved.prompt else ())])


def card_of(saved: Saved, facts: dict[str, Any]) -> str:
    """The card, in Markdown."""
    losses = [
        f"| {side} | {'none held out' if loss is None else f'{loss:.4f}'} |"
        for side, loss in facts["losses"].items()
    ]
    documents = ", ".join(f"{count:,} {side}" for side, count in facts["documents"].items())
    threads = "1 thread" if facts["threads"] == 1 else f"{facts['threads']} threads"
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return "\n".join([
        f"# {saved.title}",
        "",
        f"{facts['parameters']:,} parameters, after {facts['step']:,} steps ({facts['selected']}).",
        "",
        f"- Data: {facts['corpus']} ({documents} documents), a vocabulary of"
        f" {facts['vocabulary']:,}; {facts['licence']}.",
        f"- SHA-256 of the data: `{facts['data_sha256']}`.",
        f"- Seed {facts['seed']}; {versions}; {facts['device']}, {threads}.",
        f"- Licence of the weights: {'MIT' if 'MIT' in facts['licence'] else 'yours to give'}.",
        "",
        "Made by:",
        "",
        f"    {facts['command']} --name NAME --no-screen",
        f"    {export_command(saved)}",
        "",
        "| split | loss (nats a target) |",
        "|---|---|",
        *losses,
        "",
    ])  # fmt: skip
