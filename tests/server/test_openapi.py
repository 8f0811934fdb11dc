"""The published document is true: schemathesis draws requests from it, right and wrong ones, and compares
what comes back. ORLOP_TEST_EXAMPLES sets how many a path."""

from __future__ import annotations

import os
import subprocess
import sys

import conftest
import jsonschema

examples = os.environ.get("ORLOP_TEST_EXAMPLES") or "40"
# Not: positive_data_acceptance. A schema cannot say which JSON Schemas, grammars and expressions a guide
# takes, nor how many tokens a text has; those answer 400.
checks = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method"
)


def test_schemathesis(chat_folder, tmp_path):
    options = ("--served-model-name", "m", "-q")
    with conftest.serving(chat_folder, *conftest.smaller, *options) as server:
        out = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", server.url + "/openapi.json",
                "--checks", checks, "--max-examples", examples, "--phases", "examples,coverage,fuzzing",
                "--seed", "1", "--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
            ],
            capture_output=True, text=True, timeout=900, cwd=tmp_path,
        )  # fmt: skip
        assert out.returncode == 0, out.stdout[-6000:] + out.stderr[-2000:]
        server.idle()
        # "Invalid HTTP request received" is what some of them deserve.
        bad = [line for line in server.errors if "Traceback" in line or "ERROR" in line]
        assert server.process.poll() is None and not bad, server.errors[:40]


def test_the_document_itself(server):
    document = server.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    served = {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models",
        "/v1/models/{model}", "/tokenize", "/detokenize", "/health", "/metrics", "/stats",
    }  # fmt: skip
    assert set(document["paths"]) == served
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
