"""A stand-in for an OpenTelemetry collector: reads OTLP over HTTP with the published schema.

Prints each request that it accepts as a line of JSON. Argument: the port. The file `status` has the status of all answers,
the file `rejected` how much of a request is rejected in a partial success.
"""

import gzip
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

SIGNALS = {
    "/v1/traces": (traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse, "rejected_spans"),
    "/v1/metrics": (metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse, "rejected_data_points"),
}
# One line at a time: each connection has a thread.
printing = threading.Lock()


def read_number(name):
    return int(open(name).read()) if os.path.exists(name) else 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path not in SIGNALS or self.headers["content-type"] != "application/x-protobuf":
            return self.answer(404)
        if status := read_number("status"):
            return self.answer(status)
        request, response, rejected_field = SIGNALS[self.path]
        message = request.FromString(body)
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            print("error: fields that the schema does not have", file=sys.stderr, flush=True)
            return self.answer(400)
        line = json.dumps({
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "message": json_format.MessageToDict(message),
        })
        with printing:
            print(line, flush=True)
        answer = response()
        if rejected := read_number("rejected"):
            setattr(answer.partial_success, rejected_field, rejected)
        self.answer(200, answer.SerializeToString())


ThreadingHTTPServer.daemon_threads = True
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
