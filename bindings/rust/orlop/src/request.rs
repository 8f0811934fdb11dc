use crate::error::call;
use crate::raw::micros;
use crate::{Completion, Error, Output, OutputRef, Result, Status};
use orlop_sys as ffi;
use std::sync::{Arc, Weak};
use std::time::Duration;

struct Handle(*mut ffi::orlop_request);
// SAFETY: cancel and status may come from any thread, release too; get is behind &mut Request.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}
impl Drop for Handle {
    fn drop(&mut self) {
        unsafe { ffi::orlop_request_release(self.0) }
    }
}

/// What a wait for output found.
#[derive(Debug)]
pub enum Got<'a> {
    /// New output.
    Output(OutputRef<'a>),
    /// Nothing within the timeout.
    Timeout,
    /// Everything was delivered already.
    End,
}

/// A request: an iterator over its output. Dropping it cancels it.
///
/// The iterator waits, and ends after the last output of every sample. A sample that failed (its deadline
/// passed, say) is an `Err`, after what it still had to give.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// # let engine = orlop::Engine::open(model)?;
/// let request = engine.generate(&orlop::Params::tokens([1, 2, 3]).max_tokens(5).ignore_eos(true))?;
/// let mut tokens = Vec::new();
/// for output in request {
///     tokens.extend(output?.tokens);
/// }
/// assert_eq!(tokens.len(), 5);
/// # Ok::<(), orlop::Error>(())
/// ```
///
/// It has one consumer at a time, and the compiler sees to it: to read takes `&mut`.
///
/// ```compile_fail,E0499
/// fn read_twice(request: &mut orlop::Request) {
///     std::thread::scope(|s| {
///         s.spawn(|| request.next());
///         s.spawn(|| request.next());
///     });
/// }
/// ```
///
/// An output borrowed from the library ends with the next get:
///
/// ```compile_fail,E0499
/// fn keep(request: &mut orlop::Request) -> orlop::Result<()> {
///     let first = request.get(None)?;
///     let second = request.get(None)?;
///     if let orlop::Got::Output(output) = first { println!("{}", output.text()) }
///     # let _ = second;
///     Ok(())
/// }
/// ```
///
/// So does its text, and with the request:
///
/// ```compile_fail,E0505
/// fn keep(mut request: orlop::Request) -> orlop::Result<()> {
///     let orlop::Got::Output(output) = request.get(None)? else { return Ok(()) };
///     let text: &str = output.text();
///     drop(request);
///     println!("{text}");
///     Ok(())
/// }
/// ```
///
/// What is closed cannot be used, nor closed again:
///
/// ```compile_fail,E0382
/// fn close_twice(request: orlop::Request) {
///     request.close();
///     request.close();
/// }
/// ```
pub struct Request {
    handle: Arc<Handle>,
    /// The error of a sample whose last output was just given.
    failed: Option<Error>,
}

impl Request {
    /// # Safety
    /// `raw` is a request's handle that nobody else releases.
    pub(crate) unsafe fn own(raw: *mut ffi::orlop_request) -> Request {
        Request { handle: Arc::new(Handle(raw)), failed: None }
    }

    /// Takes new output, waiting at most so long (None: for ever). The output lies in the library's
    /// memory and borrows the request; nothing is allocated.
    #[inline]
    pub fn get(&mut self, timeout: Option<Duration>) -> Result<Got<'_>> {
        self.get_us(micros(timeout))
    }

    /// Takes new output if there is any.
    #[inline]
    pub fn poll(&mut self) -> Result<Got<'_>> {
        self.get_us(0)
    }

    #[inline]
    fn get_us(&mut self, timeout_us: i64) -> Result<Got<'_>> {
        let mut raw: ffi::orlop_output = unsafe { std::mem::zeroed() };
        raw.struct_size = std::mem::size_of_val(&raw) as u32;
        let status = call(|err| unsafe { ffi::orlop_get(self.handle.0, timeout_us, &mut raw, err) })?;
        Ok(match status {
            ffi::ORLOP_OK => Got::Output(unsafe { OutputRef::new(raw) }),
            ffi::ORLOP_END => Got::End,
            _ => Got::Timeout,
        })
    }

    /// One item of the iterator, or nothing within the timeout: Some(None) is the end.
    pub(crate) fn item(&mut self, timeout_us: i64) -> Option<Option<Result<Output>>> {
        if let Some(error) = self.failed.take() {
            return Some(Some(Err(error)));
        }
        let mut output = match self.get_us(timeout_us) {
            Ok(Got::Output(output)) => output.to_output(),
            Ok(Got::End) => return Some(None),
            Ok(Got::Timeout) => return None,
            Err(error) => return Some(Some(Err(error))),
        };
        if let Some(error) = output.error.take() {
            if output.tokens.is_empty() && output.text.is_empty() && output.prompt_logprobs.is_empty() {
                return Some(Some(Err(error)));
            }
            output.finish = None;
            self.failed = Some(error);
        }
        Some(Some(Ok(output)))
    }

    /// Waits for the end and gives the whole output, all that was not taken yet. A sample that failed
    /// is an error.
    pub fn result(mut self) -> Result<Completion> {
        let mut whole = Completion::default();
        for output in self.by_ref() {
            whole.add(output?);
        }
        whole.status = self.status()?;
        Ok(whole)
    }

    /// Counts and times, at any moment, without waiting.
    pub fn status(&self) -> Result<Status> {
        let mut raw: ffi::orlop_request_info = unsafe { std::mem::zeroed() };
        raw.struct_size = std::mem::size_of_val(&raw) as u32;
        call(|err| unsafe { ffi::orlop_get_status(self.handle.0, &mut raw, err) })?;
        Ok(Status::of(&raw))
    }

    /// Ends the request within one step; its last output says so. Calling it again does nothing.
    pub fn cancel(&self) {
        unsafe { ffi::orlop_cancel(self.handle.0) }
    }

    /// What cancels the request from anywhere.
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::downgrade(&self.handle))
    }

    /// Cancels if unfinished, and frees: what dropping it does.
    pub fn close(self) {}
}

impl Iterator for Request {
    type Item = Result<Output>;
    fn next(&mut self) -> Option<Result<Output>> {
        self.item(-1).flatten()
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Request").field(&self.status()).finish()
    }
}

/// Cancels a request from any thread. It does not keep the request: once that is dropped it does nothing.
#[derive(Clone)]
pub struct Canceller(Weak<Handle>);

impl Canceller {
    /// As [`Request::cancel`].
    pub fn cancel(&self) {
        if let Some(handle) = self.0.upgrade() {
            unsafe { ffi::orlop_cancel(handle.0) }
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}
