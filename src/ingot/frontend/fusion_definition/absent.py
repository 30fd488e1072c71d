"""Names of nvFuser's interface that are not here, and why: what users see who reach for one of them.

`ops.record.refuse` holds the same for operators. docs/nvfuser-interface.md lists all of them.
"""

from __future__ import annotations

from ingot.base.errors import AbsentNameError

PAGE = "docs/nvfuser-interface.md"

SCHEDULE = "it belongs to nvFuser's schedule language; ingot schedules its kernels itself"
_IR = "it belongs to the nodes of nvFuser's own graph; `fd.graph` is ingot's"
_DEVICES = "fusions run on one device"

TENSOR_NAMES = {
    **dict.fromkeys(
        (
            *("split", "merge", "reorder", "parallelize", "rfactor", "swizzle", "inline_at", "compute_with", "axis"),
            *("cache_before", "cache_after", "cache_fork", "cache_inputs_and_outputs", "set_memory_type"),
            *("set_allocation_domain", "get_loop_domain", "get_root_domain", "get_logical_domain", "extent"),
            *("get_maybe_allocation_domain", "transform_like", "outer_split", "inner_split", "vectorize", "broadcast"),
        ),
        SCHEDULE,
    ),
    **dict.fromkeys(("definition", "uses", "is_symbolic", "domain"), _IR),
    **dict.fromkeys(("set_device_mesh", "has_device_mesh", "device_mesh"), _DEVICES),
}
"""Of handles."""

DEFINITION_NAMES = {
    **dict.fromkeys(
        ("sched", "schedule", "manual_execute", "manual_validate", "user_schedule_ir", "multidevice_schedule"), SCHEDULE
    ),
    "fusion": _IR,
    "last_cuda_code": 'ingot generates PTX: `fd.module.inspect("ptx")` shows it',
    "cuda_code_for": 'ingot generates PTX: `fd.module.inspect("ptx")` shows it',
    "last_scheduled_fusion_ir": '`fd.module.inspect("nests")` shows the loops of each kernel',
    "scheduled_fusion_ir_for": '`fd.module.inspect("nests")` shows the loops of each kernel',
    "profile": 'FusionDefinition(config={"enable_profiling": True}) measures, `fd.module.stats()` shows it',
    "debug_output": "INGOT_DUMP prints every stage",
}
"""Of FusionDefinition."""


def absent_from_tensors(name: str) -> AbsentNameError:
    """The error for a name that tensors and scalars of a fusion do not have."""
    return _error("a value of a fusion", name, TENSOR_NAMES.get(name))


def absent_from_definitions(name: str) -> AbsentNameError:
    """The error for a name that a FusionDefinition does not have."""
    return _error("FusionDefinition", name, DEFINITION_NAMES.get(name))


def _error(owner: str, name: str, reason: str | None) -> AbsentNameError:
    because = "" if reason is None else f": {reason}; see {PAGE}"
    return AbsentNameError(f"{owner} has no {name!r}{because}")
