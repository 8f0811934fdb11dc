package io.orlop;

/** Another consumer reads this request ({@code ORLOP_E_BUSY}). */
public final class BusyException extends OrlopException {
  private static final long serialVersionUID = 1L;

  BusyException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_BUSY}. */
  public static final int CODE = -8;
}
