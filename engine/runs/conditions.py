"""Conditions of breakpoints: expressions over a step's metrics and states. All that can be wrong
with one is told when it is given; simpleeval then evaluates what is left, never Python itself."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn

from simpleeval import DEFAULT_OPERATORS, SimpleEval

from engine.errors import UsageError

METRICS = {
    "step": "the number of the step",
    "loss": "the loss of its batch",
    "lr": "its learning rate",
    "grad_norm": "the norm of all gradients together",
    "val_loss": "the loss on what is held out, at the steps that have it",
    "best": "the lowest val_loss of the steps before",
    "targets_per_second": "how many targets are learned from in a second",
    "time": "when the step ended, in seconds since 1970",
}
OF_STATES = {
    "norm": "the root of the sum of the squares of its cells",
    "mean": "the mean of its cells",
    "std": "the standard deviation of its cells",
    "largest": "the largest of its cells",
    "smallest": "the smallest of its cells",
    "nonfinite": "how many of its cells are not finite",
}
TRUTHS: dict[str, Callable[..., bool]] = {
    "isfinite": math.isfinite,
    "isnan": math.isnan,
    "isinf": math.isinf,
}
NUMBERS: dict[str, Callable[..., float]] = {
    "abs": abs,
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    "min": min,
    "max": max,
}
OF_MORE = ("min", "max")  # of two or more numbers
FUNCTIONS = (*TRUTHS, *NUMBERS, *OF_STATES)

COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
SIGNS = (ast.UAdd, ast.USub)
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{kind: DEFAULT_OPERATORS[kind] for kind in (*COMPARISONS, *ARITHMETIC, *SIGNS, ast.Not)},
    ast.Pow: math.pow,  # of floats, which overflow where whole numbers would grow for ever
}

LONGEST = 200  # characters
DEEPEST = 60  # levels of the parsed expression
EXPONENT = 16
EXAMPLE = "loss > 8"


class Unknown(Exception):
    """A figure that this step does not have."""


@dataclass(frozen=True)
class Condition:
    """An expression that has been checked. Evaluate it in one thread at a time.

    metrics   the metrics it names
    wanted    the figures of states it names: each a function and the name of a state
    """

    text: str
    metrics: frozenset[str]
    wanted: frozenset[tuple[str, str]]
    _tree: ast.expr = field(repr=False, compare=False)
    _evaluator: SimpleEval = field(
        init=False, repr=False, compare=False, default_factory=lambda: SimpleEval(OPERATORS)
    )

    @property
    def names_of_states(self) -> frozenset[str]:
        return frozenset(state for _, state in self.wanted)

    def holds(
        self,
        metrics: Mapping[str, float | int | None],
        figures: Mapping[tuple[str, str], float],
        before: Mapping[str, float | None] | None = None,
    ) -> bool:
        """Whether it is true of a step. It is not where it names a metric that the step lacks, or
        where arithmetic fails.

        figures   of states, by what is in `wanted`; only those are read that the answer depends
                  on, so that a mapping may compute them when they are asked for
        before    where `best` is, if it is not among the metrics
        """
        known = metrics if before is None else {**metrics, "best": before.get("best")}
        values = {name: known.get(name) for name in self.metrics}
        if any(value is None for value in values.values()):
            return False
        evaluator = self._evaluator
        evaluator.names = values
        evaluator.functions = {**TRUTHS, **NUMBERS, **readers(figures)}
        try:
            return bool(evaluator.eval(self.text, previously_parsed=self._tree))
        except (Unknown, ArithmeticError, ValueError):
            return False
        finally:
            evaluator.functions = {}  # figures may hold tensors


def readers(figures: Mapping[tuple[str, str], float]) -> dict[str, Callable[[str], float]]:
    """The functions of states, each reading its figure."""

    def reader(function: str) -> Callable[[str], float]:
        def read(state: str) -> float:
            figure = figures.get((function, state))
            if figure is None:
                raise Unknown
            return figure

        return read

    return {function: reader(function) for function in OF_STATES}


def condition_of(text: str) -> Condition:
    """The condition that is written so. Raises UsageError, with an example, for a wrong one."""
    text = text.strip()
    checker = Checker(text)
    tree = checker.parse()
    checker.truth(tree)
    return Condition(text, frozenset(checker.metrics), frozenset(checker.wanted), tree)


class Checker:
    """Refuses whatever is not allowed in a condition, and notes what it names."""

    def __init__(self, text: str):
        self.text = text
        self.metrics: set[str] = set()
        self.wanted: set[tuple[str, str]] = set()

    def wrong(self, mistake: str, example: str = EXAMPLE) -> NoReturn:
        text = self.text if len(self.text) <= LONGEST else f"{self.text[:40]}..."
        raise UsageError(f"the condition {text!r} {mistake}: write it like {example}")

    def source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or "it"

    def parse(self) -> ast.expr:
        if not self.text:
            self.wrong("is empty")
        if len(self.text) > LONGEST:
            self.wrong(f"has {len(self.text)} characters, more than {LONGEST}")
        if not self.text.isprintable():
            self.wrong("has a character that cannot be seen")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python has opinions on 8or, and prints them
                tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            if re.search(r"(?<![=!<>:])=(?!=)", self.text):
                self.wrong("has a single =, which compares nothing", "step == 750")
            inside = error.lineno == 1 and 0 < (error.offset or 0) <= len(self.text)
            self.wrong(f"cannot be read at {f'character {error.offset}' if inside else 'its end'}")
        except (ValueError, MemoryError, RecursionError):
            self.wrong("cannot be read")
        if levels(tree) > DEEPEST:
            self.wrong("is nested too deeply")
        return tree

    def truth(self, node: ast.expr) -> None:
        """Check a part that has to be true or false."""
        match node:
            case ast.Compare(left=left, ops=operators, comparators=others):
                if not all(isinstance(operator, COMPARISONS) for operator in operators):
                    self.wrong(f"has {self.source(node)!r}, but numbers are compared with < or ==")
                for each in (left, *others):
                    self.number(each)
            case ast.BoolOp(values=parts):
                for each in parts:
                    self.truth(each)
            case ast.UnaryOp(op=ast.Not(), operand=part):
                self.truth(part)
            case ast.Call(func=ast.Name(id=name)) if name in TRUTHS:
                self.numbers(name, node)
            case _:
                self.number(node)  # which may be wrong in another way
                self.wrong(f"has {self.source(node)!r} where a comparison belongs")

    def number(self, node: ast.expr) -> None:
        """Check a part that has to be a number."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                pass
            case ast.Name(id=name):
                self.metric(name)
            case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=part):
                self.number(part)
            case ast.BinOp(left=left, op=ast.Pow(), right=exponent):
                self.number(left)
                self.exponent(exponent)
            case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, ARITHMETIC):
                self.number(left)
                self.number(right)
            case ast.Call(func=ast.Name(id=name)) if name in OF_STATES:
                self.state(name, node)
            case ast.Call(func=ast.Name(id=name)) if name in NUMBERS:
                self.numbers(name, node)
            case _:
                self.no_number(node)

    def no_number(self, node: ast.expr) -> NoReturn:
        """Tell what stands where a number belongs."""
        match node:
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                self.wrong(f"has {self.source(node)!r}, true or false, where a number belongs")
            case ast.Call(func=ast.Name(id=name)) if name in TRUTHS:
                self.wrong(f"has {name} where a number belongs", example_of(name))
            case ast.Call(func=ast.Name(id=name)) if name in METRICS:
                self.wrong(f"calls {name}, which is a number", f"{name} > 8")
            case ast.Call(func=ast.Name(id=name)):
                self.wrong(f"calls {name!r}, which is no function ({near(name, FUNCTIONS)})")
            case ast.Constant(value=str()):
                self.wrong(f"has the text {self.source(node)} where a number belongs")
            case ast.Attribute():
                name = self.source(node)
                self.wrong(f"has {name!r}, but names of states stand in quotes", example_of("norm"))
        self.wrong(f"has {self.source(node)!r}, which is no number, metric or function of these")

    def metric(self, name: str) -> None:
        if name in FUNCTIONS:
            self.wrong(f"has {name}, a function, without parentheses", example_of(name))
        if name not in METRICS:
            self.wrong(f"names {name!r}, which is no metric ({near(name, tuple(METRICS))})")
        self.metrics.add(name)

    def exponent(self, node: ast.expr) -> None:
        """Check that a power can be seen to be a small one."""
        self.number(node)
        match node.operand if isinstance(node, ast.UnaryOp) else node:
            case ast.Constant(value=int() | float() as value) if value <= EXPONENT:
                return
        mistake = f"has the exponent {self.source(node)!r}, which is no number up to {EXPONENT}"
        self.wrong(mistake, "grad_norm ** 2 > 8")

    def numbers(self, name: str, call: ast.Call) -> None:
        """Check the numbers that a function is given."""
        if call.keywords or (len(call.args) < 2 if name in OF_MORE else len(call.args) != 1):
            many = "two or more numbers" if name in OF_MORE else "one number"
            self.wrong(f"calls {name}, a function of {many}, with something else", example_of(name))
        for each in call.args:
            self.number(each)

    def state(self, name: str, call: ast.Call) -> None:
        """Check the name that a function of a state is given."""
        match call:
            case ast.Call(args=[ast.Constant(value=str() as state)], keywords=[]):
                if state.isprintable() and state.strip():
                    self.wanted.add((name, state))
                    return
        needed = "a function of the name of a state in quotes"
        self.wrong(f"calls {name}, {needed}, with something else", example_of(name))


def levels(tree: ast.AST) -> int:
    """How deep an expression is nested."""
    found, level = 0, [tree]
    while level:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        found += 1
    return found


def example_of(function: str) -> str:
    if function in TRUTHS:
        return f"not {function}(grad_norm)"
    if function in OF_STATES:
        return f'{function}("gradients.W_Q.weight") > 10'
    return f"{function}(loss{', 1' if function in OF_MORE else ''}) > 8"


def near(name: str, names: Sequence[str]) -> str:
    """What may have been meant by a name that there is not."""
    alike = get_close_matches(name.lower(), names, cutoff=0.5)
    return f"did you mean {' or '.join(alike)}?" if alike else f"there are {', '.join(names)}"
