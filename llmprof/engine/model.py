"""A llama-family decoder: pre-norm attention and SwiGLU blocks around one residual stream.

Hidden states are [rows, hidden_size] throughout, one row per new token of every sequence.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from llmprof.engine.attention import Attention
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.linear import Linear
from llmprof.engine.norm import HeadNorm, RmsNorm
from llmprof.engine.probe import Probe
from llmprof.engine.rope import RotaryTable, rotate_
from llmprof.schema.cost import OpGroup
from llmprof.schema.model import ModelConfig


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Weights of one layer; projections of the same input are one matrix."""

    input_norm: RmsNorm
    qkv: Linear
    """Rows: query heads, key heads, value heads."""
    head_norm: HeadNorm | None
    output: Linear
    post_attention_norm: RmsNorm
    gate_up: Linear
    """Rows: gate, then up."""
    down: Linear


@dataclass(frozen=True, slots=True)
class Decoder:
    """Weights, and what to do with them. State lives in the cache that a call is given."""

    config: ModelConfig
    embedding: torch.Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: RmsNorm
    head: Linear
    attention: Attention

    def forward(
        self,
        ids: torch.Tensor,
        cache: KvCache,
        rotary: RotaryTable,
        probe: Probe,
        *,
        all_rows: bool = False,
    ) -> torch.Tensor:
        """One pass over the new tokens of a static batch; the cache moves on by as many.

        Args:
            ids: [batch, new_tokens], each sequence continuing where the cache ends.
            cache: of the same batch.
            rotary: reaching at least to the last new position.
            probe: told about each op group.
            all_rows: logits of every token; by default only of each sequence's last one.

        Returns:
            Logits [batch, vocab_size], or [batch * new_tokens, vocab_size] with `all_rows`.
        """
        batch, new_tokens = ids.shape
        cache.begin_step(new_tokens)
        turn = rotary.at(cache.num_tokens, new_tokens)

        probe.group_begin(OpGroup.EMBEDDING)
        x = functional.embedding(ids, self.embedding).flatten(0, 1)
        probe.group_end()

        for index, layer in enumerate(self.layers):
            self._attend(x, layer, index, batch, turn, cache, probe)
            _feed_forward(x, layer, probe)
        cache.advance(new_tokens)

        if not all_rows:
            x = x.view(batch, new_tokens, -1)[:, -1]
        return self._logits(x, probe)

    def _attend(
        self,
        x: torch.Tensor,
        layer: DecoderLayer,
        index: int,
        batch: int,
        turn: tuple[torch.Tensor, torch.Tensor],
        cache: KvCache,
        probe: Probe,
    ) -> None:
        """Add a layer's attention to the residual stream x, in place."""
        model = self.config
        num_query, num_kv = model.num_attention_heads, model.num_key_value_heads

        probe.group_begin(OpGroup.NORM)
        normed = layer.input_norm(x)
        probe.group_end()

        probe.group_begin(OpGroup.QKV_PROJECTION)
        heads = layer.qkv(normed).view(batch, -1, num_query + 2 * num_kv, model.head_dim)
        probe.group_end()
        rotated = heads.narrow(2, 0, num_query + num_kv)

        if layer.head_norm is not None:
            probe.group_begin(OpGroup.NORM)
            layer.head_norm.apply_(rotated)
            probe.group_end()

        probe.group_begin(OpGroup.ROPE)
        rotate_(rotated, *turn)
        probe.group_end()

        keys_values = heads.narrow(2, num_query, 2 * num_kv)
        keys_values = keys_values.view(batch, -1, 2, num_kv, model.head_dim).permute(2, 0, 3, 1, 4)
        if cache.appends:
            probe.group_begin(OpGroup.KV_APPEND)
            cache.append(index, keys_values)
            probe.group_end()
        else:
            cache.append(index, keys_values)

        probe.group_begin(OpGroup.ATTENTION)
        attended = self.attention(heads.narrow(2, 0, num_query), cache, index)
        probe.group_end()

        probe.group_begin(OpGroup.OUTPUT_PROJECTION)
        x.add_(layer.output(attended))
        probe.group_end()

    def _logits(self, x: torch.Tensor, probe: Probe) -> torch.Tensor:
        probe.group_begin(OpGroup.NORM)
        normed = self.final_norm(x)
        probe.group_end()

        probe.group_begin(OpGroup.LM_HEAD)
        logits = self.head(normed)
        probe.group_end()
        return logits


def _feed_forward(x: torch.Tensor, layer: DecoderLayer, probe: Probe) -> None:
    """Add a layer's SwiGLU (Shazeer 2020) to the residual stream x, in place."""
    probe.group_begin(OpGroup.NORM)
    normed = layer.post_attention_norm(x)
    probe.group_end()

    probe.group_begin(OpGroup.GATE_UP_PROJECTION)
    gate_up = layer.gate_up(normed)
    probe.group_end()

    probe.group_begin(OpGroup.ACTIVATION)
    gate, up = gate_up.chunk(2, dim=-1)
    inner = functional.silu(gate).mul_(up)
    probe.group_end()

    probe.group_begin(OpGroup.DOWN_PROJECTION)
    x.add_(layer.down(inner))
    probe.group_end()
