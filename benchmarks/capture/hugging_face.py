"""Models of the transformers package as people use them: text they generate, and single passes with masks.

In: whether a model is to be small. Out: a module, and a function that uses it. What always holds: nothing is
downloaded, and two models made alike have the same weights and give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.model_contests import TOLERANCE
from benchmarks.models import MODELS, Made, Model, sizes_for, transformers_package

SEED = 20
VOCABULARY, LAYERS, HEADS = (1000, 100), (4, 2), (4, 2)
HIDDEN, INNER = (256, 32), (1024, 64)
NEW_TOKENS = (32, 12)
LIVELY: dict[str, Any] = {"tie_word_embeddings": False}
SPREAD = 0.3
"""With the usual small weights, shared with the embeddings, untrained models say one word for ever, right or wrong."""
DYNAMIC, STATIC = "dynamic", "static"
"""The caches of past keys and values: one that grows, and one of a fixed size, written in place."""


@dataclass(frozen=True)
class Use:
    """A model and what is done with it."""

    model: Model
    run: Callable[[nn.Module, dict[str, Any], bool], Any]
    """Takes the module, its inputs and whether it is small."""
    name: str
    is_exact: bool = False
    """Whether results are compared for equality: tokens are."""

    @property
    def tolerance(self) -> float:
        return 0.0 if self.is_exact else TOLERANCE


# --- generating -------------------------------------------------------------------------------------------------------


def _prompt(is_small: bool, batch: int = 2) -> dict[str, torch.Tensor]:
    words = torch.randint(3, 100, (batch, 5 if is_small else 32))
    return {"input_ids": words, "attention_mask": torch.ones_like(words)}


def _no_special_tokens(configuration: Any) -> Any:
    """Nothing ends a text early, so that everyone generates as many tokens."""
    configuration.eos_token_id = None
    configuration.pad_token_id = 0
    return configuration


def _gpt2(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(is_small, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY)
    return package.GPT2LMHeadModel(
        _no_special_tokens(package.GPT2Config(**sizes, **LIVELY, initializer_range=SPREAD))
    ), _prompt(is_small)


def _llama_sizes(is_small: bool) -> dict[str, Any]:
    return sizes_for(
        is_small,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=(4, 4),
        num_key_value_heads=(2, 2),
        intermediate_size=(688, 80),
        vocab_size=VOCABULARY,
    )


def _llama(is_small: bool) -> Made:
    package = transformers_package()
    configuration = package.LlamaConfig(**_llama_sizes(is_small), **LIVELY, initializer_range=SPREAD)
    return package.LlamaForCausalLM(_no_special_tokens(configuration)), _prompt(is_small)


def _t5(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small, d_model=HIDDEN, num_layers=LAYERS, num_heads=HEADS, d_ff=INNER, d_kv=(64, 16), vocab_size=VOCABULARY
    )
    configuration = package.T5Config(**sizes, initializer_factor=SPREAD, decoder_start_token_id=0)
    return package.T5ForConditionalGeneration(_no_special_tokens(configuration)), _prompt(is_small)


def _whisper(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        d_model=HIDDEN,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        vocab_size=VOCABULARY,
        max_source_positions=(200, 20),
        num_mel_bins=(80, 16),
    )
    special = {"bos_token_id": 1, "decoder_start_token_id": 1, "pad_token_id": 0, "eos_token_id": 2}
    configuration = package.WhisperConfig(
        **sizes,
        **special,
        **LIVELY,
        init_std=SPREAD,
        max_target_positions=64,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    module = package.WhisperForConditionalGeneration(_no_special_tokens(configuration))
    frames = 2 * configuration.max_source_positions
    return module, {"input_features": torch.randn(2, configuration.num_mel_bins, frames)}


def _generate(module: Any, inputs: dict[str, Any], is_small: bool, *, cache: str, is_sampled: bool) -> torch.Tensor:
    torch.manual_seed(SEED)
    given = {**inputs, **({} if cache == DYNAMIC else {"cache_implementation": cache})}
    given |= {"temperature": 0.9, "top_k": 20} if is_sampled else {"repetition_penalty": 10.0}
    return module.generate(**given, do_sample=is_sampled, max_new_tokens=NEW_TOKENS[is_small], disable_compile=True)


GENERATORS = (Model("GPT-2", _gpt2), Model("Llama", _llama), Model("T5", _t5), Model("Whisper", _whisper))


# --- single passes ----------------------------------------------------------------------------------------------------


def _masked(name: str) -> Callable[[bool], Made]:
    """A model of the other comparison, with sequences of different lengths."""
    model = next(model for model in MODELS if model.name == name)

    def build(is_small: bool) -> Made:
        module, inputs = model.build(is_small)
        mask = torch.ones_like(inputs["input_ids"])
        mask[0, mask.shape[1] // 2 :] = 0
        return module, {**inputs, "attention_mask": mask}

    return build


def _words(is_small: bool) -> dict[str, torch.Tensor]:
    words = torch.randint(3, 100, (2, 7) if is_small else (4, 128))
    return {"input_ids": words, "attention_mask": torch.ones_like(words)}


def _deberta(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        vocab_size=VOCABULARY,
    )
    position = {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    configuration = package.DebertaV2Config(**sizes, **position, pos_att_type="p2c|c2p")
    return package.DebertaV2Model(configuration), _words(is_small)


def _mamba(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(is_small, hidden_size=HIDDEN, num_hidden_layers=LAYERS, state_size=(16, 4), vocab_size=VOCABULARY)
    return package.MambaModel(package.MambaConfig(**sizes, use_cache=False)), _words(is_small)


def _mixtral(is_small: bool) -> Made:
    package = transformers_package()
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "use_cache": False}
    return package.MixtralModel(package.MixtralConfig(**_llama_sizes(is_small), **experts)), _words(is_small)


def _swin(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        image_size=(128, 32),
        embed_dim=(48, 16),
        depths=([2, 2, 2], [2, 2]),
        num_heads=([3, 6, 12], [2, 4]),
        window_size=(4, 4),
        patch_size=(4, 4),
    )
    images = torch.randn(2, 3, *[sizes["image_size"]] * 2)
    return package.SwinModel(package.SwinConfig(**sizes)), {"pixel_values": images}


def _segformer(is_small: bool) -> Made:
    package = transformers_package()
    sizes = sizes_for(
        is_small,
        hidden_sizes=([32, 64, 160, 256], [8, 16, 16, 32]),
        depths=([2, 2, 2, 2], [1, 1, 1, 1]),
        decoder_hidden_size=(256, 32),
    )
    module = package.SegformerForSemanticSegmentation(package.SegformerConfig(**sizes, num_labels=5))
    return module, {"pixel_values": torch.randn(2, 3, *([64] * 2 if is_small else [256] * 2))}


def _detr(is_small: bool) -> Made:
    package = transformers_package()
    backbone = package.ResNetConfig(
        **sizes_for(is_small, embedding_size=(32, 8), hidden_sizes=([64, 128, 256, 512], [8, 16, 16, 32])),
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    sizes = sizes_for(
        is_small,
        d_model=HIDDEN,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        num_queries=(100, 10),
    )
    none = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
    configuration = package.DetrConfig(**sizes, **none, backbone_config=backbone, num_labels=5)
    images = torch.randn(2, 3, *([64] * 2 if is_small else [256] * 2))
    return package.DetrForObjectDetection(configuration), {"pixel_values": images}


PASSES = (
    Model("BERT, mask", _masked("BERT")),
    Model("Llama, mask", _masked("Llama")),
    Model("DeBERTa", _deberta),
    Model("Mamba", _mamba),
    Model("Swin", _swin),
    Model("Mixtral", _mixtral),
    Model("SegFormer", _segformer),
    Model("DETR", _detr),
)


def _pass(module: nn.Module, inputs: dict[str, Any], is_small: bool) -> Any:
    return module(**inputs)


USES = (
    *(
        Use(
            model,
            partial(_generate, cache=cache, is_sampled=is_sampled),
            f"{model.name} generates, {cache} cache, {'sampled' if is_sampled else 'greedy'}",
            is_exact=True,
        )
        for model in GENERATORS
        for cache in (DYNAMIC, STATIC)
        for is_sampled in (False, True)
    ),
    *(Use(model, _pass, model.name) for model in PASSES),
)
