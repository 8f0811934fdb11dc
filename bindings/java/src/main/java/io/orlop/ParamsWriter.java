package io.orlop;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Map;

/** Lays parameters out as an orlop_generate_params. */
final class ParamsWriter {
  private ParamsWriter() {}

  private static final Struct S = Struct.PARAMS;
  private static final long FLAGS = S.at("flags");
  private static final long TEXT = S.at("text");
  private static final long TOKENS = S.at("tokens");
  private static final long MESSAGES = S.at("messages");
  private static final long MAX_TOKENS = S.at("max_tokens");
  private static final long MIN_TOKENS = S.at("min_tokens");
  private static final long TEMPERATURE = S.at("temperature");
  private static final long TOP_P = S.at("top_p");
  private static final long MIN_P = S.at("min_p");
  private static final long TOP_K = S.at("top_k");
  private static final long N = S.at("n");
  private static final long REPETITION = S.at("repetition_penalty");
  private static final long PRESENCE = S.at("presence_penalty");
  private static final long FREQUENCY = S.at("frequency_penalty");
  private static final long SEED = S.at("seed");
  private static final long LOGIT_BIAS = S.at("logit_bias");
  private static final long STOP = S.at("stop");
  private static final long STOP_TOKENS = S.at("stop_tokens");
  private static final long LOGPROBS = S.at("logprobs");
  private static final long PROMPT_LOGPROBS = S.at("prompt_logprobs");
  private static final long QUEUE = S.at("queue");
  private static final long TAG = S.at("tag");
  private static final long CACHE_SALT = S.at("cache_salt");
  private static final long DEADLINE = S.at("deadline_us");
  private static final long PRIORITY = S.at("priority");
  private static final long GUIDE = S.at("guide");
  private static final long EMBEDDING = S.at("embedding");
  private static final long GUIDE_SOURCE = S.at("guide_source");

  static MemorySegment write(Call c, GenerateParams params, MemorySegment queue, long tag) {
    GenerateParams.Builder p = params.is;
    MemorySegment m = c.arena.allocate(S.size, 8);
    Native.generateParamsInit(m, (int) S.size);
    m.set(JAVA_INT, FLAGS, p.flags);
    c.text(m, TEXT, "text", p.text);
    if (p.tokens != null) Call.put(m, TOKENS, c.ints(p.tokens), p.tokens.length);
    c.text(m, MESSAGES, "messages", p.messages);
    m.set(JAVA_INT, MAX_TOKENS, p.maxTokens);
    m.set(JAVA_INT, MIN_TOKENS, p.minTokens);
    m.set(JAVA_DOUBLE, TEMPERATURE, p.temperature);
    m.set(JAVA_DOUBLE, TOP_P, p.topP);
    m.set(JAVA_DOUBLE, MIN_P, p.minP);
    m.set(JAVA_INT, TOP_K, p.topK);
    m.set(JAVA_INT, N, p.n);
    m.set(JAVA_DOUBLE, REPETITION, p.repetitionPenalty);
    m.set(JAVA_DOUBLE, PRESENCE, p.presencePenalty);
    m.set(JAVA_DOUBLE, FREQUENCY, p.frequencyPenalty);
    m.set(JAVA_LONG, SEED, p.seed);
    if (!p.logitBias.isEmpty()) Call.put(m, LOGIT_BIAS, bias(c, p.logitBias), p.logitBias.size());
    if (!p.stop.isEmpty()) Call.put(m, STOP, strings(c, p.stop), p.stop.size());
    if (p.stopTokens.length > 0) Call.put(m, STOP_TOKENS, c.ints(p.stopTokens), p.stopTokens.length);
    m.set(JAVA_INT, LOGPROBS, p.logprobs);
    m.set(JAVA_INT, PROMPT_LOGPROBS, p.promptLogprobs);
    m.set(ADDRESS, QUEUE, queue);
    m.set(JAVA_LONG, TAG, tag);
    c.text(m, CACHE_SALT, "cache_salt", p.cacheSalt);
    m.set(JAVA_LONG, DEADLINE, micros(p.deadline));
    m.set(JAVA_INT, PRIORITY, p.priority);
    m.set(JAVA_INT, GUIDE, p.guide.kind);
    m.set(JAVA_INT, EMBEDDING, p.embedding.ordinal());
    c.text(m, GUIDE_SOURCE, "guide", p.guide.source);
    return m;
  }

  /** Rounded up: a short deadline must not become none. */
  static long micros(Duration d) {
    if (d.getSeconds() >= Long.MAX_VALUE / 1_000_000 - 1) return Long.MAX_VALUE; // 292,000 years
    return Math.addExact(
        Math.multiplyExact(d.getSeconds(), 1_000_000L), (d.getNano() + 999L) / 1000);
  }

  /** orlop_logit_bias is a pair of an int32 and a float. */
  private static MemorySegment bias(Call c, Map<Integer, Float> bias) {
    MemorySegment m = c.arena.allocate(8L * bias.size(), 4);
    long at = 0;
    for (Map.Entry<Integer, Float> e : bias.entrySet()) {
      m.set(JAVA_INT, at, e.getKey());
      m.set(JAVA_FLOAT, at + 4, e.getValue());
      at += 8;
    }
    return m;
  }

  /** orlop_string is a pointer and a length. */
  private static MemorySegment strings(Call c, java.util.List<String> texts) {
    MemorySegment m = c.arena.allocate(16L * texts.size(), 8);
    long at = 0;
    for (String text : texts) {
      c.text(m, at, "stop", text);
      at += 16;
    }
    return m;
  }
}
