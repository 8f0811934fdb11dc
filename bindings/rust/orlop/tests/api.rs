//! The rest of the interface, on the tiny checkpoint and, where text is needed, on the demo model.
use orlop::*;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn tiny_path() -> PathBuf {
    let data = std::env::var_os("ORLOP_TEST_DATA").map_or_else(|| root().join("tests/data"), PathBuf::from);
    data.join("tiny/llama")
}

fn tiny() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::builder(tiny_path()).threads(2).build().unwrap())
}

/// The demo model; None, and a line that says so, without the file.
fn demo() -> Option<&'static Engine> {
    static ENGINE: OnceLock<Option<Engine>> = OnceLock::new();
    let open = || {
        let default = || root().join(".cache/SmolLM2-135M-Instruct.Q4_1.gguf");
        let path = std::env::var_os("ORLOP_TEST_MODEL").map_or_else(default, PathBuf::from);
        if !path.is_file() {
            println!("SKIP tests of text: no file {}", path.display());
            return None;
        }
        Some(Engine::builder(path).threads(2).max_context(512).kv_bytes(50_000_000).build().unwrap())
    };
    ENGINE.get_or_init(open).as_ref()
}

fn short() -> Params {
    Params::tokens([5, 6, 7]).max_tokens(6).temperature(0.0).ignore_eos(true)
}

#[test]
fn versions_and_features() {
    assert!(version().split('.').count() == 3);
    assert!(abi_version() >= (1, 2));
    assert_eq!(feature("no such thing"), 0);
    assert_eq!(feature("nul\0inside"), 0);
    assert!(!cfg!(target_arch = "x86_64") || feature("avx2") > 0);
}

#[test]
fn info_inspect_and_stats() {
    let info = tiny().info().unwrap();
    assert_eq!(info["threads"].as_i64(), Some(2), "{info}");
    let facts = inspect(tiny_path()).unwrap();
    assert!(!facts.members().is_empty());
    assert!(matches!(inspect("/no/such/model.gguf"), Err(Error::NotFound(_))));
    let before = tiny().stats().unwrap();
    tiny().generate(&short()).unwrap().result().unwrap();
    let after = tiny().stats().unwrap();
    assert!(after.generated_tokens >= before.generated_tokens + 6 && after.pages_total > 0);
}

#[test]
fn loading_tells_its_progress() {
    let loading = Engine::builder(tiny_path()).start().unwrap();
    let progress = loading.wait(None).unwrap();
    assert!(progress.done && progress.bytes_done == progress.bytes_total && progress.bytes_total > 0);
    loading.engine().unwrap().generate(&short()).unwrap().result().unwrap();
    drop(Engine::builder(tiny_path()).start().unwrap());
    let missing = Engine::builder("/no/such/model.gguf").start();
    assert!(matches!(missing.and_then(Loading::engine), Err(Error::NotFound(_))));
}

#[test]
fn logprobs() {
    let params = short().logprobs(Logprobs::Top(3)).prompt_logprobs(Logprobs::All);
    let answer = tiny().generate(&params).unwrap().result().unwrap();
    let sample = &answer.samples[0];
    assert_eq!((sample.tokens.len(), sample.logprobs.len()), (6, 6));
    assert_eq!((sample.top_logprobs.width(), sample.top_logprobs.rows().len()), (3, 6));
    for ((token, logprob), row) in sample.tokens.iter().zip(&sample.logprobs).zip(sample.top_logprobs.rows())
    {
        assert_eq!(row[0], Logprob { token: *token, logprob: *logprob }, "greedy takes the best");
        assert!(row[0].logprob >= row[1].logprob && row[1].logprob >= row[2].logprob);
    }
    assert_eq!(sample.prompt_logprobs.len(), 3);
    assert_eq!(sample.prompt_logprobs[0], 0.0);
    assert_eq!(sample.prompt_top_logprobs.width(), 131);
    let row = sample.prompt_top_logprobs.rows().nth(1).unwrap();
    let sum: f64 = row.iter().map(|e| f64::from(e.logprob).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    assert_eq!(row[6].logprob, sample.prompt_logprobs[1]);
    let plain = tiny().generate(&short()).unwrap().result().unwrap();
    assert!(plain.samples[0].logprobs.is_empty() && plain.samples[0].top_logprobs.rows().len() == 0);
}

#[test]
fn samples_stops_and_bias() {
    let params = Params::tokens([5, 6]).n(3).seed(11).max_tokens(5).temperature(1.0).ignore_eos(true);
    let answer = tiny().generate(&params).unwrap().result().unwrap();
    assert_eq!((answer.samples.len(), answer.status.samples, answer.status.seed), (3, 3, 11));
    let second = tiny().generate(&params.clone().n(1).seed(12)).unwrap().result().unwrap();
    assert_eq!(answer.samples[1].tokens, second.tokens());
    let forced = tiny().generate(&short().logit_bias(9, 1e6)).unwrap().result().unwrap();
    assert_eq!(forced.tokens(), [9; 6]);
    let stopped = short().logit_bias(9, 1e6).stop_token(9).min_tokens(0);
    let stopped = tiny().generate(&stopped).unwrap().result().unwrap();
    assert_eq!((stopped.finish(), stopped.samples[0].stop_token), (Some(Finish::Stop), Some(9)));
    assert_eq!(stopped.status.state, Some(State::Done));
    assert!(stopped.status.queued <= stopped.status.first_token);
    for wrong in [short().top_p(2.0), short().n(0), short().temperature(-1.0), short().priority(101)] {
        assert!(matches!(tiny().generate(&wrong), Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn embeddings() {
    for pooling in [Pooling::Mean, Pooling::Last] {
        let answer =
            tiny().generate(&Params::tokens([1, 2, 3]).embedding(pooling)).unwrap().result().unwrap();
        let length: f32 = answer.embedding().iter().map(|v| v * v).sum();
        assert!((length - 1.0).abs() < 1e-4 && answer.tokens().is_empty());
    }
}

#[test]
fn states() {
    let prefix: Vec<i32> = (0..64).map(|i| 1 + i % 100).collect();
    let longer: Vec<i32> = prefix.iter().copied().chain([7, 8]).collect();
    let path = std::env::temp_dir().join(format!("orlop-rust-{}.state", std::process::id()));
    let salted = StateParams::tokens(prefix).cache_salt("mine");
    tiny().state_save_to(&path, &salted).unwrap();
    let bytes = tiny().state_save(&salted).unwrap();
    let load = StateParams::new().cache_salt("mine");
    for from_file in [true, false] {
        let engine = Engine::builder(tiny_path()).threads(1).build().unwrap();
        let info = match from_file {
            true => engine.state_load_from(&path, &load).unwrap(),
            false => engine.state_load(&bytes, &load).unwrap(),
        };
        assert_eq!((info.n_tokens, info.pages_added > 0, info.shared), (64, true, false));
        let params = Params::tokens(longer.clone()).max_tokens(1).cache_salt("mine");
        assert_eq!(engine.generate(&params).unwrap().result().unwrap().status.cached_tokens, 64);
    }
    std::fs::remove_file(path).unwrap();
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(tiny().state_load(&damaged, &load).is_err());
    assert!(tiny().state_load(&[], &load).is_err());
    assert!(matches!(tiny().state_load(&bytes, &StateParams::new()), Err(Error::InvalidArgument(_))));
}

#[test]
fn guides() {
    let check = guide_check(&Guide::Choice(vec!["red".into(), "gr\"een".into()]), "gr\"een").unwrap();
    assert_eq!(check, GuideCheck { accepted: 6, complete: true });
    let check = guide_check(&Guide::JsonObject, "{\"a\": nope").unwrap();
    assert!(!check.complete && check.accepted < 10);
    assert!(matches!(guide_check(&Guide::Regex("(".into()), ""), Err(Error::InvalidArgument(_))));
    let Some(engine) = demo() else { return };
    let schema = r#"{"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"],
        "additionalProperties": false}"#;
    let params = Params::chat("A colour, as JSON.").guide(Guide::JsonSchema(schema.into())).max_tokens(40);
    let text = engine.generate(&params.temperature(0.0)).unwrap().result().unwrap().text().to_string();
    let value: Value = text.parse().unwrap();
    assert!(["red", "blue"].contains(&value["colour"].as_str().unwrap()), "{text}");
}

#[test]
fn text() {
    let Some(engine) = demo() else { return };
    let long = "Ein Vogel flog über die Hügel. 🙂 ".repeat(40);
    let ids = engine.tokenize(&long, false).unwrap();
    assert_eq!(engine.detokenize(&ids, false).unwrap(), long);
    assert_eq!(engine.token_bytes(&ids).unwrap(), long.as_bytes());
    assert!(engine.tokenize("", false).unwrap().is_empty());
    assert_eq!(engine.tokenize("<|im_end|>", true).unwrap().len(), 1);
    assert!(engine.tokenize("<|im_end|>", false).unwrap().len() > 1);
    let chat = Chat::new().system("Be brief.").user("Say \"hi\"\n");
    let rendered = engine.chat_render(&chat).unwrap();
    assert!(rendered.contains("Say \"hi\""), "{rendered}");
    assert_eq!(engine.chat_tokenize(&chat).unwrap(), engine.tokenize_flags(&rendered, 2).unwrap());
    let open = chat.clone().set("add_generation_prompt", false);
    assert!(engine.chat_render(&open).unwrap().len() < rendered.len());
    let params = Params::text("One, two, three,").stop(" five").max_tokens(30).temperature(0.0);
    let answer = engine.generate(&params).unwrap().result().unwrap();
    assert_eq!((answer.finish(), answer.samples[0].stop_index), (Some(Finish::Stop), Some(0)));
    assert!(!answer.text().contains("five"));
}

#[test]
fn chat_output() {
    let tools = r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "format": "hermes", "reasoning": true}"#;
    let mut output = ChatOutput::new(None, tools).unwrap();
    let text = "<think>Hm</think>Yes.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let mut events = Vec::new();
    for piece in text.as_bytes().chunks(5) {
        events.extend(output.push(std::str::from_utf8(piece).unwrap()).unwrap());
    }
    events.extend(output.push_last("").unwrap());
    let (mut reasoning, mut content, mut call, mut arguments) = <(String, String, String, String)>::default();
    for event in events {
        match event {
            ChatEvent::Reasoning(t) => reasoning += &t,
            ChatEvent::Content(t) => content += &t,
            ChatEvent::ToolCall { index: 0, name } => call += &name,
            ChatEvent::ToolArguments { index: 0, text } => arguments += &text,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((reasoning.as_str(), content.as_str(), call.as_str()), ("Hm", "Yes.", "f"));
    assert_eq!(arguments.parse::<Value>().unwrap()["a"].as_i64(), Some(1));
    assert!(matches!(ChatOutput::new(None, "{}"), Err(Error::InvalidArgument(_))));
}

#[test]
fn errors_are_an_enum() {
    let error = Engine::from_json("nope").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)) && error.code() == -1, "{error:?}");
    assert!(error.to_string().starts_with("invalid argument: "));
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(b"\xff.gguf");
    assert!(matches!(Engine::open(path), Err(Error::InvalidArgument(_))));
}

#[test]
fn async_requests_fail_are_dropped_and_cancelled() {
    let endless = Params::tokens([1, 2]).max_tokens(400).ignore_eos(true);
    let late = tiny().generate_async(&endless.clone().deadline(Duration::from_micros(1))).unwrap();
    assert!(matches!(block_on(late.result()), Err(Error::Deadline(_))));
    assert!(matches!(tiny().generate_async(&short().n(0)), Err(Error::InvalidArgument(_))));
    // It pauses until its output is taken, so that it cannot end before it is cancelled.
    let pausing = Engine::builder(tiny_path()).threads(1).set("output_bytes", 1).build().unwrap();
    let mut request = pausing.generate_async(&endless).unwrap();
    let last = block_on(async {
        let mut last = request.next().await;
        request.cancel();
        while let Some(output) = request.next().await {
            last = Some(output);
        }
        last.unwrap().unwrap()
    });
    assert_eq!(last.finish, Some(Finish::Cancelled));
    assert_eq!(request.status().unwrap().state, Some(State::Cancelled));
    drop(tiny().generate_async(&endless).unwrap().result());
}

/// The poller's thread goes with the engine and its requests.
#[test]
fn no_thread_stays() {
    let named = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "orlop-poller").count()
    };
    tiny().generate_async(&short()).map(|r| block_on(r.result())).unwrap().unwrap();
    let before = named();
    for _ in 0..20 {
        let engine = Engine::builder(tiny_path()).threads(1).build().unwrap();
        block_on(engine.generate_async(&short()).unwrap().result()).unwrap();
    }
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while named() > before && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(named() <= before, "{} threads, {before} before", named());
}

#[test]
fn json_values() {
    let text = r#"{"a":[1,-2.5,true,null,"x\"\\\u0001é"],"b":{}}"#;
    let value: Value = text.parse().unwrap();
    assert_eq!(value.to_string(), text);
    assert_eq!(r#""\ud83d\ude42\n\ud83d""#.parse::<Value>().unwrap().as_str(), Some("🙂\n\u{FFFD}"));
    let numbers = "[0,-0,10,0.5,-1.25e+2,1E3,9223372036854775807,9223372036854775808,1e-999]";
    let value: Value = numbers.parse().unwrap();
    assert_eq!(value[4].as_f64(), Some(-125.0));
    assert_eq!(value[6].as_i64(), Some(i64::MAX));
    assert_eq!((value[7].as_i64(), value[7].as_f64()), (None, Some(9223372036854775808.0)));
    assert_eq!(value[8].as_f64(), Some(0.0));
    for wrong in
        ["01", "-01", "00", "1e999", "-1e999", "+1", ".5", "1.", "1.e3", "1e", "1e+", "--1", "1-1", "0x1"]
    {
        assert!(wrong.parse::<Value>().is_err(), "{wrong}");
        assert!(format!("[{wrong}]").parse::<Value>().is_err(), "[{wrong}]");
    }
    for wrong in
        ["\\u+123", "\\u-123", "\\u 123", "\\u12", "\\u12é", "\\ud83d\\u+e42", "\\é", "\n", "\0", "\\x41"]
    {
        assert!(format!("\"{wrong}\"").parse::<Value>().is_err(), "{wrong}");
    }
    for wrong in
        ["", "[1,]", "{\"a\" 1}", "\"open", "tru", "1 2", "\"\\u12\"", "\"\\", "-", &"[".repeat(1000)]
    {
        assert!(wrong.parse::<Value>().is_err(), "{wrong}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_is_the_device() {
    // Without a GPU, or a library built for one, the error says so; no other device takes its place.
    match Engine::builder(tiny_path()).cuda().build() {
        Ok(engine) => assert!(engine.info().unwrap().to_string().contains("cuda")),
        Err(error) => {
            assert!(error.message().contains("cuda") || error.message().contains("CUDA"), "{error:?}")
        }
    }
}

struct Panics;
impl std::task::Wake for Panics {
    fn wake(self: std::sync::Arc<Self>) {
        panic!("a waker's own");
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_request() {
    use std::future::{Future, IntoFuture};
    let engine = Engine::builder(tiny_path()).threads(1).build().unwrap();
    let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
    let mut unlucky = Box::pin(engine.generate_async(&short()).unwrap().into_future());
    let _ = unlucky.as_mut().poll(&mut std::task::Context::from_waker(&waker));
    for _ in 0..3 {
        let answer = block_on(engine.generate_async(&short()).unwrap().result()).unwrap();
        assert_eq!(answer.tokens().len(), 6);
    }
}
