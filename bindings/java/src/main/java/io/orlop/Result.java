package io.orlop;

import java.util.List;

/**
 * All that a request delivered.
 *
 * @param samples its samples, in order
 * @param promptLogprobs of the prompt's tokens, entry 0 is 0; or null if not asked for
 * @param promptTopLogprobs the best tokens of each prompt position; or null if not asked for
 * @param embedding the pooled hidden state of an embedding request, else null
 * @param status counts and times at its end
 */
public record Result(
    List<Sample> samples,
    float[] promptLogprobs,
    LogprobTable promptTopLogprobs,
    float[] embedding,
    RequestStatus status) {

  /**
   * The text of the first sample.
   *
   * @return the text
   */
  public String text() {
    return samples.getFirst().text();
  }

  /**
   * The token ids of the first sample.
   *
   * @return the ids
   */
  public int[] tokens() {
    return samples.getFirst().tokens();
  }

  /**
   * Why the first sample ended.
   *
   * @return the reason
   */
  public FinishReason finishReason() {
    return samples.getFirst().finishReason();
  }
}
