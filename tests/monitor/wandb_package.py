"""The package wandb itself, for tests that compare with it.

usage: wandb_package.py log RUN.json FOLDER    logs rows with it, as a user's script does
       wandb_package.py sync ARGUMENT...       is `wandb sync`

RUN.json: {"project", "entity", "id", "name", "config", "resume", "rows": [[step, {...}], ...], "exit_code"}.
"""
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import unittest.mock


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Puts empty modules in the place of those that the package imports and nothing here uses."""

    NAMES = ("platformdirs", "requests", "urllib3", "cwevals", "opentelemetry")

    def find_spec(self, name, path=None, target=None):
        is_absent = name.split(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_absent else None

    def create_module(self, spec):
        module = unittest.mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Absent())  # after the finders of modules that are there

if sys.argv[1] == "sync":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes logs into the folder where it is called
        from wandb.cli.cli import cli
        cli()
else:
    import wandb
    with open(sys.argv[2]) as file:
        asked = json.load(file)
    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, save_code=False, silent=True)
    run = wandb.init(project=asked["project"], entity=asked["entity"], id=asked["id"], name=asked["name"],
                     config=asked["config"], resume=asked["resume"], dir=sys.argv[3], settings=settings)
    for step, values in asked["rows"]:
        run.log({name: float("nan") if value is None else value for name, value in values.items()}, step=step)
    print(run.url)
    run.finish(exit_code=asked["exit_code"])
