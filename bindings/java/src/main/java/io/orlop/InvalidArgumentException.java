package io.orlop;

/** A parameter, a configuration key or a text of the caller is wrong ({@code ORLOP_E_INVALID_ARGUMENT}). */
public final class InvalidArgumentException extends OrlopException {
  private static final long serialVersionUID = 1L;

  InvalidArgumentException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_INVALID_ARGUMENT}. */
  public static final int CODE = -1;
}
