"""A module of one's own: walked, against a plain loop over the same code; and its mistakes."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.errors import TensorstepError
from engine.service.desk import Desk
from engine.service.options import Options
from tests.service.test_worker import error, result

WHERE = {"map": "training", "model": "module"}
CODE = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.BatchNorm1d(8))
        self.scale = nn.Parameter(torch.ones(8))
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(8, 11)

    def forward(self, x):
        x = self.layers(self.embed(x))
        return self.head(self.head.weight.mean() + x * self.scale)

def loss_of(model, step):
    x = torch.randint(11, (4,), generator=torch.Generator().manual_seed(step))
    return F.cross_entropy(model(x), (x + 1) % 11)

def make():
    model = Net()
    return model, lambda step: loss_of(model, step)

def adamw():
    model, loss = make()
    return model, loss, torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)

def rmsprop():
    model, loss = make()
    return model, loss, torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.5)

def forward():
    return Net().eval(), torch.tensor([1, 2, 3])

class Pair(nn.Module):
    def forward(self, x, y=None):
        return {"sum": x + (0 if y is None else y)}

def named():
    return Pair(), {"x": torch.ones(2), "y": torch.ones(2)}

def several():
    return Pair(), (torch.ones(2), torch.ones(2))

def two_calls():
    layer = nn.Linear(3, 3)
    return layer, lambda step: layer(layer(torch.ones(3))).sum()

def in_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    return model, lambda step: model(torch.ones(2, 3)).sum()

def half_frozen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    return model, lambda step: model(torch.ones(2)).sum()

def fails():
    raise ValueError("no such file: data.txt")

def leaves():
    raise SystemExit(3)

def nothing():
    pass

def a_number():
    return 7

def two_models():
    return nn.Linear(1, 1), "text"

def no_parameters():
    model = nn.ReLU()
    return model, lambda step: model(torch.ones(1)).sum()

def lazy():
    model = nn.LazyLinear(3)
    return model, lambda step: model(torch.ones(1)).sum()

def rows():
    model = Net()
    return model, lambda step: model(torch.tensor([1, 2]))

def no_graph():
    model, loss = make()
    return model, lambda step: loss(step).detach()

def python_number():
    model, loss = make()
    return model, lambda step: loss(step).item()

def breaks():
    model, loss = make()
    return model, lambda step: loss(step) if step < 2 else model(torch.tensor([99, 1]))

def backward_twice():
    model, loss = make()
    def backward(step):
        found = loss(step)
        found.backward()
        return found
    return model, backward

not_callable = 5
"""
ADAMW_NOTE = "the factory's own AdamW updates the parameters, not --optimizer"
RMS_NOTE = (
    "the factory's own RMSprop updates the parameters, not --optimizer: what it makes is shown, but"
    " not taken apart"
)
numbers = itertools.count()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a module into the folder one stands in. Returns its name, another each time."""
    monkeypatch.chdir(tmp_path)

    def write(code: str = CODE) -> str:
        name = f"own_{next(numbers)}"
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return write


def opened(module: str, factory: str = "make", **more: Any) -> tuple[Desk, dict[str, Any]]:
    desk = Desk()
    options = Options(model="module", opened=f"module:{module}:{factory}", **more)
    return desk, result(desk, "open", options=options.to_json())


def refusal(module: str, factory: str = "make") -> str:
    options = Options(model="module", opened=f"module:{module}:{factory}")
    told = error(Desk(), "open", options=options.to_json())
    assert "trace" not in told, told
    return str(told["sentence"])


def at(desk: Desk, name: str, step: int) -> Any:
    desk.answer("move", {**WHERE, "how": "seek", "step": step, "name": name})
    return desk._session.walk("training", "module").fetch(name, step)


def imported(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def keep(row: dict[str, Any], name: str, module: Any, inputs: Any, output: Any) -> None:
    row[name] = output


def plain_loop(module: str, factory: str, steps: int, **adam: Any) -> list[dict[str, Any]]:
    """Everything that each step makes, by the loop that everybody writes."""
    torch.manual_seed(11)
    code = imported(module)
    model, loss, *optimizer = getattr(code, factory)()
    own = optimizer[0] if optimizer else torch.optim.SGD(model.parameters(), 0.1)
    own = torch.optim.Adam(model.parameters(), **adam) if adam else own
    rows = []
    for step in range(1, steps + 1):
        row: dict[str, Any] = {}
        own.zero_grad()
        hooks = [
            each.register_forward_hook(partial(keep, row, f"modules.{name}"))
            for name, each in model.named_modules()
        ]
        found = row["loss"] = loss(step)
        for name in list(row):
            if name.startswith("modules."):
                row[name].retain_grad()
        found.backward()
        for hook in hooks:
            hook.remove()
        for name in list(row):
            if name.startswith("modules."):
                row[f"gradients.{name}"] = row[name].grad.clone()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            zero = torch.zeros_like(parameter)
            row[f"gradients.{name}"] = zero if gradient is None else gradient.clone()
        own.step()
        for name, parameter in model.named_parameters():
            row[f"update.{name}"] = parameter.detach().clone()
        rows.append(row)
    return rows


def check_steps(desk: Desk, expected: list[dict[str, Any]]) -> None:
    for step, row in enumerate(expected, 1):
        for name, value in row.items():
            name = {"modules.": "modules.Net", "gradients.modules.": "gradients.modules.Net"}.get(
                name, name
            )
            assert torch.equal(at(desk, name, step), value.detach()), (step, name)


# --- what is walked --------------------------------------------------------------------------


@pytest.mark.parametrize("factory", ["make", "adamw", "rmsprop"])
def test_every_state_is_the_plain_loops(own: Callable[..., str], factory: str):
    """Dropout, running statistics and a parameter that is not used, bit for bit."""
    module = own()
    desk, told = opened(module, factory)
    notes = {"rmsprop": RMS_NOTE, "adamw": ADAMW_NOTE}
    assert told["note"] == notes.get(factory, "")
    assert told["corpus"] == f"{module}:{factory}"
    check_steps(desk, plain_loop(module, factory, 4))


def test_with_the_options_optimizer(own: Callable[..., str]):
    module = own()
    desk, _ = opened(module, optimizer="adam", lr=0.03)
    check_steps(desk, plain_loop(module, "make", 3, lr=0.03))


def test_the_order_of_the_states(own: Callable[..., str]):
    desk, _ = opened(own())
    at(desk, "loss", 2)
    walk = desk._session.walk("training", "module")
    assert [record.name for record in walk.records(0)] == ["modules"]
    names = [record.name for record in walk.records(1)]
    calls = ["embed", "layers.0", "layers.1", "layers.2", "layers.3", "layers", "head", "Net"]
    parameters = [name for name, _ in imported_net(desk).named_parameters()]
    assert names == [
        *(f"modules.{name}" for name in calls),
        "loss",
        *(f"gradients.modules.{name}" for name in reversed(calls)),
        *(f"gradients.{name}" for name in parameters),
        "gradients.norm",
        *(f"update.{name}" for name in parameters),
    ]
    stages = dict.fromkeys(
        result(desk, "look", **WHERE, name=n, step=1)["state"]["stage"] for n in names
    )
    assert list(stages) == ["modules", "loss", "backward", "optimizer"]
    listed = at(desk, "modules", 0)
    assert listed[:2] == ["the model: Net, 8 parameters", "embed: Embedding, 66 parameters"]


def imported_net(desk: Desk) -> Any:
    return desk._session.walk("training", "module").process.model


@pytest.mark.parametrize("factory", ["make", "adamw", "rmsprop"])
def test_made_again_bit_for_bit(own: Callable[..., str], factory: str):
    """Back to steps of which nothing is held: dropout and running statistics, too."""
    module = own()
    desk, _ = opened(module, factory)
    expected = plain_loop(module, factory, 6)
    walk = desk._session.walk("training", "module")
    walk.history.budget = walk.history._values.budget = 0
    walk.history._values.trim(0)
    at(desk, "loss", 6)
    for step in (5, 2, 4, 1, 3):
        for name in ("loss", "modules.layers.2", "gradients.scale", "update.head.weight"):
            assert torch.equal(walk.fetch(name, step), expected[step - 1][name].detach()), name
    assert torch.equal(at(desk, "update.head.weight", 6), expected[5]["update.head.weight"])


def test_other_random_numbers_do_not_matter(own: Callable[..., str]):
    module = own()
    desk, _ = opened(module)
    torch.manual_seed(5)
    check_steps(desk, plain_loop(module, "make", 1))
    torch.rand(7)
    before = torch.get_rng_state()
    at(desk, "loss", 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(at(desk, "loss", 3), plain_loop(module, "make", 3)[2]["loss"].detach())


@pytest.mark.parametrize(
    ("factory", "calls", "shape"),
    [("forward", 8, [3, 11]), ("named", 1, [2]), ("several", 1, [2])],
)
def test_a_forward_pass_alone(own: Callable[..., str], factory: str, calls: int, shape: list[int]):
    desk, told = opened(own(), factory)
    ends = "a forward pass is all there is: the factory gives inputs and no loss"
    assert told["note"] == ends
    walk = desk._session.walk("training", "module")
    names = []
    while (answer := result(desk, "move", **WHERE, how="forward"))["moved"]:
        names.append(answer["state"]["name"])
    assert answer["ended"] == ends
    assert len(names) == calls
    assert list(walk.current.shape) == shape
    if factory != "forward":
        assert walk.current.value.tolist() == [2, 2]
    assert "no loss here" in error(desk, "norms", **WHERE, step=1)["sentence"]
    follow = error(desk, "follow", **WHERE, name="scale", cell=[0])
    assert follow["sentence"] == ends


def test_a_module_that_is_called_twice(own: Callable[..., str]):
    desk, _ = opened(own(), "two_calls")
    first, second = at(desk, "modules.Linear", 1), at(desk, "modules.Linear#2", 1)
    layer = imported_net(desk)
    weight, bias = (
        desk._session.walk("training", "module").fetch(f"parameters.{n}", 0)
        for n in ("weight", "bias")
    )
    assert torch.equal(first, torch.nn.functional.linear(torch.ones(3), weight, bias))
    assert torch.equal(second, torch.nn.functional.linear(first, weight, bias))
    assert layer.weight.shape == (3, 3)


def test_what_is_written_over(own: Callable[..., str]):
    """Each module's own output, and its own gradient."""
    desk, _ = opened(own(), "in_place")
    before, after = at(desk, "modules.0", 1), at(desk, "modules.1", 1)
    assert torch.equal(after, before.relu())
    assert (before < 0).any()
    gradient = at(desk, "gradients.modules.1", 1)
    assert torch.equal(at(desk, "gradients.modules.0", 1), gradient * (before > 0))


def test_frozen_parameters_stay(own: Callable[..., str]):
    desk, _ = opened(own(), "half_frozen", optimizer="adamw")
    before = at(desk, "parameters.0.weight", 0).clone()
    assert torch.equal(at(desk, "update.0.weight", 2), before)
    assert torch.equal(at(desk, "parameters.0.weight", 2), before)
    assert not torch.equal(at(desk, "update.1.weight", 2), at(desk, "parameters.1.weight", 0))


# --- what is told of it ----------------------------------------------------------------------


def test_explanations(own: Callable[..., str]):
    desk, _ = opened(own(), optimizer="adamw", lr=0.02)
    at(desk, "update.head.bias", 2)

    def explained(name: str, cell: list[int]) -> dict[str, Any]:
        return result(desk, "explain", **WHERE, name=name, step=2, cell=cell)

    for name, cell in (("modules.head", [0, 1]), ("gradients.modules.head", [0, 1])):
        assert explained(name, cell)["combine"] == "rule"
        assert "taken apart" in explained(name, cell)["note"]
    gradient = explained("gradients.scale", [3])
    assert "code of your own" in gradient["note"]
    assert "nothing in this batch" not in gradient["note"]
    for part in ("", ".m", ".v", ".m_hat", ".v_hat", ".step", ".decay", ".old", ".grad"):
        found = explained(f"update.scale{part}", [3])
        assert found["total"] == pytest.approx(found["value"], rel=1e-5, abs=1e-9), part
    assert explained("gradients.norm", [])["total"] == pytest.approx(
        explained("gradients.norm", [])["value"], rel=1e-5
    )
    untouched = explained("update.unused.weight", [0, 1])
    assert untouched["formula"] == "parameters.unused.weight"
    assert untouched["total"] == pytest.approx(untouched["value"])


@pytest.mark.parametrize("factory", ["make", "rmsprop"])
def test_follow_and_norms(own: Callable[..., str], factory: str):
    module = own()
    desk, _ = opened(module, factory)
    expected = plain_loop(module, factory, 3)
    at(desk, "modules.embed", 4)
    rows = result(desk, "follow", **WHERE, name="scale", cell=[3])["rows"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    value = 1.0
    for row, step in zip(rows, expected, strict=True):
        new = step["update.scale"][3].item()
        assert row["value"] == value
        assert row["gradient"] == step["gradients.scale"][3].item()
        assert row["update"] == new - value
        assert row["loss"] == step["loss"].item()
        value = new
    norms = {row["name"]: row for row in result(desk, "norms", **WHERE, step=3)["rows"]}
    gradient = expected[2]["gradients.head.weight"].norm().item()
    assert norms["head.weight"]["gradient"] == pytest.approx(gradient, rel=1e-5)
    assert norms["unused.weight"]["update"] == 0


def test_what_if_a_parameter_were_another(own: Callable[..., str]):
    module = own()
    desk, _ = opened(module)
    at(desk, "loss", 1)
    plain = at(desk, "loss", 1).item()
    edit = {"name": "parameters.scale", "step": 0, "cell": [3], "value": "3"}
    result(desk, "edit", **WHERE, **edit)
    edited = at(desk, "loss", 1).item()
    torch.manual_seed(11)
    model, loss = imported(module).make()
    with torch.no_grad():
        model.scale[3] = 3
    assert edited == loss(1).item()
    assert edited != plain
    result(desk, "undo", **WHERE)
    assert at(desk, "loss", 1).item() == plain


def test_what_if_a_gradient_were_another(own: Callable[..., str]):
    """The step is made with the same random numbers as before."""
    desk, _ = opened(own())
    before = at(desk, "update.scale", 1).clone()
    loss = at(desk, "loss", 1).item()
    edit = {"name": "gradients.scale", "step": 1, "cell": [2], "value": "1"}
    result(desk, "edit", **WHERE, **edit)
    after = at(desk, "update.scale", 1)
    assert after[2].item() == pytest.approx(0.9)
    assert torch.equal(after[3:], before[3:])
    assert at(desk, "loss", 1).item() == loss


@pytest.mark.parametrize("name", ["modules.head", "gradients.modules.head", "loss"])
def test_what_comes_out_of_their_code_is_not_edited(own: Callable[..., str], name: str):
    desk, _ = opened(own())
    cell = [0] * at(desk, name, 1).dim()
    at(desk, "update.scale", 1)
    told = error(desk, "edit", **WHERE, name=name, step=1, cell=cell, value="1")
    assert told["sentence"].startswith("what comes out of code of your own cannot be edited")


def test_there_is_no_corpus_and_no_other_map(own: Callable[..., str]):
    desk, _ = opened(own())
    for method, params in (("audit", {}), ("story", {"number": 0}), ("tokenize", {"text": "a"})):
        assert "comes without texts" in error(desk, method, **params)["sentence"]
    told = error(desk, "look", map="generation", model="module")["sentence"]
    assert told == "a module of your own has the training map: there is no other"


# --- mistakes --------------------------------------------------------------------------------

RETURNS = "return (model, loss), (model, loss, optimizer) or (model, inputs)"


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("fails", "the factory {} failed: ValueError: no such file: data.txt (own_"),
        ("leaves", "the factory {} failed: SystemExit: 3 (own_"),
        ("nothing", f"the factory {{}} returned nothing: {RETURNS}"),
        ("a_number", f"the factory {{}} returned a int: {RETURNS}"),
        ("two_models", f"the factory {{}} returned (Linear, str): {RETURNS}"),
        ("no_parameters", "the model of {} has no parameters: there is nothing to train"),
        ("lazy", "the model of {} has parameters without a shape: run it once in the factory"),
        ("not_callable", "{} is no factory: name a function that makes the model"),
    ],
)
def test_what_a_factory_may_not_do(own: Callable[..., str], factory: str, sentence: str):
    module = own()
    assert refusal(module, factory).startswith(sentence.format(f"{module}:{factory}"))


def test_factories_that_are_not_there(own: Callable[..., str]):
    module = own()
    assert refusal(module, "absent").startswith(f"{module} has no 'absent': name a function")
    assert refusal("not_there_at_all").startswith("there is no module 'not_there_at_all' in this")
    assert refusal("not_there.at_all").startswith("there is no module 'not_there.at_all' in this")
    assert refusal("a-b") == "module:a-b:make names no factory: write module:package.module:factory"
    lacking = own("import not_there_either\n")
    told = refusal(lacking)
    assert told.startswith(f"importing {lacking} failed: ModuleNotFoundError: No module named 'not")
    broken = own("def make(:\n")
    assert refusal(broken).startswith(f"importing {broken} failed: SyntaxError: invalid syntax")


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("rows", "the loss of step 1 has the shape [2, 11]: return one number"),
        ("no_graph", "the loss of step 1 has no graph: compute it from the model's output"),
        ("python_number", "the loss of step 1 is float: return a tensor of one number"),
        ("backward_twice", "the backward pass failed: RuntimeError: "),
    ],
)
def test_what_a_loss_may_not_be(own: Callable[..., str], factory: str, sentence: str):
    desk, _ = opened(own(), factory)
    for _ in range(2):  # told every time
        told = error(desk, "move", **WHERE, how="seek", step=1, name="gradients.norm")
        assert told["sentence"].startswith(sentence)
        assert "trace" not in told


def test_a_later_step_that_fails_leaves_the_walk_where_it_is(own: Callable[..., str]):
    desk, _ = opened(own(), "breaks")
    at(desk, "update.scale", 1)
    told = error(desk, "move", **WHERE, how="next_step")
    assert told["sentence"].startswith("the loss of step 2 failed: IndexError: index out of range")
    assert "(own_" in told["sentence"]
    assert "Traceback" in told["theirs"]
    assert result(desk, "look", **WHERE)["state"]["name"] == "update.scale"


def test_the_folder_is_on_the_path_only_while_their_code_runs(own: Callable[..., str]):
    """And what their code imports late is found."""
    helper = own("def double(x):\n    return 2 * x\n")
    module = own(
        "import torch\nfrom torch import nn\n\ndef make():\n    m = nn.Linear(1, 1)\n"
        f"    def loss(step):\n        from {helper} import double\n"
        "        return double(m(torch.ones(1))).sum()\n    return m, loss\n"
    )
    before = list(sys.path)
    desk, _ = opened(module)
    at(desk, "loss", 1)
    assert sys.path == before


def test_a_factory_that_makes_another_model_each_time(own: Callable[..., str]):
    module = own(
        "import torch\nfrom torch import nn\nsizes = iter(range(1, 99))\n\ndef make():\n"
        "    m = nn.Linear(next(sizes), 1)\n"
        "    return m, lambda step: m(torch.ones(m.in_features)).sum()\n"
    )
    desk, _ = opened(module)
    at(desk, "loss", 2)
    told = error(desk, "follow", **WHERE, name="weight", cell=[0, 0])
    assert "makes another model each time" in told["sentence"]


# --- the command -----------------------------------------------------------------------------


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    return subprocess.run(
        [sys.executable, "-P", "-m", "tui.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_the_command(own: Callable[..., str], tmp_path: Path):
    """A package in the folder one stands in, in a worker of its own, whatever it prints."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text(f"print('hello')\n{CODE}")
    spec = ("--open", "module:mine.nets:make")
    done = command(tmp_path, "states", "train", *spec, "--steps", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 + 2 * (8 + 1 + 8 + 10 + 1 + 10)
    assert '"name": "modules.layers.2"' in done.stdout
    done = command(tmp_path, "explain", "update.scale", "--at", "3", *spec)
    assert "parameters.scale[3]" in done.stdout
    done = command(tmp_path, "--debug", "states", "train", "--open", "module:mine.nets:fails")
    assert done.returncode == 1
    assert 'raise ValueError("no such file: data.txt")' in done.stderr
    plain = command(tmp_path, "states", "train", "--open", "module:mine.nets:fails")
    assert plain.stderr.count("\n") == 1
    done = command(tmp_path, "states", "generate", *spec)
    assert done.returncode == 2
    assert "has the training map: there is no other" in done.stderr


def test_the_sentence_is_an_exception_of_ours(own: Callable[..., str]):
    from engine.service.factory import make

    with pytest.raises(TensorstepError, match="returned nothing"):
        make(f"{own()}:nothing", 11)
