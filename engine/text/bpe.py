"""Byte-pair encoding, through the library `tokenizers`: trained here, or loaded from files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, pre_tokenizers, trainers

from engine.errors import UsageError
from engine.text.tokenizer import inside, readable
from engine.text.vocabulary import BOS, EOS, PAD, UNK

SMALLEST = 256 + 3  # every byte, and PAD, BOS, EOS
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# the special tokens that published tokenizers name, ours first
NAMES = {
    "pad": (PAD, "<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "bos": (BOS, "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "eos": (EOS, "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>"),
    "unk": (UNK, "<unk>", "[UNK]"),
}


class BPETokenizer:
    """A tokenizer of the library `tokenizers`. See `engine.text.tokenizer.Tokenizer`.

    One without a token for padding gets <PAD> at the end of its vocabulary.
    """

    def __init__(self, encoder: Encoder, name: str, rule: str, order: str):
        self.name, self.rule, self.order = name, rule, order
        self._encoder = encoder
        added = encoder.get_added_tokens_decoder()
        self._added = {token.content for token in added.values()}
        self._special = {token.content: i for i, token in added.items() if token.special}
        if not any(name in self._special for name in NAMES["pad"]):
            encoder.add_special_tokens([PAD])
            self._special[PAD] = encoder.get_vocab(with_added_tokens=True)[PAD]
        self.pad_id = self._named("pad")
        self.bos_id = self._named("bos")
        self.eos_id = self._named("eos")
        self.unk_id = self._named("unk")
        self._spelling = bytes_of(json.loads(encoder.to_str()))

    def _named(self, role: str) -> int | None:
        return next((self._special[n] for n in NAMES[role] if n in self._special), None)

    @cached_property
    def itos(self) -> Sequence[str]:
        names = {i: name for name, i in self._special.items()}
        tokens = {i: token for token, i in self._encoder.get_vocab(with_added_tokens=True).items()}
        return [names.get(i) or self._shown(i, tokens.get(i)) for i in range(max(tokens) + 1)]

    def _shown(self, i: int, token: str | None) -> str:
        return f"<unused {i}>" if token is None else readable(self._bytes_of(token))

    def _bytes_of(self, token: str) -> bytes:
        return token.encode() if token in self._added else self._spelling(token)

    def __len__(self) -> int:
        return len(self.itos)

    def _encoded(self, text: str, special: bool) -> Any:
        self._encoder.encode_special_tokens = not special
        return self._encoder.encode(text, add_special_tokens=False)

    def encode(self, text: str, special: bool = False) -> list[int]:
        ids: list[int] = self._encoded(text, special).ids
        return ids

    def pieces(self, text: str) -> list[bytes]:
        return [self._bytes_of(token) for token in self._encoded(text, False).tokens]

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._encoder.decode(inside(ids, len(self)), skip_special_tokens=True)
        return text

    def save(self, path: Path) -> None:
        self._encoder.save(str(path))

    @classmethod
    def train(cls, texts: Iterable[str], size: int, at_most: bool = False) -> BPETokenizer:
        """Byte-level BPE of exactly `size` entries, specials included, trained on texts; of fewer
        where they give no more and `at_most` allows it.

        Raises UsageError for a size below 259 and for one that the texts do not give.
        """
        if size < SMALLEST:
            raise UsageError(
                f"a BPE of {size} entries is too small: every byte takes one, so give"
                f" {SMALLEST} or more"
            )
        encoder = Encoder(models.BPE())
        byte_level(encoder)
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[PAD, BOS, EOS],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        encoder.train_from_iterator(texts, trainer)
        made = encoder.get_vocab_size()
        if made < size and not at_most:
            raise UsageError(
                f"the training texts give a BPE of {made} entries, fewer than {size}:"
                f" ask for {made} or fewer"
            )
        return cls(encoder, f"bpe:{made}", BYTE_LEVEL, TRAINED)


BYTE_LEVEL = "byte-level BPE pieces"
TRAINED = "the special tokens, then the bytes, then the merges in the order of training"
FILED = "as the file has them"


def byte_level(encoder: Encoder) -> None:
    """Every byte is a character of the tokens, as GPT-2 has it: no text is unknown."""
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()


def read_tokenizer_json(path: Path) -> BPETokenizer:
    """A `tokenizer.json` as the library writes it. Raises UsageError for one that is not."""
    try:
        encoder = Encoder.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"{str(path)!r} is no tokenizer.json: {first_line(error)}") from None
    kind = json.loads(encoder.to_str())["model"]["type"]
    rule = BYTE_LEVEL if is_byte_level(json.loads(encoder.to_str())) else f"{kind} pieces"
    return BPETokenizer(encoder, str(path), rule, FILED)


def read_vocab_and_merges(vocab: Path, merges: Path) -> BPETokenizer:
    """A byte-level BPE published as two files, as GPT-2 was. Raises UsageError for files that are
    not that."""
    try:
        encoder = Encoder(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:
        raise UsageError(
            f"{str(vocab)!r} and {merges.name!r} are no vocabulary and merges: {first_line(error)}"
        ) from None
    byte_level(encoder)
    known = encoder.get_vocab()
    lacking = set(BYTES) - set(known)
    if lacking:
        raise UsageError(
            f"{str(vocab)!r} lacks {len(lacking)} of the 256 bytes, so that text would be lost:"
            " it is no byte-level BPE"
        )
    encoder.add_special_tokens([n for n in dict.fromkeys(sum(NAMES.values(), ())) if n in known])
    return BPETokenizer(encoder, str(vocab.parent), BYTE_LEVEL, FILED)


def first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


# --- tokens to bytes --------------------------------------------------------------------------


def bytes_of(config: dict[str, Any]) -> Callable[[str], bytes]:
    """How a tokenizer with this configuration spells bytes in its tokens: a function."""
    if is_byte_level(config):
        return lambda token: bytes(BYTES[character] for character in token)
    if "▁" in json.dumps([config.get("normalizer"), config.get("decoder")], ensure_ascii=False):
        return spelled
    return lambda token: token.encode()


def is_byte_level(config: dict[str, Any]) -> bool:
    return '"ByteLevel"' in json.dumps([config.get("pre_tokenizer"), config.get("decoder")])


def spelled(token: str) -> bytes:
    """A token of the SentencePiece kind: ▁ is a space, <0x0A> a byte."""
    byte = BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()


def byte_characters() -> dict[str, int]:
    """The byte that each character stands for in byte-level tokens: printable Latin-1 characters
    are their own byte, the other bytes are numbered from U+0100 on (the rule of GPT-2's encoder).
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    table = {chr(byte): byte for byte in own}
    table |= {chr(0x100 + i): byte for i, byte in enumerate(others)}
    return table


BYTES = byte_characters()
