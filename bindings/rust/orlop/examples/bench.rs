//! bench TINY_MODEL_DIR REQUESTS TOKENS POLLS: what the binding costs, as one line of JSON.
//!
//! Up to 64 requests in flight through one completion queue, two threads, prompts of four tokens; polls
//! that find nothing; and the bytes of the C allocator that a finished request leaves behind.
use orlop::{Engine, Got, Params, Queue, Request, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 64;

/// glibc's struct mallinfo2.
#[repr(C)]
struct MallInfo {
    before: [usize; 7],
    uordblks: usize, // bytes in use
    after: [usize; 2],
}

#[cfg(target_env = "gnu")]
fn bytes_in_use() -> f64 {
    extern "C" {
        fn mallinfo2() -> MallInfo;
    }
    // SAFETY: it takes nothing and answers by value.
    unsafe { mallinfo2() }.uordblks as f64
}

fn start(engine: &Engine, queue: &Queue, i: usize, tokens: u32) -> Result<Request> {
    let i32s = [1 + (i % 100) as i32, 2, 3, 4];
    let params = Params::tokens(i32s).max_tokens(tokens).temperature(0.0).ignore_eos(true);
    engine.generate_on(queue, i as u64, &params)
}

/// Requests a second.
fn batch(engine: &Engine, queue: &Queue, requests: usize, tokens: u32) -> Result<f64> {
    let begin = Instant::now();
    let mut live: HashMap<u64, Request> = HashMap::new();
    let (mut started, mut count) = (0, 0);
    while started < requests || !live.is_empty() {
        while started < requests && live.len() < IN_FLIGHT {
            live.insert(started as u64, start(engine, queue, started, tokens)?);
            started += 1;
        }
        let Some(tag) = queue.wait(None)? else { continue };
        let mut ended = false;
        if let Some(request) = live.get_mut(&tag) {
            if let Got::Output(output) = request.poll()? {
                count += output.tokens().len();
                ended = output.finish().is_some();
            }
        }
        if ended {
            live.remove(&tag);
        }
    }
    assert_eq!(count, requests * tokens as usize);
    Ok(requests as f64 / begin.elapsed().as_secs_f64())
}

/// The median of nanoseconds of a poll that finds nothing: of a request that waits behind another one.
fn poll_ns(model: &str, polls: u32) -> Result<f64> {
    // One sequence at a time, and its consumer does not read: it pauses when output_bytes are full.
    let engine = Engine::builder(model).threads(1).max_running_seqs(1).set("output_bytes", 1).build()?;
    let params = Params::tokens([1, 2, 3, 4]).max_tokens(400).ignore_eos(true);
    let paused = engine.generate(&params)?;
    while engine.stats()?.requests_paused == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut request = engine.generate(&params)?;
    let mut rounds: Vec<f64> = (0..11)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..polls {
                assert!(matches!(request.poll(), Ok(Got::Timeout)));
            }
            begin.elapsed().as_nanos() as f64 / f64::from(polls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    drop(paused);
    Ok(rounds[rounds.len() / 2])
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, requests, tokens, polls] = arguments.as_slice() else {
        return Err("usage: bench TINY_MODEL_DIR REQUESTS TOKENS POLLS".into());
    };
    let (requests, tokens) = (requests.parse()?, tokens.parse()?);
    let engine = Engine::builder(model).threads(2).build()?;
    let queue = engine.queue()?;
    batch(&engine, &queue, requests, tokens)?; // fills the prefix cache and the pools
    let mut rates = [0.0; 5];
    let before = bytes_in_use();
    for rate in &mut rates {
        *rate = batch(&engine, &queue, requests, tokens)?;
    }
    let left = (bytes_in_use() - before) / (rates.len() * requests) as f64;
    rates.sort_by(f64::total_cmp);
    let poll = poll_ns(model, polls.parse()?)?;
    println!(
        "{{\"language\": \"rust\", \"poll_ns\": {poll:.1}, \"requests_per_s\": {:.1}, \
         \"bytes_left_per_request\": {left:.1}}}",
        rates[rates.len() / 2]
    );
    Ok(())
}
