//! The declarations against tests/build/abi.txt, the committed description of the C ABI.
use orlop_sys::*;
use std::fmt::Write;

const ABI: &str = include_str!("../../../../tests/build/abi.txt");
const DECLARATIONS: &str = include_str!("../src/lib.rs");

fn size_at<T>(_: *const T) -> usize {
    std::mem::size_of::<T>()
}

macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })*) => {{
        let mut text = String::new();
        $(
            writeln!(text, "struct {} size {}", stringify!($name), std::mem::size_of::<$name>()).unwrap();
            let value = std::mem::MaybeUninit::<$name>::uninit();
            let start = value.as_ptr();
            $(
                // Only addresses are taken; nothing is read.
                let field = unsafe { std::ptr::addr_of!((*start).$field) };
                let offset = field as usize - start as usize;
                writeln!(text, "  {} at {} size {}", stringify!($field), offset, size_at(field)).unwrap();
            )*
        )*
        text
    }};
}

macro_rules! constants {
    ($($name:ident)*) => { vec![$((stringify!($name), f64::from($name))),*] };
}

#[test]
fn structs_have_the_committed_layout() {
    let got = layouts! {
        orlop_error { struct_size, code, message }
        orlop_progress { struct_size, done, bytes_done, bytes_total }
        orlop_stats { struct_size, requests_running, requests_waiting, reserved, pages_total, pages_used, steps, prompt_tokens, generated_tokens, requests_finished, preemptions, step_ns_total, model_ns_total, pages_cached, pages_free, prefix_lookup_tokens, prefix_hit_tokens, host_pages_total, host_pages_used, host_pages_out, host_pages_in, requests_paused, prompt_tokens_per_s, generated_tokens_per_s, plan_ns_total, forward_ns_total, sample_ns_total, commit_ns_total, last_step_ns, pages_shared }
        orlop_string { data, len }
        orlop_logit_bias { token, bias }
        orlop_logprob { token, logprob }
        orlop_generate_params { struct_size, flags, text, text_len, tokens, n_tokens, messages, messages_len, max_tokens, min_tokens, temperature, top_p, min_p, top_k, n, repetition_penalty, presence_penalty, frequency_penalty, seed, logit_bias, n_logit_bias, stop, n_stop, stop_tokens, n_stop_tokens, logprobs, prompt_logprobs, queue, tag, cache_salt, cache_salt_len, deadline_us, priority, reserved, guide, embedding, guide_source, guide_source_len }
        orlop_output { struct_size, finish_reason, index, error_code, text, text_len, tokens, n_tokens, logprobs, top_logprobs, n_top, prompt_logprobs, prompt_top_logprobs, n_prompt, n_prompt_top, message, message_len, stop_token, stop_index, embedding, n_embedding }
        orlop_request_info { struct_size, state, finish_reason, error_code, prompt_tokens, cached_tokens, generated_tokens, seed, queued_ns, scheduled_ns, first_token_ns, last_token_ns, samples, reserved }
        orlop_state_params { struct_size, flags, text, text_len, tokens, n_tokens, messages, messages_len, cache_salt, cache_salt_len, key, key_len, path, path_len, deadline_us }
        orlop_state_info { struct_size, shared, n_tokens, pages, pages_added }
    };
    let committed: Vec<&str> =
        ABI.lines().filter(|l| l.starts_with("struct ") || l.starts_with("  ")).collect();
    assert!(committed.len() > 100);
    assert_eq!(got.lines().collect::<Vec<_>>(), committed);
}

#[test]
fn constants_have_the_committed_values() {
    let got = constants! {
        ORLOP_ABI_MAJOR ORLOP_ABI_MINOR ORLOP_OK ORLOP_TIMEOUT ORLOP_END ORLOP_E_INVALID_ARGUMENT ORLOP_E_NOT_FOUND ORLOP_E_IO ORLOP_E_BAD_FORMAT ORLOP_E_UNSUPPORTED ORLOP_E_OUT_OF_MEMORY ORLOP_E_CONTEXT_OVERFLOW ORLOP_E_BUSY ORLOP_E_QUEUE_FULL ORLOP_E_CANCELLED ORLOP_E_SHUTDOWN ORLOP_E_INTERNAL ORLOP_E_DEADLINE ORLOP_LOG_ERROR ORLOP_LOG_WARNING ORLOP_LOG_INFO ORLOP_LOG_DEBUG ORLOP_UNSET_F64 ORLOP_UNSET_I32 ORLOP_UNSET_U32 ORLOP_LOGPROBS_OFF ORLOP_LOGPROBS_ALL ORLOP_GENERATE_IGNORE_EOS ORLOP_GENERATE_SEEDED ORLOP_GENERATE_NO_BOS ORLOP_GENERATE_PLAIN ORLOP_GENERATE_KEEP_SPECIAL ORLOP_GUIDE_NONE ORLOP_GUIDE_JSON_OBJECT ORLOP_GUIDE_JSON_SCHEMA ORLOP_GUIDE_REGEX ORLOP_GUIDE_GRAMMAR ORLOP_GUIDE_CHOICE ORLOP_GUIDE_TOOLS ORLOP_EMBEDDING_NONE ORLOP_EMBEDDING_MEAN ORLOP_EMBEDDING_LAST ORLOP_FINISH_NONE ORLOP_FINISH_STOP ORLOP_FINISH_LENGTH ORLOP_FINISH_CANCELLED ORLOP_FINISH_ERROR ORLOP_STATE_WAITING ORLOP_STATE_RUNNING ORLOP_STATE_DONE ORLOP_STATE_CANCELLED ORLOP_STATE_FAILED ORLOP_TOKENIZE_ADD_SPECIAL ORLOP_TOKENIZE_PARSE_SPECIAL ORLOP_DETOKENIZE_SKIP_SPECIAL ORLOP_DETOKENIZE_BYTES
    };
    let committed: Vec<(&str, f64)> = ABI
        .lines()
        .filter(|l| l.starts_with("ORLOP_"))
        .map(|l| l.split_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    assert!(committed.len() > 50);
    assert_eq!(got, committed);
}

/// A C parameter or result type, as it is declared in Rust.
fn rust_type(c: &str) -> String {
    let (constant, rest) = match c.strip_prefix("const ") {
        Some(rest) => (true, rest),
        None => (false, c),
    };
    let base = rest.trim_end_matches('*').trim();
    let mut out = match base {
        "char" => "c_char",
        "void" => "c_void",
        "int32_t" => "i32",
        "uint32_t" => "u32",
        "int64_t" => "i64",
        "uint64_t" => "u64",
        "size_t" => "usize",
        "orlop_log_fn" => "Option<orlop_log_fn>",
        other => other,
    }
    .to_string();
    for level in 0..rest.matches('*').count() {
        out = format!("*{} {out}", if constant && level == 0 { "const" } else { "mut" });
    }
    out
}

/// "int32_t f(const char* a, size_t)" as ("f", ["*const c_char", "usize"], "i32").
fn parse_c(line: &str) -> (String, Vec<String>, String) {
    let (head, parameters) = line.trim_end_matches(')').split_once('(').unwrap();
    let (result, name) = head.rsplit_once(' ').unwrap();
    let types = parameters.split(", ").filter(|p| *p != "void").map(|p| match p.rsplit_once(' ') {
        // The last word is the parameter's name, unless it is the type's own.
        Some((kind, last)) if kind != "const" && !last.ends_with('*') => rust_type(kind),
        _ => rust_type(p),
    });
    let result = if result == "void" { String::new() } else { rust_type(result) };
    (name.to_string(), types.collect(), result)
}

/// The same of a declaration in src/lib.rs, white space already single.
fn parse_rust(declaration: &str) -> (String, Vec<String>, String) {
    let (name, rest) = declaration.split_once('(').unwrap();
    let (parameters, result) = rest.rsplit_once(')').unwrap();
    let types = parameters
        .split(", ")
        .filter_map(|p| p.split_once(": "))
        .map(|(_, t)| t.trim_matches([' ', ',']).to_string());
    (name.to_string(), types.collect(), result.trim().trim_start_matches("-> ").to_string())
}

#[test]
fn functions_have_the_committed_signatures() {
    let words = DECLARATIONS.split_whitespace().collect::<Vec<_>>().join(" ");
    let block = words.split_once("extern \"C\" { ").unwrap().1;
    let got: Vec<_> =
        block.split(';').filter_map(|d| d.trim().strip_prefix("pub fn ")).map(parse_rust).collect();
    let committed: Vec<_> = ABI
        .lines()
        .filter(|l| l.contains('(') && l.contains(" orlop_") && !l.starts_with("struct "))
        .map(parse_c)
        .collect();
    assert!(committed.len() > 30);
    assert_eq!(got, committed);
}

#[test]
fn the_library_speaks_this_abi() {
    let version = unsafe { orlop_abi_version() };
    assert_eq!(version >> 16, ORLOP_ABI_MAJOR);
    assert!(version & 0xffff >= ORLOP_ABI_MINOR);
}

#[test]
fn releasing_null_does_nothing() {
    use std::ptr::null_mut;
    unsafe {
        orlop_engine_release(null_mut());
        orlop_request_release(null_mut());
        orlop_queue_release(null_mut());
        orlop_buffer_release(null_mut());
        orlop_chat_output_release(null_mut());
        orlop_cancel(null_mut());
    }
}
