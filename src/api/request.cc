// orlop_generate_params, orlop_async_generate, orlop_get and what belongs to a request's handle.
#include <cmath>

#include "api/prompt.h"

using namespace orlop;
using namespace orlop::api;

namespace {

constexpr uint32_t known_flags = ORLOP_GENERATE_IGNORE_EOS | ORLOP_GENERATE_SEEDED |
                                 ORLOP_GENERATE_NO_BOS | ORLOP_GENERATE_PLAIN |
                                 ORLOP_GENERATE_KEEP_SPECIAL;
constexpr uint64_t max_list = uint64_t{1} << 20;

orlop_generate_params default_params() {
  orlop_generate_params p{};
  p.struct_size = sizeof p;
  p.max_tokens = ORLOP_UNSET_U32;
  p.temperature = p.top_p = p.min_p = p.repetition_penalty = ORLOP_UNSET_F64;
  p.top_k = ORLOP_UNSET_I32;
  p.n = 1;
  p.logprobs = p.prompt_logprobs = ORLOP_LOGPROBS_OFF;
  return p;
}

std::optional<double> given(double v) {
  if (v == ORLOP_UNSET_F64) return std::nullopt;
  return v;
}

GivenParams convert(const orlop_generate_params& p) {
  GivenParams g;
  if (p.flags & ~known_flags)
    fail(Status::unsupported, "flags: bits ", p.flags & ~known_flags, " are unknown");
  if (p.max_tokens != ORLOP_UNSET_U32) g.max_tokens = p.max_tokens;
  g.min_tokens = p.min_tokens;
  g.temperature = given(p.temperature);
  g.top_p = given(p.top_p);
  g.min_p = given(p.min_p);
  g.repetition_penalty = given(p.repetition_penalty);
  if (p.top_k != ORLOP_UNSET_I32) g.top_k = p.top_k;
  g.presence_penalty = given(p.presence_penalty).value_or(0);
  g.frequency_penalty = given(p.frequency_penalty).value_or(0);
  g.n = p.n;
  if (p.flags & ORLOP_GENERATE_SEEDED) g.seed = p.seed;
  g.ignore_eos = p.flags & ORLOP_GENERATE_IGNORE_EOS;
  g.keep_special = p.flags & ORLOP_GENERATE_KEEP_SPECIAL;
  g.logprobs = p.logprobs;
  g.prompt_logprobs = p.prompt_logprobs;
  g.cache_salt = salt_in(p.cache_salt, p.cache_salt_len);
  g.deadline_us = p.deadline_us;
  g.priority = p.priority;
  if (p.embedding < ORLOP_EMBEDDING_NONE || p.embedding > ORLOP_EMBEDDING_LAST)
    fail(Status::unsupported, "embedding: ", p.embedding, " is no way of pooling");
  static_assert(static_cast<int>(Embedding::mean) == ORLOP_EMBEDDING_MEAN);
  static_assert(static_cast<int>(Embedding::last) == ORLOP_EMBEDDING_LAST);
  g.embedding = static_cast<Embedding>(p.embedding);
  if (p.reserved) fail(Status::unsupported, "reserved: must be 0, got ", p.reserved);

  check_list(p.logit_bias, p.n_logit_bias, "logit_bias", max_list);
  g.logit_bias.reserve(p.n_logit_bias);
  for (uint64_t i = 0; i < p.n_logit_bias; ++i)
    g.logit_bias.push_back({p.logit_bias[i].token, p.logit_bias[i].bias});
  check_list(p.stop, p.n_stop, "stop", max_list);
  for (uint64_t i = 0; i < p.n_stop; ++i) {
    const std::string name = cat("stop[", i, "]");
    g.stop.emplace_back(utf8_in(p.stop[i].data, p.stop[i].len, name.c_str()));
  }
  check_list(p.stop_tokens, p.n_stop_tokens, "stop_tokens", max_list);
  if (p.n_stop_tokens) g.stop_tokens.assign(p.stop_tokens, p.stop_tokens + p.n_stop_tokens);
  return g;
}

int32_t finish_code(Finish f) {
  static_assert(static_cast<int>(Finish::stop) == ORLOP_FINISH_STOP);
  static_assert(static_cast<int>(Finish::length) == ORLOP_FINISH_LENGTH);
  static_assert(static_cast<int>(Finish::cancelled) == ORLOP_FINISH_CANCELLED);
  static_assert(static_cast<int>(Finish::error) == ORLOP_FINISH_ERROR);
  return static_cast<int32_t>(f);
}

int32_t state_code(RequestState s) {
  static_assert(static_cast<int>(RequestState::waiting) == ORLOP_STATE_WAITING);
  static_assert(static_cast<int>(RequestState::running) == ORLOP_STATE_RUNNING);
  static_assert(static_cast<int>(RequestState::done) == ORLOP_STATE_DONE);
  static_assert(static_cast<int>(RequestState::cancelled) == ORLOP_STATE_CANCELLED);
  static_assert(static_cast<int>(RequestState::failed) == ORLOP_STATE_FAILED);
  return static_cast<int32_t>(s);
}

static_assert(sizeof(orlop_logprob) == sizeof(TokenLogprob) &&
              offsetof(orlop_logprob, logprob) == offsetof(TokenLogprob, logprob));
const orlop_logprob* as_abi(const std::vector<TokenLogprob>& v) {
  return v.empty() ? nullptr : reinterpret_cast<const orlop_logprob*>(v.data());
}

orlop_output convert(const Output& o, const Request& r) {
  orlop_output out{};
  out.finish_reason = finish_code(o.finish);
  out.index = o.index;
  out.error_code = static_cast<int32_t>(o.error);
  out.text = o.text.data();
  out.text_len = o.text.size();
  out.tokens = o.tokens.data();
  out.n_tokens = o.tokens.size();
  if (!o.logprobs.empty()) out.logprobs = o.logprobs.data();
  if ((out.top_logprobs = as_abi(o.top))) out.n_top = static_cast<uint64_t>(r.top_width());
  if (o.has_prompt_logprobs) {
    out.prompt_logprobs = o.prompt_logprobs.data();
    out.n_prompt = o.prompt_logprobs.size();
    if ((out.prompt_top_logprobs = as_abi(o.prompt_top)))
      out.n_prompt_top = static_cast<uint64_t>(r.prompt_top_width());
  }
  out.message = o.message.data();
  out.message_len = o.message.size();
  out.stop_token = o.stop_token;
  out.stop_index = o.stop_index;
  if (!o.embedding.empty()) {
    out.embedding = o.embedding.data();
    out.n_embedding = o.embedding.size();
  }
  return out;
}

}  // namespace

void orlop_generate_params_init(orlop_generate_params* params, uint32_t size) {
  if (!params || size < sizeof(uint32_t)) return;
  const orlop_generate_params defaults = default_params();
  params->struct_size = size;
  write_sized(params, defaults);
}

int32_t orlop_async_generate(orlop_engine* engine, const orlop_generate_params* params,
                             orlop_request** out, orlop_error* err) {
  return guarded(err, [&] {
    clear_out(out, "out");
    const Hold<orlop_engine> e(engine, "engine");
    const std::shared_ptr<Core>& core = e->core();
    const int64_t now_ns = monotonic_ns();  // deadlines count from here
    const orlop_generate_params p = read_sized(params, default_params(), "params");
    GivenParams g = convert(p);
    const std::string_view source = utf8_in(p.guide_source, p.guide_source_len, "guide_source");
    if (const GuideKind kind = guide_kind(p.guide); kind != GuideKind::none)
      g.guide = core->guides().get(kind, source);
    else if (!source.empty())
      fail(Status::invalid_argument, "guide_source: is given, but no guide");
    const std::vector<int32_t> prompt = prompt_of(p, *core);
    ParamFacts facts;
    facts.vocab = core->vocab();
    facts.prompt_tokens = static_cast<int64_t>(prompt.size());
    facts.context = core->engine().capacity();
    facts.has_tokenizer = core->vocabulary().tokenizer_or_null() != nullptr;
    facts.end_tokens = &core->end_tokens();
    facts.now_ns = now_ns;
    SamplingParams sampling = resolve_params(g, core->defaults(), facts);

    std::shared_ptr<CompletionQueue> queue;
    if (p.queue) queue = Hold<orlop_queue>(p.queue, "queue")->queue;
    auto handle = std::make_unique<orlop_request>();
    handle->core = core;
    handle->request =
        core->engine().submit(prompt, std::move(sampling), core->vocabulary().tokenizer_or_null(),
                              std::move(queue), p.tag);
    *out = handle.release();
    return Status::ok;
  });
}

int32_t orlop_get(orlop_request* request, int64_t timeout_us, orlop_output* out, orlop_error* err) {
  return guarded(err, [&] {
    checked_struct_size(out, "out");
    const Hold<orlop_request> r(request, "request");
    const Output* o = nullptr;
    const Status status = r->request->get(timeout_us, &o);
    if (status != Status::ok) return status;
    write_sized(out, convert(*o, *r->request));
    // Only the consumer of the last output comes here; nothing more is wanted of the engine.
    if (o->finish != Finish::none && ++r->ends == r->request->params().n) r->core.reset();
    return Status::ok;
  });
}

int32_t orlop_get_status(const orlop_request* request, orlop_request_info* out, orlop_error* err) {
  return guarded(err, [&] {
    checked_struct_size(out, "out");
    const Hold<orlop_request> r(const_cast<orlop_request*>(request), "request");
    const Request::Info i = r->request->info();
    orlop_request_info o{};
    o.state = state_code(i.state);
    o.finish_reason = finish_code(i.finish);
    o.error_code = static_cast<int32_t>(i.error);
    o.prompt_tokens = i.prompt_tokens;
    o.cached_tokens = i.cached_tokens;
    o.generated_tokens = i.generated_tokens;
    o.seed = i.seed;
    o.queued_ns = i.queued_ns;
    o.scheduled_ns = i.scheduled_ns;
    o.first_token_ns = i.first_token_ns;
    o.last_token_ns = i.last_token_ns;
    o.samples = static_cast<uint32_t>(i.samples);
    write_sized(out, o);
    return Status::ok;
  });
}

void orlop_cancel(orlop_request* request) {
  if (request && !request->foreign()) request->request->cancel();
}

void orlop_request_release(orlop_request* request) {
  if (!request || request->foreign()) return;
  request->request->abandon();
  drop(request);
}
