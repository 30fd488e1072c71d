"""The proof that a function is closed: that its Python depends on nothing but the call key and guarded places.

In: a function and the arguments of a call that has run. Out: guards under which every call of the same key performs
the same operations and has no other effect, so that a recording may replace it; or the reason why that is not known,
with the line. What always holds: none of the user's code runs, and nothing is changed.
"""

from __future__ import annotations

from ingot.frontend.jit.proof.domain.open_sizes import SizeFacts
from ingot.frontend.jit.proof.prover import Proof, Refusal, prove

__all__ = ["Proof", "Refusal", "SizeFacts", "prove"]
