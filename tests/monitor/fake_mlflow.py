"""An MLflow server on the loopback, as far as a run needs it.

usage: fake_mlflow.py STATE [WORD...]

Words: busy (answers the first request with 503), closes (the connection, at the first one), hangs (never
answers), refuses (takes no metrics), elsewhere (keeps no files itself).
STATE/address gets the address when the server listens, STATE/runs.json what it knows, after each request.
"""
import base64
import http.server
import json
import pathlib
import sys
import urllib.parse

state, words = pathlib.Path(sys.argv[1]), set(sys.argv[2:])
known = {"experiments": {"Default": "0"}, "runs": {}, "authorizations": [], "largest": {}, "files": {},
         "types": {}}
requests = 0


class Refusal(Exception):
    pass


def get_by_name(question):
    name = question["experiment_name"][0]
    return {"experiment": {"experiment_id": known["experiments"][name], "name": name}}


def create_experiment(question):
    if question["name"] in known["experiments"]:
        raise Refusal("RESOURCE_ALREADY_EXISTS")
    known["experiments"][question["name"]] = str(len(known["experiments"]))
    return {"experiment_id": known["experiments"][question["name"]]}


def info_of(run):
    artifacts = "s3://bucket" if "elsewhere" in words else "mlflow-artifacts:/0"
    return {"run_id": run, "artifact_uri": f"{artifacts}/{run}/artifacts"}


def create_run(question):
    assert question["experiment_id"] in known["experiments"].values()
    name = f"run{len(known['runs'])}"
    known["runs"][name] = {"name": question["run_name"], "experiment": question["experiment_id"], "status": "RUNNING",
                           "tags": {tag["key"]: tag["value"] for tag in question["tags"]}, "params": {}, "metrics": []}
    return {"run": {"info": info_of(name)}}


def update_run(question):
    run = known["runs"][question["run_id"]]
    run["status"] = question["status"]
    return {"run_info": info_of(question["run_id"])}


def log_batch(question):
    run = known["runs"][question["run_id"]]
    for kind in ("params", "metrics"):
        known["largest"][kind] = max(known["largest"].get(kind, 0), len(question.get(kind, [])))
    if "metrics" in question and "refuses" in words:
        raise Refusal("no metrics are wanted")
    for param in question.get("params", []):
        if run["params"].setdefault(param["key"], param["value"]) != param["value"]:
            raise Refusal("params do not change")
    for metric in question.get("metrics", []):
        assert abs(metric["timestamp"] / 1000 - state.stat().st_mtime) < 600
        run["metrics"].append([metric["key"], metric["step"], metric["value"]])
    return {}


CALLS = {("GET", "experiments/get-by-name"): get_by_name, ("POST", "experiments/create"): create_experiment,
         ("POST", "runs/create"): create_run, ("POST", "runs/update"): update_run, ("POST", "runs/log-batch"): log_batch}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def respond(self):
        global requests
        requests += 1
        question = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "hangs" in words:
            self.rfile.read(1)  # until the other side has gone
        if "closes" in words and requests == 1:
            self.close_connection = True
            return
        if "busy" in words and requests == 1:
            return self.answer(503, {})
        known["authorizations"].append(self.headers.get("Authorization", ""))
        path, _, query = self.path.partition("?")
        if self.command == "PUT":
            known["files"][path.removeprefix("/api/2.0/mlflow-artifacts/artifacts/")] = (
                base64.b64encode(question) if path.endswith(".png") else question).decode()
            known["types"][path.rpartition("/")[2]] = self.headers.get("Content-Type")
            (state / "runs.json").write_text(json.dumps(known))
            return self.answer(200)
        call = CALLS[self.command, path.removeprefix("/api/2.0/mlflow/")]
        try:
            answer = call(json.loads(question) if question else urllib.parse.parse_qs(query))
            status = 200
        except KeyError:
            status, answer = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "not here"}
        except Refusal as refusal:
            status, answer = 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": str(refusal)}
        (state / "runs.json").write_text(json.dumps(known))
        self.answer(status, answer)

    do_GET = do_POST = do_PUT = respond


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
(state / "address").write_text(f"http://127.0.0.1:{server.server_port}")
print("listening", flush=True)
server.serve_forever()
