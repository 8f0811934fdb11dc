package io.orlop;

/** Why a sample ended. The order is that of the C header's numbers. */
public enum FinishReason {
  /** It goes on. */
  NONE,
  /** An end-of-turn token, a stop token or a stop string. */
  STOP,
  /** {@code maxTokens} or the end of the context. */
  LENGTH,
  /** It was cancelled. */
  CANCELLED,
  /** An error, see {@link Output#error()}. */
  ERROR;

  private static final FinishReason[] ALL = values();

  static FinishReason of(int code) {
    return ALL[code];
  }
}
