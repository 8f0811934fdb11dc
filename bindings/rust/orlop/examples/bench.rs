//! bench TINY_MODEL_DIR REQUESTS TOKENS POLLS: what the binding costs, as one line of JSON.
//!
//! Up to 64 requests in flight through one completion queue, two threads, prompts of four tokens; polls
//! that find nothing; and the bytes of the C allocator that a finished request leaves behind.
use orlop::{Engine, Error, Got, Params, Queue, Request, Result};
use std::time::Instant;

const IN_FLIGHT: usize = 64;

/// glibc's struct mallinfo2.
#[repr(C)]
struct MallInfo {
    before: [usize; 7],
    uordblks: usize, // bytes in use
    after: [usize; 2],
}

/// Once the engine's own thread has put down what the last requests held.
#[cfg(target_env = "gnu")]
fn bytes_in_use() -> f64 {
    extern "C" {
        fn mallinfo2() -> MallInfo;
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    // SAFETY: it takes nothing and answers by value.
    unsafe { mallinfo2() }.uordblks as f64
}

fn start(engine: &Engine, queue: &Queue, slot: usize, i: usize, tokens: u32) -> Result<Request> {
    let prompt = [1 + (i % 100) as i32, 2, 3, 4];
    let params = Params::tokens(prompt).max_tokens(tokens).temperature(0.0).ignore_eos(true);
    engine.generate_on(queue, slot as u64, &params)
}

/// Requests a second.
fn batch(engine: &Engine, queue: &Queue, requests: usize, tokens: u32) -> Result<f64> {
    let begin = Instant::now();
    let mut live = Vec::new();
    for i in 0..requests.min(IN_FLIGHT) {
        live.push(Some(start(engine, queue, i, i, tokens)?));
    }
    let (mut started, mut ended, mut count) = (live.len(), 0, 0);
    while ended < requests {
        let Some(tag) = queue.wait(None)? else { continue };
        let slot = tag as usize;
        let Some(request) = &mut live[slot] else { continue };
        let Got::Output(output) = request.poll()? else { continue };
        count += output.tokens().len();
        if output.finish().is_none() {
            continue;
        }
        ended += 1;
        live[slot] = None;
        if started < requests {
            live[slot] = Some(start(engine, queue, slot, started, tokens)?);
            started += 1;
        }
    }
    assert_eq!(count, requests * tokens as usize);
    Ok(requests as f64 / begin.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of a poll that finds nothing: of a request that waits behind many others.
fn poll_ns(model: &str, polls: usize) -> Result<f64> {
    const ROUNDS: usize = 11;
    let engine = Engine::builder(model).threads(1).max_running_seqs(1).scheduling("fcfs").build()?;
    let params = Params::tokens([1, 2, 3, 4]).max_tokens(500).ignore_eos(true);
    let before: Vec<Request> = (0..IN_FLIGHT).map(|_| engine.generate(&params)).collect::<Result<_>>()?;
    let mut request = engine.generate(&params)?;
    let each = (polls / ROUNDS).max(1);
    let mut rounds = Vec::with_capacity(ROUNDS);
    while rounds.len() < ROUNDS {
        let begin = Instant::now();
        for _ in 0..each {
            if !matches!(request.poll()?, Got::Timeout) {
                return Err(Error::Other(1, format!("{polls} polls took too long: its turn came")));
            }
        }
        rounds.push(begin.elapsed().as_nanos() as f64 / each as f64);
    }
    drop(before);
    Ok(median(rounds))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, model, requests, tokens, polls] = arguments.as_slice() else {
        return Err("usage: bench TINY_MODEL_DIR REQUESTS TOKENS POLLS".into());
    };
    let (requests, tokens) = (requests.parse()?, tokens.parse()?);
    let engine = Engine::builder(model).threads(2).max_context(512).kv_bytes(16_000_000).build()?;
    let queue = engine.queue()?;
    batch(&engine, &queue, requests, tokens)?; // fills the prefix cache and the pools
    let mut rates = Vec::new();
    for _ in 0..5 {
        rates.push(batch(&engine, &queue, requests, tokens)?);
    }
    // The least growth of several rounds: the engine's own lists still grow during the first ones.
    let mut left = f64::INFINITY;
    for _ in 0..9 {
        let before = bytes_in_use();
        batch(&engine, &queue, requests, tokens)?;
        left = left.min((bytes_in_use() - before) / requests as f64);
    }
    let poll = poll_ns(model, polls.parse()?)?;
    println!(
        "{{\"language\": \"rust\", \"poll_ns\": {poll:.1}, \"requests_per_s\": {:.1}, \
         \"bytes_left_per_request\": {:.1}}}",
        median(rates),
        left.max(0.0)
    );
    Ok(())
}
