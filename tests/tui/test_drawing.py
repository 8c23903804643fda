"""How the next token of a walk is chosen: --temperature, --top-k, --top-p, --draw-seed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.tui.conftest import Command

SHIPPED = "checkpoint:transformer"
Walked = dict[tuple[int, str], Any]


def walked(command: Command, *arguments: Any, steps: int = 6) -> Walked:
    """Each state of a generation with a checkpoint that ships, by step and name."""
    opened = ("--open", SHIPPED, "--steps", steps, "--json")
    code, out, err = command("states", "generate", *opened, *arguments)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    return {(each["step"], each["name"]): each.get("values") for each in lines if "name" in each}


def chosen(states: Walked) -> list[int]:
    return [values for (step, name), values in states.items() if step and name == "choice"]


def test_a_walk_draws_what_generate_draws(command: Command):
    drawing = ("--temperature", 0.8, "--top-k", 20, "--top-p", 0.9)
    arguments = ("--checkpoint", SHIPPED, "--prompt", "once there was a", *drawing)
    code, out, _ = command("generate", *arguments, "--seed", 3, "--max-new-tokens", 6, "--json")
    assert code == 0
    states = walked(command, "--prompt", "once there was a", *drawing, "--draw-seed", 3)
    assert chosen(states) == json.loads(out)["ids"][-6:]


def test_each_filter_is_a_state(command: Command):
    """With the numbers that it is said to make."""
    states = walked(command, "--temperature", 0.5, "--top-k", 7, "--top-p", 0.6, steps=1)
    before = torch.tensor(
        [[float(number) for number in row] for row in states[1, "logits.blocked"]]
    )
    warm, most, fewest, shares = (
        torch.tensor([[float(number) for number in row] for row in states[1, name]])
        for name in ("logits.temperature", "logits.top_k", "logits.top_p", "probabilities")
    )
    assert torch.equal(warm, before / 0.5)
    assert most.isfinite().sum() == 7
    assert set(most.topk(7).indices[0].tolist()) == set(warm.topk(7).indices[0].tolist())
    kept = most.softmax(-1).sort(descending=True).values[0].cumsum(0)
    assert fewest.isfinite().sum() == int((kept < 0.6).sum()) + 1
    assert torch.allclose(shares, fewest.softmax(-1), atol=1e-7)


def test_a_filter_alone_draws_with_seed_0(command: Command):
    alone = chosen(walked(command, "--temperature", 1.5))
    assert alone == chosen(walked(command, "--temperature", 1.5, "--draw-seed", 0))
    assert alone == chosen(walked(command, "--temperature", 1.5, "--seed", 0))
    assert alone != chosen(walked(command, "--temperature", 1.5, "--draw-seed", 1))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--temperature", 0), "a temperature of 0 divides nothing: give a number above 0"),
        (("--top-k", 0), "--top-k 0 keeps no token: give 1 or more"),
        (("--top-p", 1.5), "--top-p 1.5 is no share: give a number above 0, up to 1"),
        (("--draw-seed", 1, "--draw", 0.5), "--draw, --draw-seed (or --seed) and --greedy exclude"),
        (("--greedy", "--top-k", 3), "--greedy takes the most probable token: leave out"),
        (("--draw-seed", -1), "-1 is no seed: give a whole number from 0"),
    ],
)
def test_what_draws_nothing_is_refused(command: Command, more: tuple[Any, ...], sentence: str):
    code, out, err = command("states", "generate", *more)
    assert (code, out) == (2, "")
    assert err.startswith(f"tensorstep: {sentence}")
    assert err.count("\n") == 1
