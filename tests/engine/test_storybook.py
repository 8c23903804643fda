"""The storybook: stories written by a grammar, and its parser, which takes these and no others."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.data.storybook import Parsed, accepts, parse, write_stories
from engine.data.storybook.plots import PLOTS
from engine.data.storybook.stories import LONGEST, Slot, Template, article, grammar
from engine.text.words import detokenize, tokenize

PRONOUNS = ("he", "she", "him", "her", "his", "it", "they", "them", "its")

LOST = (
    "Mia had an orange ball. She took it everywhere. One evening, the ball was gone. Mia felt sad."
    " Her uncle helped her look in every drawer. At last she saw something orange in the bathtub."
    " From then on, Mia kept the ball on a shelf."
)
SICK = (
    "Otto was ill and had to stay in bed. Tom was upset. Tom asked his aunt to help him make soup."
    " Tom chose carrots, and soon all was boiled. He carried the soup down the road to Otto."
    " Two days later Otto was well, and he jumped with Tom."
)

# what comes back at the end of each plot, besides the hero
ABOUT = {
    "lost toy": "toy",
    "dark night": "toy",
    "cooking": "dish",
    "quarrel": "toy",
    "planting": "plant",
    "building": "built",
    "race": "friend",
    "gift": "gift",
    "learning": "skill",
    "visitor": "animal",
    "weather": "weather",
    "rescue": "animal",
    "sick friend": "friend",
    "broken thing": "fragile",
    "music": "instrument",
}


@pytest.fixture(scope="module")
def stories() -> list[str]:
    return write_stories()


def templates() -> list[Template]:
    return [one for plot in grammar().plots for beat in plot.beats for line in beat for one in line]


def words_at(item: str | Slot) -> set[str]:
    """The words that can stand at an item of a template."""
    if isinstance(item, str):
        return {item}
    return {row[item.form] for row in grammar().tables[item.name]}


# what it writes


def test_six_thousand_different_stories_that_it_accepts(stories: list[str]):
    assert len(stories) == 6000
    assert len({" ".join(tokenize(story)) for story in stories}) == 6000
    assert [story for story in stories if not accepts(story)] == []


def test_the_corpus_is_the_same_everywhere(stories: list[str]):
    """A change of the grammar, be it one word, changes the corpus: models trained on the former
    are then of another corpus. Where that is meant, put the new digest here."""
    digest = hashlib.sha256("\n".join(stories).encode()).hexdigest()
    assert digest == "99317f6877b8c6f52525fc4715808d431e3f62239d386e90a1fbc07abfa9b989"


def test_a_longer_list_begins_with_the_shorter(stories: list[str]):
    assert write_stories(500) == stories[:500]
    assert write_stories(0) == []
    assert write_stories(3, seed=1) == stories[:3]


@given(st.integers(0, 2**40))
def test_other_seeds(seed: int):
    assert all(map(accepts, write_stories(5, seed)))


def test_seeds_differ(stories: list[str]):
    assert len(set(stories[:100]) & set(write_stories(100, seed=2))) < 5


def test_about_a_thousand_words_none_of_them_rare(stories: list[str]):
    counts = Counter(token for story in stories for token in tokenize(story))
    assert 900 <= len(counts) <= 1100
    assert min(counts.values()) >= 25


def test_every_word_of_the_tables_is_used(stories: list[str]):
    used = {token for story in stories for token in tokenize(story)}
    words = {word for table in grammar().tables.values() for row in table for word in row.values()}
    assert words <= used


def test_length(stories: list[str]):
    lengths = sorted(len(tokenize(story)) for story in stories)
    assert lengths[0] >= 35
    assert lengths[-1] <= 75
    assert 50 <= lengths[3000] <= 62
    # a context of 64 holds <BOS> and a whole story, but for a few
    assert sum(length < 64 for length in lengths) > 0.8 * len(lengths)
    assert max(map(len, stories)) < LONGEST / 2


def test_sentences_and_capitals(stories: list[str]):
    for story in stories:
        sentences = re.split(r'(?<=[.!?]) (?=["A-Z])|(?<=[.!?]") (?=["A-Z])', story)
        assert 4 <= len(sentences) <= 8
        for sentence in sentences:
            assert re.match(r'"?[A-Z]', sentence)
            assert re.search(r'[.!?]"?$', sentence)
        assert not re.search(r"[.!?] [a-z]|  |[{}\[\]|]", story)
        assert story.count('"') % 2 == 0


def test_names_have_capitals(stories: list[str]):
    tables = grammar().tables
    names = {row[""] for table in ("hero", "friend", "day") for row in tables[table]}
    for story in stories:
        assert names.isdisjoint(re.findall(r"\w+", story))


def test_some_speak(stories: list[str]):
    assert 0.3 < sum('"' in story for story in stories) / 6000 < 0.95


def test_the_plots(stories: list[str]):
    plots = Counter(reading.plot for story in stories if (reading := parse(story)))
    assert 12 <= len(plots) <= 16
    assert set(plots) == {plot.name for plot in grammar().plots}
    assert min(plots.values()) > 0.8 * 6000 / len(plots)


def test_the_hero_and_the_thing_come_back(stories: list[str]):
    """The last beat names the hero and what the story is about, in each of its templates."""
    for plot in grammar().plots:
        for one in (one for line in plot.beats[-1] for one in line):
            named = {slot.name for slot in one.tokens if isinstance(slot, Slot) and not slot.form}
            assert {"hero", ABOUT[plot.name]} <= named | {"weather"}
    for story in stories:
        reading = parse(story)
        assert reading is not None
        for slot in ("hero", ABOUT[reading.plot]):
            assert slot == "weather" or tokenize(story).count(reading.bindings[slot]) >= 2


# what it reads


def test_bindings():
    assert parse(LOST) == Parsed(
        "lost toy",
        {"hero": "mia", "colour": "orange", "toy": "ball", "time": "evening", "sad": "sad"}
        | {"relative": "uncle"},
    )
    assert parse(SICK) == Parsed(
        "sick friend",
        {"friend": "otto", "hero": "tom", "sad": "upset", "relative": "aunt", "dish": "soup"},
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Mia felt", "Ella felt"),
        ("Mia felt", "Tom felt"),
        ("Her uncle", "His uncle"),
        ("helped her", "helped him"),
        ("She took", "He took"),
        ("an orange", "a orange"),
        ("an orange", "an blue"),
        ("an orange", "a blue"),  # the colour comes back
        ("the ball on", "the doll on"),
        ("the ball was", "the balls was"),
        ("on a shelf", "on an shelf"),
        ("uncle", "table"),
        ("evening", "monday"),
        ("felt sad", "felt happy"),
        ("gone.", "gone!"),
        (" on a shelf.", " on a shelf"),
        (" on a shelf.", " on a shelf. The end."),
        ("Mia had", "Once Mia had"),
    ],
)
def test_what_leaves_the_grammar(old: str, new: str):
    assert accepts(LOST)
    assert LOST.count(old) == 1
    assert not accepts(LOST.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [("Mia", "Ella"), ("ball", "doll"), ("an orange", "a blue"), ("uncle", "mother")],
)
def test_what_stays_in_it(old: str, new: str):
    """The same word changed everywhere."""
    other = LOST.replace(old, new).replace("orange", "blue" if "blue" in new else "orange")
    assert other != LOST
    assert accepts(other)


def test_the_friend_has_a_pronoun_too():
    assert accepts(SICK)
    assert not accepts(SICK.replace("and he jumped", "and she jumped"))
    assert accepts(SICK.replace("Otto", "Amy").replace("and he jumped", "and she jumped"))
    assert not accepts(SICK.replace("boiled", "baked"))  # soup is not


def test_sentences_in_another_order():
    sentences = re.split(r"(?<=\.) ", LOST)
    for i in range(len(sentences) - 1):
        swapped = [*sentences[:i], sentences[i + 1], sentences[i], *sentences[i + 2 :]]
        assert not accepts(" ".join(swapped))


def test_what_a_model_writes(stories: list[str]):
    """Lower case, with spaces between the tokens."""
    for story in stories[:300]:
        tokens = tokenize(story)
        assert parse(" ".join(tokens)) == parse(story)
        assert parse(detokenize(tokens)) == parse(story)


def test_every_part_of_a_story_is_needed():
    """No beginning, no end, and nothing with one token out or one token twice."""
    for story in write_stories(30, seed=3):
        tokens = tokenize(story)
        for i, token in enumerate(tokens):
            assert not accepts(" ".join(tokens[:i]))
            assert not accepts(" ".join(tokens[:i] + tokens[i + 1 :]))
            assert not accepts(" ".join([*tokens[:i], token, *tokens[i:]]))
            assert i == 0 or not accepts(" ".join(tokens[i:]))
        assert not accepts(f"{story} {story}")


@given(st.integers(0, 2**40), st.data())
def test_one_token_less(seed: int, data: st.DataObject):
    tokens = tokenize(write_stories(1, seed)[0])
    i = data.draw(st.integers(0, len(tokens) - 1))
    assert not accepts(" ".join(tokens[:i] + tokens[i + 1 :]))


@given(st.integers(0, 2**40), st.sampled_from(PRONOUNS), st.data())
def test_another_pronoun(seed: int, other: str, data: st.DataObject):
    tokens = tokenize(write_stories(1, seed)[0])
    places = [i for i, token in enumerate(tokens) if token in PRONOUNS and token != other]
    assume(places)
    tokens[data.draw(st.sampled_from(places))] = other
    assert not accepts(" ".join(tokens))


@given(st.integers(0, 2**40), st.data())
def test_another_name_in_one_place(seed: int, data: st.DataObject):
    """Of the slots that a story names more than once, one place gets another word of the table."""
    reading = parse(story := write_stories(1, seed)[0])
    assert reading is not None
    tokens = tokenize(story)
    slots = ("hero", "friend", "toy", "fragile", "instrument", "animal", "built", "relative")
    again = [
        (slot, reading.bindings[slot])
        for slot in slots
        if slot in reading.bindings and tokens.count(reading.bindings[slot]) > 1
    ]
    slot, word = data.draw(st.sampled_from(again))
    others = [row[""] for row in grammar().tables[slot] if row[""] != word]
    place = data.draw(st.sampled_from([i for i, token in enumerate(tokens) if token == word]))
    tokens[place] = data.draw(st.sampled_from(others))
    assert not accepts(" ".join(tokens))


@given(st.text())
def test_any_text(text: str):
    assert not accepts(text)


MIA = "Mia had an orange ball. "


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n",
        "\0",
        LOST + "\0",
        LOST.replace(" ", "\0"),
        "<b>" + LOST + "</b>",
        "{Hero} had {a} {colour} {toy}. {He} took it everywhere.",
        "[took|carried]",
        "a",
        "a" * 1_000_000,
        MIA * 50_000,
        (MIA * 50_000)[:2000],
        "( " * 500_000,
        "\u202e" * 2000,
        "\ufdfa" * 1_000_000,  # 18 characters each, in NFKC
        "\ufdfa" * LONGEST,
        "\U0001f600" * 1000,
        "\0" * 1_000_000,
    ],
    ids=lambda text: f"{len(text)}-{text[:4]!a}",
)
def test_hostile_texts_are_rejected_at_once(text: str):
    start = time.perf_counter()
    assert not accepts(text)
    assert time.perf_counter() - start < 1


# the grammar itself


def test_each_plot_has_its_beats_and_lines():
    for plot in grammar().plots:
        assert 4 <= len(plot.beats) <= 7
        assert all(3 <= len(beat) <= 6 for beat in plot.beats)
    names = [plot.name for plot in grammar().plots]
    assert len(set(names)) == len(names)


def test_every_slot_exists_and_every_table_is_used():
    tables, used = grammar().tables, set()
    for one in templates():
        for slot in one.tokens:
            if isinstance(slot, Slot) and not slot.is_article:
                assert all(slot.form in row for row in tables[slot.name])
                used.add((slot.name, slot.form))
    unused = {(name, form) for name, table in tables.items() for form in table[0]} - used
    assert unused == set()


def test_slot_words_are_single_tokens_and_stand_alone():
    for table in grammar().tables.values():
        for row in table:
            assert all(tokenize(word) == [word] and word.isalpha() for word in row.values())
    assert not re.search(r"[\w']\{|\}[\w']", PLOTS)  # {hero}'s would be one token
    assert not re.search(r"[\w']\[|\][\w']", PLOTS)


def test_no_word_twice_in_a_table():
    for table in grammar().tables.values():
        words = [row[""] for row in table]
        assert len(set(words)) == len(words)


def test_names_are_no_other_words():
    tables = grammar().tables
    names = {row[""] for table in ("hero", "friend") for row in tables[table]}
    assert len(names) == len(tables["hero"]) + len(tables["friend"])
    others = {item for one in templates() for item in one.tokens if isinstance(item, str)}
    for name, table in tables.items():
        if name not in ("hero", "friend"):
            others |= {word for row in table for word in row.values()}
    assert names.isdisjoint(others)


def test_templates_differ_within_a_plot():
    for plot in grammar().plots:
        told = [one.tokens for beat in plot.beats for line in beat for one in line]
        assert len(set(told)) == len(told)


def test_articles_written_out_fit_too():
    """a and an before every word that can follow; none has a vowel letter but not its sound."""
    for one in templates():
        for item, following in zip(one.tokens, one.tokens[1:], strict=False):
            if (item, following) == ("an", "hour"):
                continue
            if item in ("a", "an"):
                assert {article(word) for word in words_at(following)} == {item}
            elif isinstance(item, Slot) and item.is_article:
                for word in words_at(following):
                    assert not re.match("uni|use|usu|eu|one|once|hour|hono|heir|x", word)
        last = one.tokens[-1]
        assert not (isinstance(last, Slot) and last.is_article)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("ball", "a"), ("orange", "an"), ("enormous", "an"), ("igloo", "an"), ("yellow", "a")],
)
def test_article(word: str, expected: str):
    assert article(word) == expected
