"""Runs ONNX files in ONNX Runtime and compares with what our models say.

usage: onnx_reference.py DIR    reads DIR/NAME.onnx and DIR/NAME.safetensors: tensors N.INPUT, N.expected for each batch
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

TOLERANCE = 1e-4


def batches_of(tensors):
    batches = {}
    for key, value in tensors.items():
        number, name = key.split(".")
        batches.setdefault(int(number), {})[name] = value
    return batches


def check(path):
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # several would wait in loops where other tests run
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    (output,) = session.get_outputs()
    assert all(one.shape[0] == "batch" for one in session.get_inputs()) and output.shape[0] == "batch"
    inferred = onnx.shape_inference.infer_shapes(onnx.load(str(path), load_external_data=False), strict_mode=True,
                                                 data_prop=True)
    ranks = {one.name: one.type.tensor_type.HasField("shape") for one in inferred.graph.value_info}
    unknown = [name for node in inferred.graph.node for name in node.output
               if name != output.name and not ranks.get(name, False)]
    assert not unknown, unknown
    worst = 0
    for number, batch in batches_of(load_file(path.with_suffix(".safetensors"))).items():
        expected = batch["expected"]
        if "lengths" in batch and "lengths" not in names and expected.ndim == 2:
            raise AssertionError("a text's output does not depend on its padding")
        found = session.run(None, {name: batch[name] for name in names})[0]
        assert found.shape == expected.shape, (found.shape, expected.shape)
        difference = np.abs(found - expected)
        if "lengths" in names and expected.ndim == 3:  # what stands at padding means nothing
            difference = difference[np.arange(expected.shape[1])[None] < batch["lengths"][:, None]]
        assert np.isfinite(found).all() and difference.max() <= TOLERANCE, (path.name, number, difference.max())
        worst = max(worst, difference.max())
    metadata = session.get_modelmeta().custom_metadata_map
    if "image" in names:
        assert len(json.loads(metadata["image_mean"])) == len(json.loads(metadata["image_std"])) == 3
    print(f"{path.name}: {names} -> {output.name} {output.shape}, {len(inferred.graph.node)} nodes, "
          f"largest difference {worst:.1e} of {np.abs(expected).max():.1f}")


for file in sorted(Path(sys.argv[1]).glob("*.onnx")):
    check(file)
