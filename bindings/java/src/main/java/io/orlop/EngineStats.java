package io.orlop;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.MemorySegment;

/**
 * What an engine does and did.
 *
 * @param requestsRunning requests that are being computed
 * @param requestsWaiting requests that wait for their first step
 * @param pagesTotal KV pages of block_size tokens
 * @param pagesUsed pages held by requests
 * @param steps model steps since creation
 * @param promptTokens prompt tokens computed since creation
 * @param generatedTokens tokens sampled since creation
 * @param requestsFinished requests done, cancelled or failed
 * @param preemptions sequences that had to give up their pages
 * @param stepNanos nanoseconds inside steps
 * @param modelNanos of them, inside the model
 * @param pagesCached pages that the prefix cache alone holds
 * @param pagesFree pages that nobody holds
 * @param prefixLookupTokens prompt tokens looked up in the prefix cache
 * @param prefixHitTokens of them, those that were found
 * @param hostPagesTotal pages of the cache's second tier, in host memory
 * @param hostPagesUsed of them, those in use
 * @param hostPagesOut pages copied there since creation
 * @param hostPagesIn pages copied back since creation
 * @param requestsPaused requests that wait for their consumer
 * @param promptTokensPerSecond over about the last second
 * @param generatedTokensPerSecond over about the last second
 * @param planNanos planning, a part of stepNanos
 * @param forwardNanos forward passes, a part of stepNanos
 * @param sampleNanos sampling, a part of stepNanos
 * @param commitNanos commits, a part of stepNanos
 * @param lastStepNanos nanoseconds of the latest step
 * @param pagesShared of pagesUsed, those that several samples hold
 */
public record EngineStats(
    int requestsRunning,
    int requestsWaiting,
    long pagesTotal,
    long pagesUsed,
    long steps,
    long promptTokens,
    long generatedTokens,
    long requestsFinished,
    long preemptions,
    long stepNanos,
    long modelNanos,
    long pagesCached,
    long pagesFree,
    long prefixLookupTokens,
    long prefixHitTokens,
    long hostPagesTotal,
    long hostPagesUsed,
    long hostPagesOut,
    long hostPagesIn,
    long requestsPaused,
    double promptTokensPerSecond,
    double generatedTokensPerSecond,
    long planNanos,
    long forwardNanos,
    long sampleNanos,
    long commitNanos,
    long lastStepNanos,
    long pagesShared) {

  static EngineStats read(MemorySegment m) {
    Struct s = Struct.STATS;
    return new EngineStats(
        m.get(JAVA_INT, s.at("requests_running")),
        m.get(JAVA_INT, s.at("requests_waiting")),
        m.get(JAVA_LONG, s.at("pages_total")),
        m.get(JAVA_LONG, s.at("pages_used")),
        m.get(JAVA_LONG, s.at("steps")),
        m.get(JAVA_LONG, s.at("prompt_tokens")),
        m.get(JAVA_LONG, s.at("generated_tokens")),
        m.get(JAVA_LONG, s.at("requests_finished")),
        m.get(JAVA_LONG, s.at("preemptions")),
        m.get(JAVA_LONG, s.at("step_ns_total")),
        m.get(JAVA_LONG, s.at("model_ns_total")),
        m.get(JAVA_LONG, s.at("pages_cached")),
        m.get(JAVA_LONG, s.at("pages_free")),
        m.get(JAVA_LONG, s.at("prefix_lookup_tokens")),
        m.get(JAVA_LONG, s.at("prefix_hit_tokens")),
        m.get(JAVA_LONG, s.at("host_pages_total")),
        m.get(JAVA_LONG, s.at("host_pages_used")),
        m.get(JAVA_LONG, s.at("host_pages_out")),
        m.get(JAVA_LONG, s.at("host_pages_in")),
        m.get(JAVA_LONG, s.at("requests_paused")),
        m.get(JAVA_DOUBLE, s.at("prompt_tokens_per_s")),
        m.get(JAVA_DOUBLE, s.at("generated_tokens_per_s")),
        m.get(JAVA_LONG, s.at("plan_ns_total")),
        m.get(JAVA_LONG, s.at("forward_ns_total")),
        m.get(JAVA_LONG, s.at("sample_ns_total")),
        m.get(JAVA_LONG, s.at("commit_ns_total")),
        m.get(JAVA_LONG, s.at("last_step_ns")),
        m.get(JAVA_LONG, s.at("pages_shared")));
  }
}
