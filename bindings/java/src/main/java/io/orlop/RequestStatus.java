package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;

/**
 * Counts and times of a request. Times are nanoseconds of the system's monotonic clock, 0 when not
 * reached yet; with several samples, counts and times are of all together.
 *
 * @param state where it stands
 * @param finishReason why it ended, or NONE
 * @param errorCode the ORLOP_E_ code with FinishReason.ERROR, else 0
 * @param promptTokens tokens of the prompt
 * @param cachedTokens of them, those that the prefix cache spared
 * @param generatedTokens tokens sampled so far
 * @param seed the seed in use (unsigned), given or drawn
 * @param queuedNanos when it was submitted
 * @param scheduledNanos when its first step began
 * @param firstTokenNanos when its first token was sampled
 * @param lastTokenNanos when its latest token was sampled
 * @param samples how many samples it has
 */
public record RequestStatus(
    RequestState state,
    FinishReason finishReason,
    int errorCode,
    long promptTokens,
    long cachedTokens,
    long generatedTokens,
    long seed,
    long queuedNanos,
    long scheduledNanos,
    long firstTokenNanos,
    long lastTokenNanos,
    int samples) {

  static RequestStatus read(MemorySegment m) {
    Struct s = Struct.REQUEST_INFO;
    return new RequestStatus(
        RequestState.of(m.get(JAVA_INT, s.at("state"))),
        FinishReason.of(m.get(JAVA_INT, s.at("finish_reason"))),
        m.get(JAVA_INT, s.at("error_code")),
        m.get(JAVA_LONG, s.at("prompt_tokens")),
        m.get(JAVA_LONG, s.at("cached_tokens")),
        m.get(JAVA_LONG, s.at("generated_tokens")),
        m.get(JAVA_LONG, s.at("seed")),
        m.get(JAVA_LONG, s.at("queued_ns")),
        m.get(JAVA_LONG, s.at("scheduled_ns")),
        m.get(JAVA_LONG, s.at("first_token_ns")),
        m.get(JAVA_LONG, s.at("last_token_ns")),
        m.get(JAVA_INT, s.at("samples")));
  }
}
