"""The working directory: where files go that people read, and how it explains itself.

In: texts of stages. Out: a tree of files under INGOT_WORKDIR, or `ingot-work` in the current directory:

    index.txt                         what the tree holds, and a line for each folder in it
    programs/DIGEST/                  a call: trace.txt, program.txt
    graphs/DIGEST/                    a region of it: graph.txt, optimized_graph.txt, clusters.txt, kernels.txt
    kernels/NAME/DIGEST/              a kernel under one schedule: schedule.txt, nests.txt, llvm.txt, assembly.txt

What always holds: names follow from contents, so that running a program again writes the same files. A directory that
cannot be written is warned of once, and nothing else changes.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from ingot.base.environment_variables import environment
from ingot.base.forks import new_lock
from ingot.base.stages import STAGES
from ingot.base.warning import warn

_DEFAULT = "ingot-work"
_INDEX = "index.txt"
_EXPLANATION = f"""What ingot generated, stage by stage. Names follow from contents: a program that runs
again writes the same files.

programs/DIGEST/       a call of a function: trace.txt, and the program.txt made of it
graphs/DIGEST/         the operations of a region of a program, before and after optimisation, and its kernels
kernels/NAME/DIGEST/   a kernel under one schedule, from its loops to machine code

Stages, in order:
{chr(10).join(f"{f'{stage.name}.txt':20} {stage.summary}" for stage in STAGES)}

Folders, in the order in which they came about:
"""
_lock = new_lock()


def digest_of(text: str) -> str:
    """A short name for a text."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


@lru_cache(maxsize=1)
def working_directory() -> Path | None:
    """The working directory, made if it is not there; None if it cannot be."""
    path = Path(environment().workdir or _DEFAULT).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        index = path / _INDEX
        if not index.exists():
            index.write_text(_EXPLANATION, encoding="utf-8")
    except OSError as error:
        warn(f"INGOT_WORKDIR cannot be used: {error}", UserWarning)
        return None
    return path


def keep_stage(stage: str, folder: str, text: str) -> None:
    """Write the text of a stage into a folder of the working directory."""
    root = working_directory()
    if root is None:
        return
    try:
        with _lock:
            place = root / folder
            if not place.is_dir():
                place.mkdir(parents=True)
                with (root / _INDEX).open("a", encoding="utf-8") as index:
                    index.write(f"{folder}\n")
            (place / f"{stage}.txt").write_text(f"{text.rstrip()}\n", encoding="utf-8")
    except OSError as error:
        warn(f"{stage} of {folder} could not be kept: {error}", UserWarning)
