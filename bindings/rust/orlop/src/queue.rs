use crate::error::call;
use crate::raw::micros;
use crate::Result;
use orlop_sys as ffi;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// A completion queue: one waiter for any number of requests ([`crate::Engine::queue`]).
///
/// A request made by [`crate::Engine::generate_on`] is listed once when it has new output, until that is
/// taken; then again when it has more. For an event loop: the descriptor is readable while the queue is
/// not empty.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// # let engine = orlop::Engine::open(model)?;
/// use orlop::{Got, Params};
/// let queue = engine.queue()?;
/// let mut requests = Vec::new();
/// for i in 0..4 {
///     let params = Params::tokens([i + 1, 2]).max_tokens(3).ignore_eos(true);
///     requests.push(engine.generate_on(&queue, i as u64, &params)?);
/// }
/// let (mut live, mut tokens) = (4, 0);
/// while live > 0 {
///     let Some(tag) = queue.wait(None)? else { continue };
///     while let Got::Output(output) = requests[tag as usize].poll()? {
///         tokens += output.tokens().len();
///         live -= usize::from(output.finish().is_some());
///     }
/// }
/// assert_eq!(tokens, 12);
/// # Ok::<(), orlop::Error>(())
/// ```
///
/// A descriptor lent by it does not outlive it:
///
/// ```compile_fail,E0505
/// use std::os::fd::AsFd;
/// fn keep(queue: orlop::Queue) {
///     let fd = queue.as_fd();
///     drop(queue);
///     println!("{fd:?}");
/// }
/// ```
pub struct Queue(*mut ffi::orlop_queue);

// SAFETY: a queue may be waited on and named by any thread; it is released when no one borrows it.
unsafe impl Send for Queue {}
unsafe impl Sync for Queue {}

impl Queue {
    /// # Safety
    /// `raw` is a queue's handle that nobody else releases.
    pub(crate) unsafe fn own(raw: *mut ffi::orlop_queue) -> Queue {
        Queue(raw)
    }

    pub(crate) fn raw(&self) -> *mut ffi::orlop_queue {
        self.0
    }

    /// The tag of a request with new output, waiting at most so long (None: for ever).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<u64>> {
        let mut tag = 0;
        let status = call(|err| unsafe { ffi::orlop_queue_wait(self.0, micros(timeout), &mut tag, err) })?;
        Ok((status == ffi::ORLOP_OK).then_some(tag))
    }
}

impl AsRawFd for Queue {
    /// For poll and epoll. The queue owns it; do not read from it.
    fn as_raw_fd(&self) -> RawFd {
        unsafe { ffi::orlop_queue_fd(self.0) }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the queue.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        unsafe { ffi::orlop_queue_release(self.0) }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue(fd {})", self.as_raw_fd())
    }
}
