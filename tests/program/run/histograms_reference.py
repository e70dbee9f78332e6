"""Whether TensorBoard shows the weights of a run's end as they are, and gradients as long as the run says.

usage: histograms_reference.py RUN STEP LARGEST_ERROR
"""
import json
import math
import sys
from pathlib import Path

import numpy
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run, step, error = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
events = EventAccumulator(str(run / "tb"), size_guidance={"histograms": 0})
events.Reload()
found = {}
for tag in events.Tags()["histograms"]:
    found[tag] = {event.step: event.histogram_value for event in events.Histograms(tag)}[step]
weights = {name: value for name, value in load_file(run / "model.safetensors").items() if f"weights/{name}" in found}
names = {tag.partition("/")[2] for tag in found}
assert names == weights.keys() and len(found) == 2 * len(names) > 2, names ^ weights.keys()
for name, value in weights.items():
    shown = found[f"weights/{name}"]
    value = value.astype(numpy.float64)
    assert (shown.num, sum(shown.bucket)) == (value.size, value.size), name
    assert math.isclose(shown.min, value.min(), rel_tol=error) and math.isclose(shown.max, value.max(), rel_tol=error)
    assert math.isclose(shown.sum, value.sum(), rel_tol=error, abs_tol=error * abs(value).sum()), name
    assert math.isclose(shown.sum_squares, (value**2).sum(), rel_tol=error), name
    counts, edges = numpy.histogram(value, bins=len(shown.bucket), range=(shown.min, shown.max))
    assert numpy.allclose(shown.bucket_limit, edges[1:], atol=1e-6), name
    if shown.min < shown.max:  # a value beside an edge may be counted on its other side
        assert abs(numpy.cumsum(counts) - numpy.cumsum(shown.bucket)).max() <= 2, name
    assert found[f"gradients/{name}"].num == value.size
lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
norm = next(line["train/grad_norm"] for line in lines if line["step"] == step and line["kind"] == "train")
shown = math.sqrt(sum(values.sum_squares for tag, values in found.items() if tag.startswith("gradients/")))
assert math.isclose(norm, shown, rel_tol=error), (norm, shown)
