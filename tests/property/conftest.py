"""How many random graphs the property tests draw, and whether they are the same ones every time.

    pytest tests/property                                             what CI runs: the same graphs every time
    INGOT_TEST_EXAMPLES=5000 pytest -n 2 --dist worksteal tests/property    a long run: other graphs every time
    INGOT_TEST_EXAMPLES=5000 pytest tests/property --hypothesis-seed=7    a long run that can be repeated

INGOT_TEST_EXAMPLES is the number of graphs for each property of a whole graph. When one fails, Hypothesis drops steps
of the graph until none can be spared, and the report shows the text of the first value that went wrong.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

CI_EXAMPLES = 200
EXAMPLES = int(os.environ.get("INGOT_TEST_EXAMPLES", CI_EXAMPLES))

settings.register_profile(
    "random graphs",
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="INGOT_TEST_EXAMPLES" not in os.environ,
    database=None,
    # Explaining a failure re-runs it hundreds of times and would only blame the seeds of steps.
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    print_blob=False,
)
