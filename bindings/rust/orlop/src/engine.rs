use crate::error::call;
use crate::poller::Poller;
use crate::raw::{micros, Buffer};
use crate::{AsyncRequest, Chat, Error, Params, Queue, Request, Result, Stats, Value};
use orlop_sys as ffi;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The C handle.
pub(crate) struct Handle(*mut ffi::orlop_engine);
// SAFETY: an engine may be used from any number of threads at once (orlop.h).
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}
impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { ffi::orlop_engine_release(self.0) }
    }
}

struct Inner {
    handle: Handle,
    /// Started by the first asynchronous request.
    poller: Mutex<Option<Arc<Poller>>>,
}

/// A loaded model. Clones share it; any thread may use it. The last clone gives the handle up; requests
/// that still live keep the model running until they end or are dropped.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// use orlop::{Engine, Params};
/// let engine = Engine::builder(model).threads(2).build()?;
/// let answer = engine.generate(&Params::tokens([5, 6, 7]).max_tokens(8).ignore_eos(true))?.result()?;
/// assert_eq!(answer.tokens().len(), 8);
/// # Ok::<(), orlop::Error>(())
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

fn check_abi() -> Result<()> {
    let version = unsafe { ffi::orlop_abi_version() };
    let (major, minor) = (version >> 16, version & 0xffff);
    if major == ffi::ORLOP_ABI_MAJOR && minor >= ffi::ORLOP_ABI_MINOR {
        return Ok(());
    }
    let (need, than) = (ffi::ORLOP_ABI_MAJOR, ffi::ORLOP_ABI_MINOR);
    Err(Error::Unsupported(format!("liborlop speaks ABI {major}.{minor}; {need}.{than} is needed")))
}

impl Engine {
    /// Loads a checkpoint folder or a .gguf file with the defaults.
    pub fn open(model: impl AsRef<Path>) -> Result<Engine> {
        Engine::builder(model).build()
    }

    /// Configures what is not to be the default.
    pub fn builder(model: impl AsRef<Path>) -> EngineBuilder {
        EngineBuilder::new(model.as_ref())
    }

    /// Loads by a JSON object: docs/configuration.md lists the keys. An unknown key is refused, with the
    /// nearest known one named.
    pub fn from_json(json: &str) -> Result<Engine> {
        check_abi()?;
        let mut out = null_mut();
        call(|err| unsafe { ffi::orlop_engine_create(json.as_ptr().cast(), json.len(), &mut out, err) })?;
        Ok(Engine::own(Handle(out)))
    }

    /// Checks the configuration and starts loading on a thread of the library.
    pub fn load_json(json: &str) -> Result<Loading> {
        check_abi()?;
        let mut out = null_mut();
        call(|err| unsafe {
            ffi::orlop_engine_create_async(json.as_ptr().cast(), json.len(), &mut out, err)
        })?;
        Ok(Loading(Handle(out)))
    }

    fn own(handle: Handle) -> Engine {
        Engine(Arc::new(Inner { handle, poller: Mutex::new(None) }))
    }

    pub(crate) fn raw(&self) -> *mut ffi::orlop_engine {
        self.0.handle.0
    }

    fn submit(&self, params: &Params, queue: *mut ffi::orlop_queue, tag: u64) -> Result<Request> {
        let mut out = null_mut();
        params.with_raw(queue, tag, |raw| {
            call(|err| unsafe { ffi::orlop_async_generate(self.raw(), raw, &mut out, err) })
        })?;
        Ok(unsafe { Request::own(out) })
    }

    /// Hands a request to the engine. Never waits for the model.
    pub fn generate(&self, params: &Params) -> Result<Request> {
        self.submit(params, null_mut(), 0)
    }

    /// As [`Engine::generate`]; `queue` is told `tag` when there is new output.
    pub fn generate_on(&self, queue: &Queue, tag: u64, params: &Params) -> Result<Request> {
        self.submit(params, queue.raw(), tag)
    }

    /// As [`Engine::generate`], for async code of any runtime. All such requests of an engine share one
    /// thread, which sleeps until the library has something for them.
    pub fn generate_async(&self, params: &Params) -> Result<AsyncRequest> {
        let poller = {
            let mut started = self.0.poller.lock().unwrap_or_else(|e| e.into_inner());
            match &*started {
                Some(poller) => poller.clone(),
                None => started.insert(Poller::start(self)?).clone(),
            }
        };
        AsyncRequest::submit(poller, |queue, tag| self.generate_on(queue, tag, params))
    }

    /// A completion queue: one waiter for any number of requests.
    pub fn queue(&self) -> Result<Queue> {
        let mut out = null_mut();
        call(|err| unsafe { ffi::orlop_queue_create(self.raw(), &mut out, err) })?;
        Ok(unsafe { Queue::own(out) })
    }

    fn buffer(
        &self,
        f: impl FnOnce(*mut ffi::orlop_engine, *mut *mut ffi::orlop_buffer, *mut ffi::orlop_error) -> i32,
    ) -> Result<Buffer> {
        let mut out = Buffer::none();
        let place = out.out();
        call(|err| f(self.raw(), place, err))?;
        Ok(out)
    }

    /// Model, limits, chosen kernels, threads, bytes and defaults.
    pub fn info(&self) -> Result<Value> {
        self.buffer(|e, out, err| unsafe { ffi::orlop_engine_info(e, out, err) })?.to_text().parse()
    }

    /// Counters, cheap.
    pub fn stats(&self) -> Result<Stats> {
        let mut raw: ffi::orlop_stats = unsafe { std::mem::zeroed() };
        raw.struct_size = std::mem::size_of_val(&raw) as u32;
        call(|err| unsafe { ffi::orlop_engine_stats(self.raw(), &mut raw, err) })?;
        Ok(Stats::of(&raw))
    }

    /// The ids of a text. `special`: BOS and EOS as the model's tokenizer adds them, and control tokens
    /// that the text spells become themselves.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<i32>> {
        let both = ffi::ORLOP_TOKENIZE_ADD_SPECIAL | ffi::ORLOP_TOKENIZE_PARSE_SPECIAL;
        self.tokenize_flags(text, if special { both } else { 0 })
    }

    /// The ids of a text, by `ORLOP_TOKENIZE_` bits.
    pub fn tokenize_flags(&self, text: &str, flags: u32) -> Result<Vec<i32>> {
        ids(text.len() / 3 + 16, |ids, cap, n, err| unsafe {
            ffi::orlop_tokenize(self.raw(), text.as_ptr().cast(), text.len(), flags, ids, cap, n, err)
        })
    }

    /// The text of ids. `skip_special`: without control tokens.
    pub fn detokenize(&self, ids: &[i32], skip_special: bool) -> Result<String> {
        let flags = if skip_special { ffi::ORLOP_DETOKENIZE_SKIP_SPECIAL } else { 0 };
        Ok(self.detokenize_flags(ids, flags)?.to_text())
    }

    /// Each token's own bytes, joined; they need not be UTF-8.
    pub fn token_bytes(&self, ids: &[i32]) -> Result<Vec<u8>> {
        Ok(self.detokenize_flags(ids, ffi::ORLOP_DETOKENIZE_BYTES)?.bytes().to_vec())
    }

    fn detokenize_flags(&self, ids: &[i32], flags: u32) -> Result<Buffer> {
        self.buffer(|e, out, err| unsafe {
            ffi::orlop_detokenize(e, ids.as_ptr(), ids.len(), flags, out, err)
        })
    }

    /// A conversation as the model's template renders it.
    pub fn chat_render(&self, chat: impl Into<Chat>) -> Result<String> {
        let json = chat.into().to_json();
        let text = self.buffer(|e, out, err| unsafe {
            ffi::orlop_chat_render(e, json.as_ptr().cast(), json.len(), out, err)
        })?;
        Ok(text.to_text())
    }

    /// The ids that a request with this conversation would start from.
    pub fn chat_tokenize(&self, chat: impl Into<Chat>) -> Result<Vec<i32>> {
        let json = chat.into().to_json();
        ids(json.len() / 3 + 64, |ids, cap, n, err| unsafe {
            ffi::orlop_chat_tokenize(self.raw(), json.as_ptr().cast(), json.len(), ids, cap, n, err)
        })
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:p})", self.raw())
    }
}

/// Calls `f` with room for `guess` ids, and again if there are more.
fn ids(
    guess: usize,
    f: impl Fn(*mut i32, usize, *mut usize, *mut ffi::orlop_error) -> i32,
) -> Result<Vec<i32>> {
    let mut out = vec![0; guess];
    loop {
        let mut n = 0;
        call(|err| f(out.as_mut_ptr(), out.len(), &mut n, err))?;
        let enough = n <= out.len();
        out.resize(n, 0);
        if enough {
            return Ok(out);
        }
    }
}

/// What a model file or folder holds (tensors, formats, bytes, configuration, tokenizer, chat template);
/// no weight is loaded.
pub fn inspect(path: impl AsRef<Path>) -> Result<Value> {
    let path = crate::path_text(path.as_ref())?;
    let mut out = Buffer::none();
    let place = out.out();
    call(|err| unsafe { ffi::orlop_inspect(path.as_ptr().cast(), path.len(), place, err) })?;
    out.to_text().parse()
}

/// How far a load has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// It ended: the engine is ready.
    pub done: bool,
    /// Weight bytes read and packed so far.
    pub bytes_done: u64,
    /// Of so many; 0 until known.
    pub bytes_total: u64,
}

/// An engine that loads. Dropping it cancels the load.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// use std::time::Duration;
/// let loading = orlop::Engine::builder(model).start()?;
/// loop {
///     let progress = loading.wait(Some(Duration::from_millis(20)))?;
///     println!("{} of {} bytes", progress.bytes_done, progress.bytes_total);
///     if progress.done { break }
/// }
/// let engine = loading.engine()?;
/// # let _ = engine;
/// # Ok::<(), orlop::Error>(())
/// ```
pub struct Loading(Handle);

impl Loading {
    /// Waits for the end of the load, at most so long (None: for ever). An error is why it failed.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Progress> {
        let mut p: ffi::orlop_progress = unsafe { std::mem::zeroed() };
        p.struct_size = std::mem::size_of_val(&p) as u32;
        let status = call(|err| unsafe { ffi::orlop_engine_wait(self.0 .0, micros(timeout), &mut p, err) })?;
        let done = status == ffi::ORLOP_OK;
        Ok(Progress { done, bytes_done: p.bytes_done, bytes_total: p.bytes_total })
    }

    /// Waits for the end of the load.
    pub fn engine(self) -> Result<Engine> {
        self.wait(None)?;
        Ok(Engine::own(self.0))
    }
}

impl std::fmt::Debug for Loading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loading")
    }
}

/// An engine's configuration: docs/configuration.md says what each key means and may be.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    members: Vec<(String, Value)>,
    wrong: Option<Error>,
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(self, value: $kind) -> EngineBuilder {
            self.set(stringify!($name), value)
        }
    )*};
}

impl EngineBuilder {
    fn new(model: &Path) -> EngineBuilder {
        let (model, wrong) = match crate::path_text(model) {
            Ok(path) => (path, None),
            Err(error) => ("", Some(error)),
        };
        EngineBuilder { members: vec![("model".into(), model.into())], wrong }
    }

    /// Sets any key.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> EngineBuilder {
        self.members.retain(|(name, _)| name != key);
        self.members.push((key.into(), value.into()));
        self
    }

    /// The model runs on the GPU: the device "cuda". Needs the crate's feature `cuda`, with which only a
    /// library that was built for GPUs is linked; on a machine without one, loading fails and says why.
    #[cfg(feature = "cuda")]
    pub fn cuda(self) -> EngineBuilder {
        self.device("cuda")
    }

    keys! {
        /// Where the model runs: "cpu", "cuda".
        device: &str;
        /// Compute threads; 0: from the machine.
        threads: u32;
        /// "auto", "fp32", "bf16", "int8" or "a8".
        compute: &str;
        /// How float weights are quantized while they load: "none", "iq", "a8w8", ...
        quant: &str;
        /// "auto", "bf16", "fp16", "fp32", "int8" or "uint4".
        kv_dtype: &str;
        /// "mmap" or "read".
        load: &str;
        /// Tokens a KV page.
        block_size: u32;
        /// Bytes of the KV cache.
        kv_bytes: u64;
        /// Tokens of one sequence, prompt and output.
        max_context: u32;
        /// Sequences that hold pages at once.
        max_running_seqs: u32;
        /// Sequences that may wait for their first step.
        max_waiting: u32;
        /// Tokens that one step computes at most.
        step_tokens: u32;
        /// "fair" or "fcfs".
        scheduling: &str;
        /// Whether computed prefixes are kept for other requests.
        enable_prefix_cache: bool;
        /// Whether the tables that guides need are made while the model loads.
        enable_guided_decoding: bool;
    }

    /// The configuration as JSON.
    pub fn to_json(&self) -> String {
        Value::Object(self.members.clone()).to_string()
    }

    /// Loads; returns when the model is ready.
    pub fn build(self) -> Result<Engine> {
        self.wrong.clone().map_or(Ok(()), Err)?;
        Engine::from_json(&self.to_json())
    }

    /// Starts loading on a thread of the library.
    pub fn start(self) -> Result<Loading> {
        self.wrong.clone().map_or(Ok(()), Err)?;
        Engine::load_json(&self.to_json())
    }
}
