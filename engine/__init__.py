"""tensorstep's engine: models, training and generation as generators of named states.

Names load on first use, so that `import engine` costs nothing until something is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.data.corpus import Corpus as Corpus
    from engine.data.corpus import open_corpus as open_corpus
    from engine.data.preparation import TrainingData as TrainingData
    from engine.data.preparation import prepare as prepare
    from engine.data.sampling import EpochRows as EpochRows
    from engine.data.sampling import FixedRows as FixedRows
    from engine.data.sampling import SampledRows as SampledRows
    from engine.data.windows import Sequences as Sequences
    from engine.data.windows import Windows as Windows
    from engine.errors import TensorstepError as TensorstepError
    from engine.errors import UsageError as UsageError
    from engine.generation.decoding import FixedDraw as FixedDraw
    from engine.generation.decoding import Greedy as Greedy
    from engine.generation.decoding import SeededDraws as SeededDraws
    from engine.generation.generator import Generation as Generation
    from engine.generation.generator import generate as generate
    from engine.maps import map_of as map_of
    from engine.models.attention import CausalAttentionLM as CausalAttentionLM
    from engine.models.base import StatesModel as StatesModel
    from engine.models.base import evaluate as evaluate
    from engine.models.mlp import FixedWindowMLP as FixedWindowMLP
    from engine.models.multihead import MultiHeadAttentionLM as MultiHeadAttentionLM
    from engine.service.watching import watch as watch
    from engine.states import State as State
    from engine.states import drain as drain
    from engine.states import each as each
    from engine.states import patched as patched
    from engine.states import splice as splice
    from engine.text.compare import compare as compare
    from engine.text.cutting import CutTokenizer as CutTokenizer
    from engine.text.loading import load_tokenizer as load_tokenizer
    from engine.text.loading import open_tokenizer as open_tokenizer
    from engine.text.vocabulary import BOS as BOS
    from engine.text.vocabulary import EOS as EOS
    from engine.text.vocabulary import PAD as PAD
    from engine.text.vocabulary import SPECIAL_TOKENS as SPECIAL_TOKENS
    from engine.text.vocabulary import UNK as UNK
    from engine.text.vocabulary import Vocabulary as Vocabulary
    from engine.text.words import detokenize as detokenize
    from engine.text.words import tokenize as tokenize
    from engine.training.optimizers import SGD as SGD
    from engine.training.optimizers import Adam as Adam
    from engine.training.optimizers import AdamW as AdamW
    from engine.training.trainer import Training as Training
    from engine.training.trainer import train as train
    from engine.walk import Walk as Walk

_HOME = {
    "engine.data.corpus": ("Corpus", "open_corpus"),
    "engine.data.preparation": ("TrainingData", "prepare"),
    "engine.data.sampling": ("EpochRows", "FixedRows", "SampledRows"),
    "engine.data.windows": ("Sequences", "Windows"),
    "engine.errors": ("TensorstepError", "UsageError"),
    "engine.generation.decoding": ("FixedDraw", "Greedy", "SeededDraws"),
    "engine.generation.generator": ("Generation", "generate"),
    "engine.maps": ("map_of",),
    "engine.models.attention": ("CausalAttentionLM",),
    "engine.models.base": ("StatesModel", "evaluate"),
    "engine.models.mlp": ("FixedWindowMLP",),
    "engine.models.multihead": ("MultiHeadAttentionLM",),
    "engine.service.watching": ("watch",),
    "engine.states": ("State", "drain", "each", "patched", "splice"),
    "engine.text.compare": ("compare",),
    "engine.text.cutting": ("CutTokenizer",),
    "engine.text.loading": ("load_tokenizer", "open_tokenizer"),
    "engine.text.vocabulary": ("BOS", "EOS", "PAD", "SPECIAL_TOKENS", "UNK", "Vocabulary"),
    "engine.text.words": ("detokenize", "tokenize"),
    "engine.training.optimizers": ("SGD", "Adam", "AdamW"),
    "engine.training.trainer": ("Training", "train"),
    "engine.walk": ("Walk",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
