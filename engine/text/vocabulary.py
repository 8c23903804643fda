"""The vocabulary: which token has which ID."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PAD, BOS, EOS, UNK = "<PAD>", "<BOS>", "<EOS>", "<UNK>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNK)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and their IDs.

    itos        token of each ID; the four special tokens first
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
    ) -> Vocabulary:
        """The vocabulary of tokenized documents: the special tokens, then the distinct tokens,
        sorted, or (`by_count`) the most frequent first and equals sorted. A limit keeps the most
        frequent ones either way.
        """
        counts: Counter[str] = Counter()
        for tokens in documents:
            counts.update(tokens)
        frequent = sorted(
            (token for token, count in counts.items() if count >= min_freq),
            key=lambda token: (-counts[token], token),
        )
        if max_vocab is not None:
            frequent = frequent[: max(0, max_vocab - len(SPECIAL_TOKENS))]
        itos = [*SPECIAL_TOKENS, *(frequent if by_count else sorted(frequent))]
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
        unless `boundaries` is False."""
        ids = [self.stoi.get(token, self.unk_id) for token in tokens]
        return [self.bos_id, *ids, self.eos_id] if boundaries else ids

    def decode_ids(self, ids: Iterable[int], skip_special: bool = True) -> list[str]:
        """Tokens of IDs, without the special ones unless `skip_special` is False.

        Raises IndexError for an ID outside the vocabulary.
        """
        special = len(SPECIAL_TOKENS) if skip_special else 0
        tokens = []
        for i in map(int, ids):
            if not 0 <= i < len(self.itos):
                raise IndexError(f"ID {i} is not in a vocabulary of {len(self.itos)}")
            if i >= special:
                tokens.append(self.itos[i])
        return tokens
