//! The thread that wakes async requests: one an engine, asleep on its queue's descriptor.
use crate::{Engine, Error, Queue, Result};
use std::collections::HashMap;
use std::ffi::{c_int, c_short, c_ulong};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

const POLLIN: c_short = 1;

extern "C" {
    // POSIX; std links the C library that has it.
    fn poll(fds: *mut PollFd, n: c_ulong, timeout_ms: c_int) -> c_int;
}

/// Who waits for a tag. An entry lives as long as its request; None: nobody waits now.
#[derive(Default)]
struct Table {
    next_tag: u64,
    wakers: HashMap<u64, Option<Waker>>,
}

struct Shared {
    queue: Queue,
    table: Mutex<Table>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Wakes every request that the queue lists; false if the queue is of no more use.
    fn drain(&self) -> bool {
        loop {
            match self.queue.wait(Some(Duration::ZERO)) {
                Ok(Some(tag)) => {
                    // Woken outside the lock: a waker may poll or drop requests on the spot.
                    let waker = self.table().wakers.get_mut(&tag).and_then(Option::take);
                    // One that panics is its executor's fault, and must not stop all the others.
                    if let Some(waker) = waker {
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Held by the engine and by each of its async requests; the thread ends when the last one lets go.
pub(crate) struct Poller {
    shared: Arc<Shared>,
    /// Closing it is what the thread sees.
    _alive: UnixStream,
}

impl Poller {
    pub(crate) fn start(engine: &Engine) -> Result<Arc<Poller>> {
        let io = |e: std::io::Error| Error::Io(format!("async requests: {e}"));
        let shared = Arc::new(Shared { queue: engine.queue()?, table: Mutex::default() });
        let (alive, seen) = UnixStream::pair().map_err(io)?;
        let of_thread = shared.clone();
        std::thread::Builder::new()
            .name("orlop-poller".into())
            .spawn(move || run(&of_thread, &seen))
            .map_err(io)?;
        Ok(Arc::new(Poller { shared, _alive: alive }))
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.shared.queue
    }

    pub(crate) fn add(&self) -> u64 {
        let mut table = self.shared.table();
        let tag = table.next_tag;
        table.next_tag += 1;
        table.wakers.insert(tag, None);
        tag
    }

    /// From now on output of the tag wakes `waker`, once.
    pub(crate) fn watch(&self, tag: u64, waker: &Waker) {
        let mut table = self.shared.table();
        let place = table.wakers.entry(tag).or_default();
        let old = match place {
            Some(old) if old.will_wake(waker) => None,
            _ => place.replace(waker.clone()),
        };
        drop(table);
        drop(old); // dropping a waker may run anything
    }

    pub(crate) fn remove(&self, tag: u64) {
        let old = self.shared.table().wakers.remove(&tag);
        drop(old);
    }
}

fn run(shared: &Shared, alive: &UnixStream) {
    let fds = [shared.queue.as_raw_fd(), alive.as_raw_fd()];
    loop {
        let mut polled = fds.map(|fd| PollFd { fd, events: POLLIN, revents: 0 });
        // SAFETY: the array is of two and lives; a negative answer is an interruption, then both are 0.
        let n = unsafe { poll(polled.as_mut_ptr(), 2, -1) };
        if n < 0 {
            continue;
        }
        if polled[1].revents != 0 || (polled[0].revents != 0 && !shared.drain()) {
            return;
        }
    }
}
