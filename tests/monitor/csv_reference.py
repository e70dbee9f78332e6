"""metrics.csv as Python's csv module reads it: for each row its cells by column, without empty ones, as JSON.

usage: csv_reference.py FILE RESULT
"""
import csv
import json
import sys

path, result = sys.argv[1:]
with open(path, newline="") as file:
    rows = list(csv.DictReader(file, strict=True))
for row in rows:
    assert None not in row and None not in row.values()  # every row has as many cells as the first
    float(row["time"])
with open(result, "w") as file:
    json.dump([{name: cell for name, cell in row.items() if cell and name != "time"} for row in rows], file)
