#!/usr/bin/env python3
"""Writes docs/bindings.md: each function of orlop.h, and how each language calls it; --check changes nothing.

The functions are read from the header. A binding has one where its sources call it, beyond declaring it; the
name in NAMES must be there too. A function that a binding does not call, one without names, and a name that is
not in the sources are errors.
"""
import argparse
import pathlib
import re
import sys

# function: C++, Python, Java, Rust. A name in words, in parentheses: what is called inside.
NAMES = {
    "orlop_abi_version": ("abi_version", "(checked by the import)", "Orlop.abiVersion", "abi_version"),
    "orlop_version": ("version", "orlop.__version__", "Orlop.version", "version"),
    "orlop_feature": ("feature", "orlop.feature", "Orlop.feature", "feature"),
    "orlop_log_set": ("LogSink", "orlop.set_log_level", "Log.set", "log::set"),
    "orlop_buffer_data": ("(copied to a string)", "(copied to str or bytes)", "(copied to String or byte[])", "(copied to String or Vec)"),
    "orlop_buffer_release": ("(after the copy)", "(after the copy)", "(after the copy)", "(after the copy)"),
    "orlop_engine_create": ("Engine::create", "Engine.__init__", "Engine.create", "Engine::from_json"),
    "orlop_engine_create_async": ("Engine::create_async", "Engine.__init__", "Engine.createAsync", "Engine::load_json"),
    "orlop_engine_wait": ("Engine::wait", "(Engine's progress=)", "EngineLoading.future", "Loading::wait"),
    "orlop_engine_release": ("Engine::close", "Engine.close", "Engine.close", "(drop of Engine)"),
    "orlop_inspect": ("inspect", "orlop.inspect", "Orlop.inspect", "inspect"),
    "orlop_engine_info": ("Engine::info", "Engine.info", "Engine.info", "Engine::info"),
    "orlop_engine_stats": ("Engine::stats", "Engine.stats", "Engine.stats", "Engine::stats"),
    "orlop_generate_params_init": ("Params", "(Engine.async_generate's keywords)", "GenerateParams", "Params"),
    "orlop_async_generate": ("Engine::generate", "Engine.async_generate", "Engine.generate", "Engine::generate"),
    "orlop_get": ("Request::get", "Request.get", "Request.get", "Request::get"),
    "orlop_get_status": ("Request::info", "Request.status", "Request.status", "Request::status"),
    "orlop_cancel": ("Request::cancel", "Request.cancel", "Request.cancel", "Request::cancel"),
    "orlop_request_release": ("(destructor of Request)", "Request.close", "Request.close", "Request::close"),
    "orlop_queue_create": ("Engine::queue", "(asyncio's queue, one a loop)", "(the engine's poller thread)", "Engine::queue"),
    "orlop_queue_wait": ("Queue::wait", "(asyncio)", "(the engine's poller thread)", "Queue::wait"),
    "orlop_queue_fd": ("Queue::fd", "(asyncio)", "Engine.queueDescriptor", "(AsRawFd of Queue)"),
    "orlop_queue_release": ("(destructor of Queue)", "(with the loop)", "(with the engine)", "(drop of Queue)"),
    "orlop_state_save": ("Engine::save_state", "Engine.save_state", "Engine.saveState", "Engine::state_save"),
    "orlop_state_load": ("Engine::load_state", "Engine.load_state", "Engine.loadState", "Engine::state_load"),
    "orlop_tokenize": ("Engine::tokenize", "Engine.encode", "Engine.tokenize", "Engine::tokenize"),
    "orlop_detokenize": ("Engine::detokenize", "Engine.decode", "Engine.detokenize", "Engine::detokenize"),
    "orlop_chat_render": ("Engine::chat_render", "Engine.apply_chat_template", "Engine.chatRender", "Engine::chat_render"),
    "orlop_chat_tokenize": ("Engine::chat_tokenize", "Engine.apply_chat_template", "Engine.chatTokenize", "Engine::chat_tokenize"),
    "orlop_guide_check": ("guide_check", "orlop.guide_check", "Guide.check", "guide_check"),
    "orlop_chat_output_create": ("ChatOutput::create", "ChatOutput.__init__", "ChatOutput.of", "ChatOutput::new"),
    "orlop_chat_output_push": ("ChatOutput::push", "ChatOutput.push", "ChatOutput.push", "ChatOutput::push"),
    "orlop_chat_output_release": ("ChatOutput::close", "(with the object)", "ChatOutput.close", "(drop of ChatOutput)"),
}
LANGUAGES = ("C++", "Python", "Java", "Rust")
# Python loads without holding its lock and in pieces, so that Ctrl-C ends it.
INSTEAD = {("Python", "orlop_engine_create"): "orlop_engine_create_async"}


def texts(folder, pattern, but=()):
    return {f: f.read_text() for f in sorted(folder.rglob(pattern)) if f.name not in but}


def plain(text):
    """Code without its comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def functions(root):
    header = plain((root / "include/orlop/orlop.h").read_text())
    return re.findall(r"^ORLOP_API [^(;]*?(orlop_\w+)\(", header, re.M)


def sources(root):
    """language: (code that calls the header, the files of what users call)."""
    hpp = list(map(plain, texts(root / "include/orlop", "*.hpp").values()))
    extension = list(map(plain, [*texts(root / "python/src", "*.cc").values(), *texts(root / "python/src", "*.h").values()]))
    python = list(texts(root / "python/orlop", "_*.py").values())
    java = list(map(plain, texts(root / "bindings/java/src/main", "*.java", but=("Native.java",)).values()))
    rust = list(map(plain, texts(root / "bindings/rust/orlop/src", "*.rs").values()))
    return {language: ("\n".join(calls), public) for language, calls, public in
            [("C++", hpp, hpp), ("Python", extension, python), ("Java", java, java), ("Rust", rust, rust)]}


def called(language, function, code):
    function = INSTEAD.get((language, function), function)
    if language == "Java":  # Native has a method for each, under its name without the prefix
        first, *more = function.removeprefix("orlop_").split("_")
        return re.search(rf"\bNative\.{first}{''.join(w.capitalize() for w in more)}\(", code)
    return re.search(rf"\b{function}\b", code)


# How a language declares what users call.
DECLARED = {
    "C++": r"^ *(?:static |inline )*(?!return\b)[\w:<>]+ {0}\(|^(?:class|struct) {0}\b",
    "Python": r"^ *(?:async )?def {0}\(|^{0} =|^from \._native import .*\b{0}\b",
    "Java": r"^ *public (?:static )?[\w<>\[\]]+ {0}\(|\bclass {0}\b",
    "Rust": r"^ *pub fn {0}\b|^ *pub struct {0}\b",
}


def named(language, name, files):
    """The name is declared, a member in a file that has its class."""
    if name.startswith("("):
        return True
    owner, _, member = name.replace("::", ".").rpartition(".")
    if owner not in ("", "orlop", "log"):
        files = [f for f in files if re.search(rf"\b(?:class|struct|impl) {owner}\b", f)]
    return any(re.search(DECLARED[language].format(member), f, re.M) for f in files)


def faults(root):
    found, code = [], sources(root)
    header = functions(root)
    found += [f"{f}: has no names in {pathlib.Path(__file__).name}" for f in header if f not in NAMES]
    found += [f"{f}: is no function of orlop.h" for f in NAMES if f not in header]
    for function in header:
        for language, name in zip(LANGUAGES, NAMES.get(function, ())):
            calls, public = code[language]
            if not called(language, function, calls):
                found.append(f"{function}: {language} does not call it")
            if not named(language, name, public):
                found.append(f"{function}: {language} has no {name}")
    return found


def cell(name):
    return name[1:-1] if name.startswith("(") else f"`{name.replace('.__init__', '(…)')}`"


def document(root):
    rows = "\n".join(f"| `{f}` | {' | '.join(cell(n) for n in NAMES[f])} |" for f in functions(root))
    return f"""# What each language has

Made by `scripts/bindings_table.py` from the header and the bindings' sources; a test fails when a binding lacks a function. C programs call the functions of [orlop.h](../include/orlop/orlop.h) themselves; the {len(functions(root))} functions are reached so from C++ (namespace `orlop`), Python (package `orlop`), Java (package `io.orlop`) and Rust (crate `orlop`). What is not in code letters happens inside.

| C | {' | '.join(LANGUAGES)} |
|---|---|---|---|---|
{rows}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if the document is not current")
    args = parser.parse_args()
    if found := faults(args.root):
        sys.exit("\n".join(f"error: {f}" for f in found))
    path, made = args.root / "docs/bindings.md", document(args.root)
    if args.check:
        if not path.exists() or path.read_text() != made:
            sys.exit("error: docs/bindings.md is not current; run scripts/bindings_table.py")
        return
    path.write_text(made)


if __name__ == "__main__":
    main()
