"""What TensorBoard itself finds in a folder of event files, as JSON.

usage: tensorboard_reference.py FOLDER RESULT
"""
import base64
import io
import json
import math
import sys

import PIL.Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.util import tensor_util


def number(value):
    return value if math.isfinite(value) else str(value)


def picture(width, height, png):
    image = PIL.Image.open(io.BytesIO(png))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (int(width), int(height)))
    return {"size": image.size, "rgb": base64.b64encode(image.tobytes()).decode()}


folder, result = sys.argv[1:]
events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0, "images": 0})
events.Reload()
scalars, texts, images, plugins = {}, {}, {}, {}
for tag in events.Tags()["scalars"]:
    scalars[tag] = [[event.step, number(event.value)] for event in events.Scalars(tag)]
for tag in events.Tags()["images"]:
    images[tag] = [[event.step, picture(event.width, event.height, event.encoded_image_string)] for event in events.Images(tag)]
for tag in events.Tags()["tensors"]:
    plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
    plugins[tag] = plugin
    if plugin == "scalars":  # as a TensorBoard of today reads simple values
        scalars[tag] = [[event.step, number(float(tensor_util.make_ndarray(event.tensor_proto)))]
                        for event in events.Tensors(tag)]
    if plugin == "text":
        texts[tag] = [[event.step, tensor_util.make_ndarray(event.tensor_proto)[0].decode()]
                      for event in events.Tensors(tag)]
sessions = {}
content = events.PluginTagToContent("hparams") if "hparams" in plugins.values() else {}
if metadata.SESSION_START_INFO_TAG in content:
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
    sessions["name"] = start.group_name
    sessions["hparams"] = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
if metadata.SESSION_END_INFO_TAG in content:
    sessions["status"] = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG]).status
with open(result, "w") as file:
    json.dump({"scalars": scalars, "texts": texts, "images": images, "sessions": sessions}, file)
