use crate::error::call;
use crate::params::Prompt;
use crate::raw::{micros, pointer, Buffer};
use crate::{Chat, Engine, Params, Result};
use orlop_sys as ffi;
use std::path::Path;
use std::time::Duration;

/// What a state is saved from or loaded for.
///
/// ```
/// # let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/tiny/llama");
/// # let engine = orlop::Engine::open(model)?;
/// use orlop::StateParams;
/// let prefix: Vec<i32> = (1..65).collect();
/// let key = b"a secret of 16 bytes or more";
/// let state = engine.state_save(&StateParams::tokens(prefix).key(key))?;
/// let info = engine.state_load(&state, &StateParams::new().key(key))?;
/// assert_eq!(info.n_tokens, 64);
/// # Ok::<(), orlop::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct StateParams {
    prompt: Option<Prompt>,
    flags: u32,
    cache_salt: String,
    key: Vec<u8>,
    deadline: Option<Duration>,
}

impl StateParams {
    /// Without a prefix: for loading.
    pub fn new() -> StateParams {
        StateParams::default()
    }

    /// The prefix is a text.
    pub fn text(text: impl Into<String>) -> StateParams {
        StateParams { prompt: Some(Params::text(text).prompt), ..StateParams::default() }
    }

    /// The prefix is token ids.
    pub fn tokens(ids: impl Into<Vec<i32>>) -> StateParams {
        StateParams { prompt: Some(Params::tokens(ids).prompt), ..StateParams::default() }
    }

    /// The prefix is a conversation.
    pub fn chat(chat: impl Into<Chat>) -> StateParams {
        StateParams { prompt: Some(Params::chat(chat).prompt), ..StateParams::default() }
    }

    /// Text prefix: do not add the model's BOS token.
    pub fn no_bos(mut self) -> StateParams {
        self.flags |= ffi::ORLOP_GENERATE_NO_BOS;
        self
    }

    /// Text prefix: control tokens spelled in the text are plain text.
    pub fn plain(mut self) -> StateParams {
        self.flags |= ffi::ORLOP_GENERATE_PLAIN;
        self
    }

    /// Saving: of the request that computes what is missing. Loading: the one that the state will serve,
    /// required unless it is signed.
    pub fn cache_salt(mut self, salt: impl Into<String>) -> StateParams {
        self.cache_salt = salt.into();
        self
    }

    /// A secret of 16 to 1024 bytes. Saving: signs the state. Loading: must have signed it, and the state
    /// then serves every salt.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> StateParams {
        self.key = key.as_ref().to_vec();
        self
    }

    /// Saving: of the request that computes what is missing.
    pub fn deadline(mut self, deadline: Duration) -> StateParams {
        self.deadline = Some(deadline);
        self
    }

    fn with_raw<R>(&self, path: &str, f: impl FnOnce(&ffi::orlop_state_params) -> R) -> R {
        let mut p: ffi::orlop_state_params = unsafe { std::mem::zeroed() };
        p.struct_size = std::mem::size_of_val(&p) as u32;
        p.flags = self.flags;
        match &self.prompt {
            None => {}
            Some(Prompt::Text(t)) => (p.text, p.text_len) = (t.as_ptr().cast(), t.len() as u64),
            Some(Prompt::Tokens(t)) => (p.tokens, p.n_tokens) = (t.as_ptr(), t.len() as u64),
            Some(Prompt::Messages(t)) => {
                (p.messages, p.messages_len) = (t.as_ptr().cast(), t.len() as u64);
            }
        }
        p.cache_salt = pointer(self.cache_salt.as_bytes()).cast();
        p.cache_salt_len = self.cache_salt.len() as u64;
        p.key = pointer(&self.key).cast();
        p.key_len = self.key.len() as u64;
        p.path = pointer(path.as_bytes()).cast();
        p.path_len = path.len() as u64;
        p.deadline_us = self.deadline.map_or(0, |d| micros(Some(d)).max(1));
        f(&p)
    }
}

/// A state that was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StateInfo {
    /// It serves every cache_salt.
    pub shared: bool,
    /// Prefix tokens that it holds: whole pages of block_size.
    pub n_tokens: u64,
    /// KV pages that it holds.
    pub pages: u64,
    /// Of them, those that the engine did not have.
    pub pages_added: u64,
}

impl Engine {
    /// Computes the prefix, as far as it is not cached, and gives the keys and values of its whole pages
    /// as bytes. Waits for the engine.
    pub fn state_save(&self, params: &StateParams) -> Result<Vec<u8>> {
        let mut out = Buffer::none();
        let place = out.out();
        params
            .with_raw("", |raw| call(|err| unsafe { ffi::orlop_state_save(self.raw(), raw, place, err) }))?;
        Ok(out.bytes().to_vec())
    }

    /// As [`Engine::state_save`], into a file, which is replaced in one step.
    pub fn state_save_to(&self, path: impl AsRef<Path>, params: &StateParams) -> Result<()> {
        let path = crate::path_text(path.as_ref())?;
        params.with_raw(path, |raw| {
            call(|err| unsafe { ffi::orlop_state_save(self.raw(), raw, std::ptr::null_mut(), err) })
        })?;
        Ok(())
    }

    /// Puts a saved state into the prefix cache: the next requests that begin with its tokens skip
    /// computing them.
    pub fn state_load(&self, state: &[u8], params: &StateParams) -> Result<StateInfo> {
        self.load("", state, params)
    }

    /// As [`Engine::state_load`], from a file.
    pub fn state_load_from(&self, path: impl AsRef<Path>, params: &StateParams) -> Result<StateInfo> {
        self.load(crate::path_text(path.as_ref())?, &[], params)
    }

    fn load(&self, path: &str, state: &[u8], params: &StateParams) -> Result<StateInfo> {
        let mut info: ffi::orlop_state_info = unsafe { std::mem::zeroed() };
        info.struct_size = std::mem::size_of_val(&info) as u32;
        // No bytes with a path; without one even no bytes at all are given.
        let data = if path.is_empty() { state.as_ptr().cast() } else { std::ptr::null() };
        params.with_raw(path, |raw| {
            call(|err| unsafe { ffi::orlop_state_load(self.raw(), data, state.len(), raw, &mut info, err) })
        })?;
        Ok(StateInfo {
            shared: info.shared != 0,
            n_tokens: info.n_tokens,
            pages: info.pages,
            pages_added: info.pages_added,
        })
    }
}
