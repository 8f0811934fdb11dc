package io.orlop;

/** The library found a fault of its own ({@code ORLOP_E_INTERNAL}). */
public final class InternalException extends OrlopException {
  private static final long serialVersionUID = 1L;

  InternalException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_INTERNAL}. */
  public static final int CODE = -12;
}
