package io.orlop;

/** The request or the load was cancelled ({@code ORLOP_E_CANCELLED}). */
public final class CancelledException extends OrlopException {
  private static final long serialVersionUID = 1L;

  CancelledException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_CANCELLED}. */
  public static final int CODE = -10;
}
