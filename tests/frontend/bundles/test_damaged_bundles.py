"""A file from anyone is either a bundle or an IngotError."""

import io
import json
import os
import random
import re
import zipfile
from pathlib import Path

import pytest
import torch

import ingot
from ingot.frontend.bundles.trace_parser import parse_trace

EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", "0")) or 150


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> bytes:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Tanh()).eval()
    path = tmp_path_factory.mktemp("bundles") / "good.ingot"
    ingot.save(model, path, [torch.randn(3, 4), torch.randn(5, 4)])
    return path.read_bytes()


def _entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return made.getvalue()


def _try(data: bytes, path: Path) -> bool:
    """Whether a file loads and runs; every fault must be ingot's."""
    path.write_bytes(data)
    try:
        ingot.load(path)(torch.ones(3, 4))
    except ingot.IngotError:
        return False
    return True


def test_bytes_that_are_cut_off_or_changed_are_ingots_errors(bundle, tmp_path):
    choose, path = random.Random(1), tmp_path / "bad.ingot"
    assert _try(bundle, path)
    for length in [0, 1, 30, *(choose.randrange(len(bundle)) for _ in range(20))]:
        assert not _try(bundle[:length], path)
    for _ in range(EXAMPLES):
        changed = bytearray(bundle)
        for _ in range(choose.choice([1, 1, 4])):
            changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
        _try(bytes(changed), path)


def test_texts_and_weights_that_are_changed_are_ingots_errors(bundle, tmp_path):
    choose, path, entries = random.Random(2), tmp_path / "bad.ingot", _entries(bundle)
    failures = 0
    for _ in range(2 * EXAMPLES):
        name = choose.choice([*entries, "traces/0.txt"])
        text = bytearray(entries[name])
        length = len(text) if name != "weights.safetensors" else min(len(text), 400)
        for _ in range(choose.choice([1, 1, 3])):
            start = choose.randrange(length)
            part = bytes(text[start : start + choose.randrange(12)])
            place = choose.randrange(length)
            text[place : place + choose.randrange(8)] = choose.choice([part, b"", b"9", b"[", b'"', b"-1", b"%0"])
        failures += not _try(_packed(entries | {name: bytes(text)}), path)
    assert failures > EXAMPLES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e | {"../escape": b""}, "nothing else"),
        (lambda e: e | {"traces/1.txt": e["traces/0.txt"]}, "tells of 1 recordings"),
        (lambda e: {name: data for name, data in e.items() if name != "manifest.json"}, "nothing else"),
        (lambda e: e | {"manifest.json": b"[" * 100_000}, "no JSON"),
        (lambda e: e | {"manifest.json": b'{"format": "ingot bundle", "version": 2}'}, "reads version 1"),
        (
            lambda e: e | {"manifest.json": e["manifest.json"].replace(b'"training"', b'"mode"')},
            "must tell .* training",
        ),
        (lambda e: e | {"weights.safetensors": b"\xff" * 100}, "weights are damaged"),
        (lambda e: e | {"manifest.json": e["manifest.json"].replace(b'"offset": 0', b'"offset": 9')}, "reaches beyond"),
    ],
    ids=["foreign", "extra", "missing", "deep", "version", "field", "weights", "offset"],
)
def test_what_is_wrong_is_named(change, message, bundle, tmp_path):
    path = tmp_path / "bad.ingot"
    path.write_bytes(_packed(change(_entries(bundle))))
    with pytest.raises(ingot.IngotError, match=message):
        ingot.load(path)


def test_kernels_that_are_there_twice_are_refused(bundle, tmp_path):
    path = tmp_path / "twice.ingot"
    path.write_bytes(bundle)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("kernels.cache", b"")
        archive.writestr("kernels.cache", b"")
    with pytest.raises(ingot.IngotError, match="nothing else"):
        ingot.load(path, trust_kernels=True)


def test_a_text_that_grows_when_it_is_unpacked_is_refused(bundle, tmp_path):
    path = tmp_path / "bomb.ingot"
    path.write_bytes(_packed(_entries(bundle) | {"traces/0.txt": b" " * (65 << 20)}, zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ingot.IngotError, match="larger than 64 MB"):
        ingot.load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('%1 = aten.from_file.default("/etc/passwd", False, 10): uint8[10]', "may not use|filename"),
        ("%1 = os.system.default(%0): float32[3]", "means nothing|expected"),
        ("%1 = aten.__class__.default(%0): float32[3]", "no operator"),
        ("%1 = aten.item.default(%0): float32[3]", "may not use|Python value"),
        ("%1 = aten.set_.source_Tensor(%0, %0): float32[3]", "may not use"),
        ("%1 = aten._to_sparse.default(%0): float32[3]", "may not use"),
        ("%1 = aten.add.Tensor(%0): float32[3]", "needs the argument 'other'"),
        ("%1 = aten.add.Tensor(%0, %0, %0): float32[3]", "at most 2"),
        ("%1 = aten.add.Tensor(%0, %7): float32[3]", "%7 is not defined"),
        ('%1 = aten.add.Tensor(%0, "a"): float32[3]', "is no Tensor"),
        ("%1 = aten.add.Tensor(%0, %0, beta=1): float32[3]", "no argument 'beta'"),
        ("%1 = aten.sum.dim_IntList(%0, [True]): float32[]", r"\[True\] is no"),
        ("%1 = aten.relu.default(%0): float32[{rows}]", "no argument has the size rows"),
        ("%1 = aten.relu.default(%0): object[3]", "no dtype"),
        ("%1 = aten.sin_of_the_sea.default(%0): float32[3]", "no operator"),
    ],
)
def test_operators_and_arguments_are_admitted_one_by_one(line, message):
    text = f"trace {{\n  %0 = argument: float32[3]\n  {line}\n  return [%0]\n}}\n"
    with pytest.raises(ingot.IngotError, match=message):
        parse_trace(text)


def test_a_manifest_tells_readers_what_is_in_a_bundle(bundle):
    manifest = json.loads(_entries(bundle)["manifest.json"])
    assert manifest["format"] == "ingot bundle" and manifest["written_by"]["torch"] == torch.__version__
    assert [one["name"] for one in manifest["tensors"]] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert re.match(rb"trace \{\n  %0 = argument: float32", _entries(bundle)["traces/0.txt"])
