"""What a step of generation costs, with a cache and without: multiplications and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.transformer import DecoderConfig


@dataclass(frozen=True)
class Cost:
    """Of one step: how many numbers are multiplied, and the bytes that are kept for the next."""

    multiplications: int
    kept: int


def cost_of(config: DecoderConfig, seen: int, new: int, itemsize: int, cached: bool) -> Cost:
    """Computing the last `new` of `seen` positions. The products of matrices are counted: what
    norms and activations take is small beside them."""
    c = config
    heads, groups = c.heads, c.groups or c.heads
    k = c.head_width or c.width // c.heads
    projections = c.width * k * (2 * heads + 2 * groups)  # q, k, v and the output
    attention = 2 * heads * k * seen  # scores, and values mixed
    feedforward = (3 if c.gated else 2) * c.width * c.hidden
    block = projections + attention + feedforward
    kept = 2 * c.blocks * groups * k * seen * itemsize if cached else 0
    return Cost(new * (c.blocks * block + c.width * c.vocab_size), kept)


def costs(config: DecoderConfig, given: int, made: int, itemsize: int) -> dict[str, int]:
    """Of generating `made` tokens after `given`: the multiplications with a cache and without, and
    the bytes that the cache has at the end. Of a text longer than the context only its end is
    seen."""
    anew = cached = 0
    last = Cost(0, 0)
    for step in range(made):
        seen = min(given + step, config.context_len)
        anew += cost_of(config, seen, seen, itemsize, False).multiplications
        last = cost_of(config, seen, seen if step == 0 else 1, itemsize, True)
        cached += last.multiplications
    return {"with_cache": cached, "without_cache": anew, "cache_bytes": last.kept}
