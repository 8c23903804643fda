"""The figures of the hand-sized examples that are not states of one of their passes, made by the
same operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.data.windows import Sequences
from engine.generation.decoding import FixedDraw, Greedy, choose
from engine.generation.example import Example
from engine.generation.generator import Generation
from engine.models.bigram import BigramLM
from engine.models.examples import TOKENS
from engine.ops import (
    cross_entropy,
    cumulative_sum,
    given,
    layer_norm,
    linear,
    lookup,
    matmul,
    relu,
    scale,
    softmax,
)
from engine.states import State
from engine.text.listed import ListedTokenizer
from engine.training.optimizers import SGD
from engine.walk import Walk

BANK = 2  # the row that is followed
ATTENTION, FEEDFORWARD = "blocks.0.attention.", "blocks.0.feedforward."
WORDS = (*TOKENS, "today", ".")
# of the states of one block: 3 positions, width 4, 6 hidden units
SHAPES = {
    "blocks.0.norm1": [3, 4],
    **{f"{ATTENTION}{name}": [3, 4] for name in ("q", "k", "v")},
    **{f"{ATTENTION}{name}": [3, 3] for name in ("scores.raw", "scores", "weights")},
    **{f"{ATTENTION}{name}": [3, 4] for name in ("message", "projection")},
    **{f"blocks.0.{name}": [3, 4] for name in ("residual1", "norm2")},
    **{f"{FEEDFORWARD}{name}": [3, 6] for name in ("pre", "hidden")},
    f"{FEEDFORWARD}output": [3, 4],
    "blocks.0.residual2": [3, 4],
}


def walked(model: str, prompt: str = " ".join(TOKENS)) -> Walk:
    """The pass of an example, all of it."""
    walk = Walk(Example(model, prompt))
    walk.seek(1)
    walk.finish_step()
    return walk


def values(walk: Walk, name: str) -> Tensor:
    """A state of the only example and of its only head: [T, d], or [T, S]."""
    value: Tensor = walk.fetch(name, 1).detach()
    return value.reshape(value.shape[-2:])


def state(name: str, value: list[Any]) -> State:
    """A state with these numbers, in float64."""
    numbers = torch.tensor(value, dtype=torch.float64)
    return given(name, numbers, ("B", "T", "S", "d")[: numbers.dim()], "given")


def of_two_positions() -> dict[str, Any]:
    """One query over two keys, and the values of two words mixed by halves."""
    query, keys = state("q", [[[2, 0]]]), state("K", [[[1, 0], [0, 1]]])
    raw = matmul("scores.raw", query, keys.T)
    scores = scale("scores", raw, 2**-0.5)
    weights = softmax("weights", scores)
    output = matmul("message", weights, state("V", [[[10, 0], [2, 2]]]))
    made = dict(
        zip(
            ("raw scores", "scaled", "weights", "output"),
            (raw, scores, weights, output),
            strict=True,
        )
    )
    found = {f"two positions: {name}": each.value[0, 0].tolist() for name, each in made.items()}
    halves = state("weights", [[[0.5, 0.5]]])
    for word, first in (("money", [10, 0]), ("river", [0, 10])):
        mixed = matmul("message", halves, state("V", [[first, [2, 2]]]))
        found[f"half {word}, half bank"] = mixed.value[0, 0].tolist()
    return found


def of_shapes() -> dict[str, Any]:
    """A square matrix, a token more, and a whole block."""
    layer = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1, 0, 2], [0, 1, 0], [1, 0, 1]]).T)
    product = linear("product", state("x", [[2, 1, 3]]), layer, "d").value
    counts = [sum(p.numel() for p in nn.Linear(n, n, bias=False).parameters()) for n in (3, 6)]
    table, lengths = nn.Embedding(5, 3), (3, 4)
    rows = [
        lookup("embedding", given("ids", torch.arange(n), ("T",), "given"), table).value
        for n in lengths
    ]
    walk = walked("money-bank-4")
    return {
        "a square matrix: product": product[0].tolist(),
        "a square matrix: parameters of width 3 and 6": counts,
        "appending: shapes before and after": [list(each.shape) for each in rows],
        "shapes of one block": {name: list(values(walk, name).shape) for name in SHAPES},
    }


def of_choosing() -> dict[str, Any]:
    """A token chosen greedily, and one by a draw."""
    model = BigramLM(len(WORDS), 3).double()
    with torch.no_grad():
        model.table.weight[BANK] = torch.tensor([-1, 0, -2, 2, 1], dtype=torch.float64)
    tokenizer = ListedTokenizer("words", WORDS)
    tokenizer.pad_id = 4  # windows ask for one; this prompt fills the window
    walk = Walk(Generation(model, tokenizer, " ".join(TOKENS), 1, Greedy()))
    walk.seek(1)
    walk.finish_step()
    logits = walk.fetch("logits", 1)
    tasty = state("probabilities", [[0.45, 0.35, 0.2]])
    sums = cumulative_sum("cdf", tasty).value[0]
    chosen = choose(tasty.value[0], sums, FixedDraw(0.78).draw(1))
    return {
        "choosing: logits": logits[0].tolist(),
        "choosing: probabilities": softmax("p", state("logits", logits.tolist())).value[0].tolist(),
        "choosing: the most probable": int(walk.fetch("choice", 1)),
        "choosing: history after it": walk.fetch("history", 1).tolist(),
        "sampling: ends of the intervals": sums.tolist(),
        "sampling: chosen by a draw of 0.78": ("delicious", "excellent", "tasty")[chosen],
    }


def of_losses() -> dict[str, Any]:
    """Cross entropies of given shares, a gradient of one, and an update."""
    found: dict[str, Any] = {}
    for at, shares in ((3, [0.1, 0.1, 0.1, 0.2, 0.5]), (0, [0.8, 0.2]), (0, [0.1, 0.9])):
        logits = torch.tensor([shares], dtype=torch.float64).log().requires_grad_()
        rows = given("logits", logits, ("B", "C"), "given")
        target = given("batch.y", torch.tensor([at]), ("B",), "given")
        loss = cross_entropy("loss", rows, target).value
        loss.backward()
        name = f"cross entropy of {shares[at]:g}"
        found[name] = loss.item()
        if len(shares) > 2 and logits.grad is not None:
            found[f"{name}: gradient of the logits"] = logits.grad[0].tolist()
    weight = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    weight.grad = torch.tensor([0.2], dtype=torch.float64)
    SGD(0.1).build([weight]).step()
    found["SGD: 0.5, of a gradient of 0.2 and a rate of 0.1"] = weight.item()
    for name, clears in (
        ("the slot where nothing clears it", False),
        ("the slot, cleared first", True),
    ):
        slot = torch.zeros((), requires_grad=True)
        optimizer = SGD(0.1).build([slot])
        for slope in (2.0, 3.0):
            if clears:
                optimizer.zero_grad()
            (slope * slot).backward()
        found[f"gradients of 2 and 3: {name}"] = float(slot.grad)  # type: ignore[arg-type]
    return found


def of_layers() -> dict[str, Any]:
    """A layer norm over two numbers, and a pair of relus."""
    layer = nn.LayerNorm(2, eps=0.0).double()
    x = state("x", [[2, 1]])
    made = layer_norm("norm", x, layer)
    parts = made.operation.take_apart(x.value, layer.weight, layer.bias)
    found = {
        f"layer norm of [2, 1]: {name}": parts[name][0].tolist() for name in ("mean", "variance")
    }
    found["layer norm of [2, 1]: result"] = made.value[0].tolist()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2, 0.5], dtype=torch.float64))
        layer.bias.copy_(torch.tensor([0.1, 0.3], dtype=torch.float64))
    moved = layer_norm("norm", x, layer).value[0].tolist()
    pair = relu("hidden", state("hidden.pre", [[-3.5, 3.5]])).value.sum().item()
    return found | {
        "layer norm: scale [2, 0.5] and shift [0.1, 0.3]": moved,
        "relu of -3.5 and of 3.5, added up": pair,
    }


def of_positions() -> dict[str, Any]:
    """A window of four targets, and what each position of a causal head sees."""
    windows = Sequences([list(range(len(WORDS)))], 4)
    pairs = []
    for count in (1, 2, 3):
        walk = walked("money-bank-causal", " ".join(TOKENS[:count]))
        pairs.append(int(values(walk, f"{ATTENTION}scores.masked").isfinite().sum()))
    return {
        "training window: input": windows.inputs[0].tolist(),
        "training window: target": windows.targets[0].tolist(),
        "query-key pairs of 1, 2 and 3 causal positions": pairs,
    }


PARTS: tuple[Callable[[], dict[str, Any]], ...] = (
    *(of_two_positions, of_shapes, of_choosing, of_losses, of_layers, of_positions),
)
