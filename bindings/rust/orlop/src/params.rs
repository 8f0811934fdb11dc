use crate::raw::{micros, pointer};
use crate::{Chat, Guide, Logprobs, Pooling};
use orlop_sys as ffi;
use std::time::Duration;

/// The prompt: one of the three kinds.
#[derive(Clone, Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<i32>),
    Messages(String),
}

/// What to generate from, and how. What is not set takes the model's generation_config if it states one,
/// else the engine's default; a value out of range is refused when the request is made, and the message
/// names the field.
///
/// ```
/// use std::time::Duration;
/// let params = orlop::Params::chat("Name three colours.")
///     .max_tokens(64)
///     .temperature(0.7)
///     .stop("\n\n")
///     .deadline(Duration::from_secs(30));
/// # let _ = params;
/// ```
#[derive(Clone, Debug)]
pub struct Params {
    pub(crate) prompt: Prompt,
    flags: u32,
    max_tokens: u32,
    min_tokens: u32,
    temperature: f64,
    top_p: f64,
    min_p: f64,
    top_k: i32,
    n: u32,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    seed: u64,
    logit_bias: Vec<ffi::orlop_logit_bias>,
    stop: Vec<String>,
    stop_tokens: Vec<i32>,
    logprobs: i32,
    prompt_logprobs: i32,
    cache_salt: String,
    deadline: Option<Duration>,
    priority: i32,
    guide: i32,
    guide_source: String,
    embedding: i32,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $name: $kind) -> Params {
            self.$name = $name;
            self
        }
    )*};
}

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $bit:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, on: bool) -> Params {
            self.flags = if on { self.flags | ffi::$bit } else { self.flags & !ffi::$bit };
            self
        }
    )*};
}

impl Params {
    fn of(prompt: Prompt) -> Params {
        Params {
            prompt,
            flags: 0,
            max_tokens: ffi::ORLOP_UNSET_U32,
            min_tokens: 0,
            temperature: ffi::ORLOP_UNSET_F64,
            top_p: ffi::ORLOP_UNSET_F64,
            min_p: ffi::ORLOP_UNSET_F64,
            top_k: ffi::ORLOP_UNSET_I32,
            n: 1,
            repetition_penalty: ffi::ORLOP_UNSET_F64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            logit_bias: Vec::new(),
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            logprobs: ffi::ORLOP_LOGPROBS_OFF,
            prompt_logprobs: ffi::ORLOP_LOGPROBS_OFF,
            cache_salt: String::new(),
            deadline: None,
            priority: 0,
            guide: ffi::ORLOP_GUIDE_NONE,
            guide_source: String::new(),
            embedding: ffi::ORLOP_EMBEDDING_NONE,
        }
    }

    /// Continues a text.
    pub fn text(text: impl Into<String>) -> Params {
        Params::of(Prompt::Text(text.into()))
    }

    /// Continues token ids.
    pub fn tokens(ids: impl Into<Vec<i32>>) -> Params {
        Params::of(Prompt::Tokens(ids.into()))
    }

    /// Answers a conversation, through the model's chat template. A string is one user message.
    pub fn chat(chat: impl Into<Chat>) -> Params {
        Params::of(Prompt::Messages(chat.into().to_json()))
    }

    setters! {
        /// At most so many tokens; 0: compute the prompt only. Not set: until the context is full.
        max_tokens: u32;
        /// End-of-turn and stops are held off before this many tokens.
        min_tokens: u32;
        /// 0: greedy.
        temperature: f64;
        /// Nucleus sampling. 1: off, 0: the best token only.
        top_p: f64;
        /// Tokens of less than this share of the best one's probability are left out. 0: off.
        min_p: f64;
        /// The k best tokens only. 0: off.
        top_k: i32;
        /// Samples of the prompt, 1 to 128: sample i is drawn with seed + i. `Output::index` tells them apart.
        n: u32;
        /// Above 0; 1: off. Over prompt and output.
        repetition_penalty: f64;
        /// -2 to 2, over the output.
        presence_penalty: f64;
        /// -2 to 2, over the output.
        frequency_penalty: f64;
        /// -100 to 100: higher goes first; waiting raises it.
        priority: i32;
    }

    flags! {
        /// End-of-turn tokens do not stop.
        ignore_eos: ORLOP_GENERATE_IGNORE_EOS;
        /// Text prompt: do not add the model's BOS token.
        no_bos: ORLOP_GENERATE_NO_BOS;
        /// Text prompt: control tokens spelled in the text are plain text.
        plain: ORLOP_GENERATE_PLAIN;
        /// Output text shows control tokens.
        keep_special: ORLOP_GENERATE_KEEP_SPECIAL;
    }

    /// Draws from this seed. Else the engine draws one; [`crate::Status::seed`] tells it.
    pub fn seed(mut self, seed: u64) -> Params {
        self.seed = seed;
        self.flags |= ffi::ORLOP_GENERATE_SEEDED;
        self
    }

    /// Adds `bias` to the token's raw logit; negative infinity forbids the token. May be called again.
    pub fn logit_bias(mut self, token: i32, bias: f32) -> Params {
        self.logit_bias.push(ffi::orlop_logit_bias { token, bias });
        self
    }

    /// A string that ends the output and is not part of it. May be called again.
    pub fn stop(mut self, text: impl Into<String>) -> Params {
        self.stop.push(text.into());
        self
    }

    /// A token that ends the output. May be called again.
    pub fn stop_token(mut self, token: i32) -> Params {
        self.stop_tokens.push(token);
        self
    }

    /// Log-probabilities of the output's tokens.
    pub fn logprobs(mut self, which: Logprobs) -> Params {
        self.logprobs = which.code();
        self
    }

    /// Log-probabilities of the prompt's tokens, each given those before it.
    pub fn prompt_logprobs(mut self, which: Logprobs) -> Params {
        self.prompt_logprobs = which.code();
        self
    }

    /// Cached prefixes are shared within equal salts only.
    pub fn cache_salt(mut self, salt: impl Into<String>) -> Params {
        self.cache_salt = salt.into();
        self
    }

    /// Counted from submission; then the request ends with [`crate::Error::Deadline`].
    pub fn deadline(mut self, deadline: Duration) -> Params {
        self.deadline = Some(deadline);
        self
    }

    /// What the output must be.
    pub fn guide(mut self, guide: Guide) -> Params {
        (self.guide, self.guide_source) = guide.into_parts();
        self
    }

    /// The prompt's hidden states, pooled, instead of generated text.
    pub fn embedding(mut self, pooling: Pooling) -> Params {
        self.embedding = pooling as i32;
        self
    }

    /// Calls `f` with the C struct; its pointers live that long.
    pub(crate) fn with_raw<R>(
        &self,
        queue: *mut ffi::orlop_queue,
        tag: u64,
        f: impl FnOnce(&ffi::orlop_generate_params) -> R,
    ) -> R {
        let mut raw = std::mem::MaybeUninit::<ffi::orlop_generate_params>::zeroed();
        // SAFETY: every field is a number or a pointer that may be NULL; init fills the defaults.
        let mut p = unsafe {
            let size = std::mem::size_of::<ffi::orlop_generate_params>() as u32;
            ffi::orlop_generate_params_init(raw.as_mut_ptr(), size);
            raw.assume_init()
        };
        let stop: Vec<ffi::orlop_string> = self
            .stop
            .iter()
            .map(|s| ffi::orlop_string { data: s.as_ptr().cast(), len: s.len() as u64 })
            .collect();
        match &self.prompt {
            // A pointer even for an empty text: it is given.
            Prompt::Text(t) => (p.text, p.text_len) = (t.as_ptr().cast(), t.len() as u64),
            Prompt::Tokens(t) => (p.tokens, p.n_tokens) = (t.as_ptr(), t.len() as u64),
            Prompt::Messages(t) => (p.messages, p.messages_len) = (t.as_ptr().cast(), t.len() as u64),
        }
        p.flags = self.flags;
        p.max_tokens = self.max_tokens;
        p.min_tokens = self.min_tokens;
        p.temperature = self.temperature;
        p.top_p = self.top_p;
        p.min_p = self.min_p;
        p.top_k = self.top_k;
        p.n = self.n;
        p.repetition_penalty = self.repetition_penalty;
        p.presence_penalty = self.presence_penalty;
        p.frequency_penalty = self.frequency_penalty;
        p.seed = self.seed;
        (p.logit_bias, p.n_logit_bias) = (pointer(&self.logit_bias), self.logit_bias.len() as u64);
        (p.stop, p.n_stop) = (pointer(&stop), stop.len() as u64);
        (p.stop_tokens, p.n_stop_tokens) = (pointer(&self.stop_tokens), self.stop_tokens.len() as u64);
        p.logprobs = self.logprobs;
        p.prompt_logprobs = self.prompt_logprobs;
        p.queue = queue;
        p.tag = tag;
        p.cache_salt = pointer(self.cache_salt.as_bytes()).cast();
        p.cache_salt_len = self.cache_salt.len() as u64;
        // A deadline of nothing has passed at once: 0 would mean none.
        p.deadline_us = self.deadline.map_or(0, |d| micros(Some(d)).max(1));
        p.priority = self.priority;
        p.guide = self.guide;
        p.embedding = self.embedding;
        p.guide_source = pointer(self.guide_source.as_bytes()).cast();
        p.guide_source_len = self.guide_source.len() as u64;
        f(&p)
    }
}
