"""Models and accelerators of the catalog, and deployments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofcast import verbs
from roofcast._ask import Spec, ask, spec_text
from roofcast._document import Document, Part, fill
from roofcast.answers import Capacity, Limits, Parameters, Plan, Simulation

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from roofcast._flags import CapacityFlags, LimitsFlags, PlanFlags, SimulateFlags


@dataclass(init=False, repr=False, eq=False)
class Entry(Document):
    """An entry of the catalog, found by its id or an alias."""

    id: str
    aliases: list[str]

    def __init__(self, name: str) -> None:
        fill(self, ask("catalog", [name]))

    def __str__(self) -> str:
        return self.id


@dataclass(init=False, repr=False, eq=False)
class Model(Entry):
    """A model of the catalog: ``Model("llama-3.1-8b")``, by its Hugging Face id or an alias.

    ``weight_bytes`` is the size of the weights as published, ``kv_bytes_per_token`` of the KV cache in the checkpoint's own
    format at 4,096 tokens. For a model of your own, give the path of its ``config.json`` as the model.
    """

    source: str
    family: str
    parameters: Parameters
    weights: str
    weight_bytes: int
    kv: str
    kv_bytes_per_token: int
    config: dict[str, Any]
    max_context: int | None = None
    published_parameters: int | None = None
    published_total: str | None = None
    published_active: str | None = None
    read_as: str | None = None

    def headline(self) -> str:
        return f"{self.id}: {self.parameters.total / 1e9:.4g}e9 parameters, {self.weights}, {self.weight_bytes / 1e9:.4g} GB"


@dataclass(init=False, repr=False, eq=False)
class Link(Part):
    """A link between accelerators: bytes per second in one direction, latency in seconds."""

    kind: str
    bytes_per_s: float
    latency_s: float
    topology: str | None = None
    axes: int | None = None
    wraps: int | None = None


@dataclass(init=False, repr=False, eq=False)
class Price(Part):
    """Price in dollars per hour, with its date and source."""

    usd_per_hour: float
    date: str
    source: str


@dataclass(init=False, repr=False, eq=False)
class HostLink(Part):
    """The link to the host's memory: bytes per second in one direction."""

    kind: str
    bytes_per_s: float
    memory_bytes_per_s: float | None = None


@dataclass(init=False, repr=False, eq=False)
class Accelerator(Entry):
    """An accelerator of the catalog: ``Accelerator("h100-sxm")``.

    ``memory_bytes`` is the nominal size, ``usable_bytes`` the size that the driver reports, ``peak_flops`` dense FLOP/s
    by dtype, ``power_w`` watts of the board. For an accelerator of your own, give the path of its TOML file as the
    hardware.
    """

    name: str
    vendor: str
    architecture: str
    memory_bytes: int
    usable_bytes: int
    bandwidth_bytes_per_s: float
    node_size: int
    peak_flops: dict[str, float]
    sources: list[dict[str, str]]
    host_speed: float | None = None
    power_w: float | None = None
    multiprocessors: int | None = None
    fp16_accumulate_flops: float | None = None
    notes: str | None = None
    link: Link | None = None
    network: Link | None = None
    host_link: HostLink | None = None
    price: Price | None = None

    def headline(self) -> str:
        return f"{self.name}: {self.memory_bytes / 1e9:.4g} GB, {self.bandwidth_bytes_per_s / 1e12:.3g} TB/s"


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
