//! What every call needs: durations, views of the library's memory, buffers.
use orlop_sys as ffi;
use std::time::Duration;

/// None: for ever.
pub(crate) fn micros(timeout: Option<Duration>) -> i64 {
    timeout.map_or(-1, |d| {
        // A wait that is not zero stays one.
        let us = d.as_micros() + u128::from(d.subsec_nanos() % 1000 != 0);
        us.min(i64::MAX as u128) as i64
    })
}

/// # Safety
/// `p` points to `n` values that live and do not change for `'a`, or `n` is 0 or `p` NULL.
pub(crate) unsafe fn slice<'a, T>(p: *const T, n: u64) -> &'a [T] {
    if p.is_null() || n == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(p, n as usize)
    }
}

/// # Safety
/// As [`slice`]. The library promises UTF-8; soundness does not hang on it: what is not ends the text.
pub(crate) unsafe fn text<'a>(p: *const std::ffi::c_char, n: u64) -> &'a str {
    let bytes = slice(p.cast::<u8>(), n);
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8_unchecked(&bytes[..e.valid_up_to()]),
    }
}

/// NULL for what is not given.
pub(crate) fn pointer<T>(v: &[T]) -> *const T {
    if v.is_empty() {
        std::ptr::null()
    } else {
        v.as_ptr()
    }
}

/// An `orlop_buffer`, released when dropped.
pub(crate) struct Buffer(*mut ffi::orlop_buffer);

impl Buffer {
    pub(crate) fn none() -> Buffer {
        Buffer(std::ptr::null_mut())
    }

    pub(crate) fn out(&mut self) -> *mut *mut ffi::orlop_buffer {
        &mut self.0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let mut n = 0usize;
        unsafe {
            let data = ffi::orlop_buffer_data(self.0, &mut n);
            slice(data.cast::<u8>(), n as u64)
        }
    }

    pub(crate) fn to_text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        unsafe { ffi::orlop_buffer_release(self.0) }
    }
}
