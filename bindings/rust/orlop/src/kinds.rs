//! The small enums of the header, and a conversation.
use crate::error::call;
use crate::{Result, Value};
use orlop_sys as ffi;

/// What the output must be. It is applied to every token.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Guide {
    /// Any JSON object.
    JsonObject,
    /// JSON by a JSON Schema.
    JsonSchema(String),
    /// A regular expression, of the whole output.
    Regex(String),
    /// A GBNF grammar.
    Grammar(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Calls of tools: JSON {"tools", "tool_choice", "format", "parallel"}.
    Tools(String),
}

impl Guide {
    pub(crate) fn into_parts(self) -> (i32, String) {
        match self {
            Guide::JsonObject => (ffi::ORLOP_GUIDE_JSON_OBJECT, String::new()),
            Guide::JsonSchema(s) => (ffi::ORLOP_GUIDE_JSON_SCHEMA, s),
            Guide::Regex(s) => (ffi::ORLOP_GUIDE_REGEX, s),
            Guide::Grammar(s) => (ffi::ORLOP_GUIDE_GRAMMAR, s),
            Guide::Choice(texts) => {
                let texts = texts.into_iter().map(Value::String).collect();
                (ffi::ORLOP_GUIDE_CHOICE, Value::Array(texts).to_string())
            }
            Guide::Tools(s) => (ffi::ORLOP_GUIDE_TOOLS, s),
        }
    }
}

/// How far a text follows a guide: [`guide_check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuideCheck {
    /// How many of its first bytes can begin such a text.
    pub accepted: u64,
    /// Whether the whole text is one.
    pub complete: bool,
}

/// Checks a text against a guide, without an engine.
///
/// ```
/// use orlop::Guide;
/// let digits = Guide::Regex("[0-9]{3}".into());
/// let check = orlop::guide_check(&digits, "12x")?;
/// assert_eq!((check.accepted, check.complete), (2, false));
/// # Ok::<(), orlop::Error>(())
/// ```
pub fn guide_check(guide: &Guide, text: &str) -> Result<GuideCheck> {
    let (kind, source) = guide.clone().into_parts();
    let (mut accepted, mut complete) = (0, 0);
    call(|err| unsafe {
        ffi::orlop_guide_check(
            kind,
            source.as_ptr().cast(),
            source.len(),
            text.as_ptr().cast(),
            text.len(),
            &mut accepted,
            &mut complete,
            err,
        )
    })?;
    Ok(GuideCheck { accepted, complete: complete != 0 })
}

/// How an embedding is made of the prompt's hidden states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Pooling {
    /// Over the prompt's tokens.
    Mean = ffi::ORLOP_EMBEDDING_MEAN,
    /// Of its last token.
    Last = ffi::ORLOP_EMBEDDING_LAST,
}

/// Which log-probabilities are wanted. They are the raw model's, before penalties and temperature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logprobs {
    /// None.
    Off,
    /// Of each chosen token.
    Chosen,
    /// And of the N best.
    Top(u16),
    /// And of the whole vocabulary.
    All,
}

impl Logprobs {
    pub(crate) fn code(self) -> i32 {
        match self {
            Logprobs::Off => ffi::ORLOP_LOGPROBS_OFF,
            Logprobs::Chosen => 0,
            Logprobs::Top(n) => n.into(),
            Logprobs::All => ffi::ORLOP_LOGPROBS_ALL,
        }
    }
}

/// Why a sample ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Finish {
    /// End-of-turn token, stop token or stop string.
    Stop,
    /// `max_tokens` or the context's end.
    Length,
    /// Cancelled.
    Cancelled,
    /// An error, which tells why.
    Error,
}

impl Finish {
    pub(crate) fn from_code(code: i32) -> Option<Finish> {
        match code {
            ffi::ORLOP_FINISH_NONE => None,
            ffi::ORLOP_FINISH_STOP => Some(Finish::Stop),
            ffi::ORLOP_FINISH_LENGTH => Some(Finish::Length),
            ffi::ORLOP_FINISH_CANCELLED => Some(Finish::Cancelled),
            _ => Some(Finish::Error),
        }
    }
}

/// What a request is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum State {
    /// It waits for its first step.
    Waiting,
    /// It runs.
    Running,
    /// It ended well.
    Done,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed,
}

impl State {
    pub(crate) fn from_code(code: i32) -> State {
        match code {
            ffi::ORLOP_STATE_WAITING => State::Waiting,
            ffi::ORLOP_STATE_RUNNING => State::Running,
            ffi::ORLOP_STATE_DONE => State::Done,
            ffi::ORLOP_STATE_CANCELLED => State::Cancelled,
            _ => State::Failed,
        }
    }
}

/// A conversation: messages, and what the model's chat template takes beside them.
///
/// ```
/// let chat = orlop::Chat::new().system("Be brief.").user("Why is the sky blue?");
/// # let _ = chat;
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Chat {
    messages: Vec<Value>,
    more: Vec<(String, Value)>,
    source: Option<String>,
}

impl Chat {
    /// Without messages yet.
    pub fn new() -> Chat {
        Chat::default()
    }

    /// An array of messages, or an object {messages, tools, add_generation_prompt, ...}, as JSON. It is
    /// given to the library as it is.
    pub fn from_json(json: impl Into<String>) -> Chat {
        Chat { source: Some(json.into()), ..Chat::default() }
    }

    /// Adds a message. (On a chat made by [`Chat::from_json`] the JSON wins.)
    pub fn message(mut self, role: &str, content: &str) -> Chat {
        let members = [("role", role), ("content", content)];
        self.messages.push(Value::Object(members.map(|(k, v)| (k.to_string(), v.into())).into()));
        self
    }

    /// Adds a system message.
    pub fn system(self, content: &str) -> Chat {
        self.message("system", content)
    }

    /// Adds a user's message.
    pub fn user(self, content: &str) -> Chat {
        self.message("user", content)
    }

    /// Adds an answer of the model.
    pub fn assistant(self, content: &str) -> Chat {
        self.message("assistant", content)
    }

    /// Gives the template a variable: "tools", "add_generation_prompt", or one of its own.
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Chat {
        self.more.push((name.into(), value.into()));
        self
    }

    pub(crate) fn to_json(&self) -> String {
        if let Some(source) = &self.source {
            return source.clone();
        }
        let messages = Value::Array(self.messages.clone());
        if self.more.is_empty() {
            return messages.to_string();
        }
        let mut members = vec![("messages".to_string(), messages)];
        members.extend(self.more.iter().cloned());
        Value::Object(members).to_string()
    }
}

impl From<&str> for Chat {
    fn from(text: &str) -> Chat {
        Chat::new().user(text)
    }
}

impl From<String> for Chat {
    fn from(text: String) -> Chat {
        Chat::new().user(&text)
    }
}

impl From<&Chat> for Chat {
    fn from(chat: &Chat) -> Chat {
        chat.clone()
    }
}
