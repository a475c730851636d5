"""Your own retriever in one page: a server that finds what happened, for the prompts of characters.

python examples/retriever_server.py 9100

The gateway asks it when its settings say `rag: {retriever: remote, remote: {url: "http://127.0.0.1:9100/"}}`. You will
see its passages in the prompts of `npc_arena`.
"""

import json
import sys
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HAPPENED = [
    {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The ferry's rope broke at Reedgate."},
    {"id": "spliced", "time": "1312-04-03T15:00:00Z", "text": "The ferry's rope holds again."},
]


class Retriever(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["content-length"])))["query"]
        now = datetime.fromisoformat(query["as_of"] or HAPPENED[-1]["time"])
        told = [event for event in HAPPENED if datetime.fromisoformat(event["time"]) <= now]
        body = json.dumps({"passages": told}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Retriever).serve_forever()
