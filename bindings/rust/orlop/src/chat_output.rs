use crate::error::call;
use crate::raw::Buffer;
use crate::{Engine, Error, Result, Value};
use orlop_sys as ffi;
use std::ptr::null_mut;

/// What is new in a chat model's output.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChatEvent {
    /// Text between `<think>` and `</think>`.
    Reasoning(String),
    /// Text for the user.
    Content(String),
    /// A call of a tool begins.
    ToolCall {
        /// Which call of this answer.
        index: usize,
        /// The tool.
        name: String,
    },
    /// A piece of a call's arguments; joined they are JSON.
    ToolArguments {
        /// Which call of this answer.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// Takes the output of one sample apart while it streams: reasoning, content, calls of tools.
///
/// ```
/// use orlop::{ChatEvent, ChatOutput};
/// let mut output = ChatOutput::new(None, r#"{"format": "none", "reasoning": true}"#)?;
/// let mut events = output.push("<think>Hm.</think>Hel")?;
/// events.extend(output.push_last("lo")?);
/// let content: String = events.iter().filter_map(|e| match e {
///     ChatEvent::Content(text) => Some(text.as_str()),
///     _ => None,
/// }).collect();
/// assert_eq!(content, "Hello");
/// # Ok::<(), orlop::Error>(())
/// ```
pub struct ChatOutput(*mut ffi::orlop_chat_output);

// SAFETY: one thread at a time may use it, and to use it takes &mut.
unsafe impl Send for ChatOutput {}
unsafe impl Sync for ChatOutput {}

impl ChatOutput {
    /// `options` is a JSON object, every key optional: "tools", "format" ("hermes", "llama3", "json",
    /// "none", "auto"), "reasoning" (true, false, "auto"), "prompt". "auto", the default of both, needs
    /// the engine.
    pub fn new(engine: Option<&Engine>, options: &str) -> Result<ChatOutput> {
        let engine = engine.map_or(null_mut(), Engine::raw);
        let mut out = null_mut();
        call(|err| unsafe {
            ffi::orlop_chat_output_create(engine, options.as_ptr().cast(), options.len(), &mut out, err)
        })?;
        Ok(ChatOutput(out))
    }

    /// Takes text, in any pieces.
    pub fn push(&mut self, text: &str) -> Result<Vec<ChatEvent>> {
        self.take(text, 0)
    }

    /// Takes the last text, which may be empty.
    pub fn push_last(&mut self, text: &str) -> Result<Vec<ChatEvent>> {
        self.take(text, 1)
    }

    fn take(&mut self, text: &str, last: i32) -> Result<Vec<ChatEvent>> {
        let mut out = Buffer::none();
        let place = out.out();
        call(|err| unsafe {
            ffi::orlop_chat_output_push(self.0, text.as_ptr().cast(), text.len(), last, place, err)
        })?;
        let events: Value = out.to_text().parse()?;
        events.items().iter().map(event).collect()
    }
}

fn event(value: &Value) -> Result<ChatEvent> {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
    let index = value["index"].as_i64().unwrap_or_default() as usize;
    match value["type"].as_str() {
        Some("reasoning") => Ok(ChatEvent::Reasoning(text("text"))),
        Some("content") => Ok(ChatEvent::Content(text("text"))),
        Some("tool_call") => Ok(ChatEvent::ToolCall { index, name: text("name") }),
        Some("tool_arguments") => Ok(ChatEvent::ToolArguments { index, text: text("text") }),
        _ => Err(Error::Unsupported(format!("an event that this binding does not know: {value}"))),
    }
}

impl Drop for ChatOutput {
    fn drop(&mut self) {
        unsafe { ffi::orlop_chat_output_release(self.0) }
    }
}

impl std::fmt::Debug for ChatOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChatOutput")
    }
}
