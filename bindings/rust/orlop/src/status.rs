//! Counts and times: of a request, of an engine.
use crate::{Finish, State};
use orlop_sys as ffi;
use std::time::Duration;

/// A request at one moment ([`crate::Request::status`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// What it is doing.
    pub state: Option<State>,
    /// Why it ended.
    pub finish: Option<Finish>,
    /// The `ORLOP_E_` code of a failed one, else 0.
    pub error_code: i32,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Of them, those that a prefix cache spared.
    pub cached_tokens: u64,
    /// Tokens of all samples.
    pub generated_tokens: u64,
    /// The seed in use, given or drawn.
    pub seed: u64,
    /// When it was submitted. These times are of CLOCK_MONOTONIC; None: not yet.
    pub queued: Option<Duration>,
    /// The first step that held it.
    pub scheduled: Option<Duration>,
    /// Its first token.
    pub first_token: Option<Duration>,
    /// Its last token so far.
    pub last_token: Option<Duration>,
    /// How many samples it has.
    pub samples: u32,
}

impl Status {
    pub(crate) fn of(i: &ffi::orlop_request_info) -> Status {
        let time = |ns: i64| u64::try_from(ns).ok().filter(|ns| *ns > 0).map(Duration::from_nanos);
        Status {
            state: Some(State::from_code(i.state)),
            finish: Finish::from_code(i.finish_reason),
            error_code: i.error_code,
            prompt_tokens: i.prompt_tokens,
            cached_tokens: i.cached_tokens,
            generated_tokens: i.generated_tokens,
            seed: i.seed,
            queued: time(i.queued_ns),
            scheduled: time(i.scheduled_ns),
            first_token: time(i.first_token_ns),
            last_token: time(i.last_token_ns),
            samples: i.samples,
        }
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// An engine's counters ([`crate::Engine::stats`]).
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: $kind,)*
        }

        impl Stats {
            pub(crate) fn of(raw: &ffi::orlop_stats) -> Stats {
                Stats { $($name: raw.$name,)* }
            }
        }
    };
}

stats! {
    /// Requests that run.
    requests_running: u32,
    /// Requests that wait.
    requests_waiting: u32,
    /// KV pages of block_size tokens.
    pages_total: u64,
    /// Held by requests.
    pages_used: u64,
    /// Model steps since creation.
    steps: u64,
    /// Prompt tokens computed since creation.
    prompt_tokens: u64,
    /// Tokens sampled since creation.
    generated_tokens: u64,
    /// Done, cancelled or failed.
    requests_finished: u64,
    /// How often a request gave its pages up for others.
    preemptions: u64,
    /// Nanoseconds inside steps.
    step_ns_total: u64,
    /// Of them, inside the model.
    model_ns_total: u64,
    /// Held by the prefix cache alone: the next requests may take them.
    pages_cached: u64,
    /// Neither used nor cached.
    pages_free: u64,
    /// Prompt tokens that were looked up in the prefix cache.
    prefix_lookup_tokens: u64,
    /// Of them, those that were found.
    prefix_hit_tokens: u64,
    /// The prefix cache's second tier, in host memory.
    host_pages_total: u64,
    /// Of them, in use.
    host_pages_used: u64,
    /// Copied there since creation.
    host_pages_out: u64,
    /// Copied back since creation.
    host_pages_in: u64,
    /// Requests that wait for their consumer: output_bytes are full.
    requests_paused: u64,
    /// Over about the last second.
    prompt_tokens_per_s: f64,
    /// Over about the last second.
    generated_tokens_per_s: f64,
    /// A part of step_ns_total.
    plan_ns_total: u64,
    /// A part of step_ns_total.
    forward_ns_total: u64,
    /// A part of step_ns_total.
    sample_ns_total: u64,
    /// A part of step_ns_total.
    commit_ns_total: u64,
    /// The last step's nanoseconds.
    last_step_ns: u64,
    /// Of pages_used, those that several samples hold.
    pages_shared: u64,
}
