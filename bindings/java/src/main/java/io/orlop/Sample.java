package io.orlop;

/**
 * One whole sample of a request.
 *
 * @param text its text
 * @param tokens its token ids
 * @param finishReason why it ended
 * @param logprobs the natural logarithm of each token's probability, or null if not asked for
 * @param topLogprobs the best tokens of each position, or null if not asked for
 * @param stopToken the token that ended it, or -1
 * @param stopIndex the index of the stop string that ended it, or -1
 */
public record Sample(
    String text,
    int[] tokens,
    FinishReason finishReason,
    float[] logprobs,
    LogprobTable topLogprobs,
    int stopToken,
    int stopIndex) {}
