"""Validates FOLDER/*_good.yaml and *_bad.yaml against FOLDER/schema.json; fails if a verdict does not match a file's
name."""
import json
import pathlib
import sys

import jsonschema
import yaml

folder = pathlib.Path(sys.argv[1])
schema = json.loads((folder / "schema.json").read_text())
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)

wrong = 0
files = sorted(folder.glob("*.yaml"))
for path in files:
    errors = list(validator.iter_errors(yaml.safe_load(path.read_text())))
    if (not errors) != path.name.endswith("_good.yaml"):
        wrong += 1
        print(f"{path.name}: {path.read_text()}  {[error.message for error in errors]}")
print(f"{len(files)} files, {wrong} wrong verdicts")
sys.exit(1 if wrong or not files else 0)
