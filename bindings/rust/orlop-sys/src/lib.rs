//! Declarations of `orlop.h`, the C ABI 1.2 of orlop. Nothing here is safe: use the crate `orlop`.
//!
//! Names, order and meaning are the header's, which says what each parameter is; `tests/abi.rs` compares
//! sizes, offsets, constants and signatures with the committed description of the ABI.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};
use core::marker::{PhantomData, PhantomPinned};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _data: [u8; 0],
            _marker: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque! {
    /// A model, loaded or loading.
    orlop_engine;
    /// A request: one prompt, one or more samples.
    orlop_request;
    /// A completion queue.
    orlop_queue;
    /// Bytes owned by the library.
    orlop_buffer;
    /// A chat model's output, being taken apart.
    orlop_chat_output;
}

/// Receives one log line.
pub type orlop_log_fn = unsafe extern "C" fn(user: *mut c_void, level: i32, text: *const c_char, len: usize);

pub const ORLOP_ABI_MAJOR: u32 = 1;
pub const ORLOP_ABI_MINOR: u32 = 2;
pub const ORLOP_OK: i32 = 0;
pub const ORLOP_TIMEOUT: i32 = 1;
pub const ORLOP_END: i32 = 2;
pub const ORLOP_E_INVALID_ARGUMENT: i32 = -1;
pub const ORLOP_E_NOT_FOUND: i32 = -2;
pub const ORLOP_E_IO: i32 = -3;
pub const ORLOP_E_BAD_FORMAT: i32 = -4;
pub const ORLOP_E_UNSUPPORTED: i32 = -5;
pub const ORLOP_E_OUT_OF_MEMORY: i32 = -6;
pub const ORLOP_E_CONTEXT_OVERFLOW: i32 = -7;
pub const ORLOP_E_BUSY: i32 = -8;
pub const ORLOP_E_QUEUE_FULL: i32 = -9;
pub const ORLOP_E_CANCELLED: i32 = -10;
pub const ORLOP_E_SHUTDOWN: i32 = -11;
pub const ORLOP_E_INTERNAL: i32 = -12;
pub const ORLOP_E_DEADLINE: i32 = -13;
pub const ORLOP_LOG_ERROR: i32 = 1;
pub const ORLOP_LOG_WARNING: i32 = 2;
pub const ORLOP_LOG_INFO: i32 = 3;
pub const ORLOP_LOG_DEBUG: i32 = 4;
pub const ORLOP_UNSET_F64: f64 = -1.0e300;
pub const ORLOP_UNSET_I32: i32 = i32::MIN;
pub const ORLOP_UNSET_U32: u32 = u32::MAX;
pub const ORLOP_LOGPROBS_OFF: i32 = -2;
pub const ORLOP_LOGPROBS_ALL: i32 = -1;
pub const ORLOP_GENERATE_IGNORE_EOS: u32 = 1;
pub const ORLOP_GENERATE_SEEDED: u32 = 2;
pub const ORLOP_GENERATE_NO_BOS: u32 = 4;
pub const ORLOP_GENERATE_PLAIN: u32 = 8;
pub const ORLOP_GENERATE_KEEP_SPECIAL: u32 = 16;
pub const ORLOP_GUIDE_NONE: i32 = 0;
pub const ORLOP_GUIDE_JSON_OBJECT: i32 = 1;
pub const ORLOP_GUIDE_JSON_SCHEMA: i32 = 2;
pub const ORLOP_GUIDE_REGEX: i32 = 3;
pub const ORLOP_GUIDE_GRAMMAR: i32 = 4;
pub const ORLOP_GUIDE_CHOICE: i32 = 5;
pub const ORLOP_GUIDE_TOOLS: i32 = 6;
pub const ORLOP_EMBEDDING_NONE: i32 = 0;
pub const ORLOP_EMBEDDING_MEAN: i32 = 1;
pub const ORLOP_EMBEDDING_LAST: i32 = 2;
pub const ORLOP_FINISH_NONE: i32 = 0;
pub const ORLOP_FINISH_STOP: i32 = 1;
pub const ORLOP_FINISH_LENGTH: i32 = 2;
pub const ORLOP_FINISH_CANCELLED: i32 = 3;
pub const ORLOP_FINISH_ERROR: i32 = 4;
pub const ORLOP_STATE_WAITING: i32 = 0;
pub const ORLOP_STATE_RUNNING: i32 = 1;
pub const ORLOP_STATE_DONE: i32 = 2;
pub const ORLOP_STATE_CANCELLED: i32 = 3;
pub const ORLOP_STATE_FAILED: i32 = 4;
pub const ORLOP_TOKENIZE_ADD_SPECIAL: u32 = 1;
pub const ORLOP_TOKENIZE_PARSE_SPECIAL: u32 = 2;
pub const ORLOP_DETOKENIZE_SKIP_SPECIAL: u32 = 1;
pub const ORLOP_DETOKENIZE_BYTES: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_error {
    pub struct_size: u32,
    pub code: i32,
    pub message: [c_char; 504],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_progress {
    pub struct_size: u32,
    pub done: u32,
    pub bytes_done: u64,
    pub bytes_total: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_stats {
    pub struct_size: u32,
    pub requests_running: u32,
    pub requests_waiting: u32,
    pub reserved: u32,
    pub pages_total: u64,
    pub pages_used: u64,
    pub steps: u64,
    pub prompt_tokens: u64,
    pub generated_tokens: u64,
    pub requests_finished: u64,
    pub preemptions: u64,
    pub step_ns_total: u64,
    pub model_ns_total: u64,
    pub pages_cached: u64,
    pub pages_free: u64,
    pub prefix_lookup_tokens: u64,
    pub prefix_hit_tokens: u64,
    pub host_pages_total: u64,
    pub host_pages_used: u64,
    pub host_pages_out: u64,
    pub host_pages_in: u64,
    pub requests_paused: u64,
    pub prompt_tokens_per_s: f64,
    pub generated_tokens_per_s: f64,
    pub plan_ns_total: u64,
    pub forward_ns_total: u64,
    pub sample_ns_total: u64,
    pub commit_ns_total: u64,
    pub last_step_ns: u64,
    pub pages_shared: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_string {
    pub data: *const c_char,
    pub len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_logit_bias {
    pub token: i32,
    pub bias: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_logprob {
    pub token: i32,
    pub logprob: f32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_generate_params {
    pub struct_size: u32,
    pub flags: u32,
    pub text: *const c_char,
    pub text_len: u64,
    pub tokens: *const i32,
    pub n_tokens: u64,
    pub messages: *const c_char,
    pub messages_len: u64,
    pub max_tokens: u32,
    pub min_tokens: u32,
    pub temperature: f64,
    pub top_p: f64,
    pub min_p: f64,
    pub top_k: i32,
    pub n: u32,
    pub repetition_penalty: f64,
    pub presence_penalty: f64,
    pub frequency_penalty: f64,
    pub seed: u64,
    pub logit_bias: *const orlop_logit_bias,
    pub n_logit_bias: u64,
    pub stop: *const orlop_string,
    pub n_stop: u64,
    pub stop_tokens: *const i32,
    pub n_stop_tokens: u64,
    pub logprobs: i32,
    pub prompt_logprobs: i32,
    pub queue: *mut orlop_queue,
    pub tag: u64,
    pub cache_salt: *const c_char,
    pub cache_salt_len: u64,
    pub deadline_us: i64,
    pub priority: i32,
    pub reserved: u32,
    pub guide: i32,
    pub embedding: i32,
    pub guide_source: *const c_char,
    pub guide_source_len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_output {
    pub struct_size: u32,
    pub finish_reason: i32,
    pub index: u32,
    pub error_code: i32,
    pub text: *const c_char,
    pub text_len: u64,
    pub tokens: *const i32,
    pub n_tokens: u64,
    pub logprobs: *const f32,
    pub top_logprobs: *const orlop_logprob,
    pub n_top: u64,
    pub prompt_logprobs: *const f32,
    pub prompt_top_logprobs: *const orlop_logprob,
    pub n_prompt: u64,
    pub n_prompt_top: u64,
    pub message: *const c_char,
    pub message_len: u64,
    pub stop_token: i32,
    pub stop_index: i32,
    pub embedding: *const f32,
    pub n_embedding: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_request_info {
    pub struct_size: u32,
    pub state: i32,
    pub finish_reason: i32,
    pub error_code: i32,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub generated_tokens: u64,
    pub seed: u64,
    pub queued_ns: i64,
    pub scheduled_ns: i64,
    pub first_token_ns: i64,
    pub last_token_ns: i64,
    pub samples: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_state_params {
    pub struct_size: u32,
    pub flags: u32,
    pub text: *const c_char,
    pub text_len: u64,
    pub tokens: *const i32,
    pub n_tokens: u64,
    pub messages: *const c_char,
    pub messages_len: u64,
    pub cache_salt: *const c_char,
    pub cache_salt_len: u64,
    pub key: *const c_void,
    pub key_len: u64,
    pub path: *const c_char,
    pub path_len: u64,
    pub deadline_us: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_state_info {
    pub struct_size: u32,
    pub shared: u32,
    pub n_tokens: u64,
    pub pages: u64,
    pub pages_added: u64,
}

extern "C" {
    pub fn orlop_abi_version() -> u32;
    pub fn orlop_version() -> *const c_char;
    pub fn orlop_feature(name: *const c_char) -> i64;
    pub fn orlop_log_set(sink: Option<orlop_log_fn>, user: *mut c_void, level: i32);
    pub fn orlop_buffer_data(buffer: *const orlop_buffer, n: *mut usize) -> *const c_void;
    pub fn orlop_buffer_release(buffer: *mut orlop_buffer);
    pub fn orlop_engine_create(
        json: *const c_char,
        len: usize,
        out: *mut *mut orlop_engine,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_engine_create_async(
        json: *const c_char,
        len: usize,
        out: *mut *mut orlop_engine,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_engine_wait(
        engine: *mut orlop_engine,
        timeout_us: i64,
        progress: *mut orlop_progress,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_engine_release(engine: *mut orlop_engine);
    pub fn orlop_inspect(
        path: *const c_char,
        len: usize,
        json: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_engine_info(
        engine: *mut orlop_engine,
        json: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_engine_stats(engine: *mut orlop_engine, out: *mut orlop_stats, err: *mut orlop_error)
        -> i32;
    pub fn orlop_generate_params_init(params: *mut orlop_generate_params, size: u32);
    pub fn orlop_async_generate(
        engine: *mut orlop_engine,
        params: *const orlop_generate_params,
        out: *mut *mut orlop_request,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_get(
        request: *mut orlop_request,
        timeout_us: i64,
        out: *mut orlop_output,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_get_status(
        request: *const orlop_request,
        out: *mut orlop_request_info,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_cancel(request: *mut orlop_request);
    pub fn orlop_request_release(request: *mut orlop_request);
    pub fn orlop_queue_create(
        engine: *mut orlop_engine,
        out: *mut *mut orlop_queue,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_queue_wait(
        queue: *mut orlop_queue,
        timeout_us: i64,
        tag: *mut u64,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_queue_fd(queue: *const orlop_queue) -> i32;
    pub fn orlop_queue_release(queue: *mut orlop_queue);
    pub fn orlop_state_save(
        engine: *mut orlop_engine,
        params: *const orlop_state_params,
        out: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_state_load(
        engine: *mut orlop_engine,
        data: *const c_void,
        len: usize,
        params: *const orlop_state_params,
        info: *mut orlop_state_info,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_tokenize(
        engine: *mut orlop_engine,
        text: *const c_char,
        len: usize,
        flags: u32,
        ids: *mut i32,
        cap: usize,
        n: *mut usize,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_detokenize(
        engine: *mut orlop_engine,
        ids: *const i32,
        n: usize,
        flags: u32,
        text: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_chat_render(
        engine: *mut orlop_engine,
        json: *const c_char,
        len: usize,
        text: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_chat_tokenize(
        engine: *mut orlop_engine,
        json: *const c_char,
        len: usize,
        ids: *mut i32,
        cap: usize,
        n: *mut usize,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_guide_check(
        guide: i32,
        source: *const c_char,
        source_len: usize,
        text: *const c_char,
        len: usize,
        accepted: *mut u64,
        complete: *mut i32,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_chat_output_create(
        engine: *mut orlop_engine,
        json: *const c_char,
        len: usize,
        out: *mut *mut orlop_chat_output,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_chat_output_push(
        output: *mut orlop_chat_output,
        text: *const c_char,
        len: usize,
        last: i32,
        events: *mut *mut orlop_buffer,
        err: *mut orlop_error,
    ) -> i32;
    pub fn orlop_chat_output_release(output: *mut orlop_chat_output);
}
