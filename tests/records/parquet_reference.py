"""Writes Parquet files by pyarrow, and beside each the rows that a reader has to find, as JSON.

usage: parquet_reference.py FOLDER
"""

import decimal
import json
import pathlib
import struct
import sys
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(sys.argv[1])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int64())])


def without_null_fields(value):
    """A struct cannot say that a field is not there: it is null."""
    if isinstance(value, dict):
        return {key: without_null_fields(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_null_fields(one) for one in value]
    return value


def write(name: str, table: pa.Table, rows: list | None = None, **options) -> None:
    pq.write_table(table, FOLDER / f"{name}.parquet", **options)
    if rows is None:
        rows = table.to_pylist()
    rows = [{key: without_null_fields(value) for key, value in row.items()} for row in rows]
    (FOLDER / f"{name}.expected").write_text(json.dumps(rows))


def texts(count: int) -> pa.Table:
    return pa.table({"text": [None if i % 7 == 3 else f"text {i} \u00e9\u4e2d" * (i % 5) for i in range(count)]})


def conversations(count: int) -> pa.Table:
    rows = [
        None if i % 11 == 5 else
        [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": f"answer {i}", "weight": i}][: i % 3]
        for i in range(count)
    ]
    return pa.table({"messages": pa.array(rows, pa.list_(MESSAGE)), "system": [f"s{i % 2}" for i in range(count)]})


def all_types() -> pa.Table:
    inner = pa.struct([("flag", pa.bool_()), ("small", pa.int8()), ("large", pa.uint64()), ("half", pa.float16()),
                       ("float", pa.float32()), ("double", pa.float64()), ("words", pa.list_(pa.large_string())),
                       ("pair", pa.list_(pa.int32(), 2)), ("deep", pa.struct([("deeper", pa.list_(pa.list_(pa.string())))]))])
    values = [
        {"flag": True, "small": -3, "large": 2**64 - 1, "half": 0.5, "float": 0.25, "double": 0.1, "words": ["a", None, "b"],
         "pair": [1, 2], "deep": {"deeper": [["x"], [], None, ["y", "z"]]}},
        None,
        {"flag": False, "small": None, "words": [], "deep": {"deeper": None}},
    ]
    return pa.table({
        "input": pa.array(values, inner),
        "output": pa.array(["one", "two", "one"], pa.string()).dictionary_encode(),
        "instruction": pa.array(["in", None, "structions"], pa.large_string()),
        "tools": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "system": pa.array([b"bytes", None, b""], pa.binary()),
        "documents": pa.array([["p", "q", "p"], None, []], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "ignored": pa.array([1, 2, 3]),
    })


def main() -> None:
    (FOLDER / "shards").mkdir()
    write("snappy", texts(3000), compression="snappy", row_group_size=700)
    write("zstd", texts(1500), compression="zstd", use_dictionary=False, data_page_size=2000, write_page_checksum=True)
    write("gzip_brotli_lz4", conversations(100), compression={"messages.list.element.role": "gzip",
          "messages.list.element.content": "brotli", "messages.list.element.weight": "lz4", "system": "none"})
    write("messages", conversations(2000), row_group_size=600, data_page_version="2.0")
    table = all_types()
    rows = [{**row, "tools": row["tools"] and dict(row["tools"]) if row["tools"] != [] else {},
             "system": row["system"] and row["system"].decode() if row["system"] != b"" else ""}
            for row in table.drop_columns(["ignored"]).to_pylist()]
    write("types", table, rows)
    write("sliced", table.slice(2), rows[2:])
    dates = pa.array([{"at": 0, "price": decimal.Decimal("1.50")}], pa.struct([("at", pa.date32()), ("price", pa.decimal128(5, 2))]))
    write("printed", pa.table({"input": dates}), [{"input": {"at": "1970-01-01", "price": "1.50"}}])
    numbered = pa.array([[(1, "a"), (2, None)], [], None], pa.map_(pa.int32(), pa.string()))
    write("numbered", pa.table({"tools": numbered}), [{"tools": [[1, "a"], [2, None]]}, {"tools": {}}, {"tools": None}])
    write("no_rows", texts(0))
    write("other_columns", pa.table({"question": ["a"], "answer": ["b"]}))
    pq.write_table(pa.table({"text": [b"ab", b"c\xff", b"de"]}), FOLDER / "not_utf8.parquet")
    job = pa.table({"messages": [[{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": "yes" * (i % 4 + 1)}]
                                 for i in range(300)], "id": range(300)})
    write("shards/a", job.slice(0, 200), row_group_size=70)
    write("shards/b", job.slice(200))
    write_images()


def png(value: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + bytes([value, 2, 3]) * 4 for _ in range(4))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_images() -> None:
    """As the library datasets stores its feature Image, and as plain bytes."""
    (FOLDER / "there.png").write_bytes(png(30))
    images = pa.array([{"bytes": png(10), "path": "a.png"}, {"bytes": png(20), "path": None},
                       {"bytes": None, "path": "there.png"}], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    pq.write_table(pa.table({"image": images, "label": [1, 0, 1]}), FOLDER / "images.parquet")
    pq.write_table(pa.table({"image": pa.array([png(40), png(50)], pa.large_binary()), "label": ["x", "y"]}),
                   FOLDER / "bytes.parquet")


main()
