"""The inside of a decoder in plain data, against the parts of the model put together by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from engine.errors import UsageError
from engine.service.desk import Desk
from engine.service.options import Options
from engine.service.session import Session
from engine.states import drain
from tests.service.test_worker import error, result

TRAINING = {"map": "training", "model": "transformer"}
GENERATION = {"map": "generation", "model": "transformer"}
CACHED = {"map": "generation", "model": "transformer:cached"}
OPTIONS = Options(model="transformer", blocks=3, width=8, hidden=12, train_steps=3, prompt="Lily")
WIDE = {"columns": 99, "rows": (0, 9)}


@pytest.fixture(scope="module")
def desk() -> Desk:
    made = Desk()
    made.answer("open", {"options": OPTIONS.to_json()})
    for where, step in ((TRAINING, 3), (GENERATION, 3), (CACHED, 3)):
        made.answer("move", {**where, "how": "seek", "step": step, "name": "logits"})
    return made


def trained(steps: int) -> Any:
    """The same model after so many steps, and its tokens."""
    session = Session(OPTIONS)
    training = session.training("transformer")
    for step in range(steps + 1):
        drain(training.states(step))
    return training.model, session.prepared.tokenizer.itos


def streams(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """The stream after the embedding and after each block, by plain functions."""
    x = model.token_embedding(ids) + model.position_embedding.weight[: ids.shape[1]]
    found = [x]
    for block in model.blocks:
        found.append(x := after(block, x))
    return found


def after(block: Any, x: torch.Tensor) -> torch.Tensor:
    a, f = block.attention, block.feedforward

    def heads(t: torch.Tensor) -> torch.Tensor:
        return t.view(*t.shape[:2], a.heads, -1).transpose(1, 2)

    normed = block.norm1(x)
    found = F.scaled_dot_product_attention(
        heads(a.W_Q(normed)), heads(a.W_K(normed)), heads(a.W_V(normed)), is_causal=True
    )
    x = x + a.W_O(found.transpose(1, 2).flatten(-2))
    return x + f.shrink(F.gelu(f.expand(block.norm2(x))))


def batch(desk: Desk, where: dict[str, Any], step: int) -> torch.Tensor:
    name = "batch.X" if where["map"] == "training" else "context"
    ids: torch.Tensor = desk._session.walk(where["map"], where["model"]).fetch(name, step)
    return ids


@pytest.mark.parametrize(("where", "steps"), [(TRAINING, 2), (GENERATION, 3)])
def test_the_most_probable_tokens_after_each_block(desk: Desk, where: dict[str, Any], steps: int):
    ids = batch(desk, where, 3)
    model, tokens = trained(steps)
    with torch.no_grad():
        shares = [model.vocab_head(model.norm(x)).softmax(-1) for x in streams(model, ids)]
    for example in range(len(ids)):
        look = {"page": "lens", "example": example, **WIDE}
        found = result(desk, "lens", **where, step=3, **look)
        assert (found["blocks"], found["examples"]) == (3, len(ids))
        assert found["columns"] == [tokens[i] for i in ids[example]]
        assert len(found["cells"]) == 4
        for row, share in zip(found["cells"], shares, strict=True):
            most = share[example].max(-1)
            assert [cell["id"] for cell in row] == most.indices.tolist()
            assert [cell["token"] for cell in row] == [tokens[i] for i in most.indices]
            probabilities = [cell["probability"] for cell in row]
            assert probabilities == pytest.approx(most.values.tolist(), abs=1e-6)


def test_the_last_row_is_the_models_own_choice(desk: Desk):
    logits = desk._session.walk("generation", "transformer").fetch("logits", 3)
    found = result(desk, "lens", **GENERATION, step=3, page="lens", **WIDE)
    assert [cell["id"] for cell in found["cells"][-1]] == logits[0].argmax(-1).tolist()


def test_the_lengths_of_the_stream(desk: Desk):
    ids = batch(desk, TRAINING, 2)
    model, _ = trained(1)
    found = result(desk, "lens", **TRAINING, step=2, page="stream", example=1, **WIDE)
    with torch.no_grad():
        expected = [x[1].norm(dim=-1).tolist() for x in streams(model, ids)]
    for row, numbers in zip(found["cells"], expected, strict=True):
        assert row == pytest.approx(numbers, abs=1e-5)


def test_contributions_add_up(desk: Desk):
    ids = batch(desk, TRAINING, 3)
    model, tokens = trained(2)
    with torch.no_grad():
        logits = model(ids)
    for position in range(ids.shape[1]):
        for token in (None, "ball", "."):
            look = {"page": "parts", "position": position, "token": token}
            found = result(desk, "lens", **TRAINING, step=3, **look)
            row = logits[0, position]
            wanted = int(row.argmax()) if token is None else tokens.index(token)
            assert (found["id"], found["of"]) == (wanted, tokens[wanted])
            assert found["logit"] == pytest.approx(row[wanted].item(), abs=1e-5)
            assert found["sum"] == pytest.approx(found["logit"], abs=1e-5)
            shares = [part["share"] for part in found["parts"]]
            assert sum(shares) == pytest.approx(found["sum"])
            assert shares == sorted(shares, key=abs, reverse=True)
            names = {part["part"] for part in found["parts"]}
            assert {"embedding", "norm shift"} <= names
            for i in range(3):
                assert {f"blocks.{i}.attention head {h}" for h in range(2)} <= names
                assert f"blocks.{i}.feedforward" in names


def test_a_token_is_found_by_a_piece_of_it(desk: Desk):
    found = result(desk, "lens", **TRAINING, step=3, page="parts", token="BAL")
    assert found["of"] == "ball"
    told = error(desk, "lens", **TRAINING, step=3, page="parts", token="zebra")
    assert told["sentence"] == "no token of the vocabulary holds 'zebra'"


def test_only_what_is_seen_crosses(desk: Desk):
    look = {"page": "lens", "first": 1, "columns": 2, "rows": (2, 4)}
    found = result(desk, "lens", **TRAINING, step=3, **look)
    whole = result(desk, "lens", **TRAINING, step=3, page="lens", **WIDE)
    assert found["cells"] == [row[1:3] for row in whole["cells"][2:4]]
    assert found["columns"] == whole["columns"][1:3]
    assert (found["row"], found["first"], found["positions"]) == (2, 1, 4)


def test_with_a_cache_only_new_positions_are_seen(desk: Desk):
    with_cache = result(desk, "lens", **CACHED, step=3, page="lens", **WIDE)
    whole = result(desk, "lens", **GENERATION, step=3, page="lens", **WIDE)
    assert (with_cache["positions"], with_cache["before"]) == (1, whole["positions"] - 1)
    for one, all_rows in zip(with_cache["cells"], whole["cells"], strict=True):
        assert one[0]["id"] == all_rows[-1]["id"]
        assert one[0]["probability"] == pytest.approx(all_rows[-1]["probability"], abs=1e-6)
    found = result(desk, "lens", **CACHED, step=3, page="parts")
    assert found["sum"] == pytest.approx(found["logit"], abs=1e-5)


def test_what_a_cache_saves(desk: Desk):
    """d 8, h 12, two heads of 4, three blocks, ten tokens; the prompt is <BOS> and a word."""

    def cost(seen: int, new: int) -> int:
        block = 8 * 8 * 4 + 2 * 8 * seen + 2 * 8 * 12
        return new * (3 * block + 8 * 10)

    for where, used in ((GENERATION, False), (CACHED, True)):
        found = result(desk, "lens", **where, step=3, page="cache")
        assert (found["seen"], found["new"], found["used"]) == (4, 1, used)
        assert (found["with_cache"], found["without_cache"]) == (cost(4, 1), cost(4, 4))
        assert found["all_with_cache"] == cost(2, 2) + cost(3, 1) + cost(4, 1)
        assert found["all_without_cache"] == cost(2, 2) + cost(3, 3) + cost(4, 4)
        assert found["kept"] == 3 * 2 * 4 * 8 * 4
    walk = desk._session.walk("generation", "transformer:cached")
    kept = [r for r in walk.records(3) if ".attention.cache." in r.name]
    assert sum(record.value.nbytes for record in kept) == found["kept"]


def test_a_kept_state_says_what_is_new(desk: Desk):
    for step, note in ((1, "reused: 0, new: 2"), (3, "reused: 3, new: 1")):
        place = {"name": "blocks.1.attention.cache.k", "step": step, "cell": [0, 0, 1, 2]}
        found = result(desk, "explain", **CACHED, **place)
        nbytes = 2 * (step + 1) * 4 * 4
        expected = f"positions {note}; kept for the next step: {nbytes:,} bytes"
        assert found["note"] == expected
        assert [term["note"] for term in found["terms"]] == [
            "new in this step" if step == 1 else "reused"
        ]


@pytest.mark.parametrize(
    ("where", "look", "sentence"),
    [
        (TRAINING, {"page": "attic"}, "no page is called 'attic': use lens, stream, parts, cache"),
        (TRAINING, {"page": "lens", "example": 2}, "there is no example 2: they are 0 to 1"),
        (TRAINING, {"page": "parts", "position": 4}, "there is no position 4: they are 0 to 3"),
        (TRAINING, {"page": "cache"}, "keys and values are kept while generating"),
        (TRAINING, {"page": "lens", "step": 0}, "step 0 has no logits yet"),
        ({**TRAINING, "model": "mlp"}, {"page": "lens"}, "the lens reads a stream of blocks"),
    ],
)
def test_what_is_not_there(desk: Desk, where: dict[str, Any], look: dict[str, Any], sentence: str):
    told = error(desk, "lens", **where, **{"step": 3, **look})
    assert sentence in told["sentence"]
    assert told["exit_code"] == UsageError("").exit_code


def test_what_if_it_were_another(desk: Desk):
    """The lens reads the walk as it is edited."""
    own = Desk()
    own.answer("open", {"options": OPTIONS.to_json()})
    own.answer("move", {**TRAINING, "how": "seek", "step": 2, "name": "logits"})
    before = result(own, "lens", **TRAINING, step=2, page="stream", **WIDE)
    place = {"name": "embedding", "step": 2, "cell": [0, 0, 0], "value": "5"}
    result(own, "edit", **TRAINING, **place)
    after_it = result(own, "lens", **TRAINING, step=2, page="stream", **WIDE)
    assert after_it["cells"][0][0] > before["cells"][0][0]
    assert after_it["cells"][0][1:] == before["cells"][0][1:]
