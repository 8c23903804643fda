"""The catalogue of stages: what kinds of things happen, each with a title and a plain sentence.

Knows no tensors: the screen reads it too.
"""

from __future__ import annotations

from dataclasses import dataclass


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
            "Who looks asks (query); every slot says what it has (key) and gives (value).",
            "B, S, k",
        ),
        Stage(
            "scores",
            "scores",
            "q·Kᵀ / √k",
            "How well each key answers the query; what is not to be seen is -inf.",
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
