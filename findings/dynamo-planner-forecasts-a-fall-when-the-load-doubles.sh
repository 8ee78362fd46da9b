#!/usr/bin/env bash
# Dynamo: when the requests of an interval double, the planner's default predictor forecasts fewer than before, or none at all.
#
# Guessed: after several intervals of 1,000 requests and one of 2,000, ARIMA forecasts something between the two, and about 2,000
#   once a second interval has 2,000 as well.
# Happens (ai-dynamo 1.6.1, ARIMAPredictor, load_predictor "arima", its default; pmdarima 2.1.1): the model is selected once, by the
#   first five intervals, and only its coefficients are refitted. Of around 1,000 requests it selects one that returns to a mean or
#   continues a slope, so the first interval of 2,000 gives 573 in one series and 258 in another; the second goes on with 0, 0 and 0
#   while 2,000 requests come in each interval. Nothing bounds the forecast by what was just counted.
# Why it matters: replicas = ceil(forecast / requests that a replica sustains): the planner stops replicas, down to min_endpoint, while
#   the load doubles, for intervals of 180 s each. load_predictor "constant" is right one interval later.
# The predictor's own class; five intervals of live traffic come before the first forecast, as in the planner. Takes two minutes, 400 MB.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check --no-compile pmdarima==2.1.1 numpy==2.4.6 pandas==3.1.1 statsmodels==0.15.0 scipy==1.17.1 scikit-learn==1.9.1 filterpy==2.0.0
"$d/v/bin/pip" install -q --disable-pip-version-check --no-warn-conflicts --no-compile --no-deps ai-dynamo==1.6.1
"$d/v/bin/python" - <<'PY'
import importlib.metadata, sys, types, warnings
warnings.filterwarnings("ignore")
# the class's file as it is; stubs for the modules that it imports and does not use here
for name in ("dynamo", "dynamo.planner", "dynamo.planner.config", "dynamo.planner.config.planner_config", "dynamo.runtime", "dynamo.runtime.logging", "prophet"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["dynamo.planner.config.planner_config"].PlannerConfig = object
sys.modules["dynamo.runtime.logging"].configure_dynamo_logging = lambda: None
sys.modules["prophet"].Prophet = object
package = importlib.metadata.distribution("ai-dynamo")
defaults = open(package.locate_file("dynamo/planner/config/defaults.py")).read()
assert '] = "arima"' in defaults, "the default predictor is another one"
space = {"__name__": "predictors"}
exec(compile(open(package.locate_file("dynamo/planner/core/load/predictors.py")).read(), "predictors.py", "exec"), space)
print("ai-dynamo", importlib.metadata.version("ai-dynamo"), "pmdarima", importlib.metadata.version("pmdarima"))
def forecasts(kind, series):
    predictor = space["LOAD_PREDICTORS"][kind](types.SimpleNamespace(load_predictor_log1p=False, kalman_min_points=5, kalman_q_level=1.0, kalman_q_trend=0.1, kalman_r=10.0))
    made = []
    for requests in series:
        predictor.add_data_point(requests)
        made.append(round(predictor.predict_next()))
    return made
first = [1000, 1010, 990, 1005, 995, 1000, 1002, 2000, 2000, 2000]
second = [1075, 979, 1013, 1005, 1027, 955, 987, 976, 966, 973, 2000, 2000, 2000, 2000]
for series in (first, second):
    start = series.index(2000)
    made = forecasts("arima", series)
    print(f"requests {series}")
    print(f"  arima: after the first interval of 2000 it forecasts {made[start]}, then {made[start + 1:]}")
    print(f"  kalman {forecasts('kalman', series)[start:]}, constant {forecasts('constant', series)[start:]}")
    assert made[start] < 700, made
assert max(made[start + 1:]) < 300, made
print("as stated")
PY
