package io.orlop;

/** Something is valid, but this library cannot do it ({@code ORLOP_E_UNSUPPORTED}). */
public final class UnsupportedException extends OrlopException {
  private static final long serialVersionUID = 1L;

  UnsupportedException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_UNSUPPORTED}. */
  public static final int CODE = -5;
}
