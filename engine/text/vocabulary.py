"""The vocabulary: which token has which ID."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import UsageError

PAD, BOS, EOS, UNK = "<PAD>", "<BOS>", "<EOS>", "<UNK>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK)
NONE = -1  # no ID


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and their IDs.

    itos        token of each ID; the four special tokens first, unless it was fitted without them
    stoi        ID of each token
    counts      how often each token occurred in the text it was fitted on
    max_vocab   the largest size allowed, specials included; None for no limit
    min_freq    how often a token had to occur to be taken in
    """

    itos: list[str]
    stoi: dict[str, int]
    counts: dict[str, int]
    max_vocab: int | None = None
    min_freq: int = 1

    @classmethod
    def fit(
        cls,
        documents: Iterable[Sequence[str]],
        max_vocab: int | None = None,
        min_freq: int = 1,
        by_count: bool = False,
        special: Sequence[str] = SPECIAL_TOKENS,
    ) -> Vocabulary:
        """The vocabulary of tokenized documents: the special tokens, then the distinct tokens,
        sorted, or (`by_count`) the most frequent first and equals sorted. A limit keeps the most
        frequent ones either way; the special tokens count in it.
        """
        counts: Counter[str] = Counter()
        for tokens in documents:
            counts.update(tokens)
        return cls.of_counts(counts, max_vocab, min_freq, by_count, special)

    @classmethod
    def of_counts(
        cls,
        counts: Mapping[str, int],
        max_vocab: int | None = None,
        min_freq: int = 1,
        by_count: bool = False,
        special: Sequence[str] = SPECIAL_TOKENS,
    ) -> Vocabulary:
        """The vocabulary of tokens that were counted, as `fit` makes it."""
        frequent = sorted(
            (token for token, count in counts.items() if count >= min_freq),
            key=lambda token: (-counts[token], token),
        )
        if max_vocab is not None:
            frequent = frequent[: max(0, max_vocab - len(special))]
        itos = [*special, *(frequent if by_count else sorted(frequent))]
        stoi = {token: i for i, token in enumerate(itos)}
        return cls(itos, stoi, dict(counts), max_vocab, min_freq)

    def __len__(self) -> int:
        return len(self.itos)

    @property
    def pad_id(self) -> int:
        return self.stoi[PAD]

    @property
    def bos_id(self) -> int:
        return self.stoi[BOS]

    @property
    def eos_id(self) -> int:
        return self.stoi[EOS]

    @property
    def unk_id(self) -> int:
        return self.stoi[UNK]

    def encode_tokens(self, tokens: Sequence[str], boundaries: bool = True) -> list[int]:
        """IDs of tokens, <UNK> for those not in the vocabulary; with <BOS> before and <EOS> after
        unless `boundaries` is False. Raises UsageError where there is no <UNK> to take."""
        unknown = self.stoi.get(UNK, NONE)
        ids = [self.stoi.get(token, unknown) for token in tokens]
        if unknown == NONE and NONE in ids:
            raise UsageError(f"{tokens[ids.index(NONE)]!r} is not in a vocabulary without <UNK>")
        return [self.bos_id, *ids, self.eos_id] if boundaries else ids

    def decode_ids(self, ids: Iterable[int], skip_special: bool = True) -> list[str]:
        """Tokens of IDs, without the special ones unless `skip_special` is False.

        Raises IndexError for an ID outside the vocabulary.
        """
        special = {self.stoi.get(name) for name in SPECIAL_TOKENS} if skip_special else set()
        tokens = []
        for i in map(int, ids):
            if not 0 <= i < len(self.itos):
                raise IndexError(f"ID {i} is not in a vocabulary of {len(self.itos)}")
            if i not in special:
                tokens.append(self.itos[i])
        return tokens
