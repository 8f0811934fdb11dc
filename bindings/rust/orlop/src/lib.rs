//! orlop: an LLM inference engine in your process.
//!
//! ```no_run
//! // no_run: it needs a model file.
//! use orlop::{Engine, Params};
//! use std::io::Write;
//!
//! let engine = Engine::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
//! for output in engine.generate(&Params::chat("Why is the sky blue?").max_tokens(100))? {
//!     print!("{}", output?.text);
//!     std::io::stdout().flush().unwrap();
//! }
//! # Ok::<(), orlop::Error>(())
//! ```
//!
//! **Threads.** Everything is `Send` and `Sync`. An [`Engine`] serves any number of threads at once; a
//! [`Request`] is read by one at a time, which `&mut` ensures, and cancelled from any ([`Canceller`]).
//!
//! ```
//! fn anywhere<T: Send + Sync + 'static>() {}
//! anywhere::<orlop::Engine>();
//! anywhere::<orlop::Request>();
//! anywhere::<orlop::AsyncRequest>();
//! anywhere::<orlop::Canceller>();
//! anywhere::<orlop::Queue>();
//! ```
//!
//! **Ownership.** Handles release themselves, in any order. A request that outlives the engine's last
//! clone still delivers its whole output.
//!
//! **Waiting.** Three ways: a [`Request`] blocks; a [`Queue`] serves an event loop of your own; an
//! [`AsyncRequest`] can be awaited and is a stream for any async runtime.
//!
//! **Features.** `static` links `liborlop.a`: one executable. `cuda` links only a library that was built
//! with CUDA and brings `EngineBuilder::cuda`; without it a GPU is had by `device("cuda")` all the same,
//! if the library has the backend.
//!
//! **The process.** The library never aborts, exits or prints, and is silent unless a sink is set
//! ([`log`]). After a fork an engine serves the parent only.
#![warn(missing_docs, missing_debug_implementations)]

mod chat_output;
mod engine;
mod error;
mod json;
mod kinds;
pub mod log;
mod output;
mod params;
mod poller;
mod queue;
mod raw;
mod request;
mod state;
mod status;
mod stream;

pub use chat_output::{ChatEvent, ChatOutput};
pub use engine::{inspect, Engine, EngineBuilder, Loading, Progress};
pub use error::{Error, Result};
pub use json::Value;
pub use kinds::{guide_check, Chat, Finish, Guide, GuideCheck, Logprobs, Pooling, State};
pub use output::{Completion, Logprob, Output, OutputRef, TopLogprobs};
pub use params::Params;
pub use queue::Queue;
pub use request::{Canceller, Got, Request};
pub use state::{StateInfo, StateParams};
pub use status::{Stats, Status};
pub use stream::{block_on, Answer, AsyncRequest, Next};

use orlop_sys as ffi;
use std::ffi::{CStr, CString};
use std::path::Path;

/// The library's version, such as "0.1.0".
pub fn version() -> &'static str {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(ffi::orlop_version()) }.to_str().unwrap_or_default()
}

/// The ABI that the linked library speaks: major and minor.
pub fn abi_version() -> (u32, u32) {
    let version = unsafe { ffi::orlop_abi_version() };
    (version >> 16, version & 0xffff)
}

/// Whether the linked library has a feature ("cuda", "avx2", "avx512", ...): 0 absent, else positive.
pub fn feature(name: &str) -> i64 {
    CString::new(name).map_or(0, |name| unsafe { ffi::orlop_feature(name.as_ptr()) })
}

/// The library takes paths in UTF-8.
fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::InvalidArgument(format!("path: {path:?} is not UTF-8")))
}
