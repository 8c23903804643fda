"""The step-wise generator: every new token as a generator of states."""

from __future__ import annotations

import copy
from itertools import islice

import torch
from torch import Tensor

from engine.errors import UsageError
from engine.generation.cache import Cache
from engine.generation.decoding import Chooser, Filters, Greedy, choose
from engine.models.base import StatesModel
from engine.models.parts import last_row
from engine.models.transformer import DecoderLM
from engine.ops import Rule, block, by_rule, cumulative_sum, given, softmax
from engine.ops.core import Cell, Explanation, Operands, Operation, chooses
from engine.ops.data import CUMULATIVE_SUM
from engine.processes import Snapshot
from engine.states import State, States
from engine.text.boundaries import Boundaries
from engine.text.tokenizer import Tokenizer, readable
from engine.text.vocabulary import SPECIAL_TOKENS


class Generation:
    """Continuing a prompt, one token a step; step 0 is the prompt.

    budget      how many new tokens at the most; <EOS> ends before that
    filters     what happens to the logits before one is chosen
    cache       whether keys and values of earlier positions are kept: of a model that has logits at
                every position, as long as its context is
    boundaries  how texts begin and end; None: as the tokenizer's documents do

    Raises UsageError for a prompt without a single known token, and for a budget below 1.
    """

    map = "generation"

    def __init__(
        self,
        model: StatesModel,
        tokenizer: Tokenizer,
        prompt: str,
        budget: int = 16,
        chooser: Chooser | None = None,
        filters: Filters | None = None,
        cache: bool = False,
        boundaries: Boundaries | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.budget = budget
        self.chooser: Chooser = chooser or Greedy()
        self.filters = filters or Filters()
        self.cache = Cache() if cache else None
        self.boundaries = boundaries or Boundaries.of(tokenizer)
        if budget < 1:
            raise UsageError(f"a budget of {budget} new tokens generates nothing: give 1 or more")
        prompted = tokenizer.encode(prompt, self.boundaries.spelt)
        self._begin = self.boundaries.before(prompted)
        self.ids = [*self._begin, *prompted]
        if prompted and all(i == tokenizer.unk_id for i in prompted):
            known = list(islice((t for t in tokenizer.itos if t not in SPECIAL_TOKENS), 3))
            raise UsageError(
                f"the prompt {prompt!r} has no token of the vocabulary: use one of its words,"
                f" such as {', '.join(known)}"
            )
        if not self.ids:
            raise UsageError(
                f"the tokenizer {tokenizer.name!r} has no <BOS> to start from: give a prompt"
            )
        self._check_cache()
        if tokenizer.pad_id is None and not model.every_position:
            raise UsageError(f"windows need <PAD>, which {tokenizer.name!r} does not have")
        self._pad_id = tokenizer.pad_id or 0
        self.given = len(self.ids)
        self.blocked = {
            i: name for i, name in self.boundaries.never.items() if i < model.vocab_size
        }

    def _check_cache(self) -> None:
        """Raises UsageError where keys and values cannot be kept."""
        if self.cache is None:
            return
        if not self.model.every_position:
            raise UsageError(
                "this model sees a window that moves on, so that nothing can be kept: leave the"
                " cache out"
            )
        if len(self.ids) > self.model.context_len:
            raise UsageError(
                f"the prompt has {len(self.ids)} tokens, the model's context"
                f" {self.model.context_len}: shorten it, or leave the cache out"
            )

    def states(self, step: int) -> States:
        """The states of one step. Steps must be driven in order."""
        if step == 0:
            return (yield from self._prepare())
        del self.ids[self.given + step - 1 :]  # a step made again starts from its own history
        return (yield from self._step(step))

    def _prepare(self) -> States:
        prompt = yield given("prompt", self.prompt, (), "what is to be continued")
        tokenizer = self.tokenizer
        cut = Rule(tokenizer.rule + " of {0}", self._cut)
        tokens = yield by_rule("tokens", cut, (prompt,), ("N",))
        before = "".join(f"{tokenizer.itos[i]}, then " for i in self._begin)
        rule = Rule(f"{before}the ID of each token", self._history, self._read)
        return (yield by_rule("history", rule, (tokens, prompt), ("N",)))

    def _encode(self, prompt: str) -> list[int]:
        return [*self._begin, *self.tokenizer.encode(prompt, self.boundaries.spelt)]

    def _cut(self, prompt: str) -> list[str]:
        if self.boundaries.spelt:
            return [self.tokenizer.itos[i] for i in self.tokenizer.encode(prompt, special=True)]
        return [readable(piece) for piece in self.tokenizer.pieces(prompt)]

    def _history(self, _: list[str], prompt: str) -> Tensor:
        return torch.tensor(self._encode(prompt), dtype=torch.long)

    def _read(self, cell: Cell) -> list[tuple[int, Cell]]:
        at = cell[0] - len(self._begin)
        return [(0, (at,))] if at >= 0 else []

    def _step(self, step: int) -> States:
        before = torch.tensor(self.ids)
        history = given("history", before, ("N",), "the IDs so far", step=step - 1)
        logits = yield from self._logits(history, step)
        allowed = yield block("logits.blocked", logits, self.blocked)
        allowed = yield from self.filters.states(allowed)
        probabilities = yield softmax("probabilities", allowed)
        yield cumulative_sum("cdf", probabilities)
        draw = self.chooser.draw(step)
        choice = yield State("choice", Choose(draw), (probabilities,), role="data")
        chosen = int(choice.value)
        stop = yield by_rule("stop", self._stopping(step), (choice,), ())
        self.ids.append(chosen)
        append = Rule(
            "the history so far and the chosen ID",
            lambda old, new: torch.cat([old, new.view(1).to(old)]),
            lambda cell: [(0, cell)] if cell[0] < len(before) else [(1, ())],
        )
        appended = yield by_rule("history", append, (history, choice), ("N",))
        if appended.replaced:  # a patched history is the one that is gone on with
            self._go_on_with(appended.value.tolist())
        return stop

    def _go_on_with(self, ids: list[int]) -> None:
        """Other IDs in place of the history: of those after the first change nothing is known."""
        if self.cache is not None:
            pairs = zip(ids, self.ids, strict=True)
            self.cache.cut(next((i for i, (new, old) in enumerate(pairs) if new != old), len(ids)))
        self.ids[:] = ids

    def _logits(self, history: State, step: int) -> States:
        """What the model says of the token that comes next: [1, C]."""
        length, width = len(self.ids), self.model.context_len
        if not self.model.every_position:
            rule = crop_and_pad(length, width, self._pad_id)
            X = yield by_rule("context", rule, (history,), ("B", "w"))
            return (yield from without_gradients(self.model.states(X)))
        rule = crop_and_pad(length, min(length, width), self._pad_id)
        X = yield by_rule("context", rule, (history,), ("B", "S"))
        model = self.model
        assert isinstance(model, DecoderLM)  # noqa: S101, what has logits at every position
        if self.cache is None:
            logits = yield from without_gradients(model.states(X))
        else:
            self.cache.begin(step)
            self.cache.cut(length - 1 if step > 1 else 0)  # a step made again starts from its own
            logits = yield from without_gradients(model.states(X, self.cache))
            self.cache.end(length)
        return logits.view(last_row, ("B", "C"))

    def _stopping(self, step: int) -> Rule:
        def decide(choice: Tensor) -> str:
            return self._reason(int(choice), step) or "no"

        return Rule(
            f"yes on <EOS>, or after {self.budget} new tokens", decide, lambda cell: [(0, ())]
        )

    def _reason(self, chosen: int, step: int) -> str | None:
        if chosen in self.boundaries.ends:
            return "yes: <EOS> was chosen"
        if self.cache is not None and self.given + step > self.model.context_len:
            return f"yes: the context of {self.model.context_len} tokens is full"
        if step >= self.budget:
            return f"yes: the budget of {self.budget} new tokens is used up"
        return None

    def ended(self, step: int) -> str | None:
        """Why there is no step after this one, or None."""
        if step == 0:
            return None
        return self._reason(self.ids[self.given + step - 1], step)

    def snapshot(self, step: int) -> Snapshot:
        """The history after `step` new tokens; the parameters do not change, so are not copied."""
        history = torch.tensor(self.ids[: self.given + step])
        shared = {f"parameters.{name}": value for name, value in self.parameters.items()}
        snapshot = Snapshot(step, {"history": history}, shared)
        if self.cache is not None:
            self.cache.save(snapshot)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        self.ids = snapshot.tensors["history"].tolist()
        if self.cache is not None:
            self.cache.restore(snapshot)

    def replica(self) -> Generation:
        """The same generation, to make earlier steps again."""
        twin = copy.copy(self)
        twin.ids = list(self.ids)
        twin.cache = None if self.cache is None else self.cache.copy()
        return twin

    def apart(self) -> Generation:
        """A replica whose parameters, too, are its own: they can be edited."""
        twin = self.replica()
        twin.model = copy.deepcopy(self.model)
        return twin

    @property
    def parameters(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return self.model.parameter_axes()

    def parameter_names(self) -> dict[int, str]:
        """Name of each parameter by the identity of its tensor."""
        return {id(parameter): name for name, parameter in self.parameters.items()}


def crop_and_pad(length: int, width: int, pad_id: int) -> Rule:
    """The last `width` IDs as [1, width], <PAD> on the left where there are fewer."""
    missing = max(0, width - length)

    def make(history: Tensor) -> Tensor:
        return torch.nn.functional.pad(history[-width:], (missing, 0), value=pad_id)[None]

    def cite(cell: Cell) -> list[tuple[int, Cell]]:
        at = cell[1] - missing
        return [(0, (max(0, length - width) + at,))] if at >= 0 else []

    what = f"the last {width} IDs of history" + (", <PAD> on the left" if missing else "")
    return Rule(what, make, cite)


class Choose(Operation):
    """probabilities [1, C] -> the chosen ID, by a draw or (None) greedily."""

    __slots__ = ("draw",)
    combine = "rule"

    def __init__(self, draw: float | None):
        self.draw = draw

    def describe(self, names: list[str]) -> str:
        if self.draw is None:
            return "the most probable ID (greedy)"
        return f"the first ID whose cdf reaches the draw {self.draw:.6g}"

    def compute(self, probabilities: Tensor) -> Tensor:
        if self.draw is None:
            return torch.tensor(choose(probabilities[0], None, None))
        cumulative = CUMULATIVE_SUM.compute(probabilities)
        return torch.tensor(choose(probabilities[0], cumulative[0], self.draw))

    def explain(self, cell: Cell, operands: Operands, to: Explanation) -> None:
        """What decided: the highest probabilities, or the running sums around the draw."""
        to.note = self.describe([])
        chosen = int(operands.output)
        probabilities = operands.value(0)[0]
        if self.draw is None:
            best = probabilities.topk(min(3, len(probabilities))).indices.tolist()
            to.terms = [chooses(operands.cell(0, (0, i)), f"ID {i}") for i in best]
            return
        allowed = (probabilities > 0).nonzero().flatten().tolist()
        at = allowed.index(chosen)
        for i in allowed[max(0, at - 1) : at + 1]:
            reached = "chosen" if i == chosen else "below the draw"
            to.terms.append(chooses(operands.named("cdf", (0, i)), f"ID {i}, {reached}"))


def without_gradients(states: States) -> States:
    """The same states, computed here so that no graph for backward is built, whoever drives."""
    no_graph = torch.no_grad()
    try:
        state = next(states)
        while True:
            if torch.is_grad_enabled():
                with no_graph:  # left before the yield: it would leak into the driver
                    state.compute()
            else:
                state.compute()
            state = yield state
            state = states.send(state)
    except StopIteration as stop:
        return stop.value


def generate(generation: Generation) -> States:
    """All states of a generation, prompt to stop. Drain it: it returns the reason it stopped."""
    yield from generation.states(0)
    step = 0
    while (reason := generation.ended(step)) is None:
        step += 1
        yield from generation.states(step)
    return reason
