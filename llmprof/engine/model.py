"""A decoder: pre-norm attention and feed-forward blocks around one residual stream.

Hidden states are [rows, hidden_size] throughout, one row per new token of every sequence; what
belongs to which sequence matters to attention and cache alone.
"""

from dataclasses import dataclass

import torch

from llmprof.engine.attention import Attention
from llmprof.engine.feed_forward import FeedForward, add_projected
from llmprof.engine.kv_cache import KvCache
from llmprof.engine.linear import Linear
from llmprof.engine.norm import HeadNorm, RmsNorm
from llmprof.engine.normed_product import normed_product
from llmprof.engine.probe import Probe
from llmprof.engine.rank_group import RankGroup
from llmprof.engine.residual import ResidualStream
from llmprof.engine.rope import EVERYWHERE, RotaryTable, Turn, rotate_
from llmprof.engine.routing import ExpertChoice
from llmprof.engine.step_batch import StepBatch
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
    feed_forward_norm: RmsNorm
    feed_forward: FeedForward
    norm_after_attention: RmsNorm | None = None
    """Of what attention adds (Gemma)."""
    turn: int = EVERYWHERE
    """Where the tables that rotate this layer's heads are in a step's `Turn`."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Weights, and what to do with them. State lives in the cache that a call is given."""

    config: ModelConfig
    embedding: Linear
    """Its rows are looked up; the head itself where the two are tied."""
    layers: tuple[DecoderLayer, ...]
    final_norm: RmsNorm
    head: Linear
    attention: Attention
    choice: ExpertChoice | None = None
    """Of layers with experts."""
    ranks: RankGroup | None = None
    """Other processes that hold the rest of the model: `config` is then that of this one's part."""
    fused_rows: int = 0
    """Rows up to which a product takes what lies around it into its kernel (`normed_product`)."""

    @property
    def vocab_size(self) -> int:
        """Of the whole model."""
        return self.config.vocab_size * (1 if self.ranks is None else self.ranks.size)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of the embedding table [rows, hidden_size], new; ids [rows].

        Of a part of the table: zeros for ids that other ranks hold.
        """
        x = self.embedding.rows(ids) if self.ranks is None else self._own_rows(ids, self.ranks)
        if self.config.embedding_scale != 1.0:
            # as the models are trained, the factor is rounded to the dtype of the table
            x.mul_(torch.tensor(self.config.embedding_scale, dtype=x.dtype).item())
        return x

    def forward(
        self, step: StepBatch, cache: KvCache, rotary: RotaryTable, probe: Probe
    ) -> torch.Tensor:
        """One pass over the new tokens of a step; the cache holds them afterwards.

        Args:
            step: the new tokens, and where each continues.
            cache: holding what the step says is cached.
            rotary: reaching at least to the last new position.
            probe: told about each op group.

        Returns:
            Logits [rows that reach the head, vocab_size].
        """
        cache.begin_step(step)
        self.attention.begin_step(step)
        if self.choice is not None:
            self.choice.begin_step(step)
        turn = rotary.at(step.positions)

        probe.group_begin(OpGroup.EMBEDDING)
        x = self.embed(step.ids)
        probe.group_end()
        if self.ranks is not None:
            self.ranks.sum_(x, probe)
        return self.through_layers(x, turn, step, cache, probe)

    def through_layers(
        self,
        x: torch.Tensor,
        turn: Turn,
        step: StepBatch,
        cache: KvCache,
        probe: Probe,
    ) -> torch.Tensor:
        """From embedded tokens x [rows, hidden_size], which are used up, to logits as `forward`."""
        stream = self._stream(x)
        for index, layer in enumerate(self.layers):
            self._attend(stream, layer, index, step, turn, cache, probe)
            layer.feed_forward.add_to(stream, layer.feed_forward_norm, probe)

        if step.logit_rows is None:
            return self._logits(stream, probe)
        if not step.logit_rows.shape[0]:  # pieces of prompts whose end is still to come
            return x.new_empty(0, self.vocab_size)
        return self._logits(self._stream(x.index_select(0, step.logit_rows)), probe)

    def _stream(self, x: torch.Tensor) -> ResidualStream:
        return ResidualStream(x, fused=len(x) <= self.fused_rows)

    def _attend(
        self,
        stream: ResidualStream,
        layer: DecoderLayer,
        index: int,
        step: StepBatch,
        turn: Turn,
        cache: KvCache,
        probe: Probe,
    ) -> None:
        """Add a layer's attention to the residual stream."""
        model = self.config
        num_query, num_kv = model.num_attention_heads, model.num_key_value_heads

        group = OpGroup.QKV_PROJECTION
        qkv = normed_product(stream, layer.input_norm, layer.qkv, group, probe)
        heads = qkv.view(-1, num_query + 2 * num_kv, model.head_dim)
        tables = turn[layer.turn], turn[layer.turn + 1]
        if stream.fused and cache.turns:
            probe.group_begin(OpGroup.KV_APPEND)
            cache.turn_and_append(index, heads, layer.head_norm, tables, step)
            probe.group_end()
        else:
            self._turn_then_append(heads, layer, index, step, tables, cache, probe)

        probe.group_begin(OpGroup.ATTENTION)
        attended = self.attention(heads.narrow(1, 0, num_query), cache, index, step)
        probe.group_end()

        after, group = layer.norm_after_attention, OpGroup.OUTPUT_PROJECTION
        add_projected(stream, attended, layer.output, after, self.ranks, group, probe)

    def _turn_then_append(
        self,
        heads: torch.Tensor,
        layer: DecoderLayer,
        index: int,
        step: StepBatch,
        tables: tuple[torch.Tensor, torch.Tensor],
        cache: KvCache,
        probe: Probe,
    ) -> None:
        """Norm queries and keys, rotate them, and append keys and values, one after the other."""
        num_query, num_kv = self.config.num_attention_heads, self.config.num_key_value_heads
        rotated = heads.narrow(1, 0, num_query + num_kv)

        if layer.head_norm is not None:
            probe.group_begin(OpGroup.NORM)
            layer.head_norm.apply_(rotated)
            probe.group_end()

        probe.group_begin(OpGroup.ROPE)
        rotate_(rotated, *tables)
        probe.group_end()

        keys_values = heads.narrow(1, num_query, 2 * num_kv)
        keys_values = keys_values.view(-1, 2, num_kv, heads.shape[-1])
        if cache.appends:
            probe.group_begin(OpGroup.KV_APPEND)
            cache.append(index, keys_values, step)
            probe.group_end()
        else:
            cache.append(index, keys_values, step)

    def _logits(self, stream: ResidualStream, probe: Probe) -> torch.Tensor:
        logits = normed_product(stream, self.final_norm, self.head, OpGroup.LM_HEAD, probe)
        cap = self.config.logit_cap
        if cap is not None:
            probe.group_begin(OpGroup.LM_HEAD)
            logits.div_(cap).tanh_().mul_(cap)
            probe.group_end()
        return logits if self.ranks is None else self.ranks.joined_columns(logits, probe)

    def _own_rows(self, ids: torch.Tensor, ranks: RankGroup) -> torch.Tensor:
        """Each rank holds as many rows of the table; the sum over the ranks has them all."""
        rows = self.config.vocab_size
        own = ids - rows * ranks.rank
        elsewhere = (own < 0) | (own >= rows)
        return self.embedding.rows(own.clamp_(0, rows - 1)).masked_fill_(
            elsewhere.unsqueeze(1), 0.0
        )
