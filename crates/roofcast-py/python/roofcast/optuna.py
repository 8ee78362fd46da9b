"""Search of settings by Optuna: an objective function that simulates.

Knows: the settings that a trial may choose, and the values of a simulation that are returned. Optuna chooses the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roofcast import verbs
from roofcast._ask import Spec
from roofcast._native import Error
from roofcast.answers import Simulation

Choices = Sequence[Any] | tuple[int, int] | tuple[float, float]
"""Choices of a setting: a list of values, or a tuple of the least and the most value, whole numbers or floats."""

Value = Callable[[Simulation], float]


def objective(
    spec: Spec = None,
    *,
    space: Mapping[str, Choices],
    values: str | Value | Sequence[str | Value],
    **flags: Any,
) -> Callable[[Any], float | tuple[float, ...]]:
    """A function for ``study.optimize``: a simulation with the settings that a trial suggests.

    ``space`` has the choices of each flag: a list of values, or a tuple of the least and the most, as in
    ``{"tp": [1, 2, 4], "max_num_seqs": (16, 1024)}``. ``values`` are dotted names of the answer's fields, as
    ``"p99_tpot_ms"`` or ``"expense.dollars_per_million_output_tokens"``, or functions of the answer; several values make a
    study with several objectives. A trial is pruned if its deployment is refused, for example because it does not fit, serves
    no request, or lacks such a value. The answer's headline is stored as the trial's attribute ``roofcast``.
    """
    wanted = [values] if isinstance(values, str) or callable(values) else list(values)

    def run(trial: Any) -> float | tuple[float, ...]:
        import optuna

        chosen = {name: suggest(trial, name, choices) for name, choices in space.items()}
        try:
            answer = verbs.simulate(spec, progress=False, **{**flags, **chosen})
        except Error as error:
            trial.set_user_attr("roofcast", str(error))
            raise optuna.TrialPruned(str(error)) from error
        trial.set_user_attr("roofcast", answer.headline())
        found = [value(answer) if callable(value) else named(answer, value) for value in wanted]
        if not answer.completed or None in found:
            raise optuna.TrialPruned(answer.headline())
        return found[0] if len(found) == 1 else tuple(found)

    return run


def suggest(trial: Any, name: str, choices: Choices) -> Any:
    """The value that ``trial`` suggests for the setting ``name``."""
    if isinstance(choices, tuple) and len(choices) == 2:
        least, most = choices
        if isinstance(least, int) and isinstance(most, int):
            return trial.suggest_int(name, least, most)
        return trial.suggest_float(name, float(least), float(most))
    return trial.suggest_categorical(name, list(choices))


def named(answer: Simulation, path: str) -> Any:
    """The value of an answer's field at the dotted ``path``; ``None`` if it is absent."""
    value: Any = answer
    for name in path.split("."):
        if value is None:
            return None
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value
