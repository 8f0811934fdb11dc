//! A finished request leaves nothing behind on the binding's side, nor does a poll allocate. Counted by the
//! allocator of this program, so these tests have a process of their own and run as one.
use orlop::{block_on, Engine, Got, Params};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicIsize, Ordering};

static BYTES: AtomicIsize = AtomicIsize::new(0);
static CALLS: AtomicIsize = AtomicIsize::new(0);

struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        System.dealloc(p, layout)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn engine() -> Engine {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data");
    let data = std::env::var_os("ORLOP_TEST_DATA").map_or_else(default, PathBuf::from);
    Engine::builder(data.join("tiny/llama")).threads(1).build().unwrap()
}

fn params(tokens: u32) -> Params {
    Params::tokens([1, 2, 3, 4]).max_tokens(tokens).temperature(0.0).ignore_eos(true)
}

fn requests(engine: &Engine, count: usize) {
    let queue = engine.queue().unwrap();
    let params = params(4);
    for i in 0..count {
        match i % 4 {
            0 => assert_eq!(engine.generate(&params).unwrap().result().unwrap().tokens().len(), 4),
            1 => assert_eq!(
                engine.generate(&params).unwrap().map(|o| o.unwrap().tokens.len()).sum::<usize>(),
                4
            ),
            2 => {
                let answer = engine.generate_async(&params).unwrap();
                assert_eq!(block_on(answer.result()).unwrap().tokens().len(), 4);
            }
            _ => {
                let mut request = engine.generate_on(&queue, 1, &params).unwrap();
                let _cancelled = engine.generate_async(&params).unwrap();
                while let Some(Ok(_)) = request.next() {}
            }
        }
    }
}

#[test]
fn a_finished_request_leaves_nothing() {
    let engine = engine();
    requests(&engine, 100); // the poller, and the room of its table
    let before = BYTES.load(Ordering::Relaxed);
    requests(&engine, 1000);
    // A waker may be on its way out in the poller's thread still: one of them is a few bytes.
    let left = BYTES.load(Ordering::Relaxed) - before;
    assert!(left < 200, "{left} bytes after 1000 requests");

    let mut request = engine.generate(&params(400)).unwrap();
    let before = CALLS.load(Ordering::Relaxed);
    let (mut tokens, mut polls) = (0, 0);
    loop {
        polls += 1;
        match request.poll().unwrap() {
            Got::Output(output) => tokens += output.tokens().len(),
            Got::Timeout => std::hint::spin_loop(),
            Got::End => break,
        }
    }
    assert_eq!((tokens, CALLS.load(Ordering::Relaxed) - before), (400, 0), "{polls} polls");
}
