"""Renders the Helm chart and prints its manifests as JSON, one per line.

    render_chart.py CHART VALUES

VALUES is JSON that overrides values.yaml. The result is checked as Helm and Kubernetes would: the values against
values.schema.json, every manifest against the schema of its kind, unknown fields included. The templates are rendered by
gotpl, which implements Go's templates with Helm's functions; Helm itself is in no package registry.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml
from gotpl.exts.helm import HelmTemplateEngine

KUBERNETES_VERSIONS = ["1.27", "1.31"]


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which YAML keeps the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"duplicate key {key!r} {node.start_mark}")
        return super().construct_mapping(node, deep)


def merge(base, over):
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}
    return over


def main(folder, overrides):
    folder = pathlib.Path(folder)
    chart = yaml.load((folder / "Chart.yaml").read_text(), StrictLoader)
    values = merge(yaml.load((folder / "values.yaml").read_text(), StrictLoader), json.loads(overrides))
    schema = json.loads((folder / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    errors = [error.json_path for error in jsonschema.Draft7Validator(schema).iter_errors(values)]
    if errors:
        sys.exit(f"values: {', '.join(sorted(errors))}")

    names = {path.name: path for path in sorted((folder / "templates").iterdir())}
    context = {
        "Values": values,
        # Go's names of the fields of a chart.
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
        "Release": {"Name": "hooks", "Namespace": "default", "Service": "Helm"},
        "Capabilities": {"KubeVersion": {"Version": "v1.31.0"}},
    }
    engine = HelmTemplateEngine.from_sources({name: path.read_text() for name, path in names.items()})
    for name in names:
        if name.startswith("_"):
            continue
        text = engine.render_template(name, context)
        if name == "NOTES.txt":
            assert "{{" not in text and "<no value>" not in text, text
            continue
        for manifest in yaml.load_all(text, StrictLoader):
            if manifest is None:
                continue
            for version in KUBERNETES_VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)
            print(json.dumps(manifest))


main(*sys.argv[1:])
