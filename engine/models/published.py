"""What a config.json of the Hugging Face hub says, as the settings of our decoder.

Settings that would change the arithmetic in a way that is not known here are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import TensorstepError
from engine.models.transformer import DecoderConfig
from engine.ops import Rotary

LARGEST = 10**8  # of any size in a config.json: larger ones are mistakes
MOST_BLOCKS = 1000
GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
NOT_GIVEN = object()


@dataclass(frozen=True)
class Fields:
    """The keys of a JSON object, read with their types checked.

    place  where they stand, as messages have it
    """

    place: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Fields:
        """A JSON file. Raises TensorstepError for one that holds no object."""
        place = repr(str(path))
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TensorstepError(
                f"{place} cannot be read ({error.strerror}): check it, or fetch the model again"
            ) from None
        except (ValueError, RecursionError):
            raise TensorstepError(f"{place} is no JSON: fetch it again") from None
        if not isinstance(values, dict):
            raise TensorstepError(f"{place} holds no JSON object: fetch it again")
        return cls(place, values)

    def wrong(self, key: str, mend: str) -> TensorstepError:
        """That a key does not hold what it has to."""
        shown = json.dumps(self.values.get(key), ensure_ascii=True)[:60]
        return TensorstepError(f"{key!r} of {self.place} is {shown}: {mend}")

    def get(self, key: str, default: Any = NOT_GIVEN) -> Any:
        """What a key holds; the default where it is not there, or null."""
        value = self.values.get(key)
        if value is not None:
            return value
        if default is NOT_GIVEN:
            raise TensorstepError(f"{self.place} lacks {key!r}: give a complete one")
        return default

    def count(self, key: str, default: Any = NOT_GIVEN, most: int = LARGEST) -> Any:
        """A whole number from 1 on (or the default, whatever it is)."""
        value = self.get(key, default)
        is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
        if value is not default and not is_count:
            raise self.wrong(key, f"give a whole number from 1 to {most:,}")
        return value

    def number(self, key: str, default: Any = NOT_GIVEN) -> float:
        """A positive finite number."""
        value = self.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < 1e30:
            raise self.wrong(key, "give a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "give true or false")
        return value

    def text(self, key: str, default: Any = NOT_GIVEN) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "give a text")
        return value

    def inner(self, key: str) -> Fields | None:
        """The object that a key holds; None where there is none."""
        value = self.get(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "give an object")
        return Fields(f"{key!r} of {self.place}", value)

    def refuse(self, key: str, known: Any) -> None:
        """Raises TensorstepError where a key holds anything but what is known here."""
        if self.get(key, known) != known:
            raise self.wrong(key, f"only {json.dumps(known)} is computed here")


def decoder_config(fields: Fields, context: int | None, pad_id: int | None) -> DecoderConfig:
    """The settings of a published decoder.

    context  how many positions will be used; None: all that it knows

    Raises TensorstepError for a kind or a setting that is not known here.
    """
    kind = fields.text("model_type")
    if kind not in KINDS:
        raise TensorstepError(
            f"the architecture {kind!r} of {fields.place} is not known: {', '.join(KINDS)} are;"
            " open another as module:PACKAGE.MODULE:FACTORY"
        )
    fields.refuse("quantization_config", None)
    positions = fields.count("n_positions" if kind == "gpt2" else "max_position_embeddings")
    if context is not None and not 0 < context <= positions:
        raise TensorstepError(
            f"a context of {context} does not fit {fields.place}: give 1 to {positions} positions"
        )
    config = KINDS[kind](fields, pad_id, context or positions)
    if pad_id is not None and not 0 <= pad_id < config.vocab_size:
        raise TensorstepError(
            f"the padding ID {pad_id} is not in the vocabulary of {config.vocab_size} of"
            f" {fields.place}: give one of its IDs"
        )
    return config.check()


def gpt2_config(fields: Fields, pad_id: int | None, context: int) -> DecoderConfig:
    fields.refuse("scale_attn_weights", True)
    for key in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        fields.refuse(key, False)
    fields.refuse("add_cross_attention", False)
    activation = fields.text("activation_function", "gelu_new")
    if activation not in GELU:
        raise fields.wrong("activation_function", f"{', '.join(GELU)} are computed here")
    width, heads = fields.count("n_embd"), fields.count("n_head")
    if width % heads:
        raise fields.wrong("n_head", f"they do not share a width of {width} evenly")
    return DecoderConfig(
        vocab_size=fields.count("vocab_size"),
        context_len=fields.count("n_positions"),  # the rows of its table, whatever is used
        width=width,
        blocks=fields.count("n_layer", most=MOST_BLOCKS),
        heads=heads,
        hidden=fields.count("n_inner", None) or 4 * width,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5),
        approximate=GELU[activation],
        tied=fields.flag("tie_word_embeddings", True),
        pad_id=pad_id,
    )


def llama_config(
    fields: Fields,
    pad_id: int | None,
    context: int,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
) -> DecoderConfig:
    """Llama 2 and 3, and what is computed like them."""
    fields.refuse("hidden_act", "silu")
    heads, width = fields.count("num_attention_heads"), fields.count("hidden_size")
    head_width = fields.count("head_dim", None)
    if head_width is None and width % heads:
        raise fields.wrong("num_attention_heads", f"they do not share a width of {width} evenly")
    if (head_width or width // heads) % 2:
        raise fields.wrong("head_dim", "a rotation needs an even number of components a head")
    groups = fields.count("num_key_value_heads", heads)
    if heads % groups:
        raise fields.wrong("num_key_value_heads", f"they do not share {heads} heads evenly")
    bias = fields.flag("attention_bias", False)
    return DecoderConfig(
        vocab_size=fields.count("vocab_size"),
        context_len=context,
        width=width,
        blocks=fields.count("num_hidden_layers", most=MOST_BLOCKS),
        heads=heads,
        hidden=fields.count("intermediate_size"),
        groups=groups,
        head_width=head_width,
        norm="rms",
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rotary=rotary_of(fields),
        gated=True,
        qkv_bias=bias if qkv_bias is None else qkv_bias,
        out_bias=bias if out_bias is None else out_bias,
        feedforward_bias=fields.flag("mlp_bias", False),
        tied=fields.flag("tie_word_embeddings", False),
        pad_id=pad_id,
    )


def mistral_config(fields: Fields, pad_id: int | None, context: int) -> DecoderConfig:
    # a config.json without the key means 4096; null means none
    if fields.values.get("sliding_window", 4096) is not None:
        check_window(fields, context)
    fields.refuse("attention_bias", False)
    fields.refuse("mlp_bias", False)
    return llama_config(fields, pad_id, context)


def qwen2_config(fields: Fields, pad_id: int | None, context: int) -> DecoderConfig:
    if fields.flag("use_sliding_window", False):
        check_window(fields, context)
    fields.refuse("attention_bias", True)
    fields.refuse("mlp_bias", False)
    return llama_config(fields, pad_id, context, qkv_bias=True, out_bias=False)


def check_window(fields: Fields, context: int) -> None:
    """Raises TensorstepError where a sliding window would hide positions of the context."""
    window = fields.count("sliding_window", 4096)
    if window < context:
        raise TensorstepError(
            f"'sliding_window' of {fields.place} is {window}, smaller than the context of {context}"
            f" positions, and windows that slide are not computed here: give a context of at most"
            f" {window}"
        )


def rotary_of(fields: Fields) -> Rotary:
    """How fast queries and keys turn: `rope_parameters`, or the older `rope_scaling` with
    `rope_theta` beside it."""
    fields.refuse("partial_rotary_factor", 1.0)
    new, old = fields.inner("rope_parameters"), fields.inner("rope_scaling")
    if new is not None and old is not None and new.values != old.values:
        raise fields.wrong("rope_scaling", "it contradicts 'rope_parameters', so leave out one")
    given = new or old or Fields(fields.place, {})
    given.refuse("partial_rotary_factor", 1.0)
    theta = given.number("rope_theta", fields.number("rope_theta", 10_000.0))
    key = "type" if "type" in given.values and "rope_type" not in given.values else "rope_type"
    kind = given.text(key, "default") if set(given.values) <= {"rope_theta"} else given.text(key)
    if kind == "default":
        return Rotary(theta)
    if kind != "llama3":
        raise given.wrong(key, "default and llama3 are computed here")
    return Rotary(
        theta,
        given.number("factor"),
        given.number("low_freq_factor"),
        given.number("high_freq_factor"),
        given.count("original_max_position_embeddings"),
    )


Reader = Callable[[Fields, int | None, int], DecoderConfig]
KINDS: dict[str, Reader] = {
    "gpt2": gpt2_config,
    "llama": llama_config,
    "mistral": mistral_config,
    "qwen2": qwen2_config,
}
