"""Optimizers taken apart: every part from its own formula, the whole from torch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import engine
from engine import SGD, Adam, AdamW, Walk
from tests.engine.worked import training

TORCH_NAMES = {"m": "exp_avg", "v": "exp_avg_sq"}
SETTINGS = [
    AdamW(0.02, weight_decay=0.1),
    AdamW(0.003, weight_decay=0.0),
    AdamW(0.01, weight_decay=0.5, betas=(0.5, 0.75), eps=1e-3),
]


def torch_optimizer(rule, parameter: Tensor) -> torch.optim.Optimizer:
    if isinstance(rule, SGD):
        return torch.optim.SGD([parameter], rule.lr, rule.momentum)
    if not isinstance(rule, AdamW):
        return torch.optim.Adam([parameter], rule.lr, rule.betas, rule.eps)
    return torch.optim.AdamW(
        [parameter], rule.lr, rule.betas, rule.eps, weight_decay=rule.weight_decay
    )


OTHERS = [SGD(0.1), SGD(0.1, 0.9), SGD(0.02, 0.5), Adam(0.02), Adam(0.01, (0.5, 0.75), 1e-3)]


@pytest.mark.parametrize("rule", [*OTHERS, *SETTINGS], ids=repr)
def test_the_whole_is_torch_s(rule):
    """Taken apart before each of 6 steps, `new` is what torch then writes, bit for bit."""
    torch.manual_seed(2)
    parameter = nn.Parameter(torch.randn(5, 3))
    optimizer = torch_optimizer(rule, parameter)
    for step in range(1, 7):
        parameter.grad = torch.randn(5, 3) * 10.0**-step
        kept = optimizer.state.get(parameter, {})
        names = {"m": "momentum_buffer"} if isinstance(rule, SGD) else TORCH_NAMES
        memory = [kept.get(names[part], torch.zeros(5, 3)).clone() for part in rule.memory]
        old, grad = parameter.detach().clone(), parameter.grad.clone()
        parts = rule.take_apart(parameter.detach(), parameter.grad, memory, step)
        assert torch.equal(parts["old"], old)
        assert torch.equal(parts["grad"], grad)
        assert tuple(parts) == rule.parts
        new = parts["new"].clone()
        optimizer.step()
        assert torch.equal(new, parameter)
        assert torch.equal(parts["new"], new)  # the write did not reach the part
        for part in rule.memory:
            assert torch.equal(parts[part], optimizer.state[parameter][names[part]])


@pytest.mark.parametrize("rule", SETTINGS, ids=repr)
def test_parts_of_adamw_by_the_paper(rule: AdamW):
    """m, v, decay and step in float64, from Loshchilov and Hutter's formulas."""
    torch.manual_seed(4)
    old, grad, m, v = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 3)
    step = 3
    parts = rule.take_apart(old, grad, [m, v], step)
    (b1, b2), lr = rule.betas, rule.lr
    old, grad, m, v = (tensor.double() for tensor in (old, grad, m, v))
    m = b1 * m + (1 - b1) * grad
    v = b2 * v + (1 - b2) * grad**2
    moved = -lr * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + rule.eps)
    decay = -lr * rule.weight_decay * old
    wanted = {"m": m, "v": v, "step": moved, "decay": decay, "new": old + decay + moved}
    for part, value in wanted.items():
        assert torch.allclose(parts[part].double(), value, atol=1e-6), part


def test_parts_of_sgd():
    parts = SGD(0.25).take_apart(torch.tensor([2.0]), torch.tensor([4.0]), [], 1)
    assert {name: value.item() for name, value in parts.items()} == {
        "old": 2.0,
        "grad": 4.0,
        "step": -1.0,
        "new": 1.0,
    }


def test_parts_in_a_walk_are_torch_s_memory():
    """`update.<parameter>.m` and `.v` at each of 4 steps, from the optimizer that trains."""
    rule = AdamW(0.02, weight_decay=0.1)
    walk, other = Walk(training("mlp", rule)), training("mlp", rule)
    walk.seek(4)
    for step in range(1, 4):
        engine.drain(other.states(step))
        for name, parameter in other.parameters.items():
            kept = other.optimizer.state[parameter]
            assert torch.equal(walk.fetch(f"update.{name}.m", step), kept["exp_avg"])
            assert torch.equal(walk.fetch(f"update.{name}.v", step), kept["exp_avg_sq"])


def test_size_of_a_first_step_of_adamw():
    """Bias correction makes the very first step lr times the gradient's sign."""
    grad = torch.tensor([1e-3, -5.0, 100.0])
    zeros = torch.zeros(3)
    parts = AdamW(0.01, weight_decay=0.0).take_apart(zeros, grad, [zeros, zeros], 1)
    assert parts["step"].tolist() == pytest.approx([-0.01, 0.01, -0.01], rel=1e-4)
    assert not any(math.copysign(1, x) * g > 0 for x, g in zip(parts["step"], grad, strict=True))
