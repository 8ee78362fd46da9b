"""Forecasts how large language models are served: limits, capacity, simulation and plans from one cost model.

>>> import roofcast
>>> run = roofcast.simulate(model="llama-3.1-8b", hardware="h100-sxm", rate=8)
>>> run.p99_ttft_ms < 1000
True

Keywords are the flags of the program ``roofcast``, specs its spec files, answers its ``--json`` documents. Times are
milliseconds where names end in ``_ms``, sizes bytes, money US dollars.
"""

from roofcast import _showing as _showing
from roofcast._native import VERSION as __version__
from roofcast._native import Error, Table
from roofcast.entities import Accelerator, Deployment, Model
from roofcast.verbs import (
    calibrate,
    capacity,
    curves,
    find,
    intensity,
    limits,
    limits_compare,
    limits_sweep,
    plan,
    simulate,
    sweep,
    validate,
)

__all__ = [
    "Accelerator",
    "Deployment",
    "Error",
    "Model",
    "Table",
    "__version__",
    "calibrate",
    "capacity",
    "curves",
    "find",
    "intensity",
    "limits",
    "limits_compare",
    "limits_sweep",
    "plan",
    "simulate",
    "sweep",
    "validate",
]
