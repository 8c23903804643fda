"""Writing stories by the grammar of the storybook, and reading them back by the same grammar."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from engine.data.storybook.plots import PLOTS
from engine.data.storybook.words import Row, read_tables
from engine.text.words import tokenize

LONGEST = 2000  # characters; no story is half as long
SLOT = re.compile(r"\{([\w.]+)\}")
CHOICE = re.compile(r"\[([^]]*)\]")
SHORT = {form: f"hero.{form}" for form in ("he", "him", "his", "child")}


@dataclass(frozen=True)
class Slot:
    """A place for a word: {animal.sound} has the name "animal" and the form "sound"."""

    name: str
    form: str
    capital: bool

    @property
    def is_article(self) -> bool:
        return self.name == "a"


@dataclass(frozen=True)
class Template:
    """One way to tell a beat: its text cut at the slots, and its lower-case tokens."""

    parts: tuple[str | Slot, ...]
    tokens: tuple[str | Slot, ...]


@dataclass(frozen=True)
class Plot:
    """A plot: its beats; each beat its lines; each line its templates, one for each choice."""

    name: str
    beats: tuple[tuple[tuple[Template, ...], ...], ...]


@dataclass(frozen=True)
class Parsed:
    """What a story was made of: its plot, and the word of each slot it names (hero: mia)."""

    plot: str
    bindings: dict[str, str]


@dataclass(frozen=True)
class Grammar:
    """The plots and tables, and for each slot and form the rows that a word can come from."""

    plots: tuple[Plot, ...]
    tables: dict[str, list[Row]]
    rows: dict[tuple[str, str], dict[str, frozenset[int]]]


@cache
def grammar() -> Grammar:
    """The grammar that both the writer and the parser use."""
    tables = read_tables()
    rows: dict[tuple[str, str], dict[str, frozenset[int]]] = {}
    for name, table in tables.items():
        for number, row in enumerate(table):
            for form, word in row.items():
                known = rows.setdefault((name, form), {})
                known[word] = known.get(word, frozenset()) | {number}
    return Grammar(tuple(read_plots(PLOTS)), tables, rows)


def read_plots(text: str) -> Iterator[Plot]:
    """The plots of a text in the form that plots.py describes."""
    joined = re.sub(r"\n +", " ", text)  # a line that begins with spaces goes on with the one above
    for block in joined.split("== ")[1:]:
        name, *lines = block.strip().split("\n")
        beats: list[list[tuple[Template, ...]]] = []
        for line in lines:
            mark, line = line[0], line[2:]
            if mark == "*":
                beats.append([])
            beats[-1].append(tuple(map(template, expand(line))))
        yield Plot(name, tuple(map(tuple, beats)))


def expand(line: str) -> Iterator[str]:
    """The line with its choices made, in every way."""
    pieces = CHOICE.split(line)  # text, choice, text, choice, ..., text
    options = [piece.split("|") if i % 2 else [piece] for i, piece in enumerate(pieces)]
    return map("".join, itertools.product(*options))


def template(text: str) -> Template:
    """The template of a text with slots."""
    pieces = SLOT.split(text)  # text, slot, text, slot, ..., text
    parts = [slot(piece) if i % 2 else piece for i, piece in enumerate(pieces)]
    tokens: list[str | Slot] = []
    for part in parts:
        tokens += [part] if isinstance(part, Slot) else tokenize(part)
    return Template(tuple(parts), tuple(tokens))


def slot(text: str) -> Slot:
    """The slot of such a text as "Animal.sound" or "he"."""
    lower = text.lower()
    name, _, form = SHORT.get(lower, lower).partition(".")
    return Slot(name, form, text != lower)


def article(word: str) -> str:
    """a or an, as the word after it asks."""
    return "an" if word[:1] in tuple("aeiou") else "a"


def write_stories(count: int = 6000, seed: int = 1) -> list[str]:
    """So many stories, all different; a longer list of the same seed begins with the shorter."""
    draw = random.Random(seed).random  # noqa: S311 -- its numbers are the same on every Python
    stories: dict[str, None] = {}
    while len(stories) < count:
        stories[write_story(draw)] = None
    return list(stories)


def write_story(draw: Callable[[], float]) -> str:
    """One story, as the numbers from 0 to 1 that `draw` gives decide."""
    plots, tables = grammar().plots, grammar().tables
    chosen: dict[str, Row] = {}
    told = []
    for beat in plots[int(draw() * len(plots))].beats:
        line = beat[int(draw() * len(beat))]
        one = line[int(draw() * len(line))]
        for part in one.parts:
            if isinstance(part, Slot) and part.name not in chosen and not part.is_article:
                table = tables[part.name]
                chosen[part.name] = table[int(draw() * len(table))]
        told.append(fill(one, chosen))
    return " ".join(told)


def fill(one: Template, chosen: dict[str, Row]) -> str:
    """The text of a template with the chosen words in its slots."""
    text = ""
    for part in reversed(one.parts):  # from the end, for an article needs the word after it
        if isinstance(part, Slot):
            word = article(text.lstrip()) if part.is_article else chosen[part.name][part.form]
            text = (word.capitalize() if part.capital else word) + text
        else:
            text = part + text
    return text


def accepts(text: str) -> bool:
    """Whether the storybook can write this text."""
    return parse(text) is not None


def parse(text: str) -> Parsed | None:
    """How the storybook can write this text; None where it cannot.

    Only the tokens of the words tokenizer count: neither case nor white space does.
    """
    tokens = tokenize(text) if len(text) <= LONGEST else []
    for plot in grammar().plots:
        for rows in readings(plot, tokens):
            return Parsed(plot.name, words_of(rows))
    return None


def words_of(rows: dict[str, frozenset[int]]) -> dict[str, str]:
    """The word of each slot that leaves no doubt."""
    tables = grammar().tables
    return {name: tables[name][min(left)][""] for name, left in rows.items() if len(left) == 1}


def readings(plot: Plot, tokens: list[str]) -> list[dict[str, frozenset[int]]]:
    """The ways to read all the tokens as this plot: for each slot the rows it can stand for."""
    states: list[tuple[int, dict[str, frozenset[int]]]] = [(0, {})]
    for beat in plot.beats:
        states = [
            (start + len(one.tokens), found)
            for start, rows in states
            for one in itertools.chain.from_iterable(beat)
            if (found := match(one, tokens, start, rows)) is not None
        ]
    return [rows for end, rows in states if end == len(tokens)]


def match(
    one: Template, tokens: list[str], start: int, rows: dict[str, frozenset[int]]
) -> dict[str, frozenset[int]] | None:
    """The rows that are left when the tokens from `start` on are this template; None if not."""
    if start + len(one.tokens) > len(tokens):
        return None
    found, known = dict(rows), grammar().rows
    for place, item in enumerate(one.tokens, start):
        token = tokens[place]
        if isinstance(item, str):
            if token != item:
                return None
        elif item.is_article:
            if token != article(tokens[place + 1]):
                return None
        else:
            left = known[item.name, item.form].get(token, frozenset())
            found[item.name] = left & found.get(item.name, left)
            if not found[item.name]:
                return None
    return found
