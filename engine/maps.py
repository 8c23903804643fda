"""The maps: which stages there are, in which order, what leads where, and a plain sentence each.

Knows no tensors: the screen reads it too. `STAGE_OF` is the one table that says which state lies in
which box.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from engine.stages import STAGES, Stage

TRAINING, GENERATION = "training", "generation"
MODULE = "module"  # a model that was not written here: of its inside its modules are known


ATTENTION = (
    "embedding",
    "qkv",
    "scores",
    "weights",
    "message",
    "projection",
    "residual",
    "hidden",
    "logits",
)
TRANSFORMER = (
    *("embedding", "norm1", "qkv", "scores", "weights", "message", "projection", "residual1"),
    *("norm2", "feedforward", "residual2", "norm", "logits"),
)
MODEL_STAGES = {
    "bigram": ("logits",),
    "mlp": ("embedding", "flatten", "hidden", "logits"),
    "attention": ATTENTION,
    "multihead": ATTENTION,
    "transformer": TRANSFORMER,
}
CHECKPOINT, CACHED = "checkpoint", ":cached"  # a model that was opened; the same, with a cache
EVERY_POSITION = ("transformer", CHECKPOINT)  # models that have a target at every position
EXAMPLES = {  # hand-sized ones: a prompt, and what becomes of it
    "money-bank-2": ("embedding", "qkv", "scores", "weights", "message", "projection", "residual1"),
    "money-bank-4": TRANSFORMER[:-2],
    "money-bank-causal": TRANSFORMER[:-2],
}
OPENED_STAGES = {CHECKPOINT: TRANSFORMER, **EXAMPLES}
MODULE_KEYS = ("modules", "loss", "backward", "optimizer", "parameters")
MODEL_TITLES = {
    "bigram": "bigram table",
    "mlp": "window MLP",
    "attention": "one head",
    "multihead": "several heads",
    "transformer": "transformer",
    CHECKPOINT: "checkpoint",
}


# where a stage is not quite what it is in the models that are written here
OTHERWISE: dict[str, dict[str, Stage]] = {
    MODULE: {
        "loss": Stage(
            "loss", "loss", "", "What your own code gives for this step: training makes it smaller."
        )
    },
    CHECKPOINT: {
        "probabilities": replace(
            STAGES["probabilities"],
            sentence="Scores become probabilities; none is blocked: it says what it was taught.",
        )
    },
}


def stage_named(key: str, model: str) -> Stage:
    """A stage, as it is in a model."""
    return OTHERWISE.get(model.removesuffix(CACHED), {}).get(key, STAGES[key])


def title_of(model: str) -> str:
    """What a kind of model is called."""
    if model in EXAMPLES:
        return model
    if model.endswith(CACHED):
        return f"{title_of(model.removesuffix(CACHED))} with KV cache"
    return MODEL_TITLES.get(model, "your model")


@dataclass(frozen=True)
class Edge:
    """What flows from one stage to another beside the plain order: skips and loops."""

    source: str
    target: str
    what: str


@dataclass(frozen=True)
class Map:
    """The stages of one architecture in order, and the edges that are not from one to the next."""

    kind: str
    model: str
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]


def map_of(kind: str, model: str) -> Map:
    """The training or generation map of a model: "mlp", "attention" or "multihead"; of a "module"
    there is the training map.

    Raises KeyError for a model or a kind of map there is not.
    """
    if (kind, model) == (TRAINING, MODULE):
        stages = tuple(stage_named(key, model) for key in MODULE_KEYS)
        return Map(kind, model, stages, (Edge("parameters", "modules", "next step"),))
    middle = {**MODEL_STAGES, **OPENED_STAGES}[model.removesuffix(CACHED)]
    if model in EXAMPLES:
        keys = ("prompt", "tokenize", "windows", *middle)
        return Map(kind, model, tuple(STAGES[key] for key in keys), ())
    if kind == TRAINING:
        keys = ("stories", "split", "tokenize", "ids", "windows", "batch", *middle)
        keys = (*keys, "loss", "backward", "optimizer", "parameters", "validation")
        edges = [Edge("batch", "loss", "y"), Edge("parameters", "batch", "next step")]
    elif kind == GENERATION:
        keys = ("prompt", "tokenize", "windows", "checkpoint", *middle)
        keys = (*keys, "probabilities", "choose", "stop", "append")
        edges = [Edge("append", "windows", "next token")]
    else:
        raise KeyError(f"there is no {kind} map")
    if "residual2" in middle:
        edges.append(Edge("residual2", "norm1", "next block"))
    if "residual" in middle:
        edges.append(Edge("embedding", "residual", "x"))
    return Map(kind, model, tuple(stage_named(key, model) for key in keys), tuple(edges))


# Which state lies in which box, the first pattern that fits. Blocks of a transformer prefix their
# names ("blocks.0.attention.scores"), which is taken off before.
STAGE_OF: tuple[tuple[str, str], ...] = (
    (r"modules(\..*)?", "modules"),
    (r"stories", "stories"),
    (r"split|audit\..*", "split"),
    (r"prompt", "prompt"),
    (r"tokens", "tokenize"),
    (r"vocabulary|ids", "ids"),
    (r"windows\..*|context", "windows"),
    (r"batch\..*", "batch"),
    (r"embedding(\..*)?", "embedding"),
    (r"flatten", "flatten"),
    (r"q|K|V|k|v|[qk]\.rotated|cache\.[kv]", "qkv"),
    (r"norm1", "norm1"),
    (r"residual1", "residual1"),
    (r"norm2", "norm2"),
    (r"feedforward\..*", "feedforward"),
    (r"residual2", "residual2"),
    (r"norm", "norm"),
    (r"scores(\..*)?", "scores"),
    (r"weights", "weights"),
    (r"message", "message"),
    (r"projection", "projection"),
    (r"residual", "residual"),
    (r"hidden(\..*)?", "hidden"),
    (r"logits\.(blocked|temperature|top_k|top_p)|cdf", "probabilities"),
    (r"logits", "logits"),
    (r"loss(\..*)?", "loss"),
    (r"gradients\..*", "backward"),
    (r"(update|optimizer)\..*", "optimizer"),
    (r"validation", "validation"),
    (r"choice", "choose"),
    (r"stop", "stop"),
)
BLOCK = re.compile(r"blocks\.\d+\.(attention\.)?")


def stage_of(kind: str, name: str, step: int) -> str:
    """The key of the stage a state lies in.

    Raises KeyError for a name that no stage has.
    """
    if name.startswith("parameters."):
        return "parameters" if kind == TRAINING else "checkpoint"
    if name == "probabilities":
        return "loss" if kind == TRAINING else "probabilities"
    if name == "history":
        return "tokenize" if step == 0 else "append"
    bare = BLOCK.sub("", name)
    for pattern, key in STAGE_OF:
        if re.fullmatch(pattern, bare):
            return key
    raise KeyError(f"no stage of the {kind} map has a state {name!r}")
