use orlop_sys as ffi;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::addr_of_mut;

/// What went wrong: a variant for each code of the C ABI, with the library's message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A value, key or combination that is wrong; the message names it.
    InvalidArgument(String),
    /// A file or folder that is not there.
    NotFound(String),
    /// The system refused a file or a descriptor.
    Io(String),
    /// A file that is not what it should be.
    BadFormat(String),
    /// Right, but not by this library or on this machine.
    Unsupported(String),
    /// Memory ran out.
    OutOfMemory(String),
    /// The prompt does not fit the context; the message holds both counts.
    ContextOverflow(String),
    /// The handle is in use, or the engine still loads.
    Busy(String),
    /// More requests wait than `max_waiting`.
    QueueFull(String),
    /// Cancelled.
    Cancelled(String),
    /// The engine or queue is gone.
    Shutdown(String),
    /// A fault of the library.
    Internal(String),
    /// The request's deadline passed.
    Deadline(String),
    /// A code of a newer library.
    Other(i32, String),
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(code: i32, message: String) -> Error {
        match code {
            ffi::ORLOP_E_INVALID_ARGUMENT => Error::InvalidArgument(message),
            ffi::ORLOP_E_NOT_FOUND => Error::NotFound(message),
            ffi::ORLOP_E_IO => Error::Io(message),
            ffi::ORLOP_E_BAD_FORMAT => Error::BadFormat(message),
            ffi::ORLOP_E_UNSUPPORTED => Error::Unsupported(message),
            ffi::ORLOP_E_OUT_OF_MEMORY => Error::OutOfMemory(message),
            ffi::ORLOP_E_CONTEXT_OVERFLOW => Error::ContextOverflow(message),
            ffi::ORLOP_E_BUSY => Error::Busy(message),
            ffi::ORLOP_E_QUEUE_FULL => Error::QueueFull(message),
            ffi::ORLOP_E_CANCELLED => Error::Cancelled(message),
            ffi::ORLOP_E_SHUTDOWN => Error::Shutdown(message),
            ffi::ORLOP_E_INTERNAL => Error::Internal(message),
            ffi::ORLOP_E_DEADLINE => Error::Deadline(message),
            _ => Error::Other(code, message),
        }
    }

    fn parts(&self) -> (i32, &'static str, &str) {
        match self {
            Error::InvalidArgument(m) => (ffi::ORLOP_E_INVALID_ARGUMENT, "invalid argument", m),
            Error::NotFound(m) => (ffi::ORLOP_E_NOT_FOUND, "not found", m),
            Error::Io(m) => (ffi::ORLOP_E_IO, "input/output", m),
            Error::BadFormat(m) => (ffi::ORLOP_E_BAD_FORMAT, "bad format", m),
            Error::Unsupported(m) => (ffi::ORLOP_E_UNSUPPORTED, "unsupported", m),
            Error::OutOfMemory(m) => (ffi::ORLOP_E_OUT_OF_MEMORY, "out of memory", m),
            Error::ContextOverflow(m) => (ffi::ORLOP_E_CONTEXT_OVERFLOW, "context overflow", m),
            Error::Busy(m) => (ffi::ORLOP_E_BUSY, "busy", m),
            Error::QueueFull(m) => (ffi::ORLOP_E_QUEUE_FULL, "queue full", m),
            Error::Cancelled(m) => (ffi::ORLOP_E_CANCELLED, "cancelled", m),
            Error::Shutdown(m) => (ffi::ORLOP_E_SHUTDOWN, "shut down", m),
            Error::Internal(m) => (ffi::ORLOP_E_INTERNAL, "internal", m),
            Error::Deadline(m) => (ffi::ORLOP_E_DEADLINE, "deadline", m),
            Error::Other(code, m) => (*code, "error", m),
        }
    }

    /// The `ORLOP_E_` code, negative.
    pub fn code(&self) -> i32 {
        self.parts().0
    }

    /// What the library says: it names the file, field and value.
    pub fn message(&self) -> &str {
        self.parts().2
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, kind, message) = self.parts();
        write!(f, "{kind}: {message}")
    }
}

impl std::error::Error for Error {}

/// Makes a call that takes an `orlop_error`, and turns a negative status into an [`Error`].
#[inline]
pub(crate) fn call(f: impl FnOnce(*mut ffi::orlop_error) -> i32) -> Result<i32> {
    // Only the fields that the library reads are written: 504 bytes of text need not be cleared for a
    // call that succeeds.
    let mut raw = MaybeUninit::<ffi::orlop_error>::uninit();
    let p = raw.as_mut_ptr();
    unsafe {
        addr_of_mut!((*p).struct_size).write(std::mem::size_of::<ffi::orlop_error>() as u32);
        addr_of_mut!((*p).code).write(0);
        addr_of_mut!((*p).message).cast::<u8>().write(0);
    }
    let status = f(p);
    if status >= 0 {
        return Ok(status);
    }
    // SAFETY: the message is NUL-terminated, by us or by the library.
    let text = unsafe { CStr::from_ptr(addr_of_mut!((*p).message).cast()) };
    Err(Error::new(status, text.to_string_lossy().into_owned()))
}
