//! Where the library's messages go: nowhere, unless a sink is set.
use crate::{Error, Result};
use orlop_sys as ffi;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;
use std::sync::Mutex;

/// How much a message matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub enum Level {
    /// Something failed.
    Error = ffi::ORLOP_LOG_ERROR,
    /// Something is not as it should be.
    Warning = ffi::ORLOP_LOG_WARNING,
    /// What was chosen and done.
    Info = ffi::ORLOP_LOG_INFO,
    /// Details.
    Debug = ffi::ORLOP_LOG_DEBUG,
}

impl Level {
    fn from_code(code: i32) -> Level {
        match code {
            ffi::ORLOP_LOG_ERROR => Level::Error,
            ffi::ORLOP_LOG_WARNING => Level::Warning,
            ffi::ORLOP_LOG_INFO => Level::Info,
            _ => Level::Debug,
        }
    }
}

type Sink = Box<dyn Fn(Level, &str) + Send + Sync>;

/// The sink in use. Behind two boxes: the outer one's address is what C is given.
static CURRENT: Mutex<Option<Box<Sink>>> = Mutex::new(None);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn receive(user: *mut c_void, level: i32, text: *const c_char, len: usize) {
    // SAFETY: `user` is the sink given with this function; it is freed after log_set has ended its use.
    let sink = &*user.cast::<Sink>();
    let line = String::from_utf8_lossy(crate::raw::slice(text.cast::<u8>(), len as u64));
    let before = INSIDE.with(|inside| inside.replace(true));
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| sink(Level::from_code(level), &line))) {
        // The panic ends here; its payload may panic too when it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    }
    INSIDE.with(|inside| inside.set(before));
}

fn replace(sink: Option<Box<Sink>>, level: i32) -> Result<()> {
    if INSIDE.with(Cell::get) {
        return Err(Error::Busy("log: a sink cannot set the sink".into()));
    }
    let mut current = CURRENT.lock().unwrap_or_else(|e| e.into_inner());
    let (function, user): (Option<ffi::orlop_log_fn>, *mut c_void) = match &sink {
        Some(sink) => (Some(receive), (&**sink as *const Sink).cast_mut().cast()),
        None => (None, null_mut()),
    };
    // When it returns the former sink is not running and will not be called again.
    unsafe { ffi::orlop_log_set(function, user, level) };
    let former = std::mem::replace(&mut *current, sink);
    drop(current);
    drop(former);
    Ok(())
}

/// Sends messages up to `level` to `sink`, whole lines without the newline. It may be called from any
/// thread, also concurrently, and may use the library; a panic in it is caught. From inside a sink the
/// answer is [`Error::Busy`].
///
/// ```
/// use orlop::log;
/// log::set(log::Level::Info, |level, line| eprintln!("{level:?}: {line}"))?;
/// log::clear()?;
/// # Ok::<(), orlop::Error>(())
/// ```
pub fn set(level: Level, sink: impl Fn(Level, &str) + Send + Sync + 'static) -> Result<()> {
    replace(Some(Box::new(Box::new(sink))), level as i32)
}

/// Silences the library. The former sink is not running any more when this returns.
pub fn clear() -> Result<()> {
    replace(None, 0)
}
