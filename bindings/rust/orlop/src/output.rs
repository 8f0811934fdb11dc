use crate::raw::{slice, text};
use crate::{Error, Finish, Status};
use orlop_sys as ffi;
use std::marker::PhantomData;

/// A token and the natural logarithm of its probability in the raw model distribution.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub struct Logprob {
    /// Its id.
    pub token: i32,
    /// ln p.
    pub logprob: f32,
}

const _: () = assert!(std::mem::size_of::<Logprob>() == std::mem::size_of::<ffi::orlop_logprob>());

/// Rows of log-probabilities, one a token, best first (of the whole vocabulary: by id).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TopLogprobs {
    width: usize,
    entries: Vec<Logprob>,
}

impl TopLogprobs {
    /// Entries a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The rows, in the order of the tokens.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Logprob]> {
        self.entries.chunks_exact(self.width.max(1))
    }

    fn of(entries: &[Logprob], width: u64) -> TopLogprobs {
        TopLogprobs { width: width as usize, entries: entries.to_vec() }
    }

    fn append(&mut self, more: TopLogprobs) {
        self.width = self.width.max(more.width);
        self.entries.extend(more.entries);
    }
}

/// What is new of one sample, in the library's memory: until the next get of the request.
pub struct OutputRef<'a> {
    raw: ffi::orlop_output,
    of: PhantomData<&'a [u8]>,
}

// SAFETY: the pointers are to memory that only the request's consumer changes, and it is borrowed.
unsafe impl Send for OutputRef<'_> {}
unsafe impl Sync for OutputRef<'_> {}

impl<'a> OutputRef<'a> {
    /// # Safety
    /// The pointers of `raw` live for `'a`.
    pub(crate) unsafe fn new(raw: ffi::orlop_output) -> OutputRef<'a> {
        OutputRef { raw, of: PhantomData }
    }

    /// Which of the `n` samples.
    pub fn index(&self) -> u32 {
        self.raw.index
    }

    /// New text, whole code points. It lags behind the tokens while a possible stop string is incomplete.
    pub fn text(&self) -> &'a str {
        unsafe { text(self.raw.text, self.raw.text_len) }
    }

    /// New token ids.
    pub fn tokens(&self) -> &'a [i32] {
        unsafe { slice(self.raw.tokens, self.raw.n_tokens) }
    }

    /// Why the sample ended; this is then its last output.
    pub fn finish(&self) -> Option<Finish> {
        Finish::from_code(self.raw.finish_reason)
    }

    /// With [`Finish::Error`]: the error.
    pub fn error(&self) -> Option<Error> {
        (self.finish() == Some(Finish::Error)).then(|| {
            let message = unsafe { text(self.raw.message, self.raw.message_len) };
            Error::new(self.raw.error_code, message.to_string())
        })
    }

    /// Of each token, if asked for; else empty.
    pub fn logprobs(&self) -> &'a [f32] {
        let n = if self.raw.logprobs.is_null() { 0 } else { self.raw.n_tokens };
        unsafe { slice(self.raw.logprobs, n) }
    }

    /// The best of each token, row by row, and how many a row has.
    pub fn top_logprobs(&self) -> (&'a [Logprob], usize) {
        let n = self.raw.n_tokens * self.raw.n_top;
        (unsafe { slice(self.raw.top_logprobs.cast(), n) }, self.raw.n_top as usize)
    }

    /// Of the prompt's tokens, once, in an output of sample 0; entry 0 is 0.
    pub fn prompt_logprobs(&self) -> &'a [f32] {
        unsafe { slice(self.raw.prompt_logprobs, self.raw.n_prompt) }
    }

    /// The best of each prompt token, row by row, and how many a row has; row 0 is zero.
    pub fn prompt_top_logprobs(&self) -> (&'a [Logprob], usize) {
        let n = self.raw.n_prompt * self.raw.n_prompt_top;
        (unsafe { slice(self.raw.prompt_top_logprobs.cast(), n) }, self.raw.n_prompt_top as usize)
    }

    /// The prompt's embedding, of length 1, in the last output; else empty.
    pub fn embedding(&self) -> &'a [f32] {
        unsafe { slice(self.raw.embedding, self.raw.n_embedding) }
    }

    /// The token that ended the sample, not in the text.
    pub fn stop_token(&self) -> Option<i32> {
        (self.raw.stop_token >= 0).then_some(self.raw.stop_token)
    }

    /// The index of the stop string that ended the sample.
    pub fn stop_index(&self) -> Option<usize> {
        usize::try_from(self.raw.stop_index).ok()
    }

    /// A copy of its own.
    pub fn to_output(&self) -> Output {
        let (top, width) = self.top_logprobs();
        let (prompt_top, prompt_width) = self.prompt_top_logprobs();
        Output {
            index: self.index(),
            text: self.text().to_string(),
            tokens: self.tokens().to_vec(),
            finish: self.finish(),
            error: self.error(),
            logprobs: self.logprobs().to_vec(),
            top_logprobs: TopLogprobs::of(top, width as u64),
            prompt_logprobs: self.prompt_logprobs().to_vec(),
            prompt_top_logprobs: TopLogprobs::of(prompt_top, prompt_width as u64),
            embedding: self.embedding().to_vec(),
            stop_token: self.stop_token(),
            stop_index: self.stop_index(),
        }
    }
}

impl std::fmt::Debug for OutputRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_output().fmt(f)
    }
}

/// New output of one sample, or all of it ([`Completion::samples`]).
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Output {
    /// Which of the `n` samples.
    pub index: u32,
    /// Text, whole code points.
    pub text: String,
    /// Token ids.
    pub tokens: Vec<i32>,
    /// Why the sample ended, in its last output.
    pub finish: Option<Finish>,
    /// With [`Finish::Error`]: the error.
    pub error: Option<Error>,
    /// Of each token, if asked for.
    pub logprobs: Vec<f32>,
    /// The best of each token, if asked for.
    pub top_logprobs: TopLogprobs,
    /// Of the prompt's tokens, once, in an output of sample 0; entry 0 is 0.
    pub prompt_logprobs: Vec<f32>,
    /// The best of each prompt token; row 0 is zero.
    pub prompt_top_logprobs: TopLogprobs,
    /// The prompt's embedding, of length 1, in the last output.
    pub embedding: Vec<f32>,
    /// The token that ended the sample, not in the text.
    pub stop_token: Option<i32>,
    /// The index of the stop string that ended the sample.
    pub stop_index: Option<usize>,
}

impl Output {
    fn append(&mut self, more: Output) {
        if self.text.is_empty() {
            self.text = more.text; // most answers come in few pieces: the first one moves
        } else {
            self.text.push_str(&more.text);
        }
        self.tokens.extend(more.tokens);
        self.logprobs.extend(more.logprobs);
        self.top_logprobs.append(more.top_logprobs);
        self.prompt_logprobs.extend(more.prompt_logprobs);
        self.prompt_top_logprobs.append(more.prompt_top_logprobs);
        self.embedding.extend(more.embedding);
        self.finish = more.finish.or(self.finish);
        self.error = more.error.or(self.error.take());
        self.stop_token = more.stop_token.or(self.stop_token);
        self.stop_index = more.stop_index.or(self.stop_index);
    }
}

/// The whole of a request.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Completion {
    /// One a sample, by index.
    pub samples: Vec<Output>,
    /// Counts and times.
    pub status: Status,
}

impl Completion {
    pub(crate) fn add(&mut self, output: Output) {
        let i = output.index as usize;
        while self.samples.len() <= i {
            let index = self.samples.len() as u32;
            self.samples.push(Output { index, ..Output::default() });
        }
        self.samples[i].append(output);
    }

    /// The text of the first sample.
    pub fn text(&self) -> &str {
        self.samples.first().map_or("", |s| &s.text)
    }

    /// The token ids of the first sample.
    pub fn tokens(&self) -> &[i32] {
        self.samples.first().map_or(&[], |s| &s.tokens)
    }

    /// Why the first sample ended.
    pub fn finish(&self) -> Option<Finish> {
        self.samples.first().and_then(|s| s.finish)
    }

    /// The embedding, if one was asked for; else empty.
    pub fn embedding(&self) -> &[f32] {
        self.samples.first().map_or(&[], |s| &s.embedding)
    }
}
