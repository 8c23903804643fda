"""Conditions: Python's own evaluation as the peer; whatever is not one is refused in a sentence."""

from __future__ import annotations

import ast
import gc
import math
import warnings
import weakref
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from engine import UsageError
from engine.runs.conditions import (
    DEEPEST,
    LONGEST,
    METRICS,
    NUMBERS,
    OF_MORE,
    OF_STATES,
    TRUTHS,
    condition_of,
    example_of,
    levels,
)

W_Q = "gradients.W_Q.weight"
STATES = (W_Q, "weights", 'it\'s \\ "quoted"')
AT = {
    "step": 750,
    "loss": 2.5,
    "lr": 0.003,
    "grad_norm": 0.9,
    "val_loss": 4.2,
    "best": 4.0,
    "targets_per_second": 5312.4,
    "time": 1764495000.123,
}
NOWHERE: dict[tuple[str, str], float] = {}


def holds(text: str, **changes: float | None) -> bool:
    return condition_of(text).holds({**AT, **changes}, NOWHERE)


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("loss > 8", {"loss": 8.1}, {"loss": 8.0}),
        ("step == 750", {"step": 750}, {"step": 751}),
        ("not isfinite(grad_norm)", {"grad_norm": math.nan}, {"grad_norm": 1.0}),
        ("not isfinite(grad_norm)", {"grad_norm": math.inf}, {"grad_norm": None}),
        ("val_loss > best + 0.1", {"val_loss": 4.11}, {"val_loss": 4.09}),
        ("1 < loss <= 3 < step", {"loss": 3.0}, {"loss": 3.1}),
        ("step % 100 == 0 and loss > 2", {"step": 700}, {"step": 701}),
        ("loss > 8 or isnan(loss)", {"loss": math.nan}, {"loss": 1.0}),
        ("not (loss > 8 or isinf(loss))", {"loss": 8.0}, {"loss": -math.inf}),
        ("max(loss, val_loss, 1) >= 5", {"loss": 5.0}, {"loss": 4.9}),
        ("abs(-loss) ** 2 > 9 // 2", {"loss": 3.0}, {"loss": 2.0}),
        ("  sqrt(exp(log(loss)))>2\n", {"loss": 4.1}, {"loss": 3.9}),
        ("grad_norm ** 0.5 > 2 and lr * 2 / 2 - 1 < 0", {"grad_norm": 5.0}, {"grad_norm": 3.0}),
    ],
)
def test_examples(text: str, true: dict[str, float], false: dict[str, float]):
    assert holds(text, **true) is True
    assert holds(text, **false) is False


def test_a_figure_of_a_state():
    condition = condition_of(f'norm("{W_Q}") > 10')
    assert condition.wanted == {("norm", W_Q)}
    assert condition.names_of_states == {W_Q}
    assert condition.metrics == frozenset()
    assert condition.holds({}, {("norm", W_Q): 10.5})
    assert not condition.holds({}, {("norm", W_Q): 9.5})
    assert not condition.holds({}, {("norm", W_Q): math.nan})
    assert not condition.holds({}, {("mean", W_Q): 10.5})


def test_what_is_wanted_of_several_states():
    condition = condition_of("nonfinite('a') > 0 or max(std('b'), mean('a')) > loss")
    assert condition.wanted == {("nonfinite", "a"), ("std", "b"), ("mean", "a")}
    assert condition.names_of_states == {"a", "b"}
    assert condition.metrics == {"loss"}
    assert condition.text == "nonfinite('a') > 0 or max(std('b'), mean('a')) > loss"
    assert condition == condition_of(condition.text)
    assert len({condition, condition_of(condition.text), condition_of("loss > 8")}) == 2


class Asked(Mapping[tuple[str, str], float]):
    """Figures that note which of them were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __getitem__(self, key: tuple[str, str]) -> float:
        self.asked.append(key)
        return 11.0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def test_figures_are_asked_for_only_where_they_matter():
    condition = condition_of('step == 750 and norm("weights") > 10')
    figures = Asked()
    assert not condition.holds({**AT, "step": 749}, figures)
    assert figures.asked == []
    assert condition.holds(AT, figures)
    assert figures.asked == [("norm", "weights")]


def test_figures_are_let_go():
    condition = condition_of('norm("weights") > 10')
    figures = Asked()
    assert condition.holds(AT, figures)
    kept = weakref.ref(figures)
    del figures
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_that_is_not_there_makes_it_false(name: str):
    for text in (f"{name} > -1", f"not {name} > -1", f"loss > 0 or {name} > 0"):
        condition = condition_of(text)
        assert not condition.holds({**AT, name: None}, NOWHERE)
        assert not condition.holds({k: v for k, v in AT.items() if k != name}, NOWHERE)


def test_the_best_before():
    """It comes with the metrics or by itself."""
    condition = condition_of("val_loss > best + 0.1")
    metrics = {"val_loss": 4.2}
    assert not condition.holds(metrics, NOWHERE)
    assert condition.holds(metrics, NOWHERE, {"best": 4.0, "val_loss": 1.0})
    assert not condition.holds(metrics, NOWHERE, {"best": 4.15})
    assert not condition.holds(metrics, NOWHERE, {"best": None})
    assert not condition.holds({**metrics, "best": 1.0}, NOWHERE, {})


@pytest.mark.parametrize(
    "text",
    [
        "1 / (step - 750) > -1",
        "not 1 / (step - 750) > -1",
        "step % 0 == 0",
        "step // 0.0 == 0",
        "exp(time) > 1",
        "not exp(time) > 1",
        "((time ** 16) ** 16) ** 16 > 1",
        "(((9 ** 9) ** 9) ** 9) ** 9 > loss",
        "sqrt(-loss) < 1",
        "log(loss - loss) < 1",
        "(-loss) ** 0.5 != 1",
        "(loss - loss) ** -1 != 1",
        "9" * 90 + " ** 4 > 1",
    ],
)
def test_arithmetic_that_fails_makes_it_false(text: str):
    assert holds(text) is False


HOSTILE = [
    '__import__("os")',
    '__import__("os").system("true") == 0',
    "loss.__class__",
    "(1).__class__",
    "loss.__class__ == 1",
    "().__class__.__bases__[0] == 1",
    "9**9**9",
    "9**9**9 > loss",
    "loss ** step > 1",
    "loss ** 17 > 1",
    "loss ** -17 > 1",
    "loss ** 1e9 > 1",
    "loss ** nan > 1",
    '"a"*10**9',
    '"a"*10**9 > loss',
    "[x for x in ()]",
    "[x for x in ()] == 1",
    "(x for x in ()) == 1",
    "{x: 1 for x in ()} == 1",
    "(" * 5000 + "loss > 8" + ")" * 5000,
    "(" * 95 + "loss > 8" + ")" * 95 + ">",
    "-" * 150 + "loss > 8",
    "not " * 45 + "loss > 8 > " + "-" * 5,
    "loss\x00 > 8",
    "\x1b[2Jloss > 8",
    "loss > 8\x07",
    "loss >\n8",
    "loss\u202e > 8",
    "loss > \ud800",
    'norm("\x1b[2J") > 1',
    'norm("\\x1b[2J") > 1',
    'norm("\\ud800") > 1',
    'norm("\\N{no such}") > 1',
    "",
    "  \n ",
    "#",
    "loss",
    "loss + 1",
    "8",
    "True",
    "None == loss",
    "loss > True",
    "loss > 3j",
    "loss > ...",
    "loss > b'a'",
    'loss > "8"',
    'f"{loss}" == 1',
    "loss = 8",
    "loss := 8",
    "(loss := 8) > 1",
    "loss += 8",
    "import os",
    "lambda: 1",
    "(lambda: 1)() > 0",
    "loss if step else lr",
    "loss > 8; loss > 9",
    "loss > 8, loss > 9",
    "loss[0] > 8",
    "loss in (1, 2)",
    "loss is 8",
    "loss is not 8",
    "loss and step > 1",
    "not loss",
    "(loss > 8) + 1 > 1",
    "isfinite(loss) == 1",
    "~step > 1",
    "step << 99999999 > 1",
    "step & 1 == 1",
    "step @ 1 > 1",
    "await loss > 1",
    "yield",
    "*loss > 1",
    "isfinite()",
    "isfinite(loss, lr)",
    "isfinite(*loss)",
    "isfinite(x=loss)",
    "isfinite(**loss)",
    "isfinite",
    "isfinite > 1",
    "isfinite(isfinite)",
    "isfinite(loss > 8)",
    'isfinite("loss")',
    "max(loss) > 1",
    "max(loss, lr, key=abs) > 1",
    'max("weights", loss) > 1',
    "abs(loss, lr) > 1",
    "norm > 1",
    "norm() > 1",
    'norm("") > 1',
    'norm(" ") > 1',
    'norm("a", "b") > 1',
    'norm(state="a") > 1',
    "norm(loss) > 1",
    'norm("a" + "b") > 1',
    'norm(f"a") > 1',
    "norm(b'a') > 1",
    "norm(gradients.W_Q.weight) > 1",
    "norm(norm) > 1",
    'norm("a").real > 1',
    'norm("a")("b") > 1',
    'print("a") > 1',
    'open("/etc/passwd") > 1',
    "eval('1') > 1",
    "rand() > 1",
    "int(loss) > 1",
    "loss(1) > 1",
    "nan > 1",
    "Loss > 1",
    "loss > 8 " + " " * LONGEST + "and lr > 1",
    "9" * 150 + "9" * 4200 + " > loss",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_condition_is_refused_at_once(text: str):
    told = refusal(text)
    assert told is not None
    assert told.startswith("the condition ")


def refusal(text: str) -> str | None:
    """The sentence that a text is refused with, if it is: one line of plain characters, with an
    example that is a condition."""
    try:
        condition_of(text)
        return None
    except UsageError as error:
        told, code = str(error), error.exit_code
    assert code == 2
    assert told.isprintable()
    assert len(told) < 3 * LONGEST + 300
    condition_of(told.rpartition(": write it like ")[2])
    return told


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("los > 8", r"names 'los', which is no metric \(did you mean loss or val_loss\?\)"),
        ("LOSS > 8", r"names 'LOSS', .*did you mean loss"),
        ("qqq > 8", r"names 'qqq', which is no metric \(there are step, loss, lr, grad_norm, "),
        ('nrm("a") > 1', r"calls 'nrm', which is no function \(did you mean norm\?\)"),
        ('qqq("a") > 1', r"calls 'qqq', which is no function \(there are isfinite, isnan, "),
        ("loss + 1", r"has 'loss \+ 1' where a comparison belongs: write it like loss > 8"),
        ("loss = 8", "has a single =, which compares nothing: write it like step == 750"),
        ("loss >", "cannot be read at its end"),
        ("loss > > 8", "cannot be read at character 8"),
        ("loss(3) > 1", "calls loss, which is a number"),
        ("norm > 1", r"has norm, a function, without parentheses: write it like norm\(\"grad"),
        ("norm(loss) > 1", "calls norm, a function of the name of a state in quotes, with somethi"),
        ("max(loss) > 1", r"calls max, a function of two or more .*: write it like max\(loss, 1\)"),
        ("W_Q.weight > 1", "has 'W_Q.weight', but names of states stand in quotes"),
        ("9 ** 99 > 1", "has the exponent '99', which is no number up to 16"),
        ("loss in (1, 2)", "numbers are compared with < or =="),
        ('loss > "8"', 'has the text "8" where a number belongs'),
        ("a" * 201, r"the condition 'a{40}\.\.\.' has 201 characters, more than 200"),
        ("loss > 8\x07", r"the condition 'loss > 8\\x07' has a character that cannot be seen"),
        ("-" * 100 + "1 > 0", "is nested too deeply"),
    ],
)
def test_the_mistake_is_told(text: str, mistake: str):
    with pytest.raises(UsageError, match=mistake):
        condition_of(text)


@given(st.text(max_size=60))
@example("loss > 8or step == 1")
def test_any_text_is_read_or_told(text: str):
    refusal(text)


@pytest.mark.parametrize("text", ["loss > 8or step == 1", 'norm("\\d") > 1', "1 is lr", "1() > 2"])
def test_python_does_not_warn(text: str):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        refusal(text)
    assert not warned


@pytest.mark.parametrize("function", [*TRUTHS, *NUMBERS, *OF_STATES])
def test_every_function_has_an_example(function: str):
    assert function in example_of(function)
    condition_of(example_of(function))


def call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def power(base: ast.expr, exponent: float) -> ast.expr:
    """A power of a float: Python's own of whole numbers grow for ever, and its roots of negative
    numbers are complex ones."""
    if exponent % 1:
        base = call("abs", base)
    return ast.BinOp(
        ast.BinOp(base, ast.Mult(), ast.Constant(1.0)), ast.Pow(), ast.Constant(exponent)
    )


CONSTANTS = st.integers(0, 1000) | st.floats(0, 1e9) | st.sampled_from([0, 1, 750, 2.5])
LEAVES = (
    st.sampled_from(list(METRICS)).map(lambda name: ast.Name(name, ast.Load()))
    | CONSTANTS.map(ast.Constant)
    | st.builds(
        lambda function, state: call(function, ast.Constant(state)),
        st.sampled_from(list(OF_STATES)),
        st.sampled_from(STATES),
    )
)
SINGLE = [name for name in NUMBERS if name not in OF_MORE]
NUMERIC: st.SearchStrategy[ast.expr] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(
            ast.BinOp,
            inner,
            st.sampled_from([ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod]).map(
                lambda kind: kind()
            ),
            inner,
        )
        | st.builds(ast.UnaryOp, st.sampled_from([ast.USub(), ast.UAdd()]), inner)
        | st.builds(call, st.sampled_from(SINGLE), inner)
        | st.builds(call, st.sampled_from(OF_MORE), inner, inner)
        | st.builds(power, inner, st.sampled_from([0, 0.5, 1, 2, 3.5, 16]))
    ),
    max_leaves=4,
)
COMPARING = st.sampled_from([ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq])
CONDITIONS: st.SearchStrategy[ast.expr] = st.recursive(
    st.lists(st.tuples(COMPARING, NUMERIC), min_size=1, max_size=3).flatmap(
        lambda rest: NUMERIC.map(
            lambda first: ast.Compare(first, [kind() for kind, _ in rest], [n for _, n in rest])
        )
    )
    | st.builds(call, st.sampled_from(list(TRUTHS)), NUMERIC),
    lambda inner: (
        st.builds(
            ast.BoolOp,
            st.sampled_from([ast.And(), ast.Or()]),
            st.lists(inner, min_size=2, max_size=3),
        )
        | st.builds(ast.UnaryOp, st.just(ast.Not()), inner)
    ),
    max_leaves=4,
)
VALUES = st.floats() | st.sampled_from([0.0, 1.0, 2.5, -1.0, math.nan, math.inf])
FIGURES = st.fixed_dictionaries({(f, state): VALUES for f in OF_STATES for state in STATES})


def by_python(tree: ast.expr, metrics: dict, figures: dict) -> bool:
    """What Python says of the expression, as the body of a lambda over the metrics."""
    arguments = ast.arguments([], [ast.arg(name) for name in METRICS], None, [], [], None, [])
    built = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, tree)))
    reading = {f: lambda state, f=f: figures[f, state] for f in OF_STATES}
    peer = eval(compile(built, "peer", "eval"), {**TRUTHS, **NUMBERS, **reading})
    try:
        return bool(peer(*(metrics[name] for name in METRICS)))
    except (ArithmeticError, ValueError):
        return False


@given(
    CONDITIONS,
    st.fixed_dictionaries(dict.fromkeys(METRICS, VALUES)),
    st.integers(0, 10**6),
    FIGURES,
)
def test_it_is_what_python_says(tree: ast.expr, metrics: dict, step: int, figures: dict):
    text = ast.unparse(ast.fix_missing_locations(tree))
    assume(len(text) <= LONGEST and levels(tree) < DEEPEST)
    condition = condition_of(text)
    metrics["step"] = step
    assert condition.holds(metrics, figures) == by_python(tree, metrics, figures)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert condition.metrics == names & set(METRICS)
    asked = {(f, state) for f, state in figures if f"{f}({state!r})" in text}
    assert condition.wanted == asked


@given(CONDITIONS, st.integers(0, 400), st.integers(0, 400), st.characters())
def test_a_condition_with_a_slip_is_read_or_told(tree: ast.expr, a: int, b: int, character: str):
    text = ast.unparse(ast.fix_missing_locations(tree))
    refusal(text[:a] + character + text[b:])
