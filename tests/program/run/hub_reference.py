"""What huggingface_hub does with a cache: prints the folder of the model in it.

usage: hub_reference.py local|fetch NAME
"""
import sys

import huggingface_hub

print(huggingface_hub.snapshot_download(sys.argv[2], local_files_only=sys.argv[1] == "local"))
