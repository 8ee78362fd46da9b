"""Models and accelerators of the catalog, and deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast import answers, verbs
from roofcast._ask import Spec, ask, spec_text
from roofcast._document import fill
from roofcast.answers import Capacity, Limits, Plan, Simulation

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roofcast._flags import CapacityFlags, LimitsFlags, PlanFlags, SimulateFlags


class Model(answers.Model):
    """A model of the catalog: ``Model("llama-3.1-8b")``, by its Hugging Face id or an alias.

    ``weight_bytes`` is the size of the weights as published, ``kv_bytes_per_token`` of the KV cache in the checkpoint's own
    format at 4,096 tokens. For a model of your own, give the path of its ``config.json`` as the model.
    """

    def __init__(self, name: str) -> None:
        fill(self, ask("catalog", [name]))

    def __str__(self) -> str:
        return self.id


class Accelerator(answers.Accelerator):
    """An accelerator of the catalog: ``Accelerator("h100-sxm")``.

    ``memory_bytes`` is the nominal size, ``usable_bytes`` the size that the driver reports, ``peak_flops`` dense FLOP/s
    by dtype, ``power_w`` watts of the board. For an accelerator of your own, give the path of its TOML file as the
    hardware.
    """

    def __init__(self, name: str) -> None:
        fill(self, ask("catalog", [name]))

    def __str__(self) -> str:
        return self.id


class Deployment:
    """A model on accelerators: a spec overridden by keywords, checked when it is created.

    ``Deployment(model="llama-3.1-8b", hardware="h100-sxm", tp=2)``. The verbs are methods; their keywords override the
    deployment's.
    """

    def __init__(self, spec: Spec = None, **flags: Unpack[CapacityFlags]) -> None:
        self._spec = spec
        self._flags: dict[str, Any] = dict(flags)
        self._toml = ask("capacity", spec=spec, flags={**flags, "dump_spec": True}).text

    @property
    def toml(self) -> str:
        """The whole spec as TOML, with defaults filled in and units in comments."""
        return self._toml

    def limits(self, **flags: Unpack[LimitsFlags]) -> Limits:
        """See :func:`roofcast.limits`."""
        return verbs.limits(self._spec, **self._with(flags))

    def capacity(self, **flags: Unpack[CapacityFlags]) -> Capacity:
        """See :func:`roofcast.capacity`."""
        return verbs.capacity(self._spec, **self._with(flags))

    def simulate(self, **flags: Unpack[SimulateFlags]) -> Simulation:
        """See :func:`roofcast.simulate`."""
        return verbs.simulate(self._spec, **self._with(flags))

    def plan(self, **flags: Unpack[PlanFlags]) -> Plan:
        """See :func:`roofcast.plan`: finds deployments for this model. The plan chooses the number of accelerators and the
        parallelism itself."""
        kept = ("model", "from_command", "set", "catalog")
        own = {name: value for name, value in self._flags.items() if name in kept}
        return verbs.plan(self._spec, **{**own, **flags})

    def _with(self, flags: Any) -> Any:
        return {**self._flags, **flags}

    def __repr__(self) -> str:
        given = [] if self._spec is None else [repr(spec_text(self._spec)[0] or "…")]
        return f"Deployment({', '.join(given + [f'{name}={value!r}' for name, value in self._flags.items()])})"
