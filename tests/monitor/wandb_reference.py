"""The records of an offline run of Weights & Biases, parsed by the classes of the package wandb, as JSON.

usage: wandb_reference.py FILE.wandb RESULT
"""
import importlib.util
import json
import struct
import sys
import types
import zlib

# Only its protocol buffers: the package needs many others, which nothing here uses.
root = importlib.util.find_spec("wandb").submodule_search_locations[0]
for name, place in (("wandb", root), ("wandb.proto", root + "/proto")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
from wandb.proto import wandb_internal_pb2  # noqa: E402

BLOCK, HEADER = 32768, 7


def records(data):
    ident, magic, version = struct.unpack("<4sHB", data[:HEADER])
    assert (ident, magic, version) == (b":W&B", 0xBEE1, 0)
    at, content, is_open = HEADER, b"", False
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            assert not any(data[at : at + left])
            at += left
            continue
        checksum, size, kind = struct.unpack("<IHB", data[at : at + HEADER])
        part = data[at + HEADER : at + HEADER + size]
        assert len(part) == size <= left - HEADER and zlib.crc32(bytes([kind]) + part) == checksum
        assert (kind in (1, 2)) != is_open  # the whole or the first part of a record, else a further one
        at += HEADER + size
        content = part if kind in (1, 2) else content + part
        is_open = kind in (2, 3)
        if not is_open:
            yield wandb_internal_pb2.Record.FromString(content)
    assert not is_open


path, result = sys.argv[1:]
found = {"kinds": [], "numbers": [], "rows": [], "summary": {}}
for record in records(open(path, "rb").read()):
    kind = record.WhichOneof("record_type")
    found["kinds"].append(kind)
    found["numbers"].append(record.num)
    if kind == "run":
        run = record.run
        found["run"] = [run.run_id, run.project, run.entity, run.display_name]
        found["config"] = {item.key: json.loads(item.value_json) for item in run.config.update}
    if kind == "history":
        row = {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        assert row["_step"] == record.history.step.num
        found["rows"].append(row)
    if kind == "summary":
        found["summary"] |= {item.nested_key[0]: json.loads(item.value_json) for item in record.summary.update}
    if kind == "exit":
        found["exit_code"] = record.exit.exit_code
with open(result, "w") as file:
    json.dump(found, file)
