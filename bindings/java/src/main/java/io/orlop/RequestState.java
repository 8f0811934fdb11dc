package io.orlop;

/** Where a request stands. The order is that of the C header's numbers. */
public enum RequestState {
  /** It waits for its first step. */
  WAITING,
  /** It is being computed. */
  RUNNING,
  /** It ended by itself. */
  DONE,
  /** It was cancelled. */
  CANCELLED,
  /** It ended with an error. */
  FAILED;

  private static final RequestState[] ALL = values();

  static RequestState of(int code) {
    return ALL[code];
  }
}
