"""A server of Weights & Biases on the loopback, as far as a run needs it. It keeps what it is asked.

usage: fake_wandb.py STATE [PORT]

STATE/address gets the address when the server listens, STATE/runs.json what it knows, after each request; a server that
is started again goes on from there. The first word of STATE/fault, if the file exists, tells what is wrong: `busy`
(answers 503), `limit` (429), `denied` (401), `deaf` (takes a request, and closes the connection instead of answering),
`hangs` (never answers).
"""
import base64
import http.server
import json
import math
import pathlib
import re
import sys
import threading
import time

state = pathlib.Path(sys.argv[1])
place = state / "runs.json"
known = json.loads(place.read_text()) if place.exists() else {"runs": {}, "paths": []}
lock = threading.Lock()
KEY = "k" * 40


def parsed(line):
    """A row or a summary without its times, which must be of today; NaN and infinity as texts."""
    values = json.loads(line)
    if "_timestamp" in values:
        assert abs(values.pop("_timestamp") - time.time()) < 600
    if "_runtime" in values:
        assert 0 <= values.pop("_runtime") < 600
    if "_wandb" in values:
        assert 0 <= values.pop("_wandb")["runtime"] < 600
    return {name: value if not isinstance(value, float) or math.isfinite(value) else str(value)
            for name, value in values.items()}


def path_of(variables):
    return f"{variables.get('entity') or 'me'}/{variables.get('project') or 'uncategorized'}/{variables['name']}"


def details_of(run):
    return {"id": run["id"], "name": run["name"], "displayName": run["displayName"], "description": "",
            "sweepName": None, "config": run["config_json"], "historyLineCount": len(run["lines"]),
            "project": {"id": "p", "name": run["project"], "entity": {"id": "e", "name": run["entity"]}}}


def upsert(variables):
    path = path_of(variables)
    entity, project, name = path.split("/")
    is_new = path not in known["runs"]
    run = known["runs"].setdefault(path, {
        "entity": entity, "project": project, "name": name, "id": base64.b64encode(path.encode()).decode(),
        "lines": [], "rows": [], "summary_line": "{}", "summary": {}, "config_json": "{}", "config": {},
        "displayName": name, "state": "running", "ends": [], "offsets": [], "beats": 0, "continued": 0})
    if variables.get("displayName"):
        run["displayName"] = variables["displayName"]
    if variables.get("config"):
        run["config_json"] = variables["config"]
        config = json.loads(variables["config"])
        run["config"] = {key: item["value"] for key, item in config.items() if key != "_wandb"}
    if variables.get("id"):
        assert variables["id"] == run["id"]
        run["continued"] += 1
    run["state"] = "running"
    return {"upsertBucket": {"bucket": details_of(run), "inserted": is_new}}


def resume_status(variables):
    run = known["runs"].get(path_of(variables))
    if run is None:
        return {"model": None}
    bucket = details_of(run) | {
        "summaryMetrics": run["summary_line"], "logLineCount": 0, "eventsLineCount": 0, "tags": [], "notes": "",
        "historyTail": json.dumps(run["lines"][-1:]), "eventsTail": "[]", "wandbConfig": '{"t": 1}'}
    return {"model": {"id": "p", "name": run["project"], "entity": {"id": "e", "name": run["entity"]},
                      "bucket": bucket}}


def answer_query(question):
    name = re.search(r"(?:query|mutation) (\w+)", question["query"]).group(1)
    variables = question.get("variables") or {}
    if name == "UpsertBucket":
        return upsert(variables)
    if name == "RunResumeStatus":
        return resume_status(variables)
    if name == "Viewer":
        return {"viewer": {"id": "v", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
    if name == "CreateRunFiles":
        return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": []}}
    return {"serverInfo": {"features": []}}


def take_stream(path, question):
    run = known["runs"].get(path)
    if run is None:
        return 404, {"error": f"run {path} was not found"}
    if not question:
        run["beats"] += 1
    history = question.get("files", {}).get("wandb-history.jsonl")
    if history:
        at = history["offset"]
        if at > len(run["lines"]):
            return 400, {"error": "lines are missing"}
        run["offsets"].append(at)
        run["lines"][at:] = history["content"]
        run["rows"][at:] = map(parsed, history["content"])
    summary = question.get("files", {}).get("wandb-summary.json")
    if summary:
        run["summary_line"], run["summary"] = summary["content"][-1], parsed(summary["content"][-1])
    if question.get("complete"):
        run["ends"].append(question["exitcode"])
        run["state"] = "finished" if question["exitcode"] == 0 else "failed"
    return 200, {"exitcode": None, "limits": {}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def respond(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/sdk/otel/"):  # how the package fares
            return self.answer(200, {})
        fault = (state / "fault").read_text().split()[0] if (state / "fault").exists() else ""
        if fault == "hangs":
            self.rfile.read(1)  # until the other side has gone
            return
        with lock:
            status, body = self.take(text, fault)
            place.with_suffix(".new").write_text(json.dumps(known))
            place.with_suffix(".new").replace(place)
        if fault == "deaf":
            self.close_connection = True
        else:
            self.answer(status, body)

    def take(self, text, fault):
        known["paths"].append(self.path)
        if fault in ("busy", "limit"):
            return {"busy": 503, "limit": 429}[fault], {}
        expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        if fault == "denied" or self.headers["Authorization"] != expected:
            return 401, {"errors": [{"message": "user is not logged in"}]}
        if self.path == "/graphql":
            return 200, {"data": answer_query(json.loads(text))}
        match = re.fullmatch("/files/([^/]+/[^/]+/[^/]+)/file_stream", self.path)
        return take_stream(match.group(1), json.loads(text)) if match else (404, {})

    do_GET = do_POST = do_PUT = respond


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
(state / "address.new").write_text(f"http://127.0.0.1:{server.server_port}")
(state / "address.new").replace(state / "address")
print("listening", flush=True)
server.serve_forever()
