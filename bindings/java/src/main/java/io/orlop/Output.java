package io.orlop;

/**
 * What a request has new, of one sample. The arrays are the receiver's own. Text is whole code
 * points; it lags behind the tokens while bytes of a code point or a possible stop string are
 * incomplete.
 *
 * @param index which of the n samples
 * @param text the new text
 * @param tokens the new token ids
 * @param finishReason not NONE: this is the last output of the sample
 * @param logprobs the natural logarithm of each token's probability, or null if not asked for
 * @param topLogprobs the best tokens of each position, or null if not asked for
 * @param promptLogprobs of the prompt's tokens, entry 0 is 0; once, in an output of sample 0, else
 *     null
 * @param promptTopLogprobs the best tokens of each prompt position, row 0 all zero; or null
 * @param embedding the pooled hidden state, of length 1 (L2), in the last output; or null
 * @param stopToken the token that ended the sample, or -1
 * @param stopIndex the index of the stop string that ended it, or -1
 * @param error with FinishReason.ERROR what went wrong, else null
 */
public record Output(
    int index,
    String text,
    int[] tokens,
    FinishReason finishReason,
    float[] logprobs,
    LogprobTable topLogprobs,
    float[] promptLogprobs,
    LogprobTable promptTopLogprobs,
    float[] embedding,
    int stopToken,
    int stopIndex,
    OrlopException error) {

  /**
   * Whether this is the last output of its sample.
   *
   * @return true when the finish reason is not NONE
   */
  public boolean isLast() {
    return finishReason != FinishReason.NONE;
  }
}
