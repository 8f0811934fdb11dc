"""orlop inspect: what is in a model file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .._engine import inspect
from .common import megabytes


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="what is in a model file",
        description="Tensors, formats, bytes, configuration, tokenizer and chat template of a "
        "checkpoint folder or a .gguf file. Nothing is loaded.",
    )
    parser.add_argument("model", help="a checkpoint folder or a .gguf file")
    parser.add_argument("--json", action="store_true", help="everything as JSON on stdout")
    parser.add_argument("--no-tensors", action="store_true", help="leave the tensor table out")
    parser.set_defaults(run=_run, parser=parser)


def _run(args: argparse.Namespace) -> int:
    found = inspect(args.model)
    if args.no_tensors:
        del found["tensors"]
    if args.json:
        json.dump(found, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return 0
    kind = found["kind"] + (f" v{found['gguf_version']}" if "gguf_version" in found else "")
    print(f"{found['path']}: {kind}, {found['parameters']:,} parameters")
    _table(
        ("file", "bytes"),
        [(file["path"], f"{file['bytes']:,}") for file in found["files"]],
        right={1},
    )
    _table(
        ("format", "tensors", "elements", "bytes", "bits each", "of all"),
        [
            (
                name,
                f"{row['tensors']}",
                f"{row['elements']:,}",
                f"{row['bytes']:,}",
                f"{row['bytes'] * 8 / row['elements']:.2f}" if row["elements"] else "-",
                f"{row['bytes'] / max(found['tensor_bytes'], 1):.1%}",
            )
            for name, row in sorted(found["formats"].items(), key=lambda e: -e[1]["bytes"])
        ],
        right={1, 2, 3, 4, 5},
    )
    for name in ("quantization", "config", "tokenizer"):
        part = found[name]
        print(f"\n{name}")
        if part is None:
            print("  none")
            continue
        for key, value in part.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print(f"  {key:<18} {shown}")
    print("\nchat template")
    for line in (found["chat_template"] or "none").splitlines():
        print(f"  {line}")
    if "tensors" in found:
        _table(
            ("tensor", "shape", "format", "bytes"),
            [
                (
                    tensor["name"],
                    " x ".join(map(str, tensor["shape"])),
                    tensor["type"],
                    f"{tensor['bytes']:,}",
                )
                for tensor in found["tensors"]
            ],
            right={3},
        )
        print(f"\n{len(found['tensors'])} tensors, {megabytes(found['tensor_bytes'])}")
    return 0


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], right: set[int]) -> None:
    """Columns as wide as their widest entry; `right` are set flush right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print()
    for row in [head, *rows]:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        print("  ".join(cells).rstrip())
