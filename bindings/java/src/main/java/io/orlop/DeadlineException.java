package io.orlop;

/** The deadline of the request passed before it was done ({@code ORLOP_E_DEADLINE}). */
public final class DeadlineException extends OrlopException {
  private static final long serialVersionUID = 1L;

  DeadlineException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_DEADLINE}. */
  public static final int CODE = -13;
}
