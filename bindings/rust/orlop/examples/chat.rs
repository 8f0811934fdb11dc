//! chat MODEL [QUESTION ...]: a conversation in the terminal, streamed. Without questions they are read
//! from standard input, a line each.
//!
//!     cargo run --example chat -- SmolLM2-135M-Instruct.Q4_1.gguf "Name three colours."
use orlop::{Chat, Engine, Finish, Params};
use std::error::Error;
use std::io::{BufRead, Write};

/// Streams one answer and gives the whole of it.
fn answer(engine: &Engine, chat: &Chat) -> Result<String, Box<dyn Error>> {
    let mut whole = String::new();
    let mut stdout = std::io::stdout();
    for output in engine.generate(&Params::chat(chat).max_tokens(512).temperature(0.0))? {
        let output = output?;
        stdout.write_all(output.text.as_bytes())?;
        stdout.flush()?;
        whole += &output.text;
        if output.finish == Some(Finish::Length) {
            print!(" [...]");
        }
    }
    println!();
    Ok(whole)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("usage: chat MODEL [QUESTION ...]")?;
    let given: Vec<String> = arguments.collect();
    let engine = Engine::builder(model).max_context(2048).build()?;
    let questions: Box<dyn Iterator<Item = std::io::Result<String>>> = match given.is_empty() {
        true => Box::new(std::io::stdin().lock().lines()),
        false => Box::new(given.into_iter().map(Ok)),
    };
    let mut chat = Chat::new();
    for question in questions {
        let question = question?;
        println!("> {question}");
        let asked = chat.clone().user(&question);
        match answer(&engine, &asked) {
            Ok(text) => chat = asked.assistant(&text),
            // The conversation goes on without the turn that failed.
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}
