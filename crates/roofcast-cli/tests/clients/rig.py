"""Checks that the rig's YAML is valid for the programs that read it. usage: rig.py FOLDER; prints "agreed" and exits with 0 if so."""

import json
import pathlib
import sys

import yaml

FOLDER = pathlib.Path(sys.argv[1])


def check(held: bool, what: str) -> None:
    if not held:
        sys.exit(f"not so: {what}")


compose = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
services = compose["services"]
check({"prometheus", "grafana"} < set(services), "Prometheus and Grafana are services")
for name, service in services.items():
    check("image" in service or "build" in service, f"{name} has an image")
    for flag in service.get("command", []):
        check(isinstance(flag, str) and flag.startswith("--"), f"{name}: {flag} is one flag")
prometheus = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
for job in prometheus["scrape_configs"]:
    for static in job["static_configs"]:
        for target in static["targets"]:
            check(target.split(":")[0] in services, f"{target} is a service")
objects = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
check([o["kind"] for o in objects] == ["Deployment", "Service"], "a Deployment and its Service")
deployment, service = objects
labels = deployment["spec"]["template"]["metadata"]["labels"]
check(deployment["spec"]["selector"]["matchLabels"].items() <= labels.items(), "the Deployment selects its pods")
check(service["spec"]["selector"].items() <= labels.items(), "the Service selects them, too")
container = deployment["spec"]["template"]["spec"]["containers"][0]
ports = {port["name"] for port in container["ports"]}
check({p["targetPort"] for p in service["spec"]["ports"]} <= ports, "the Service's ports are the container's")
check(container["readinessProbe"]["httpGet"]["port"] in ports, "the probe's port is one")
for path in (FOLDER / "grafana/provisioning").rglob("*.yml"):
    check(yaml.safe_load(path.read_text())["apiVersion"] == 1, f"{path} is provisioned")
json.loads((FOLDER / "grafana/dashboard.json").read_text())
print("agreed")
