package io.orlop;

/** A file or folder does not exist ({@code ORLOP_E_NOT_FOUND}). */
public final class NotFoundException extends OrlopException {
  private static final long serialVersionUID = 1L;

  NotFoundException(String message) {
    super(CODE, message);
  }

  /** The code of {@code ORLOP_E_NOT_FOUND}. */
  public static final int CODE = -2;
}
