"""Models of the transformers package generate eager's tokens, and their steps run without Python."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from benchmarks.capture.hugging_face import DYNAMIC, GENERATORS, STATIC
from benchmarks.models import Model, transformers_package

import ingot

STEPS = 24
BY_NAME = {model.name: model for model in GENERATORS}


def pair(model: Model) -> tuple[Any, Any, dict[str, Any]]:
    """A model, the same one compiled, and its inputs."""
    transformers_package().logging.set_verbosity_error()
    plain, inputs = model.make(is_small=True)
    compiled: Any = model.make(is_small=True)[0]
    compiled.forward = ingot.jit(compiled.forward)
    return plain, compiled, inputs


def generate(module: Any, inputs: dict[str, Any], cache: str = DYNAMIC, **options: Any) -> torch.Tensor:
    torch.manual_seed(0)
    given = {**copy.deepcopy(inputs), **({} if cache == DYNAMIC else {"cache_implementation": cache})}
    given = {"max_new_tokens": STEPS, "do_sample": False, "repetition_penalty": 10.0} | given | options
    with torch.no_grad():
        return module.generate(**given, disable_compile=True)


@pytest.mark.parametrize("cache", [DYNAMIC, STATIC])
@pytest.mark.parametrize("name", list(BY_NAME))
def test_steps_of_generating_run_without_python(name: str, cache: str):
    plain, compiled, inputs = pair(BY_NAME[name])
    wanted = generate(plain, inputs, cache)
    for _ in range(3):
        assert torch.equal(generate(compiled, inputs, cache), wanted)
    found = compiled.forward._compiled
    assert compiled.forward.tier == "skipping", compiled.forward.explain()
    assert found.recordings <= 6, compiled.forward.explain()
    before = found.follower.calls, found.recordings
    assert torch.equal(generate(compiled, inputs, cache), wanted)
    # The first step of a static cache marks tensors for torch.compile, which is no operation.
    assert found.follower.calls - before[0] <= (cache == STATIC) and found.recordings == before[1]


def test_prompts_of_other_lengths_and_padding():
    plain, compiled, inputs = pair(BY_NAME["GPT-2"])
    words = inputs["input_ids"]
    for length in (5, 4, 3, 5, 2):
        for is_padded in (False, True, False):
            mask = torch.ones_like(words[:, :length])
            mask[0, :1] = not is_padded
            given = {"input_ids": words[:, :length], "attention_mask": mask}
            assert torch.equal(generate(compiled, given), generate(plain, given))


def test_beams_reorder_the_cache_between_calls():
    plain, compiled, inputs = pair(BY_NAME["Llama"])
    for _ in range(3):
        found, wanted = (generate(one, inputs, num_beams=3, max_new_tokens=10) for one in (compiled, plain))
        assert torch.equal(found, wanted)


def test_a_cache_goes_on_where_an_earlier_text_ended():
    """The caller crops the cache, copies it and goes on in two ways."""
    plain, compiled, inputs = pair(BY_NAME["Llama"])
    package = transformers_package()
    words, results = inputs["input_ids"], []
    for model in (plain, compiled, compiled):
        found, cache = [], package.DynamicCache(config=model.config)
        with torch.no_grad():
            for _ in range(6):
                found.append(model(input_ids=words, past_key_values=cache, use_cache=True).logits)
                other = copy.deepcopy(cache)
                for step in range(6):
                    found.append(
                        model(input_ids=(words[:, :1] + step) % 100, past_key_values=cache, use_cache=True).logits
                    )
                    found.append(model(input_ids=words[:, :1], past_key_values=other, use_cache=True).logits)
                cache.crop(-3)
            found += [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        results.append(found)
    for found in results[1:]:
        for one, other in zip(found, results[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
