//! The behaviours that every language shows: tests/behaviours/behaviours.txt.
//!
//! A program of its own (harness = false): one after the other, for the log sink is the process's, and run
//! again as the child that ends with live requests.
use orlop::{Engine, Error, Finish, Got, Params, Request};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn data() -> PathBuf {
    std::env::var_os("ORLOP_TEST_DATA").map_or_else(|| root().join("tests/data"), PathBuf::from)
}

fn model() -> PathBuf {
    let default = || root().join(".cache/SmolLM2-135M-Instruct.Q4_1.gguf");
    std::env::var_os("ORLOP_TEST_MODEL").map_or_else(default, PathBuf::from)
}

fn tiny() -> Engine {
    Engine::builder(data().join("tiny/llama")).threads(2).build().unwrap()
}

/// Its requests pause until their output is taken: none ends before it is cancelled, however busy the machine.
fn pausing() -> Engine {
    Engine::builder(data().join("tiny/llama")).threads(2).set("output_bytes", 1).build().unwrap()
}

fn ids(i: i32) -> Vec<i32> {
    vec![1 + i % 100, 2 + i % 7, 3 + i % 11, 4]
}

fn sampled(i: i32) -> Params {
    Params::tokens(ids(i)).max_tokens(16).seed(i as u64).temperature(1.0).ignore_eos(true)
}

fn endless() -> Params {
    Params::tokens(ids(0)).max_tokens(400).ignore_eos(true)
}

fn first(request: &mut Request) {
    assert!(matches!(request.get(None).unwrap(), Got::Output(_)));
}

/// Pages come back within a step.
fn assert_no_pages(engine: &Engine) {
    let end = Instant::now() + Duration::from_secs(20);
    while engine.stats().unwrap().pages_used != 0 {
        assert!(Instant::now() < end, "pages_used stays {}", engine.stats().unwrap().pages_used);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn golden_stream() {
    let golden = |name| std::fs::read_to_string(root().join("tests/behaviours").join(name)).unwrap();
    let engine = Engine::builder(model()).compute("fp32").threads(2).max_context(512).build().unwrap();
    let params = Params::text(golden("golden_prompt.txt")).temperature(0.0).max_tokens(48);
    let (mut text, mut tokens, mut pieces, mut finish) = (String::new(), 0, 0, None);
    for output in engine.generate(&params).unwrap() {
        let output = output.unwrap();
        pieces += usize::from(!output.text.is_empty());
        text += &output.text;
        tokens += output.tokens.len();
        finish = output.finish;
    }
    assert!(pieces > 1, "{pieces} pieces");
    assert_eq!(text, golden("golden_text.txt"));
    assert_eq!((tokens, finish), (48, Some(Finish::Length)));
}

fn cancel() {
    let engine = pausing();
    let mut request = engine.generate(&endless()).unwrap();
    first(&mut request);
    let canceller = request.canceller();
    let other = std::thread::spawn(move || {
        canceller.cancel();
        canceller.cancel();
    });
    other.join().unwrap();
    let rest = request.by_ref().map(Result::unwrap).last().unwrap();
    assert_eq!(rest.finish, Some(Finish::Cancelled));
    assert!(request.status().unwrap().generated_tokens < 400);
    request.cancel();
    assert!(matches!(request.get(None).unwrap(), Got::End));
    assert_no_pages(&engine);
}

fn timeout() {
    let engine = tiny();
    let long = Params::tokens(vec![3; 480]).max_tokens(8).ignore_eos(true);
    // The machine may answer at once: it is enough that one of many had not yet.
    let mut timeouts = 0;
    for _ in 0..20 {
        let mut request = engine.generate(&long).unwrap();
        let early = match request.get(Some(Duration::ZERO)).unwrap() {
            Got::Output(output) => output.tokens().len(),
            _ => 0,
        };
        timeouts += usize::from(early == 0);
        assert_eq!(early + request.map(|o| o.unwrap().tokens.len()).sum::<usize>(), 8);
    }
    assert!(timeouts > 0);
    let late = engine.generate(&endless().deadline(Duration::from_micros(1))).unwrap();
    assert!(matches!(late.result(), Err(Error::Deadline(_))));
}

fn overflow_error_text() {
    let engine = tiny();
    let error = engine.generate(&Params::tokens(vec![1; 600])).unwrap_err();
    assert!(matches!(error, Error::ContextOverflow(_)), "{error}");
    assert!(error.message().contains("600") && error.message().contains("512"), "{error}");
}

fn unknown_key() {
    let error = Engine::builder(data().join("tiny/llama")).set("thread", 2).build().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    assert!(error.message().contains("threads"), "{error}");
}

fn drop_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let engine = tiny();
        let queue = engine.queue().unwrap();
        let request = engine.generate_on(&queue, 7, &endless()).unwrap();
        let (mut engine, mut queue, mut request) = (Some(engine), Some(queue), Some(request));
        for which in order {
            match which {
                0 => drop(engine.take()),
                1 => drop(queue.take()),
                _ => drop(request.take()),
            }
        }
    }
    let engine = tiny();
    let whole = engine.generate(&sampled(5)).unwrap().result().unwrap();
    let request = engine.generate(&sampled(5)).unwrap();
    let asynchronous = engine.generate_async(&sampled(5)).unwrap();
    drop(engine);
    assert_eq!(request.result().unwrap().tokens(), whole.tokens());
    assert_eq!(orlop::block_on(asynchronous.result()).unwrap().tokens(), whole.tokens());
}

fn sixty_four_at_once() {
    let engine = tiny();
    let alone: Vec<Vec<i32>> =
        (0..64).map(|i| engine.generate(&sampled(i)).unwrap().result().unwrap().tokens().to_vec()).collect();
    let queue = engine.queue().unwrap();
    let mut requests: Vec<Request> =
        (0..64).map(|i| engine.generate_on(&queue, i as u64, &sampled(i)).unwrap()).collect();
    let mut got = vec![Vec::new(); 64];
    let mut live = 64;
    while live > 0 {
        let tag = queue.wait(Some(Duration::from_secs(30))).unwrap().expect("a tag") as usize;
        while let Got::Output(output) = requests[tag].poll().unwrap() {
            got[tag].extend_from_slice(output.tokens());
            live -= usize::from(output.finish().is_some());
        }
    }
    assert_eq!(got, alone);
    // And as futures, all under way before the first is awaited.
    let under_way: Vec<_> = (0..64).map(|i| engine.generate_async(&sampled(i)).unwrap().result()).collect();
    for (answer, alone) in under_way.into_iter().zip(&alone) {
        assert_eq!(orlop::block_on(answer).unwrap().tokens(), alone);
    }
}

fn eight_threads() {
    let engine = pausing();
    let alone: Vec<Vec<i32>> =
        (0..8).map(|i| engine.generate(&sampled(i)).unwrap().result().unwrap().tokens().to_vec()).collect();
    std::thread::scope(|scope| {
        for (i, alone) in alone.iter().enumerate() {
            let engine = engine.clone();
            scope.spawn(move || {
                for round in 0..10 {
                    let request = engine.generate(&sampled(i as i32)).unwrap();
                    let mut cancelled = engine.generate(&endless()).unwrap();
                    if round % 2 == 0 {
                        first(&mut cancelled);
                    }
                    cancelled.cancel();
                    let answer = if round % 3 == 0 {
                        orlop::block_on(engine.generate_async(&sampled(i as i32)).unwrap().result()).unwrap()
                    } else {
                        request.result().unwrap()
                    };
                    assert_eq!(answer.tokens(), alone);
                    let last = cancelled.map(Result::unwrap).last().unwrap();
                    assert_eq!(last.finish, Some(Finish::Cancelled));
                }
            });
        }
    });
    assert_no_pages(&engine);
}

fn bad_file() {
    let folder = std::env::temp_dir().join(format!("orlop-rust-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut truncated = vec![0; 1_000_000];
    std::io::Read::read_exact(&mut std::fs::File::open(model()).unwrap(), &mut truncated).unwrap();
    let files = [("none.gguf", None), ("empty.gguf", Some(vec![]))]
        .into_iter()
        .chain([("noise.gguf", Some(noise)), ("truncated.gguf", Some(truncated))]);
    for (name, bytes) in files {
        let path = folder.join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let error = Engine::open(&path).unwrap_err();
        assert!(matches!(error, Error::NotFound(_) | Error::Io(_) | Error::BadFormat(_)), "{error:?}");
        assert!(error.message().contains(name), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
    tiny();
}

fn log_sink() {
    use orlop::log;
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = lines.clone();
    log::set(log::Level::Debug, move |_, line| to.lock().unwrap().push(line.to_string())).unwrap();
    tiny();
    log::clear().unwrap();
    let count = lines.lock().unwrap().len();
    assert!(count > 0);
    assert_eq!(Arc::strong_count(&lines), 1, "the sink is freed");
    tiny();
    assert_eq!(lines.lock().unwrap().len(), count);

    let panics = Arc::new(AtomicUsize::new(0));
    let counter = panics.clone();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    log::set(log::Level::Debug, move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(log::clear(), Err(Error::Busy(_))));
        panic!("a sink that fails");
    })
    .unwrap();
    let answer = tiny().generate(&sampled(1)).unwrap().result().unwrap();
    log::clear().unwrap();
    std::panic::set_hook(hook);
    assert_eq!(answer.tokens().len(), 16);
    assert!(panics.load(Ordering::Relaxed) > 0);
}

/// Closing twice does not compile (see `Request`); what is left to do at run time is a canceller that
/// outlives its request, and NULL in C (orlop-sys/tests/abi.rs).
fn release_twice() {
    let engine = pausing();
    let mut request = engine.generate(&endless()).unwrap();
    first(&mut request);
    let canceller = request.canceller();
    request.close();
    canceller.cancel();
    canceller.clone().cancel();
    assert_no_pages(&engine);
    let mut done = engine.generate(&sampled(0)).unwrap();
    assert!(done.by_ref().all(|output| output.is_ok()));
    assert!(done.next().is_none() && done.next().is_none());
    done.cancel();
}

const CHILD: &str = "ORLOP_BEHAVIOURS_CHILD";

fn exit_with_live_requests() {
    let start = Instant::now();
    let child =
        std::process::Command::new(std::env::current_exe().unwrap()).env(CHILD, "1").output().unwrap();
    assert!(child.status.success(), "{:?}", child.status);
    assert_eq!(String::from_utf8_lossy(&child.stderr), "");
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// Returns from main while requests run, read, awaited and untouched; none of them is dropped.
fn child() {
    let engine = tiny();
    let mut request = engine.generate(&endless().n(4)).unwrap();
    first(&mut request);
    let waiting = engine.generate_async(&endless()).unwrap();
    std::thread::spawn(move || orlop::block_on(waiting.result()));
    let reading = engine.generate(&endless()).unwrap();
    std::thread::spawn(move || reading.count());
    std::mem::forget((request, engine.generate(&endless()).unwrap(), engine));
}

macro_rules! tests {
    ($($name:ident)*) => { [$((stringify!($name), $name as fn())),*] };
}

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let tests = tests! {
        golden_stream cancel timeout overflow_error_text unknown_key drop_order sixty_four_at_once
        eight_threads bad_file log_sink release_twice exit_with_live_requests
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests {
        if ["golden_stream", "bad_file"].contains(&name) && !model().is_file() {
            println!("SKIP {name}: no file {}", model().display());
            continue;
        }
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        *(if ok { &mut passed } else { &mut failed }) += 1;
    }
    println!("{passed} passed, {failed} failed");
    std::process::exit(i32::from(failed > 0));
}
