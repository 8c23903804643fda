"""The maps: which stages there are, in which order, what leads where, and a plain sentence each.

Knows no tensors: the screen reads it too. `STAGE_OF` is the one table that says which state lies in
which box.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRAINING, GENERATION = "training", "generation"
MODULE = "module"  # a model that was not written here: of its inside its modules are known


@dataclass(frozen=True)
class Stage:
    """A box of a map: what kind of thing happens here."""

    key: str
    title: str
    formula: str
    sentence: str
    axes: str = ""


STAGES = {
    stage.key: stage
    for stage in (
        Stage("stories", "stories", "", "The texts to learn from, one document each.", "N"),
        Stage(
            "split", "split", "", "Some documents train, others are held out to check with.", "N"
        ),
        Stage("tokenize", "tokenize", "", "A text is cut into tokens: words, numbers, marks.", "N"),
        Stage(
            "ids",
            "IDs",
            "id = vocabulary[token]",
            "Every token has a number; <BOS> and <EOS> mark where a document begins and ends.",
            "N",
        ),
        Stage(
            "windows",
            "windows",
            "context = the w IDs before the target",
            "A model sees w slots at a time; <PAD> fills those before the beginning.",
            "N, w",
        ),
        Stage("batch", "batch", "X, y", "The windows of this step: contexts X, targets y.", "B, w"),
        Stage(
            "modules",
            "modules",
            "",
            "What each module of the model gave, in the order in which they were called.",
        ),
        Stage("prompt", "prompt", "", "The text to be continued.", ""),
        Stage("checkpoint", "checkpoint", "", "The stored parameters that are used.", ""),
        Stage(
            "embedding",
            "embedding",
            "E[id] + P[slot]",
            "Each ID picks a row of numbers that stands for the token.",
            "B, w, d",
        ),
        Stage(
            "flatten",
            "flatten",
            "w rows of d side by side",
            "The rows of all slots are laid side by side, as one long row.",
            "B, w·d",
        ),
        Stage(
            "qkv",
            "query, key, value",
            "q = x·W_Qᵀ  K = x·W_Kᵀ  V = x·W_Vᵀ",
            "The last slot asks (query); every slot says what it has (key) and gives (value).",
            "B, S, k",
        ),
        Stage(
            "scores",
            "scores",
            "q·Kᵀ / √k",
            "How well each key answers the query; <PAD> is masked out with -inf.",
            "B, 1, S",
        ),
        Stage(
            "weights",
            "weights",
            "softmax(scores)",
            "Each score becomes a share of attention; a row adds up to 1.",
            "B, 1, S",
        ),
        Stage(
            "message",
            "message",
            "weights·V",
            "The values, mixed by their shares: what the query has found.",
            "B, 1, v",
        ),
        Stage(
            "projection",
            "projection",
            "message·W_Oᵀ",
            "The message is brought back to the width of the embedding.",
            "B, 1, d",
        ),
        Stage(
            "residual",
            "residual",
            "x + projection",
            "What was found is added to what the last slot already was.",
            "B, 1, d",
        ),
        Stage(
            "norm1",
            "first norm",
            "(x - mean) / √variance · scale + shift",
            "Each row is brought to a common size before attention reads it.",
            "B, T, d",
        ),
        Stage(
            "residual1",
            "first residual",
            "x + projection",
            "What attention has found is added to the stream.",
            "B, T, d",
        ),
        Stage(
            "norm2",
            "second norm",
            "as the first",
            "Each row is brought to a common size before the feedforward network reads it.",
            "B, T, d",
        ),
        Stage(
            "feedforward",
            "feedforward",
            "W_2 · activation(W_1 · x)",
            "Every position is worked on by itself: expanded, cut by an activation, shrunk again.",
            "B, T, h",
        ),
        Stage(
            "residual2",
            "second residual",
            "x + feedforward",
            "What the network made is added to the stream, which goes on to the next block.",
            "B, T, d",
        ),
        Stage(
            "norm",
            "final norm",
            "as in the blocks",
            "The stream is brought to a common size before it is turned into logits.",
            "B, T, d",
        ),
        Stage(
            "hidden",
            "hidden",
            "max(0, x·Wᵀ + b)",
            "A layer of units; each passes on only what is positive (ReLU).",
            "B, h",
        ),
        Stage(
            "logits",
            "logits",
            "h·Wᵀ + b",
            "One score for every token of the vocabulary; higher is likelier.",
            "B, C",
        ),
        Stage(
            "loss",
            "loss",
            "-ln p(target)",
            "How surprised the model is by the right token, in nats; the mean is trained on.",
            "B",
        ),
        Stage(
            "backward",
            "backward",
            "d loss / d x",
            "How the loss would change with each number: the gradients, from the end back.",
        ),
        Stage(
            "optimizer",
            "optimizer",
            "new = old - lr · gradient",
            "Every parameter takes a small step against its gradient.",
        ),
        Stage("parameters", "parameters", "", "The stored numbers that training changes.", ""),
        Stage(
            "validation",
            "validation",
            "mean loss, nothing updated",
            "The loss on documents that never train: does it learn, or only remember?",
        ),
        Stage(
            "probabilities",
            "probabilities",
            "softmax(logits)",
            "Scores become probabilities; <PAD>, <BOS> and <UNK> are blocked before.",
            "1, C",
        ),
        Stage(
            "choose",
            "choose",
            "first ID with cdf ≥ draw",
            "The next token: the most probable one, or one drawn by lot.",
        ),
        Stage("stop", "stop", "<EOS> or budget", "Is the text finished?"),
        Stage(
            "append",
            "append",
            "history + choice",
            "The chosen token joins the history, and the window moves on.",
            "N",
        ),
    )
}

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
        stages = tuple(STAGES[key] for key in MODULE_KEYS)
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
    return Map(kind, model, tuple(STAGES[key] for key in keys), tuple(edges))


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
