package io.orlop;

/** The prompt is longer than the context; the message holds both counts ({@code ORLOP_E_CONTEXT_OVERFLOW}). */
public final class ContextOverflowException extends OrlopException {
  private static final long serialVersionUID = 1L;

  ContextOverflowException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_CONTEXT_OVERFLOW}. */
  public static final int CODE = -7;
}
