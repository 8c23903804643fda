"""The contract of DESIGN.md as literals: names in order, fields; and what the numbers must be,
computed by plain PyTorch (`tests.engine.plain`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.engine.plain import plain
from tests.engine.worked import X, Y

MODELS = ("mlp", "attention", "multihead")
FIELDS = [
    *("map", "step", "stage", "name", "role", "kind", "shape", "axes", "dtype", "formula"),
    "values",
]
PREPARATION = [
    *("stories", "split", "tokens", "vocabulary", "ids", "windows.contexts", "windows.targets")
]
ATTENTION = [
    *("embedding.tokens", "embedding.positions", "embedding", "q", "K", "V"),
    *("scores.raw", "scores", "scores.masked", "weights", "message", "projection", "residual"),
    *("hidden.pre", "hidden", "logits"),
]
STATES = {
    "mlp": ["embedding", "flatten", "hidden.pre", "hidden", "logits"],
    "attention": ATTENTION,
    "multihead": ATTENTION,
}
LAYERS = [
    *("hidden_layer.weight", "hidden_layer.bias", "vocab_head.weight", "vocab_head.bias"),
]
OF_ATTENTION = [
    *("token_embedding.weight", "position_embedding.weight"),
    *("W_Q.weight", "W_K.weight", "W_V.weight", "W_O.weight", *LAYERS),
]
PARAMETERS = {
    "mlp": ["token_embedding.weight", *LAYERS],
    "attention": OF_ATTENTION,
    "multihead": OF_ATTENTION,
}
PROMPT = ["prompt", "tokens", "history"]
AFTER_LOGITS = ["logits.blocked", "probabilities", "cdf", "choice", "stop", "history"]
SIZES = {"B": 2, "w": 4, "S": 4, "1": 1, "d": 4, "h": 8, "C": 10, "N": None}

# greedy choices after one step of the MLP, from the reference: context, chosen ID
GREEDY = [([0, 1, 8, 7], 9), ([1, 8, 7, 9], 9), ([8, 7, 9, 9], 4), ([7, 9, 9, 4], 7)]


def training_names(model: str, validated: bool = False) -> list[str]:
    """The names of one training step, in order; gradients from the end back."""
    states, parameters = STATES[model], PARAMETERS[model]
    return [
        *("batch.X", "batch.y", *states, "probabilities", "loss.per_target", "loss"),
        *(f"gradients.{name}" for name in reversed(states)),
        *(f"gradients.{name}" for name in parameters),
        "gradients.norm",
        *(f"update.{name}" for name in parameters),
        *(["validation"] if validated else []),
    ]


def generation_names(model: str) -> list[str]:
    """The names of one new token, in order."""
    return ["context", *STATES[model], *AFTER_LOGITS]


ROLES = {
    "data": {*PREPARATION, "batch.X", "batch.y", *PROMPT, "context", "choice", "stop"},
    "gradient": {"gradients."},
    "optimizer": {"update."},
}


def role_of(name: str) -> str:
    """data, gradient, optimizer or (all else a step computes) activation."""
    if name in ROLES["data"]:
        return "data"
    if name.startswith("gradients."):
        return "gradient"
    return "optimizer" if name.startswith("update.") else "activation"


def expected_training(
    model: str, steps: int = 1, x: Any = X, y: Any = Y, lr: float = 0.1
) -> list[dict[str, Tensor]]:
    """Every tensor of each training step by name, SGD, as plain PyTorch computes it."""
    network = plain(model)
    return [one_step(network, torch.tensor(x), torch.tensor(y), lr) for _ in range(steps)]


def one_step(network: torch.nn.Module, x: Tensor, y: Tensor, lr: float) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}

    def keep(name: str, tensor: Tensor) -> Tensor:
        made[name] = tensor
        if tensor.requires_grad:
            tensor.retain_grad()
        return tensor

    network.zero_grad()
    logits = network(x, keep)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    values = {name: tensor.detach() for name, tensor in made.items()}
    values |= {f"gradients.{name}": tensor.grad for name, tensor in made.items()}
    values |= {"batch.X": x, "batch.y": y, "loss": loss.detach()}
    values["probabilities"] = torch.softmax(logits.detach(), -1)
    values["loss.per_target"] = -torch.log(values["probabilities"])[torch.arange(len(y)), y]
    squares = 0.0
    for name, parameter in network.named_parameters():
        values[f"gradients.{name}"] = parameter.grad.clone()
        squares += float(parameter.grad.double().square().sum())
        with torch.no_grad():
            parameter -= lr * parameter.grad
        values[f"update.{name}"] = parameter.detach().clone()
    values["gradients.norm"] = torch.tensor(squares).sqrt()
    return values


def expected_token(network: torch.nn.Module, context: list[int]) -> dict[str, Tensor]:
    """Every tensor of one new token by name, as plain PyTorch computes it."""
    made: dict[str, Tensor] = {}

    def keep(name: str, tensor: Tensor) -> Tensor:
        made[name] = tensor.detach()
        return tensor

    with torch.no_grad():
        logits = network(torch.tensor([context]), keep)
    blocked = logits.clone()
    blocked[:, [0, 1, 3]] = -torch.inf
    made |= {"context": torch.tensor([context]), "logits.blocked": blocked}
    made["probabilities"] = torch.softmax(blocked, -1)
    made["cdf"] = made["probabilities"].double().cumsum(-1)
    return made


def trained(model: str, steps: int) -> torch.nn.Module:
    """The plain model after so many steps on the worked batch."""
    network = plain(model)
    for _ in range(steps):
        one_step(network, torch.tensor(X), torch.tensor(Y), 0.1)
    return network
