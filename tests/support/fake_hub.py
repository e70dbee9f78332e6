"""A Hugging Face Hub on the loopback, as gputrain and huggingface_hub ask it. Serves folders as models.

usage: fake_hub.py MODELS STATE [CERTIFICATE]

With CERTIFICATE, a file with a key and its certificate, it speaks https.

MODELS/ORG/NAME/ holds the files of a model. Its file `.behaviour`, which is not served, may hold one word a line:
  breaks    the first connection for each large file ends in the middle
  stalls    the first connection for each large file stands still in the middle
  busy      the first two questions about the model are answered with 503
  gated     only with the token hf_good
  altered   large files are sent with another first byte
  huge      the model's listing says that large files are huge
  moved     MODELS/ORG/NAME is found at org/plain now

STATE/address gets the address when the server listens, STATE/requests a line for each request. Large files
(.safetensors) are redirected to a second port, as the Hub does to its CDN.
"""
import collections
import hashlib
import http.server
import json
import pathlib
import re
import ssl
import sys
import threading
import urllib.parse

models, state = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
asked = collections.Counter()
writing = threading.Lock()


def behaviour(name):
    path = models / name / ".behaviour"
    return set(path.read_text().split()) if path.exists() else set()


def commit_of(name):
    return hashlib.sha1(name.encode()).hexdigest()


def is_large(path):
    return path.suffix == ".safetensors"


def etag_of(path):
    content = path.read_bytes()
    if is_large(path):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # git's name of it


def files_of(name):
    folder = models / name
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".behaviour")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self):
        token = self.headers.get("Authorization", "none")
        line = f"{self.kind} {self.command} {self.path} range={self.headers.get('Range', 'none')} token={token}\n"
        with writing, open(state / "requests", "a") as file:
            file.write(line)

    def answer(self, status, body=b"", headers=None):
        self.send_response(status)
        headers = {"Content-Length": str(len(body))} | (headers or {})
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, headers={"X-Error-Code": code, "X-Error-Message": "refused by the fake hub"})

    def do_HEAD(self):
        self.do_GET()


class Hub(Handler):
    kind = "hub"

    def do_GET(self):
        self.note()
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        api = re.fullmatch(r"/api/models/(.+?)(?:/(revision|tree)/(.+))?", path)
        resolve = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        if not api and not resolve:
            return self.refuse(404, "NotFound")
        name = (api or resolve)[1]
        if "moved" in behaviour(name):
            return self.answer(307, headers={"Location": self.path.replace(name, "org/plain", 1)})
        if not (models / name).is_dir():
            return self.refuse(401, "RepoNotFound")
        if "gated" in behaviour(name) and self.headers.get("Authorization") != "Bearer hf_good":
            return self.refuse(401, "GatedRepo")
        revision = (api[3] if api else resolve[2]) or "main"
        if revision not in ("main", commit_of(name)):
            return self.refuse(404, "RevisionNotFound")
        return self.describe(name, api[2]) if api else self.resolve(name, models / name / resolve[3])

    def describe(self, name, what):
        asked[name] += 1
        if "busy" in behaviour(name) and asked[name] <= 2:
            return self.answer(503)
        entries = []
        for path in files_of(name):
            size = 1 << 60 if "huge" in behaviour(name) and is_large(path) else path.stat().st_size
            file = str(path.relative_to(models / name))
            entry = {"type": "file", "oid": etag_of(path), "size": size, "path": file, "rfilename": file}
            if is_large(path):
                entry["lfs"] = {"oid": etag_of(path), "sha256": etag_of(path), "size": size, "pointerSize": 134}
            entries.append(entry)
        info = {"id": name, "sha": commit_of(name), "siblings": entries}
        self.answer(200, json.dumps(entries if what == "tree" else info).encode(), {"Content-Type": "application/json"})

    def resolve(self, name, path):
        if not path.is_file():
            return self.refuse(404, "EntryNotFound")
        headers = {"X-Repo-Commit": commit_of(name), "ETag": f'"{etag_of(path)}"'}
        if not is_large(path):
            return self.answer(200, path.read_bytes(), headers)
        headers |= {"X-Linked-Etag": headers.pop("ETag"), "X-Linked-Size": str(path.stat().st_size)}
        return self.answer(302, headers=headers | {"Location": f"{address_of(cdn)}/{path.relative_to(models)}"})


class Cdn(Handler):
    kind = "cdn"

    def do_GET(self):
        self.note()
        path = models / self.path.lstrip("/")
        name = str(path.parent.relative_to(models))
        content = path.read_bytes()
        if "altered" in behaviour(name):
            content = bytes([content[0] ^ 1]) + content[1:]
        begin = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
        if begin >= len(content):
            return self.answer(416)
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        asked[self.path] += 1
        if not behaviour(name) & {"breaks", "stalls"} or asked[self.path] > 1:
            return self.answer(206 if begin else 200, content[begin:], headers)
        self.answer(200, content[: len(content) // 2], {"Content-Length": str(len(content))})
        if "stalls" in behaviour(name):
            self.rfile.read(1)  # until the other side has gone
        self.close_connection = True


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def address_of(server):
    return f"{'https' if len(sys.argv) > 3 else 'http'}://127.0.0.1:{server.server_port}"


hub, cdn = serve(Hub), serve(Cdn)
threading.Thread(target=cdn.serve_forever, daemon=True).start()
(state / "address").write_text(address_of(hub))
print("listening", flush=True)
hub.serve_forever()
